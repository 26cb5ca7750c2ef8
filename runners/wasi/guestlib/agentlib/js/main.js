// An agent that answers: it counts messages, and reminds.
import { log, pubsub, run, setAlarm, storage } from "./jail_agent.js";

run({
  onWake() {
    storage.exec("CREATE TABLE IF NOT EXISTS seen (n INTEGER PRIMARY KEY, text TEXT)");
  },

  onEvent(event) {
    if (event.type === "alarm") {
      pubsub.send("reminder: " + event.data.data);
    } else if (event.fromAgent) {
      return; // two that answer each other would never end
    } else if (event.text.startsWith("remind ")) {
      setAlarm("remind", 1000, event.text.slice("remind ".length));
      pubsub.send("I will remind you", { reply_to: event.id });
    } else if (event.text) {
      const { lastRowId } = storage.run("INSERT INTO seen (text) VALUES (?)", event.text);
      pubsub.send(`echo: ${event.text} (${lastRowId})`, { reply_to: event.id });
    }
  },

  onSleep() {
    log("good night");
  },
});
