"""A chat responder that uses bindings alone: it answers messages with a model, which may use the tools that other members of the channel offer.

A tool is asked for once per conversation: the answer waits until its owner approves or rejects it, and so do the messages behind it. /settings and /set change how
it answers, /stop drops what it works on, /tools lists the tools, /used the tokens of today.
"""

import json

import jail_agent
from jail_agent_more import ALLOW, ASK, ApprovalGate, MissedContext, Queue, Settings, State, TokenTracker, Tools, to_anthropic, to_openai, tool_calls

DEFAULTS = {"rounds": 5, "tokens": 1024, "tools": True}


class Responder(jail_agent.Agent):
    def on_wake(self, reason):
        state = State(self.storage)
        self.queue = Queue(state)
        self.gate = ApprovalGate(state)
        self.missed = MissedContext(state)
        self.tokens = TokenTracker(state)
        self.settings = Settings(DEFAULTS, self.pubsub.settings, self.pubsub.update_settings)
        self.tools = Tools(discover=self.pubsub.discover, call_method=self.pubsub.call_method)

    def on_event(self, event):
        if event.type == "approval":
            self.decided(event)
        elif event.from_agent:
            # Two that answer each other would never end.
            self.missed.note(event.source, event.text)
        elif event.text.startswith("/"):
            self.command(event)
        elif event.text:
            before = self.queue.add({"id": event.id, "messages": [{"role": "user", "content": self.asked(event)}]})
            if before:
                self.send("%d before you" % before, reply_to=event.id)
            self.work()
        self.set_state("%d wait" % len(self.queue))

    def asked(self, event):
        """The question, with what was said since the last one."""
        missed = self.missed.take()
        return "Said meanwhile:\n%s\n\n%s" % (missed, event.text) if missed else event.text

    def command(self, event):
        word, _, rest = event.text[1:].partition(" ")
        if word == "stop":
            text = "dropped %d" % len(self.queue.interrupt())
        elif word == "settings":
            text = json.dumps(self.settings.all(), sort_keys=True)
        elif word == "set":
            name, _, value = rest.partition(" ")
            try:
                text = "%s is %s" % (name, json.dumps(self.settings.set(name, value)))
            except (KeyError, ValueError) as e:
                text = str(e.args[0])
        elif word == "tools":
            text = "\n".join("%s: %s" % (t.full_name, t.description) for t in self.tools.list()) or "nobody offers a tool"
        elif word == "used":
            text = "%d tokens in, %d out" % self.tokens.today()
        else:
            text = "there are /stop, /settings, /set NAME VALUE, /tools and /used"
        self.send(text, reply_to=event.id)

    def work(self):
        """Answer what waits, one after the other, up to one that waits for an approval."""
        while True:
            item = self.queue.begin()
            if item is None or not self.answer(item):
                return

    def answer(self, item):
        """Go on with a message. Returns whether it is answered."""
        while self.use_tools(item):
            item["rounds"] = item.get("rounds", 0) + 1
            text, calls = self.ask(item)
            if not calls or item["rounds"] >= self.settings["rounds"]:
                self.send(text or "I have no answer", reply_to=item["id"])
                self.queue.done()
                return True
            item["calls"] = [{"id": id, "name": name, "args": args} for id, name, args in calls]
            item["text"] = text
        self.queue.replace(item)
        return False

    def ask(self, item):
        """Ask the model. Returns its text and the tools that it wants to use."""
        params = {"system": self.config.get("system", ""), "max_tokens": self.settings["tokens"]}
        tools = self.tools.list() if self.settings["tools"] else []
        if tools:
            params["tools"] = (to_openai if self.chat() else to_anthropic)(tools)
        events, text = [], ""
        try:
            for e in self.ai.events(item["messages"], **params):
                events.append(e)
                text += jail_agent._delta(e)
                self.tokens.take("smart", e)
        except jail_agent.Error as e:
            return "the model does not answer: %s" % e, []
        return text, tool_calls(events)

    def chat(self):
        return self.config.get("form") == "chat"

    def use_tools(self, item):
        """Use the tools that the model asked for. Returns False if one of them waits for an approval."""
        for call in item.get("calls", []):
            if "result" in call:
                continue
            mode = self.gate.check(call["name"], self.channel)
            if mode == ASK:
                item["waits"] = self.propose({"type": "tool", "name": call["name"], "input": call["args"]})
                item["for"] = call["name"]
                self.send("may I use %s %s?" % (call["name"], json.dumps(call["args"], sort_keys=True)), reply_to=item["id"])
                return False
            call["result"] = self.use(call) if mode == ALLOW else "the owner does not allow this tool"
        if item.get("calls"):
            self.results(item)
        return True

    def use(self, call):
        try:
            return json.dumps(self.tools.find(call["name"]).call(call["args"]))
        except (jail_agent.Error, LookupError) as e:
            return "error: %s" % e

    def results(self, item):
        """Put the calls and their results into the conversation, in the form of the role's API."""
        calls, text = item.pop("calls"), item.pop("text", "")
        if self.chat():
            item["messages"].append({"role": "assistant", "content": text, "tool_calls": [
                {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": json.dumps(c["args"])}} for c in calls]})
            item["messages"] += [{"role": "tool", "tool_call_id": c["id"], "content": c["result"]} for c in calls]
            return
        blocks = [{"type": "text", "text": text}] if text else []
        blocks += [{"type": "tool_use", "id": c["id"], "name": c["name"], "input": c["args"]} for c in calls]
        item["messages"].append({"role": "assistant", "content": blocks})
        item["messages"].append({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": c["id"], "content": c["result"]} for c in calls]})

    def decided(self, event):
        """Go on with the message that waited for this decision. One that was dropped meanwhile is not there."""
        item = self.queue.current
        if item is None or item.get("waits") != event.data["id"]:
            return
        self.gate.answer(item["for"], event.data["decision"] == "approved", self.channel)
        del item["waits"], item["for"]
        if self.answer(item):
            self.work()


if __name__ == "__main__":
    jail_agent.run(Responder())
