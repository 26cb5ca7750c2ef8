"""The bindings of an agent in a jail, and the loop that wakes it.

    import jail_agent

    class Echo(jail_agent.Agent):
        def on_event(self, event):
            if event.text:
                self.send("echo: " + event.text, reply_to=event.id)

    jail_agent.run(Echo())

It works with the Python of jail's bundle, which speaks over JAIL_AGENT_FD, and with one of the host, which speaks over http://127.0.0.1:3129
(docs/agent-abi.md). One event is one transaction: what on_event writes to storage and what it sends are there together when it returns, or not at all if it
raises. Then the event comes again, with event.kind == "replay". jail_agent_more.py has more: a queue, settings, approvals, tools.
"""

import base64
import http.client
import json
import os
import socket
import sys
import traceback

FD = "JAIL_AGENT_FD"
PORT = 3129
WAIT_MS = 30000


class Error(Exception):
    """A call that failed. code is for programs: no_binding, not_found, busy, budget, storage, deadline, forbidden, model and others."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class _Connection(http.client.HTTPConnection):
    """A connection to the host of the agent: a stream that is accepted, or the jail's own loopback."""

    def connect(self):
        fd = os.environ.get(FD)
        if fd is None:
            self.sock = socket.create_connection(("127.0.0.1", PORT))
            return
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=int(fd))
        try:
            stream, _ = listener._accept()  # accept() asks for the name of the peer, which WASI does not have
        finally:
            listener.detach()  # the number stays open for the next one
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=stream)

    def close(self):
        try:
            super().close()
        except OSError:
            pass  # some builds of CPython do not know their own streams


_idle = None


def _request(method, path, body=None):
    """Make a request and return its answer. The connection is used again once the answer is read."""
    global _idle
    again = _idle is not None
    connection, _idle = _idle or _Connection("agent"), None
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"} if body is not None else {})
        return connection, connection.getresponse()
    except (http.client.RemoteDisconnected, ConnectionError):
        connection.close()
        if not again:
            raise
        return _request(method, path, body)


def _answer(method, path, body=None):
    global _idle
    connection, response = _request(method, path, body)
    text = response.read()
    if not response.will_close:
        _idle = connection
    return json.loads(text)


def _body(method, params):
    return json.dumps({"method": method, "params": params}, ensure_ascii=False).encode("utf-8", "replace")


def call(binding, method, /, **params):
    """Call a method of a binding, and return its result. What is None is left out of params."""
    params = {name: value for name, value in params.items() if value is not None}
    said = _answer("POST", "/rpc/" + binding, _body(method, params))
    if said.get("error"):
        raise Error(said["error"].get("code", "failed"), said["error"].get("message", ""))
    return said.get("result")


class Event:
    """What an agent was woken for. seq, id, time, source, channel, type, kind, reply_to, attempt and data are as in docs/agent-abi.md."""

    def __init__(self, said):
        self.seq = said["seq"]
        self.id = said.get("id", "")
        self.time = said.get("time", "")
        self.source = said.get("source", "")
        self.channel = said.get("channel", "")
        self.type = said.get("type", "")
        self.kind = said.get("kind", "new")
        self.reply_to = said.get("reply_to", "")
        self.attempt = said.get("attempt", 1)
        self.data = said.get("data")

    def key(self, n):
        """An Idempotency-Key for the agent's own request number n of this event: the same when the event comes again."""
        return "%s/%d/%s" % (os.environ.get("AGENT_ID", ""), self.seq, n)

    @property
    def from_agent(self):
        """Whether another agent sent it. Two agents that answer each other's messages on one channel never end."""
        return self.source.startswith("agent:")

    @property
    def text(self):
        """The text of a message: data if that is a text, or data["text"]; else ""."""
        if isinstance(self.data, str):
            return self.data
        text = self.data.get("text") if isinstance(self.data, dict) else None
        return text if isinstance(text, str) else ""


class PubSub:
    """Messages to the channel, and what its members offer."""

    def send(self, content, to=None, type=None, reply_to=None):
        """Send a message, to the channel of the event or to an agent, and return its id. It is delivered when on_event has returned."""
        options = {name: value for name, value in (("to", to), ("type", type), ("reply_to", reply_to)) if value is not None}
        return call("PUBSUB", "send", content=content, options=options)["id"]

    def update(self, id, content):
        """Replace what a message says."""
        call("PUBSUB", "update", id=id, content=content)

    def complete(self, id):
        """Say that a message gets no more updates."""
        call("PUBSUB", "complete", id=id)

    def roster(self):
        """Return the members of the channel."""
        return call("PUBSUB", "roster")

    def discover(self):
        """Return the methods that members offer: providerId, methodName, description and schema of each."""
        return call("PUBSUB", "discoverMethodDefs")

    def call_method(self, provider, method, args=None):
        """Call a method of a member, and return its result."""
        return call("PUBSUB", "callMethod", providerId=provider, methodName=method, args=args if args is not None else {})

    def settings(self):
        """Return the settings of the channel."""
        return call("PUBSUB", "getSettings") or {}

    def update_settings(self, **patch):
        """Merge into the settings of the channel."""
        call("PUBSUB", "updateSettings", patch=patch)


class Storage:
    """The agent's own SQLite database. Its tables for memory are there from the beginning."""

    def exec(self, sql):
        """Execute a statement, such as CREATE TABLE."""
        call("STORAGE", "exec", sql=sql)

    def run(self, sql, *params):
        """Execute a statement with parameters, and return {"changes", "lastRowId"}."""
        return call("STORAGE", "run", sql=sql, params=list(params))

    def get(self, sql, *params):
        """Return the first row as a dict, or None."""
        return call("STORAGE", "get", sql=sql, params=list(params))

    def query(self, sql, *params):
        """Return all rows, each a dict."""
        return call("STORAGE", "query", sql=sql, params=list(params)) or []


class AI:
    """Models by role. Keys never come into the jail."""

    def roles(self):
        """Return the names of the roles."""
        return call("AI", "listRoles")

    def stream(self, messages, role=None, **params):
        """Ask a model and yield the text of its answer as it comes. messages is a text, or a list of {"role", "content"}."""
        for event in self.events(messages, role, **params):
            text = _delta(event)
            if text:
                yield text

    def events(self, messages, role=None, **params):
        """Ask a model and yield the events of its answer, in the form of the model's API."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        params.update({"messages": messages}, **({"role": role} if role else {}))
        body = _body("streamText", params)
        connection, response = _request("POST", "/rpc/AI", body)
        try:
            if not response.getheader("Content-Type", "").startswith("text/event-stream"):
                said = json.loads(response.read()).get("error") or {}
                raise Error(said.get("code", "failed"), said.get("message", "the answer is no stream"))
            name = ""
            for line in response:
                line = line.decode("utf-8", "replace").rstrip("\r\n")
                field, _, value = line.partition(":")
                if field == "event":
                    name = value.strip()
                elif field == "data" and value.strip() != "[DONE]":
                    event = json.loads(value)
                    if name == "error":
                        error = event.get("error") or event
                        raise Error(error.get("code") or error.get("type") or "model", error.get("message", ""))
                    yield event
                elif not line:
                    name = ""
        finally:
            connection.close()

    def ask(self, messages, role=None, **params):
        """Ask a model and return the text of its answer."""
        return "".join(self.stream(messages, role, **params))


def _delta(event):
    """The text that an event of a model's answer adds, in the three forms of APIs that there are."""
    delta = event.get("delta")
    if event.get("type") == "content_block_delta" and isinstance(delta, dict):
        return delta.get("text", "")
    if event.get("type") == "response.output_text.delta":
        return delta or ""
    for choice in event.get("choices") or []:
        return (choice.get("delta") or {}).get("content") or ""
    return ""


class Facet:
    """A child of the agent: its own database, its own jail, and of what the agent has what the agent asks for it. Only the agent calls it."""

    def __init__(self, said):
        self.name = said["name"]
        self.id = said["id"]
        self.state = said.get("state", "")
        self.note = said.get("note", "")
        self.error = said.get("error", "")

    def call(self, method, args=None):
        """Call the facet, and return its result."""
        return call_all([(self.name, method, args)])[0].get()


class Result:
    """What a call of a facet returned: result, or error."""

    def __init__(self, said):
        self.result = said.get("result")
        error = said.get("error")
        self.error = Error(error.get("code", "failed"), error.get("message", "")) if error else None

    def get(self):
        """Return the result, or raise the error."""
        if self.error:
            raise self.error
        return self.result


def facet(name, cls="", bindings=(), network=None, facets=None, policy=None, limits=None, storage=None, config=None, gatekeepers=None):
    """Get the facet of that name, or make it. cls names one of the agents that run was given, bindings are names such as "STORAGE", policy is the text of
    a policy file, limits are as in ["memory=32MiB"], storage is in bytes, gatekeepers are names. It gets of that what the agent has itself. It needs capabilities.facets = true."""
    return Facet(call("HOST", "facet", name=name, **{"class": cls or None}, bindings=list(bindings), network=network, facets=facets, policy=policy,
                      limits=limits, storage=storage, config=config, gatekeepers=list(gatekeepers) if gatekeepers else None))


def call_all(calls):
    """Call facets in parallel. Each call is (name, method) or (name, method, args). Returns a Result for each."""
    calls = [{"name": c[0], "method": c[1], "args": c[2] if len(c) > 2 else None} for c in calls]
    return [Result(said) for said in call("HOST", "callFacets", calls=calls)]


def facets():
    """Return the facets that there are."""
    return [Facet(said) for said in call("HOST", "facets")]


def abort_facet(name, reason=""):
    """End a facet at once. What it has committed stays, and the next call starts it anew."""
    call("HOST", "abortFacet", name=name, reason=reason)


def delete_facet(name):
    """End a facet, and remove its storage and its own facets."""
    call("HOST", "deleteFacet", name=name)


# The same for facets that are agents.
sub_agent, abort_sub_agent, delete_sub_agent = facet, abort_facet, delete_facet


def load(execution_id, main_module, modules, env=None):
    """Run a program once, in a fresh jail without files and network, and return a dict of exitCode, stdout, stderr, limit, trap and usage. main_module names
    one of modules by its ending: .wasm, .py or .js. modules are texts or bytes by their names. env is all that the program has: texts are variables, and
    {"facet": name}, {"gatekeeper": name} and {"binding": "AI"} are bindings. A program in Python that has this module among its own calls them by
    call(name, method, **params)."""
    modules = {n: m if isinstance(m, str) else {"base64": base64.b64encode(m).decode("ascii")} for n, m in modules.items()}
    return call("HOST", "load", executionId=execution_id, mainModule=main_module, modules=modules, env=env or {})


class Gate:
    """A session with a gatekeeper of the owner's: it reads at once, and what it wants to write waits for an approval. The manifest names the gatekeeper."""

    def __init__(self, name):
        self.name = name

    def describe(self):
        """Return what the gatekeeper reads and does, and its tables."""
        return call("HOST", "gatekeepers", gatekeeper=self.name)[0]

    def read(self, method, **args):
        """Read, such as rows of a table."""
        return call("HOST", "gateRead", gatekeeper=self.name, method=method, args=args)

    def propose(self, action, words="", **args):
        """Propose an action and return its id, state, before and after. Its end comes as an event of the type approval, whose reply_to is the id. The same
        event that comes again proposes it once."""
        return call("HOST", "gatePropose", gatekeeper=self.name, action=action, words=words, args=args)


def gatekeepers():
    """Return what the gatekeepers are that this agent may use."""
    return call("HOST", "gatekeepers")


def command(argv, stdin="", cwd="", env=None, limits=(), conversation=None):
    """Run a tool that the manifest names in capabilities.tools, in a jail of its own, and return a dict of exitCode, stdout, stderr, truncated and meta.
    argv is a command of a bundle and its arguments; cwd is below the workspace; limits are as in ["wall=5s"]. An Error with the code pending says that
    somebody has to approve it first: the event of the type approval says what is decided. A conversation has a shadow of the workspace of its own."""
    return call("HOST", "command", argv=list(argv), stdin=stdin, cwd=cwd, env=env or {}, limits=list(limits), conversation=conversation)


def propose_changes(conversation="", words=""):
    """Propose to commit what tools changed in a conversation, and return id, state, added, modified and deleted. It replaces a proposal of the conversation
    that waits. The event of the type approval says what is decided; changes that come after this make the proposal stale."""
    return call("HOST", "proposeChanges", conversation=conversation, words=words)


def discard_changes(conversation=""):
    """End a conversation, and throw away what is not committed."""
    call("HOST", "discardChanges", conversation=conversation)


class Agent:
    """Override on_wake, on_event and on_sleep, and on_call to answer calls. pubsub, storage and ai are the bindings; config is the table of the manifest."""

    def __init__(self):
        self.id = os.environ.get("AGENT_ID", "")
        self.channel = os.environ.get("CHANNEL", "")
        self.handle = os.environ.get("HANDLE", "")
        self.config = json.loads(os.environ.get("CONFIG") or "{}")
        self.bindings = [name for name in os.environ.get("AGENT_BINDINGS", "").split(",") if name]
        self.pubsub = PubSub()
        self.storage = Storage()
        self.ai = AI()

    def on_wake(self, reason):
        """Called first. reason is the type of the first event: message, mention, direct, alarm, tick, approval, call, roster, manual, or a sender's own."""

    def on_event(self, event):
        """Called for each event, one at a time and in order."""

    def on_call(self, method, args):
        """Return the result of a call: of the parent, for a facet, and of other agents. Without this method, calls are events of the type call."""
        raise NotImplementedError

    def on_sleep(self):
        """Called last, within a few seconds."""

    def send(self, content, to=None, type=None, reply_to=None):
        return self.pubsub.send(content, to, type, reply_to)

    def update(self, id, content):
        self.pubsub.update(id, content)

    def complete(self, id):
        self.pubsub.complete(id)

    def log(self, message, level="info"):
        """Write a line into the log. level is info, warn or error."""
        call("HOST", "log", level=level, message=str(message))

    def set_state(self, state):
        """Say what "jail agent list" shows of this agent."""
        call("HOST", "setState", state=state)

    def set_alarm(self, name, seconds=None, at=None, data=None):
        """Set an alarm of that name: an event of the type alarm comes in so many seconds, or at a time as in RFC 3339."""
        call("HOST", "setAlarm", name=name, in_ms=max(1, int(seconds * 1000)) if seconds is not None else None, at=at, data=data)

    def clear_alarm(self, name):
        call("HOST", "clearAlarm", name=name)

    def propose(self, action):
        """Ask for the approval of an action, and return the proposal's id. What is decided comes as an event of the type approval."""
        return call("HOST", "propose", action=action)["id"]


def run(agent):
    """Run an agent until it is asked to sleep. With facets, agent is a dict of agents by their classes, where "" is the agent itself; each is an Agent, or
    a class of one."""
    if isinstance(agent, dict):
        agent = agent[os.environ.get("CLASS", "")]
    if isinstance(agent, type):
        agent = agent()
    call("HOST", "ready")
    while True:
        said = _answer("GET", "/events?wait=%d" % WAIT_MS)
        kind = said.get("type")
        if kind == "wake":
            agent.on_wake(said["wake"].get("reason", ""))
        elif kind == "event":
            _one(agent, Event(said["event"]))
        elif kind == "sleep":
            agent.on_sleep()
            return


def _one(agent, event):
    """Work on one event, and commit it, or say that it failed."""
    try:
        if event.type == "call" and type(agent).on_call is not Agent.on_call:
            data = event.data or {}
            said = _answer("POST", "/rpc/HOST", _body("return", {"result": agent.on_call(data.get("method", ""), data.get("args"))}))
            if said.get("error"):
                raise Error(said["error"].get("code", "failed"), said["error"].get("message", ""))
        else:
            agent.on_event(event)
    except Exception as e:  # whatever it is, the next event may be better
        traceback.print_exc()
        sys.stderr.flush()
        call("HOST", "fail", seq=event.seq, message="%s: %s" % (type(e).__name__, e))
        return
    try:
        call("HOST", "checkpoint", seq=event.seq)
    except Error as e:
        # The host has said so itself, and delivers the event again.
        print("event %d is not committed: %s" % (event.seq, e), file=sys.stderr, flush=True)
