import jail_agent


class Asker(jail_agent.Agent):
    def on_event(self, event):
        if event.text == "fail":
            raise ValueError("as it was asked to")
        if event.text == "tool":
            try:
                self.send(jail_agent.command(["wc", "-l"], stdin='a"b\n', limits=["wall=5s"])["exitCode"])
            except jail_agent.Error as e:
                self.send(e.code)
            return
        if event.text == "later":
            self.set_alarm("tea", at="2040-01-02T03:04:05Z", data="green")
            self.send(self.propose({"type": "brew"}))
            return
        answer, all = self.send("…", reply_to=event.id), ""
        try:
            for part in self.ai.stream(event.text, role="fast"):
                all += part
                self.send("part " + part, to="other", type="part")
        except jail_agent.Error as e:
            all = "%s: %s" % (e.code, e)
        self.update(answer, all)
        self.complete(answer)
        self.set_state({"asked": event.seq})
        self.pubsub.update_settings(roles=self.ai.roles())
        self.clear_alarm("none")
        self.log("asked", "warn")


jail_agent.run(Asker())
