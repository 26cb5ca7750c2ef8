import base64

import jail_agent


class Loader(jail_agent.Agent):
    """Runs the programs that it is sent, and says what each did."""

    def on_event(self, event):
        said = []
        for p in event.data["programs"]:
            for name, module in p["modules"].items():
                if isinstance(module, dict) and "repeat" in module:
                    p["modules"][name] = "x" * module["repeat"]
                if isinstance(module, dict) and "file" in module:
                    with open("/agent/" + module["file"], "rb") as f:
                        p["modules"][name] = {"base64": base64.b64encode(f.read()).decode()}
            try:
                said.append(jail_agent.call("HOST", "load", **p))
            except jail_agent.Error as e:
                said.append({"error": e.code, "message": str(e)})
        self.send(said)


jail_agent.run(Loader())
