"""What agents that talk to people and models need again and again, on top of jail_agent but without a dependency on it.

    Queue           work that is done one after the other, and that an interrupt drops
    Settings        values with defaults and types, kept in the channel or wherever read and write lead
    MissedContext   what came while the agent was not looking
    TokenTracker    how many tokens were used, by day and by role
    ApprovalGate    asks before a tool is used, once per tool and conversation
    Tools           the tools of this agent and of other members, by mode, and in the forms of MCP, OpenAI and plain JSON Schema
    State           a dictionary in a table of the agent's storage, for all of these
    tick            asks a model for the next step towards the agent's goals, and keeps what it says in the tables of memory

Whatever keeps something takes a store: an object with get(key) and set(key, value), such as State, or a dict by DictStore. So it is there after the next wake, and
goes with the transaction of the event.
"""

import json
import time


class DictStore:
    """A store in memory, for tests and for what need not outlive a sleep."""

    def __init__(self, values=None):
        self.values = {} if values is None else values

    def get(self, key):
        return self.values.get(key)

    def set(self, key, value):
        self.values[key] = value


class State:
    """A store in a table of the agent's storage. Values are anything that JSON can say."""

    def __init__(self, storage, table="agent_state"):
        if not table.isidentifier():
            raise ValueError("%r is no name of a table" % table)
        self._storage, self._table = storage, table
        storage.exec("CREATE TABLE IF NOT EXISTS %s (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID" % table)

    def get(self, key):
        row = self._storage.get("SELECT value FROM %s WHERE key = ?" % self._table, key)
        return None if row is None else json.loads(row["value"])

    def set(self, key, value):
        self._storage.run("INSERT INTO %s VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value" % self._table, key, json.dumps(value))


class Queue:
    """Messages that are worked on one after the other, in the order in which they came.

    An agent gets one event at a time, so a queue is for work that takes several events: an answer that waits for an approval, or for another agent. add puts
    an item behind the others, and begin returns the first one if nothing is worked on. done ends it. interrupt drops what waits, and what is worked on.
    """

    def __init__(self, store, key="queue", limit=1000):
        self._store, self._key, self.limit = store, key, limit

    def _read(self):
        return self._store.get(self._key) or {"current": None, "waiting": []}

    def add(self, item):
        """Put an item at the end, and return how many are before it."""
        q = self._read()
        if len(q["waiting"]) >= self.limit:
            raise OverflowError("%d items wait already" % self.limit)
        before = len(q["waiting"]) + (q["current"] is not None)
        q["waiting"].append(item)
        self._store.set(self._key, q)
        return before

    def begin(self):
        """Return the next item and make it the current one; None if there is none, or one is worked on."""
        q = self._read()
        if q["current"] is not None or not q["waiting"]:
            return None
        q["current"] = q["waiting"].pop(0)
        self._store.set(self._key, q)
        return q["current"]

    @property
    def current(self):
        return self._read()["current"]

    def replace(self, item):
        """Keep what is known by now of the current item."""
        q = self._read()
        if q["current"] is None:
            raise LookupError("nothing is worked on")
        q["current"] = item
        self._store.set(self._key, q)

    def done(self):
        """End the current item."""
        q = self._read()
        q["current"] = None
        self._store.set(self._key, q)

    def interrupt(self):
        """Drop everything, and return what was dropped: the current item first."""
        q = self._read()
        dropped = [item for item in [q["current"]] + q["waiting"] if item is not None]
        self._store.set(self._key, {"current": None, "waiting": []})
        return dropped

    def __len__(self):
        return len(self._read()["waiting"])


class Settings:
    """Settings with defaults: defaults gives each its name, its type and its value if nothing is set.

    read returns what is set, a dict, and write(**patch) merges into it: those of the channel are agent.pubsub.settings and agent.pubsub.update_settings.
    """

    def __init__(self, defaults, read, write):
        self.defaults, self._read, self._write = dict(defaults), read, write

    def __getitem__(self, name):
        default = self.defaults[name]
        value = (self._read() or {}).get(name, default)
        return value if self._fits(name, value) else default

    def _fits(self, name, value):
        default = self.defaults[name]
        # True is an int to Python.
        return default is None or type(value) is type(default) or type(default) is float and type(value) is int

    def set(self, name, value):
        """Set a value. A text is taken as the value's type: on, off, or a number."""
        if name not in self.defaults:
            raise KeyError("there is no setting %r: there are %s" % (name, ", ".join(sorted(self.defaults))))
        default = self.defaults[name]
        if isinstance(value, str) and not isinstance(default, str) and default is not None:
            value = self._parse(name, value, default)
        if not self._fits(name, value):
            raise ValueError("%s: want %s, not %r" % (name, type(default).__name__, value))
        self._write(**{name: value})
        return value

    @staticmethod
    def _parse(name, text, default):
        if isinstance(default, bool):
            words = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}
            if text.lower() not in words:
                raise ValueError("%s: want on or off, not %r" % (name, text))
            return words[text.lower()]
        try:
            return type(default)(text)
        except (TypeError, ValueError):
            raise ValueError("%s: want %s, not %r" % (name, type(default).__name__, text)) from None

    def all(self):
        return {name: self[name] for name in self.defaults}


class MissedContext:
    """What was said while the agent did not answer, so that it knows of it when it is asked the next time.

    note keeps a message; take returns those since the last take, as a text, and forgets them. keep bounds how many are kept, chars how long the text is.
    """

    def __init__(self, store, key="missed", keep=100, chars=8000):
        self._store, self._key, self.keep, self.chars = store, key, keep, chars

    def note(self, who, text):
        missed = self._store.get(self._key) or {"items": [], "lost": 0}
        missed["items"].append([who, text[:self.chars]])
        over = max(0, len(missed["items"]) - self.keep)
        missed["lost"] += over
        missed["items"] = missed["items"][over:]
        self._store.set(self._key, missed)

    def take(self):
        missed = self._store.get(self._key) or {"items": [], "lost": 0}
        if not missed["items"]:
            return ""
        self._store.set(self._key, {"items": [], "lost": 0})
        lines, left, lost = [], self.chars, missed["lost"]
        for who, text in reversed(missed["items"]):
            line = "%s: %s" % (who, text)
            if len(line) > left:
                lost += 1
                left = 0
                continue
            left -= len(line)
            lines.insert(0, line)
        if lost:
            lines.insert(0, "(%d earlier messages are left out)" % lost)
        return "\n".join(lines)


class TokenTracker:
    """Tokens that models took and gave, by day and role. usage of a model's answer is taken in each form of the APIs."""

    def __init__(self, store, key="tokens", now=time.time, days=31):
        self._store, self._key, self._now, self.days = store, key, now, days

    def _day(self):
        return time.strftime("%Y-%m-%d", time.gmtime(self._now()))

    def add(self, role, input=0, output=0):
        used = self._store.get(self._key) or {}
        of = used.setdefault(self._day(), {}).setdefault(role, [0, 0])
        of[0] += input
        of[1] += output
        for day in sorted(used)[:-self.days]:
            del used[day]
        self._store.set(self._key, used)

    def take(self, role, event):
        """Take the usage from an event of a model's stream, if it says any. Of a messages stream the last number of output tokens is that of all."""
        usage = event.get("usage") or (event.get("response") or {}).get("usage")
        start = (event.get("message") or {}).get("usage")
        if start:
            self.add(role, start.get("input_tokens", 0))
        if not usage:
            return
        if event.get("type") == "message_delta":
            self.add(role, 0, usage.get("output_tokens", 0))
        else:
            self.add(role, usage.get("prompt_tokens", usage.get("input_tokens", 0)), usage.get("completion_tokens", usage.get("output_tokens", 0)))

    def today(self, role=None):
        """Return (input, output) of today, of one role or of all."""
        used = (self._store.get(self._key) or {}).get(self._day(), {})
        of = [used[role]] if role in used else [] if role else used.values()
        return sum(pair[0] for pair in of), sum(pair[1] for pair in of)


ALLOW, ASK, DENY = "allow", "ask", "deny"


class ApprovalGate:
    """Decides whether a tool may be used: by rule, else it asks once per tool and conversation.

    rules are pairs (pattern, mode), of which the first that matches counts; a pattern is a name, or ends in *. check returns allow, deny or ask. After ask, the
    answer comes as answer(tool, yes, conversation); revoke and reset take it back.
    """

    def __init__(self, store, rules=(), default=ASK, key="approvals"):
        for _, mode in rules:
            if mode not in (ALLOW, ASK, DENY):
                raise ValueError("%r is no mode: want allow, ask or deny" % (mode,))
        self._store, self.rules, self.default, self._key = store, list(rules), default, key

    def check(self, tool, conversation=""):
        mode = self.default
        for pattern, of in self.rules:
            if pattern == tool or pattern.endswith("*") and tool.startswith(pattern[:-1]):
                mode = of
                break
        if mode != ASK:
            return mode
        said = (self._store.get(self._key) or {}).get(conversation, {}).get(tool)
        return ASK if said is None else ALLOW if said else DENY

    def answer(self, tool, yes, conversation=""):
        all = self._store.get(self._key) or {}
        all.setdefault(conversation, {})[tool] = bool(yes)
        self._store.set(self._key, all)

    def revoke(self, tool, conversation=""):
        all = self._store.get(self._key) or {}
        all.get(conversation, {}).pop(tool, None)
        self._store.set(self._key, all)

    def reset(self, conversation=None):
        all = {} if conversation is None else self._store.get(self._key) or {}
        all.pop(conversation, None)
        self._store.set(self._key, all)


class Tool:
    """A tool: what it is called, what it does, the JSON Schema of its arguments, and how it is called. provider is "" for one of the agent's own."""

    def __init__(self, name, description, schema, call, provider="", modes=()):
        self.name, self.description, self.call, self.provider, self.modes = name, description, call, provider, tuple(modes)
        self.schema = schema or {"type": "object", "properties": {}}

    @property
    def full_name(self):
        """The name by which a model calls it: letters, digits, - and _ alone, at most 64."""
        name = self.provider + "__" + self.name if self.provider else self.name
        return "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in name)[:64]


class Tools:
    """The tools that can be used: those of the agent, and those that the members of the channel offer.

    discover is agent.pubsub.discover, and call_method is agent.pubsub.call_method. mode chooses: a tool with modes is there in these alone.
    """

    def __init__(self, own=(), discover=None, call_method=None):
        self._own, self._discover, self._call = list(own), discover, call_method

    def list(self, mode=None):
        found = list(self._own)
        for d in (self._discover() if self._discover else None) or []:
            found.append(self._offered(d))
        out, names = [], set()
        for tool in found:
            if tool.full_name not in names and (not tool.modes or mode in tool.modes):
                names.add(tool.full_name)
                out.append(tool)
        return out

    def _offered(self, d):
        provider, method = d["providerId"], d["methodName"]
        return Tool(method, d.get("description", ""), d.get("schema"), lambda args: self._call(provider, method, args), provider, d.get("modes", ()))

    def find(self, full_name, mode=None):
        for tool in self.list(mode):
            if tool.full_name == full_name:
                return tool
        raise LookupError("there is no tool %r" % full_name)


def to_mcp(tools):
    """Definitions as tools/list of the Model Context Protocol has them."""
    return [{"name": t.full_name, "description": t.description, "inputSchema": t.schema} for t in tools]


def to_openai(tools):
    """Definitions as the functions of chat completions."""
    return [{"type": "function", "function": {"name": t.full_name, "description": t.description, "parameters": t.schema}} for t in tools]


def to_anthropic(tools):
    """Definitions as the tools of messages."""
    return [{"name": t.full_name, "description": t.description, "input_schema": t.schema} for t in tools]


def to_json_schema(tools):
    """One JSON Schema: an object that names a tool and has its arguments."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "oneOf": [
        {"type": "object", "description": t.description, "required": ["tool", "arguments"], "additionalProperties": False,
         "properties": {"tool": {"const": t.full_name}, "arguments": t.schema}} for t in tools]}


def tool_calls(events):
    """The calls of tools in the events of a model's answer: a list of (id, name, arguments), in each form of the APIs.

    events are those of agent.ai.events; they can be read at the same time for their text.
    """
    calls, order = {}, []

    def of(key):
        if key not in calls:
            calls[key] = {"id": "", "name": "", "args": ""}
            order.append(key)
        return calls[key]

    for e in events:
        block = e.get("content_block") or {}
        if e.get("type") == "content_block_start" and block.get("type") == "tool_use":
            of(e["index"]).update(id=block.get("id", ""), name=block.get("name", ""))
        elif e.get("type") == "content_block_delta" and (e.get("delta") or {}).get("type") == "input_json_delta":
            of(e["index"])["args"] += e["delta"].get("partial_json", "")
        elif e.get("type") == "response.output_item.done" and (e.get("item") or {}).get("type") == "function_call":
            item = e["item"]
            of(item.get("call_id"))["args"] = item.get("arguments", "")
            of(item.get("call_id")).update(id=item.get("call_id", ""), name=item.get("name", ""))
        for choice in e.get("choices") or []:
            for call in (choice.get("delta") or {}).get("tool_calls") or []:
                known, function = of(call.get("index", 0)), call.get("function") or {}
                known["id"] = call.get("id") or known["id"]
                known["name"] = function.get("name") or known["name"]
                known["args"] += function.get("arguments") or ""
    return [(calls[key]["id"], calls[key]["name"], json.loads(calls[key]["args"] or "{}")) for key in order]


TICK = """You work towards your goals by yourself, one step at a time. You are told your open goals, what you did lately, and what you have learned. Do the next step,
and answer with one JSON object:
{"summary": "what you did, in a sentence", "goals": [{"id": "g1", "progress": 0.5, "status": "open"}],
 "patterns": [{"id": "p1", "pattern_type": "habit", "description": "what you have learned", "confidence": 0.8}]}
The status of a goal that you have reached is "done". Leave out goals and patterns that do not change."""


def tick(id, storage, ask, publish, instructions="", memories=10, patterns=20, now=time.time):
    """Take one step towards the goals in the agent's memory, and return what was published; None if no goal is open, as then no model is asked.

    The model is told the open goals, the last memories (conversations with a summary) and the patterns that are surest. What it answers is written to goals,
    learned_patterns, conversations and messages, and published with the type tick_result. An answer that is no JSON is a summary, and changes no goal.

        tick(event.id, self.storage, self.ai.ask, self.send)    # for an event of the type tick; id names the conversation
    """
    goals = storage.query("SELECT * FROM goals WHERE coalesce(status, '') NOT IN ('done', 'dropped') ORDER BY priority DESC, id")
    if not goals:
        return None
    context = json.dumps({
        "goals": goals,
        "memories": storage.query("SELECT started_at, summary FROM conversations WHERE summary <> '' ORDER BY started_at DESC, id DESC LIMIT ?", memories),
        "patterns": storage.query("SELECT * FROM learned_patterns ORDER BY confidence DESC, id LIMIT ?", patterns),
    }, ensure_ascii=False)
    said = ask([{"role": "user", "content": context}], system=(TICK + "\n\n" + instructions).strip())
    answer = _object(said)
    summary = answer.get("summary")
    if not isinstance(summary, str):
        summary = said.strip()
    result = {"text": summary, "goals": _keep_goals(storage, answer, {g["id"]: g for g in goals}), "patterns": _keep_patterns(storage, answer)}
    at = int(now())
    storage.run("INSERT INTO conversations VALUES (?, ?, ?, 0)", id, at, summary)
    for n, (role, text) in enumerate((("user", context), ("assistant", said))):
        storage.run("INSERT INTO messages VALUES (?, ?, ?, ?, ?)", "%s/%d" % (id, n + 1), id, role, text, at)
    publish(result, type="tick_result")
    return result


def _object(text):
    """The JSON object in an answer, which may have words around it; {} if there is none."""
    try:
        said = json.loads(text[text.index("{"):text.rindex("}") + 1])
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _dicts(answer, name):
    said = answer.get(name)
    return [one for one in said if isinstance(one, dict)] if isinstance(said, list) else []


def _part(value, default):
    """A number from 0 to 1. JSON of a model may hold NaN, which is no number."""
    return min(max(float(value), 0.0), 1.0) if isinstance(value, (int, float)) and value == value else default


def _keep_goals(storage, answer, known):
    """Write what an answer says of goals that there are, and return their ids."""
    kept = []
    for said in _dicts(answer, "goals"):
        goal = known.get(said["id"]) if isinstance(said.get("id"), str) else None
        if goal is None:
            continue
        status = said.get("status") if isinstance(said.get("status"), str) else goal["status"]
        storage.run("UPDATE goals SET progress = ?, status = ? WHERE id = ?", _part(said.get("progress"), goal["progress"]), status, goal["id"])
        kept.append(goal["id"])
    return kept


def _keep_patterns(storage, answer):
    """Write the patterns of an answer, and return their ids."""
    kept = []
    for said in _dicts(answer, "patterns"):
        id, kind, text = (said.get(name) if isinstance(said.get(name), str) else "" for name in ("id", "pattern_type", "description"))
        if not id or not text:
            continue
        storage.run("INSERT INTO learned_patterns VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET pattern_type = excluded.pattern_type, "
                    "description = excluded.description, confidence = excluded.confidence", id, kind, text, _part(said.get("confidence"), 0.5))
        kept.append(id)
    return kept
