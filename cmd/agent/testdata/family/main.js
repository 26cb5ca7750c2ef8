import { AgentError, abortFacet, callAll, deleteFacet, deleteSubAgent, facet, facets, load, pubsub, run } from "./jail_agent.js";
import { Collection, Singleton } from "./jail_agent_data.js";

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
    return counted(args.by);
  },
};

// counted keeps a call in a collection, and returns how many there are as a subscriber has counted.
function counted(by) {
  const calls = new Collection("calls", { unique: ["n"], index: ["by"] });
  const total = new Singleton("total", 0);
  calls.subscribe(({ kind, before }) => {
    if (kind !== "add" || before) throw new Error("a change " + kind);
    total.set(total.get() + 1);
  });
  const n = calls.count() + 1;
  calls.put(n, { by, n });
  try {
    calls.put(n + 1, { by, n });
  } catch (e) {
    if (e.code !== "storage") throw e;
  }
  const found = calls.find("by", by);
  if (found.length !== n || found[n - 1][0] !== n) throw new Error("found " + JSON.stringify(found));
  return total.get();
}

run({ classes: { "": parent, worker } });
