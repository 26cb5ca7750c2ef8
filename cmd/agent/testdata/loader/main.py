import base64

import jail_agent


class Loader(jail_agent.Agent):
    """Runs the programs that it is sent, and says what each did."""

    def on_event(self, event):
        if event.type == "approval":
            row = jail_agent.Gate("crm").read("rows", table="customers", where={"id": 1})["rows"][0]
            self.set_state("%s %s" % (event.data["state"], row["city"]))
            return
        said = []
        jail_agent.facet("notes", "notes", ["STORAGE"])
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


class Notes(jail_agent.Agent):
    """Keeps what programs note."""

    def on_call(self, method, args):
        self.storage.exec("CREATE TABLE IF NOT EXISTS notes (text TEXT)")
        self.storage.run("INSERT INTO notes VALUES (?)", args["text"])
        return [row["text"] for row in self.storage.query("SELECT text FROM notes ORDER BY rowid")]


jail_agent.run({"": Loader, "notes": Notes})
