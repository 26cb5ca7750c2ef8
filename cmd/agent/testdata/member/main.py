import jail_agent


class Member(jail_agent.Agent):
    def on_event(self, event):
        if event.type == "roster":
            self.send(event.data, type="seen")
        elif event.type == "call":
            self.send({"by": self.handle, "got": event.data}, type="result", reply_to=event.id)
        elif event.text and not event.from_agent:
            self.send(self.pubsub.roster())
            self.send(self.pubsub.discover())
            self.send(self.pubsub.call_method(event.text, "echo", {"n": 1}))
            self.pubsub.update_settings(**{self.handle: True})
            self.send(self.pubsub.settings())


jail_agent.run(Member())
