import { pubsub, run, storage, tick } from "./jail_agent.js";

run({
  onEvent(event) {
    if (event.type === "tick") tick(event.id, { role: "fast", instructions: "Be brief." });
    else if (event.text.startsWith("SELECT")) pubsub.send(storage.query(event.text));
    else storage.exec(event.text);
  },
});
