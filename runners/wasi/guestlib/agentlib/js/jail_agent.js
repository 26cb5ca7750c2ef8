// The bindings of an agent in a jail, for the JavaScript of jail's bundle (QuickJS), and the loop that wakes it.
//
//   import { run, pubsub } from "./jail_agent.js";
//   run({
//     onEvent(event) { pubsub.send("echo: " + event.text, { reply_to: event.id }); },
//   });
//
// One event is one transaction: what onEvent writes to storage and what it sends are there together when it returns, or not at all if it throws. Then the
// event comes again, with event.kind "replay". Handlers may be async.
import * as jail from "jail";

const WAIT_MS = 30000;

// A call that failed. code is for programs: no_binding, not_found, busy, budget, storage, deadline, model and others.
export class AgentError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

// Stream is an HTTP/1.1 connection over a stream that is accepted on the listener named by a variable of the environment.
class Stream {
  constructor(variable) {
    const listener = jail.env(variable);
    if (listener === undefined) throw new AgentError("no_binding", variable + " is not set: this is no jail of an agent");
    this.fd = jail.accept(+listener);
    this.bytes = "";
  }

  close() {
    jail.close(this.fd);
  }

  fill() {
    const more = jail.recv(this.fd);
    this.bytes += more;
    return more !== "";
  }

  line() {
    let end;
    while ((end = this.bytes.indexOf("\r\n")) < 0) {
      if (!this.fill()) throw new AgentError("failed", "the answer is incomplete");
    }
    const line = this.bytes.slice(0, end);
    this.bytes = this.bytes.slice(end + 2);
    return line;
  }

  take(n) {
    while (this.bytes.length < n) {
      if (!this.fill()) throw new AgentError("failed", "the answer is incomplete");
    }
    const out = this.bytes.slice(0, n);
    this.bytes = this.bytes.slice(n);
    return out;
  }

  // request sends a request and reads the head of its answer.
  request(method, url, body, headers) {
    let head = method + " " + url + " HTTP/1.1\r\n";
    for (const name in headers) head += name + ": " + headers[name] + "\r\n";
    jail.send(this.fd, head, body);
    const answer = { status: +this.line().split(" ")[1], headers: {} };
    for (let line; (line = this.line()) !== ""; ) {
      const colon = line.indexOf(":");
      answer.headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim();
    }
    return answer;
  }

  // parts yields the body of an answer as it comes.
  *parts(answer) {
    if ((answer.headers["transfer-encoding"] || "").toLowerCase() === "chunked") {
      for (let n; (n = parseInt(this.line(), 16)) > 0; this.take(2)) yield this.take(n);
      while (this.line() !== "");
      return;
    }
    let left = +answer.headers["content-length"];
    if (isNaN(left)) {
      do {
        yield this.bytes;
        this.bytes = "";
      } while (this.fill());
      return;
    }
    while (left > 0) {
      if (this.bytes === "" && !this.fill()) throw new AgentError("failed", "the answer is incomplete");
      const part = this.take(Math.min(left, this.bytes.length));
      left -= part.length;
      yield part;
    }
  }

  whole(answer) {
    let out = "";
    for (const part of this.parts(answer)) out += part;
    return jail.utf8(out);
  }
}

let idle = null;

// ask makes a request to the host of the agent and returns its JSON.
function ask(method, path, body) {
  const stream = idle || new Stream("JAIL_AGENT_FD");
  idle = null;
  const answer = stream.request(method, path, body, { Host: "agent", "Content-Type": "application/json" });
  const text = stream.whole(answer);
  idle = stream;
  return JSON.parse(text);
}

// call calls a method of a binding and returns its result. What is undefined is left out of params.
export function call(binding, method, params = {}) {
  const said = ask("POST", "/rpc/" + binding, JSON.stringify({ method, params }));
  if (said.error) throw new AgentError(said.error.code, said.error.message);
  return said.result;
}

// What the agent is: its identity, its channel, its handle, and the table config of its manifest.
export const id = jail.env("AGENT_ID");
export const channel = jail.env("CHANNEL");
export const handle = jail.env("HANDLE");
export const config = JSON.parse(jail.env("CONFIG") || "{}");
export const bindings = (jail.env("AGENT_BINDINGS") || "").split(",").filter((name) => name);

// Messages to the channel, and what its members offer. Messages are delivered when onEvent has returned.
export const pubsub = {
  // send returns the message's id. options are to, type and reply_to.
  send: (content, options = {}) => call("PUBSUB", "send", { content, options }).id,
  update: (id, content) => void call("PUBSUB", "update", { id, content }),
  complete: (id) => void call("PUBSUB", "complete", { id }),
  roster: () => call("PUBSUB", "roster"),
  discoverMethodDefs: () => call("PUBSUB", "discoverMethodDefs"),
  callMethod: (providerId, methodName, args = {}) => call("PUBSUB", "callMethod", { providerId, methodName, args }),
  getSettings: () => call("PUBSUB", "getSettings") || {},
  updateSettings: (patch) => void call("PUBSUB", "updateSettings", { patch }),
};

// The agent's own SQLite database. Its tables for memory are there from the beginning.
export const storage = {
  exec: (sql) => void call("STORAGE", "exec", { sql }),
  run: (sql, ...params) => call("STORAGE", "run", { sql, params }),
  get: (sql, ...params) => call("STORAGE", "get", { sql, params }),
  query: (sql, ...params) => call("STORAGE", "query", { sql, params }) || [],
};

// The text that an event of a model's answer adds, in the three forms of APIs that there are.
function delta(event) {
  if (event.type === "content_block_delta") return event.delta.text || "";
  if (event.type === "response.output_text.delta") return event.delta || "";
  const choice = (event.choices || [])[0];
  return (choice && choice.delta && choice.delta.content) || "";
}

// Models by role. Keys never come into the jail.
export const ai = {
  listRoles: () => call("AI", "listRoles"),

  // streamText yields the text of an answer as it comes. params are those of the method: role, prompt or messages, system, max_tokens and others.
  *streamText(params) {
    const stream = new Stream("JAIL_AGENT_FD");
    try {
      const body = JSON.stringify({ method: "streamText", params });
      const answer = stream.request("POST", "/rpc/AI", body, { Host: "agent", "Content-Type": "application/json" });
      if (!(answer.headers["content-type"] || "").startsWith("text/event-stream")) {
        const error = JSON.parse(stream.whole(answer)).error || {};
        throw new AgentError(error.code, error.message);
      }
      let name = "", bytes = "";
      for (const part of stream.parts(answer)) {
        bytes += part;
        for (let end; (end = bytes.indexOf("\n")) >= 0; bytes = bytes.slice(end + 1)) {
          const line = jail.utf8(bytes.slice(0, end)).trimEnd();
          if (line === "") name = "";
          else if (line.startsWith("event:")) name = line.slice(6).trim();
          else if (line.startsWith("data:") && line.slice(5).trim() !== "[DONE]") {
            const event = JSON.parse(line.slice(5));
            if (name === "error") throw new AgentError(event.code || "model", event.message || line);
            const text = delta(event);
            if (text) yield text;
          }
        }
      }
    } finally {
      stream.close();
    }
  },

  // ask returns the text of an answer.
  ask: (prompt) => [...ai.streamText({ prompt })].join(""),
};

// What the model of a tick is told first. The libraries of all languages have the same text and the same statements.
const TICK = `You work towards your goals by yourself, one step at a time. You are told your open goals, what you did lately, and what you have learned. Do the next step,
and answer with one JSON object:
{"summary": "what you did, in a sentence", "goals": [{"id": "g1", "progress": 0.5, "status": "open"}],
 "patterns": [{"id": "p1", "pattern_type": "habit", "description": "what you have learned", "confidence": 0.8}]}
The status of a goal that you have reached is "done". Leave out goals and patterns that do not change.`;

// Reads what the model is told; no row if no goal is open.
const TICK_CONTEXT = `SELECT json_object(
'goals', (SELECT json_group_array(json_object('id', id, 'description', description,
'priority', priority, 'status', status, 'progress', progress)) FROM (SELECT * FROM goals
WHERE coalesce(status, '') NOT IN ('done', 'dropped') ORDER BY priority DESC, id)),
'memories', (SELECT json_group_array(json_object('started_at', started_at, 'summary', summary))
FROM (SELECT * FROM conversations WHERE summary <> '' ORDER BY started_at DESC, id DESC LIMIT 10)),
'patterns', (SELECT json_group_array(json_object('id', id, 'pattern_type', pattern_type,
'description', description, 'confidence', confidence)) FROM (SELECT * FROM learned_patterns
ORDER BY confidence DESC, id LIMIT 20))) AS context
WHERE EXISTS (SELECT 1 FROM goals WHERE coalesce(status, '') NOT IN ('done', 'dropped'))`;

// Reads an answer, ?1: the JSON object in it, its summary, and what is published.
const TICK_SAID = `SELECT said, summary, json_object('text', summary,
'goals', (SELECT json_group_array(id) FROM goals
WHERE coalesce(status, '') NOT IN ('done', 'dropped') AND id IN
(SELECT json_extract(said, fullkey || '.id') FROM json_each(said, '$.goals')
WHERE json_type(said, '$.goals') = 'array' AND json_type(said, fullkey || '.id') = 'text')),
'patterns', (SELECT json_group_array(json_extract(said, fullkey || '.id'))
FROM json_each(said, '$.patterns') WHERE json_type(said, '$.patterns') = 'array'
AND json_type(said, fullkey || '.id') = 'text' AND json_extract(said, fullkey || '.id') <> ''
AND json_type(said, fullkey || '.description') = 'text'
AND json_extract(said, fullkey || '.description') <> '')) AS result
FROM (SELECT said, CASE json_type(said, '$.summary') WHEN 'text' THEN json_extract(said, '$.summary')
ELSE trim(?1, char(32, 9, 10, 13)) END AS summary FROM (SELECT CASE WHEN NOT json_valid(text) THEN '{}'
WHEN json_type(text) <> 'object' THEN '{}' ELSE text END AS said FROM (SELECT
substr(rtrim(?1, replace(?1, '}', '')), instr(?1, '{')) AS text)))`;

// Keeps an answer: ?1 is its object, ?2 the id of the conversation, ?3 what the model was told, ?4 the answer, ?5 its summary.
const TICK_KEEP = `UPDATE goals SET
progress = CASE WHEN json_type(?1, at || '.progress') IN ('integer', 'real')
THEN min(max(json_extract(?1, at || '.progress'), 0.0), 1.0) ELSE progress END,
status = CASE json_type(?1, at || '.status') WHEN 'text' THEN json_extract(?1, at || '.status')
ELSE status END FROM (SELECT fullkey AS at, json_extract(?1, fullkey || '.id') AS goal
FROM json_each(?1, '$.goals') WHERE json_type(?1, '$.goals') = 'array'
AND json_type(?1, fullkey || '.id') = 'text')
WHERE id = goal AND coalesce(status, '') NOT IN ('done', 'dropped');
INSERT INTO learned_patterns SELECT json_extract(?1, fullkey || '.id'),
CASE json_type(?1, fullkey || '.pattern_type') WHEN 'text'
THEN json_extract(?1, fullkey || '.pattern_type') ELSE '' END,
json_extract(?1, fullkey || '.description'),
CASE WHEN json_type(?1, fullkey || '.confidence') IN ('integer', 'real')
THEN min(max(json_extract(?1, fullkey || '.confidence'), 0.0), 1.0) ELSE 0.5 END
FROM json_each(?1, '$.patterns') WHERE json_type(?1, '$.patterns') = 'array'
AND json_type(?1, fullkey || '.id') = 'text' AND json_extract(?1, fullkey || '.id') <> ''
AND json_type(?1, fullkey || '.description') = 'text'
AND json_extract(?1, fullkey || '.description') <> ''
ON CONFLICT DO UPDATE SET pattern_type = excluded.pattern_type,
description = excluded.description, confidence = excluded.confidence;
INSERT INTO conversations VALUES (?2, CAST(strftime('%s', 'now') AS INTEGER), ?5, 0);
INSERT INTO messages VALUES (?2 || '/1', ?2, 'user', ?3, CAST(strftime('%s', 'now') AS INTEGER)),
(?2 || '/2', ?2, 'assistant', ?4, CAST(strftime('%s', 'now') AS INTEGER))`;

// tick takes one step towards the goals in the agent's memory, for an event of the type tick with that id: it tells the model the open goals, the last
// memories and the surest patterns, keeps the answer in goals, learned_patterns, conversations and messages, and publishes it with the type tick_result. It
// returns what it published, null if no goal is open: then it asks no model. An answer that is no JSON is a summary, and changes no goal.
export function tick(id, { role, instructions = "" } = {}) {
  const told = storage.get(TICK_CONTEXT);
  if (!told) return null;
  const system = (TICK + "\n\n" + instructions).trim();
  const answer = [...ai.streamText({ role, system, prompt: told.context })].join("");
  const { said, summary, result } = storage.get(TICK_SAID, answer);
  storage.run(TICK_KEEP, said, id, told.context, answer, summary);
  pubsub.send(JSON.parse(result), { type: "tick_result" });
  return JSON.parse(result);
}

// fetch requests a URL through the fetch proxy, with capabilities.network = true. It returns the status, the headers and the text.
export function fetch(url, options = {}) {
  const stream = new Stream("JAIL_FETCH_FD");
  try {
    const host = url.split("/")[2];
    const headers = Object.assign({ Host: host, Connection: "close" }, options.headers);
    const answer = stream.request(options.method || "GET", url, options.body || "", headers);
    answer.text = stream.whole(answer);
    return answer;
  } finally {
    stream.close();
  }
}

// log writes a line into the log. level is info, warn or error.
export const log = (message, level = "info") => void call("HOST", "log", { level, message: String(message) });

// setState says what "jail agent list" shows of this agent.
export const setState = (state) => void call("HOST", "setState", { state });

// setAlarm sets the alarm of that name: an event of the type alarm comes in so many milliseconds, or at a Date, with data.
export function setAlarm(name, when, data) {
  const at = when instanceof Date ? { at: when.toISOString() } : { in_ms: Math.max(1, Math.round(when)) };
  call("HOST", "setAlarm", { name, data, ...at });
}

export const clearAlarm = (name) => void call("HOST", "clearAlarm", { name });

// propose asks for the approval of an action and returns the proposal's id. What is decided comes as an event of the type approval.
export const propose = (action) => call("HOST", "propose", { action }).id;

// A child of the agent: its own database, its own jail, and of what the agent has what the agent asks for it. Only the agent calls it.
class Facet {
  constructor(said) {
    Object.assign(this, said);
  }

  call(method, args) {
    return callAll([{ name: this.name, method, args }])[0].get();
  }
}

// facet gets the facet of that name, or makes it. ask has class (one of the agents that run was given), bindings (names such as "STORAGE"), network,
// facets, policy (the text of a policy file), limits (as in ["memory=32MiB"]), storage (bytes), gatekeepers (names) and config. The facet gets of that what the agent has
// itself. It needs capabilities.facets = true.
export const facet = (name, ask = {}) => new Facet(call("HOST", "facet", { name, ...ask }));

// callAll calls facets in parallel: calls are { name, method, args }. It returns { result, error, get() } for each.
export const callAll = (calls) =>
  call("HOST", "callFacets", { calls }).map(({ result, error }) => ({
    result,
    error: error && new AgentError(error.code, error.message),
    get() {
      if (this.error) throw this.error;
      return this.result;
    },
  }));

// facets returns the facets that there are.
export const facets = () => call("HOST", "facets").map((said) => new Facet(said));

// abortFacet ends a facet at once. What it has committed stays, and the next call starts it anew.
export const abortFacet = (name, reason = "") => void call("HOST", "abortFacet", { name, reason });

// deleteFacet ends a facet, and removes its storage and its own facets.
export const deleteFacet = (name) => void call("HOST", "deleteFacet", { name });

// The same for facets that are agents.
export { facet as subAgent, abortFacet as abortSubAgent, deleteFacet as deleteSubAgent };

// load runs a program once, in a fresh jail without files and network. options are mainModule, modules and env: mainModule names one of the modules by its
// ending (.wasm, .py, .js), modules are texts or { base64 } by their names. env is all that the program has: texts are variables, and { facet: name },
// { gatekeeper: name } and { binding: "AI" } are bindings. A program in JavaScript that has this module among its own calls them by call(name, method, params).
// It returns exitCode, stdout, stderr, limit, trap, usage.
export const load = (executionId, options) => call("HOST", "load", { executionId, globalOutbound: null, ...options });

// gate is a session with a gatekeeper of the owner's: it reads at once, and what it wants to write waits for an approval. The manifest names the gatekeeper.
// propose returns id, state, before and after of the action, whose end comes as an event of the type approval with that id as reply_to. The same event that
// comes again proposes it once.
export const gate = (gatekeeper) => ({
  describe: () => call("HOST", "gatekeepers", { gatekeeper })[0],
  read: (method, args = {}) => call("HOST", "gateRead", { gatekeeper, method, args }),
  propose: (action, args = {}, words = "") => call("HOST", "gatePropose", { gatekeeper, action, args, words }),
});

// gatekeepers returns what the gatekeepers are that this agent may use.
export const gatekeepers = () => call("HOST", "gatekeepers");

// command runs a tool that the manifest names in capabilities.tools, in a jail of its own. argv is a command of a bundle and its arguments, options are
// stdin, cwd (below the workspace), env, limits (as in ["wall=5s"]) and conversation, which has a shadow of the workspace of its own. It returns exitCode, stdout, stderr, truncated and meta. An error with the code
// pending says that somebody has to approve it first: the event of the type approval says what is decided.
export const command = (argv, options) => call("HOST", "command", { argv, ...options });

// proposeChanges proposes to commit what tools changed in a conversation, and returns id, state, added, modified and deleted. It replaces a proposal of the
// conversation that waits. The event of the type approval says what is decided; changes that come after this make the proposal stale.
export const proposeChanges = (conversation = "", words = "") => call("HOST", "proposeChanges", { conversation, words });

// discardChanges ends a conversation, and throws away what is not committed.
export const discardChanges = (conversation = "") => void call("HOST", "discardChanges", { conversation });

// run runs an agent until it is asked to sleep: onWake(reason), onEvent(event) for each event, one at a time and in order, and onSleep(). An event has
// the fields of docs/agent-abi.md, and text and fromAgent. onCall(method, args) returns the result of a call of the parent, or of another agent; without
// it, calls are events of the type call. With facets, agent is { classes: { "": agent, NAME: agent of that class } }.
export async function run(agent) {
  if (agent.classes) agent = agent.classes[jail.env("CLASS") || ""];
  call("HOST", "ready");
  for (;;) {
    const next = ask("GET", "/events?wait=" + WAIT_MS, "");
    if (next.type === "wake" && agent.onWake) await agent.onWake(next.wake.reason);
    else if (next.type === "event") await one(agent, next.event);
    else if (next.type === "sleep") {
      if (agent.onSleep) await agent.onSleep();
      return;
    }
  }
}

async function one(agent, event) {
  const data = event.data;
  // Two agents that answer each other's messages on one channel never end.
  event.fromAgent = event.source.startsWith("agent:");
  event.text = typeof data === "string" ? data : (data && typeof data.text === "string" && data.text) || "";
  try {
    if (event.type === "call" && agent.onCall) {
      const result = await agent.onCall(data.method, data.args);
      call("HOST", "return", { result: result === undefined ? null : result });
    } else if (agent.onEvent) await agent.onEvent(event);
  } catch (e) {
    jail.log(e + "\n" + (e.stack || ""));
    call("HOST", "fail", { seq: event.seq, message: String(e) });
    return;
  }
  try {
    call("HOST", "checkpoint", { seq: event.seq });
  } catch (e) {
    // The host has said so itself, and delivers the event again.
    jail.log("event " + event.seq + " is not committed: " + e.message);
  }
}
