import { AgentError, abortFacet, callAll, deleteFacet, deleteSubAgent, facet, facets, load, pubsub, run, storage } from "./jail_agent.js";

const parent = {
  onEvent() {
    const said = [];
    const count = (...names) => {
      for (const name of names) facet(name, { class: "worker", bindings: ["STORAGE"] });
      said.push(callAll(names.map((name) => ({ name, method: "count", args: { by: 1 } }))).map((r) => r.get()).join(" "));
    };
    count("a", "b", "c");
    abortFacet("a", "a test");
    deleteFacet("b");
    said.push(facets().length + " left");
    count("a", "b", "c");
    try {
      facet("a", { class: "worker", bindings: ["STORAGE"] }).call("fail");
    } catch (e) {
      said.push(e.code);
    }
    deleteSubAgent("a");
    said.push(load("x", { mainModule: "x.js", modules: { "x.js": "print(6 * 7)" } }).stdout.trim());
    pubsub.send(said.join(", "));
  },
};

const worker = {
  onCall(method, args) {
    if (method === "fail") throw new Error("as it was asked to");
    try {
      pubsub.send("x");
    } catch (e) {
      if (!(e instanceof AgentError) || e.code !== "no_binding") throw e;
    }
    storage.exec("CREATE TABLE IF NOT EXISTS n (n INTEGER)");
    storage.run("INSERT INTO n VALUES (?)", args.by);
    return storage.get("SELECT count(*) AS n FROM n").n;
  },
};

run({ classes: { "": parent, worker } });
