import { handle, pubsub, run } from "./jail_agent.js";

run({
  onEvent(event) {
    if (event.type === "roster") {
      pubsub.send(event.data, { type: "seen" });
    } else if (event.type === "call") {
      pubsub.send({ by: handle, got: event.data }, { type: "result", reply_to: event.id });
    } else if (event.text && !event.fromAgent) {
      pubsub.send(pubsub.roster());
      pubsub.send(pubsub.discoverMethodDefs());
      pubsub.send(pubsub.callMethod(event.text, "echo", { n: 1 }));
      pubsub.updateSettings({ [handle]: true });
      pubsub.send(pubsub.getSettings());
    }
  },
});
