import { run, storage } from "./jail_agent.js";

// It keeps a page, which is changed only by actions that were approved.
const page = () => storage.get("SELECT text FROM page").text;
const write = (text) => void storage.run("UPDATE page SET text = ?", text);

run({
  onWake() {
    storage.exec("CREATE TABLE IF NOT EXISTS page (text TEXT); INSERT INTO page SELECT 'old' WHERE NOT EXISTS (SELECT * FROM page)");
  },

  onCall(method, args) {
    switch (method) {
      case "describe":
        return { about: "a page", reads: [{ name: "page" }], actions: [{ name: "set", args: { to: "TEXT" }, reversible: true }] };
      case "read":
        return { text: page() };
      case "propose":
        return { resource: "page", reversible: true, before: page(), after: args.args.to };
      case "applyAction":
        if (page() !== args.before) return { changed: "the page is another one" };
        write(args.after);
        return { outcome: "written" };
      case "revertAction":
        write(args.before);
        return {};
      case "rejectAction":
        return {};
    }
  },
});
