import jail_agent
from jail_agent_data import Collection


class Parent(jail_agent.Agent):
    def on_event(self, event):
        said = []

        def count(*names):
            for name in names:
                jail_agent.facet(name, "worker", ["STORAGE"])
            said.append(" ".join("%d" % r.get() for r in jail_agent.call_all([(name, "count", {"by": 1}) for name in names])))

        count("a", "b", "c")
        jail_agent.abort_facet("a", "a test")
        jail_agent.delete_facet("b")
        said.append("%d left" % len(jail_agent.facets()))
        count("a", "b", "c")
        try:
            jail_agent.facet("a", "worker", ["STORAGE"]).call("fail")
        except jail_agent.Error as e:
            said.append(e.code)
        jail_agent.delete_sub_agent("a")
        said.append(jail_agent.load("x", "x.js", {"x.js": "print(6 * 7)"})["stdout"].strip())
        self.send(", ".join(said))


class Worker(jail_agent.Agent):
    def on_call(self, method, args):
        if method == "fail":
            raise ValueError("as it was asked to")
        try:
            self.send("x")
        except jail_agent.Error as e:
            assert e.code == "no_binding", e.code
        calls = Collection(self.storage, "calls", index=["by"])
        calls.put(len(calls) + 1, args)
        return len(calls.find("by", args["by"]))


jail_agent.run({"": Parent, "worker": Worker})
