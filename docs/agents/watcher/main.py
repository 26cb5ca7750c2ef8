"""A heartbeat agent that watches a directory and proposes fixes: texts that do not end with a newline, and blanks at the ends of lines.

At each tick it looks at the files that have changed since the last one, which it keeps in the memory table file_context. For each with something to mend it proposes
the change, which its owner approves or rejects. It may read the directory and no more: an approved change is published as a patch, for "patch -p1".
"""

import difflib
import hashlib
import json
import os
import time

import jail_agent
from jail_agent_more import State

MOST = 1 << 20


def mended(text):
    lines = [line.rstrip(" \t") for line in text.split("\n")]
    return "\n".join(lines).rstrip("\n") + "\n" if text else text


def patch(name, old, new):
    diff = difflib.unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), "a/" + name, "b/" + name)
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in diff)


class Watcher(jail_agent.Agent):
    def on_wake(self, reason):
        self.state = State(self.storage)

    def on_event(self, event):
        if event.type == "tick" or event.text == "look":
            self.look()
        elif event.type == "approval":
            self.decided(event.data["id"], event.data["decision"])

    def files(self):
        """The texts of the directory: their names and what they say."""
        root = self.config["directory"]
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(f for f in folders if not f.startswith("."))
            for name in sorted(names):
                path = os.path.join(folder, name)
                if os.path.islink(path) or not os.path.isfile(path) or os.path.getsize(path) > MOST:
                    continue
                with open(path, "rb") as f:
                    data = f.read()
                try:
                    yield os.path.relpath(path, root), data.decode()
                except UnicodeDecodeError:
                    continue  # no text

    def look(self):
        seen = found = 0
        for name, text in self.files():
            seen += 1
            digest = hashlib.sha256(text.encode()).hexdigest()
            known = self.storage.get("SELECT content_hash FROM file_context WHERE path = ?", name)
            if known and known["content_hash"] == digest:
                continue
            new = mended(text)
            summary = "sound" if new == text else "has blanks at the ends of lines, or no newline at its end"
            self.storage.run(
                "INSERT INTO file_context VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET content_hash = excluded.content_hash, "
                "last_read_at = excluded.last_read_at, summary = excluded.summary", name, digest, int(time.time()), summary)
            if new != text:
                found += 1
                self.propose_fix(name, summary, patch(name, text, new))
        self.set_state("%d files, %d to mend" % (seen, found))

    def propose_fix(self, name, why, diff):
        if len(json.dumps(diff)) > 10000:
            self.send("%s %s: too much for one proposal" % (name, why))
            return
        id = self.propose({"type": "patch", "resource": name, "words": why, "patch": diff})
        self.state.set("patch " + id, diff)
        self.send("%s %s" % (name, why))

    def decided(self, id, decision):
        diff = self.state.get("patch " + id)
        if diff is None:
            return
        self.storage.run("DELETE FROM agent_state WHERE key = ?", "patch " + id)
        if decision == "approved":
            self.send(diff, type="patch")


if __name__ == "__main__":
    jail_agent.run(Watcher())
