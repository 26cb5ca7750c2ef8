"""An agent that answers: it counts messages, and reminds."""

import jail_agent


class Responder(jail_agent.Agent):
    def on_wake(self, reason):
        self.storage.exec("CREATE TABLE IF NOT EXISTS seen (n INTEGER PRIMARY KEY, text TEXT)")

    def on_event(self, event):
        if event.type == "alarm":
            self.send("reminder: " + event.data["data"])
        elif event.from_agent:
            pass  # two that answer each other would never end
        elif event.text.startswith("remind "):
            self.set_alarm("remind", seconds=1, data=event.text[len("remind "):])
            self.send("I will remind you", reply_to=event.id)
        elif event.text:
            n = self.storage.run("INSERT INTO seen (text) VALUES (?)", event.text)["lastRowId"]
            self.send("echo: %s (%d)" % (event.text, n), reply_to=event.id)

    def on_sleep(self):
        self.log("good night")


jail_agent.run(Responder())
