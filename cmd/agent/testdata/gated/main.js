import * as jail from "./jail_agent.js";

// It reads customers, and proposes that they move.
const crm = jail.gate("crm");

jail.run({
  onEvent(event) {
    if (event.type === "approval") {
      jail.setState(event.data.state + " " + event.reply_to);
    } else if (event.text === "read") {
      jail.pubsub.send(crm.read("rows", { table: "customers", columns: ["name", "city"] }));
    } else if (event.text === "other") {
      try {
        jail.gate("other").read("rows");
      } catch (e) {
        jail.pubsub.send(e.code);
      }
    } else {
      jail.pubsub.send(crm.propose("update", { table: "customers", key: { id: 1 }, set: { city: event.text } }, "she moved"));
    }
  },
});
