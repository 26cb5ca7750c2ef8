import { pubsub, run } from "./jail_agent.js";
import { Collection, Singleton, transaction } from "./jail_agent_data.js";
import { ApprovalGate } from "./jail_agent_more.js";

const customer = (email, city) => ({ address: { city }, email });
const keys = (items) => items.map(([key]) => key).join(" ");

function refused(f) {
  try {
    f();
  } catch {
    return "refused";
  }
  return "done";
}

function fail() {
  throw new Error("as it was asked to");
}

// The gate does what that of the Python library does.
function gated() {
  let kept = {};
  const store = { get: () => kept, set: (value) => (kept = JSON.parse(JSON.stringify(value))) };
  const gate = new ApprovalGate(store, [["read*", "allow"], ["rm", "deny"]]);
  const said = [gate.check("read_file"), gate.check("rm"), gate.check("write", "a"), gate.check("constructor")];
  gate.answer("write", true, "a");
  gate.answer("send", false, "a");
  gate.answer("rm", true);
  said.push(gate.check("write", "a"), gate.check("send", "a"), gate.check("write", "b"), gate.check("rm"));
  gate.revoke("write", "a");
  said.push(gate.check("write", "a"));
  gate.answer("write", true, "b");
  gate.reset("a");
  said.push(gate.check("send", "a"), gate.check("write", "b"));
  gate.reset();
  said.push(gate.check("write", "b"), refused(() => new ApprovalGate(store, [["x", "maybe"]])));
  if (said.join() !== "allow,deny,ask,ask,allow,deny,ask,deny,ask,ask,allow,ask,refused") throw new Error(said.join());
}

run({
  onEvent(event) {
    gated();
    const customers = new Collection("customers", { unique: ["email"], index: ["address.city"] });
    const log = new Collection("log");
    customers.subscribe(({ kind, key }) => log.put(log.count() + 1, [kind, key]));
    customers.subscribe(({ key }) => key === 13 && fail());
    if (event.text === "fail") {
      customers.put(5, customer("eve", "Bern"));
      fail();
    }
    let numbers = new Collection("numbers", { index: ["n"] });
    for (const key of [10, 9, 2.5, -1]) numbers.put(key, 1);
    numbers = new Collection("numbers");
    const texts = new Collection("texts");
    for (const key of ["9", "10"]) texts.put(key, 1);
    const said = [[keys(numbers.items()), keys(numbers.items({ low: 9, high: 10 })), keys(texts.items())]];
    customers.put(1, customer("ann", "Bern"));
    customers.put(2, customer("bob", "Bern"));
    const same = refused(() => customers.put(3, customer("ann", "Zug")));
    said.push([same, customers.count(), keys(customers.find("address.city", "Bern")), keys(customers.find("email", "bob"))]);
    customers.put(2, customer("bob", "Zug"));
    customers.remove(2);
    const told = log.items().map(([, change]) => change.join(" ")).join(" ");
    said.push([told, refused(() => customers.put(13, customer("dan", "Bern"))), log.count()]);
    const half = () =>
      transaction(() => {
        customers.put(4, customer("cleo", "Bern"));
        fail();
      });
    said.push([refused(half), customers.get(4, "none")]);
    const tone = new Singleton("tone", "short");
    const tones = [tone.get()];
    tone.set("long");
    tones.push(tone.get());
    tone.reset();
    tones.push(tone.get());
    tone.set("long");
    said.push([tones.join(" ")]);
    pubsub.send(said.map((part) => part.join(", ")).join("; "));
  },
});
