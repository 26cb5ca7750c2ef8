import jail_agent
from jail_agent_more import tick


class Ticker(jail_agent.Agent):
    def on_event(self, event):
        if event.type == "tick":
            tick(event.id, self.storage, lambda messages, system: self.ai.ask(messages, "fast", system=system), self.send, "Be brief.")
        elif event.text.startswith("SELECT"):
            self.send(self.storage.query(event.text))
        else:
            self.storage.exec(event.text)


jail_agent.run(Ticker())
