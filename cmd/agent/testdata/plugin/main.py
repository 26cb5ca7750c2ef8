import jail_agent


class Host(jail_agent.Agent):
    def on_event(self, event):
        said = []
        for text in event.data["texts"]:
            plugin = jail_agent.facet("plugin", "plugin", bindings=event.data["bindings"], config={"code": text})
            said.append(plugin.call("run", 3))
            jail_agent.abort_facet("plugin", "there is another version")
        self.send(said)


class Plugin(jail_agent.Agent):                  # somebody else's code
    def on_call(self, method, args):
        code = {}
        exec(self.config["code"], code)
        run = code[method]
        return run(args)


jail_agent.run({"": Host, "plugin": Plugin})
