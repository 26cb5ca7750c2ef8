//! The bindings of an agent in a jail, for Rust compiled to WebAssembly (WASI preview 1).
//!
//! ```no_run
//! struct Echo;
//!
//! impl jail_agent::Agent for Echo {
//!     fn on_event(&mut self, event: &jail_agent::Event) -> jail_agent::Result<()> {
//!         jail_agent::send(&format!("echo: {}", event.text()), Some(&event.id))?;
//!         Ok(())
//!     }
//! }
//!
//! fn main() {
//!     jail_agent::run(&mut Echo)
//! }
//! ```
//!
//! The module stands on the host functions of docs/agent-abi.md. A program that uses nothing of `storage` or `ai` does not import those bindings; for the
//! others the manifest must ask. One event is one transaction: what `on_event` writes to storage and what it sends are there together when it returns `Ok`,
//! or not at all. Then the event comes again, with the kind `replay`.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::fmt;

macro_rules! binding {
    ($name:ident, $module:literal) => {
        mod $name {
            #[link(wasm_import_module = $module)]
            extern "C" {
                pub fn call(method: *const u8, method_len: usize, params: *const u8, params_len: usize, handle: *mut u32) -> u32;
                pub fn read(handle: u32, to: *mut u8, len: usize, got: *mut u32) -> u32;
                pub fn close(handle: u32) -> u32;
                pub fn error(to: *mut u8, len: usize, total: *mut u32) -> u32;
            }
            pub(super) fn binding() -> super::Binding {
                super::Binding { call, read, close, error }
            }
        }
    };
}

binding!(abi_host, "jail_agent_host_v1");
binding!(abi_pubsub, "jail_agent_pubsub_v1");
binding!(abi_storage, "jail_agent_storage_v1");
binding!(abi_ai, "jail_agent_ai_v1");

mod abi_wait {
    #[link(wasm_import_module = "jail_agent_host_v1")]
    extern "C" {
        pub fn wait(ms: u32, handle: *mut u32) -> u32;
    }
}

/// The functions of one binding.
struct Binding {
    call: unsafe extern "C" fn(*const u8, usize, *const u8, usize, *mut u32) -> u32,
    read: unsafe extern "C" fn(u32, *mut u8, usize, *mut u32) -> u32,
    close: unsafe extern "C" fn(u32) -> u32,
    error: unsafe extern "C" fn(*mut u8, usize, *mut u32) -> u32,
}

/// Why a call did not work: a code for programs, such as no_binding, busy or storage, and words.
#[derive(Debug, Clone)]
pub struct Error {
    pub code: String,
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<String> for Error {
    fn from(message: String) -> Self {
        Error { code: "failed".into(), message }
    }
}

impl From<&str> for Error {
    fn from(message: &str) -> Self {
        message.to_string().into()
    }
}

pub type Result<T> = std::result::Result<T, Error>;

/// An answer that is open.
struct Answer {
    of: Binding,
    handle: u32,
}

impl Drop for Answer {
    fn drop(&mut self) {
        unsafe { (self.of.close)(self.handle) };
    }
}

impl Binding {
    fn check(&self, number: u32) -> Result<()> {
        if number == 0 {
            return Ok(());
        }
        let mut text = vec![0u8; 512];
        let mut total = 0u32;
        let failed = unsafe { (self.error)(text.as_mut_ptr(), text.len(), &mut total) };
        text.truncate(if failed == 0 { total as usize } else { 0 });
        Err(format!("error {}: {}", number, String::from_utf8_lossy(&text)).into())
    }

    fn open(self, method: &str, params: &Json) -> Result<Answer> {
        let params = params.to_string();
        let mut handle = 0u32;
        let number = unsafe { (self.call)(method.as_ptr(), method.len(), params.as_ptr(), params.len(), &mut handle) };
        self.check(number)?;
        Ok(Answer { of: self, handle })
    }

    fn invoke(self, method: &str, params: Json) -> Result<Json> {
        unwrap(&self.open(method, &params)?.all()?)
    }
}

impl Answer {
    fn read(&self, to: &mut [u8]) -> Result<usize> {
        let mut got = 0u32;
        let number = unsafe { (self.of.read)(self.handle, to.as_mut_ptr(), to.len(), &mut got) };
        self.of.check(number)?;
        Ok(got as usize)
    }

    fn all(&self) -> Result<String> {
        let mut all = Vec::new();
        let mut part = [0u8; 8192];
        loop {
            match self.read(&mut part)? {
                0 => return Ok(String::from_utf8_lossy(&all).into_owned()),
                n => all.extend_from_slice(&part[..n]),
            }
        }
    }
}

fn unwrap(text: &str) -> Result<Json> {
    let said = Json::parse(text)?;
    let error = &said["error"];
    if *error != Json::Null {
        return Err(error_of(error));
    }
    Ok(said["result"].clone())
}

fn error_of(said: &Json) -> Error {
    Error { code: said["code"].text().into(), message: said["message"].text().into() }
}

/// What an agent is woken for; docs/agent-abi.md describes the fields.
#[derive(Debug, Clone)]
pub struct Event {
    pub seq: i64,
    pub attempt: i64,
    pub id: String,
    pub time: String,
    pub source: String,
    pub channel: String,
    pub kind: String,
    pub event_type: String,
    pub reply_to: String,
    pub data: Json,
}

impl Event {
    fn new(said: &Json) -> Self {
        let text = |name: &str| said[name].text().to_string();
        Event {
            seq: said["seq"].number() as i64,
            attempt: said["attempt"].number() as i64,
            id: text("id"),
            time: text("time"),
            source: text("source"),
            channel: text("channel"),
            kind: text("kind"),
            event_type: text("type"),
            reply_to: text("reply_to"),
            data: said["data"].clone(),
        }
    }

    /// Whether another agent sent it. Two agents that answer each other's messages on one channel never end.
    pub fn from_agent(&self) -> bool {
        self.source.starts_with("agent:")
    }

    /// The text of a message: data if that is a text, or its field text; else "".
    pub fn text(&self) -> &str {
        match &self.data {
            Json::Text(text) => text,
            other => other["text"].text(),
        }
    }
}

/// An agent. Each handler may be left out.
pub trait Agent {
    /// Called first, with the reason: message, mention, direct, alarm, tick and others.
    fn on_wake(&mut self, _reason: &str) -> Result<()> {
        Ok(())
    }
    /// Called for each event, one at a time and in order.
    fn on_event(&mut self, _event: &Event) -> Result<()> {
        Ok(())
    }
    /// Returns the result of a call: of the parent, for a facet, and of other agents. `None`: calls are events of the type call.
    fn on_call(&mut self, _method: &str, _args: &Json) -> Option<Result<Json>> {
        None
    }
    /// Called last, within a few seconds.
    fn on_sleep(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Runs an agent until it is asked to sleep, and ends the program.
pub fn run(agent: &mut dyn Agent) {
    if let Err(e) = serve(agent) {
        eprintln!("{}", e);
        std::process::exit(1);
    }
}

fn serve(agent: &mut dyn Agent) -> Result<()> {
    host("ready", Json::object(vec![]))?;
    loop {
        let of = abi_host::binding();
        let mut handle = 0u32;
        let number = unsafe { abi_wait::wait(30000, &mut handle) };
        of.check(number)?;
        let next = Json::parse(&Answer { of, handle }.all()?)?;
        match next["type"].text() {
            "wake" => agent.on_wake(next["wake"]["reason"].text())?,
            "event" => one(agent, &Event::new(&next["event"]))?,
            "sleep" => return agent.on_sleep(),
            _ => {}
        }
    }
}

fn one(agent: &mut dyn Agent, event: &Event) -> Result<()> {
    let seq = ("seq", Json::from(event.seq));
    if let Err(e) = work(agent, event) {
        eprintln!("event {}: {}", event.seq, e);
        host("fail", Json::object(vec![seq, ("message", e.message.as_str().into())]))?;
    } else if let Err(e) = host("checkpoint", Json::object(vec![seq])) {
        // The host has said so itself, and delivers the event again.
        eprintln!("event {} is not committed: {}", event.seq, e);
    }
    Ok(())
}

fn work(agent: &mut dyn Agent, event: &Event) -> Result<()> {
    if event.event_type == "call" {
        if let Some(result) = agent.on_call(event.data["method"].text(), &event.data["args"]) {
            return host("return", Json::object(vec![("result", result?)])).map(drop);
        }
    }
    agent.on_event(event)
}

fn host(method: &str, params: Json) -> Result<Json> {
    abi_host::binding().invoke(method, params)
}

/// Writes a line into the log. level is info, warn or error.
pub fn log(level: &str, message: &str) -> Result<()> {
    host("log", Json::object(vec![("level", level.into()), ("message", message.into())])).map(drop)
}

/// Says what "jail agent list" shows of this agent.
pub fn set_state(state: Json) -> Result<()> {
    host("setState", Json::object(vec![("state", state)])).map(drop)
}

/// Sets the alarm of that name: an event of the type alarm comes in so many milliseconds.
pub fn set_alarm(name: &str, in_ms: i64, data: Json) -> Result<()> {
    host("setAlarm", Json::object(vec![("name", name.into()), ("in_ms", in_ms.into()), ("data", data)])).map(drop)
}

/// Sets the alarm of that name for a time as in RFC 3339.
pub fn set_alarm_at(name: &str, at: &str, data: Json) -> Result<()> {
    host("setAlarm", Json::object(vec![("name", name.into()), ("at", at.into()), ("data", data)])).map(drop)
}

pub fn clear_alarm(name: &str) -> Result<()> {
    host("clearAlarm", Json::object(vec![("name", name.into())])).map(drop)
}

/// Asks for the approval of an action, and returns the proposal's id. What is decided comes as an event of the type approval.
pub fn propose(action: Json) -> Result<String> {
    Ok(host("propose", Json::object(vec![("action", action)]))?["id"].text().into())
}

/// Which of the agents of its module a facet is, as its parent named it; "" for the agent itself.
pub fn class() -> String {
    std::env::var("CLASS").unwrap_or_default()
}

/// Gets the facet of that name, or makes it, and returns what it is. ask has the fields class, bindings (names such as STORAGE), network, facets, policy (the
/// text of a policy file), limits (as in memory=32MiB), storage (bytes), gatekeepers (names) and config. The facet gets of that what the agent has itself. It
/// needs capabilities.facets = true.
pub fn facet(name: &str, ask: Vec<(&str, Json)>) -> Result<Json> {
    let mut params = ask;
    params.push(("name", name.into()));
    host("facet", Json::object(params))
}

/// The facets that there are.
pub fn facets() -> Result<Json> {
    host("facets", Json::object(vec![]))
}

/// Calls facets in parallel, each by its name, a method and arguments, and returns what each returned.
pub fn call_all(calls: Vec<(&str, &str, Json)>) -> Result<Vec<Result<Json>>> {
    let all = calls
        .into_iter()
        .map(|(name, method, args)| Json::object(vec![("name", name.into()), ("method", method.into()), ("args", args)]))
        .collect();
    let said = host("callFacets", Json::object(vec![("calls", Json::List(all))]))?;
    let result = |one: &Json| match &one["error"] {
        Json::Null => Ok(one["result"].clone()),
        error => Err(error_of(error)),
    };
    Ok(said.items().iter().map(result).collect())
}

/// Calls a facet, and returns its result.
pub fn call_facet(name: &str, method: &str, args: Json) -> Result<Json> {
    call_all(vec![(name, method, args)])?.pop().unwrap_or_else(|| Err("no answer".into()))
}

/// Ends a facet at once. What it has committed stays, and the next call starts it anew.
pub fn abort_facet(name: &str, reason: &str) -> Result<()> {
    host("abortFacet", Json::object(vec![("name", name.into()), ("reason", reason.into())])).map(drop)
}

/// Ends a facet, and removes its storage and its own facets.
pub fn delete_facet(name: &str) -> Result<()> {
    host("deleteFacet", Json::object(vec![("name", name.into())])).map(drop)
}

/// Runs a program once, in a fresh jail without files and network. main_module names one of modules by its ending: .wasm, .py or .js. A module is a text, or
/// an object with its bytes as base64. env is all that the program has: texts are variables, and objects with facet, gatekeeper or binding (AI) are bindings.
/// The result has exitCode, stdout, stderr, limit, trap and usage.
pub fn load(execution_id: &str, main_module: &str, modules: Json, env: Json) -> Result<Json> {
    host("load", Json::object(vec![("executionId", execution_id.into()), ("mainModule", main_module.into()), ("modules", modules), ("env", env)]))
}

/// Runs a tool that the manifest names in capabilities.tools, in a jail of its own. argv is a command of a bundle and its arguments; more is an object with
/// cwd (below the workspace), env, stdin, limits (as in ["wall=5s"]) and conversation, which has a shadow of the workspace of its own. The result has exitCode, stdout, stderr, truncated and meta. An error with the code
/// pending says that somebody has to approve it first: the event of the type approval says what is decided.
pub fn command(argv: &[&str], more: Json) -> Result<Json> {
    let mut params = vec![("argv", Json::List(argv.iter().map(|a| (*a).into()).collect()))];
    for key in ["cwd", "env", "stdin", "limits", "conversation"] {
        if !matches!(more[key], Json::Null) {
            params.push((key, more[key].clone()));
        }
    }
    host("command", Json::object(params))
}

/// Proposes to commit what tools changed in a conversation, and returns id, state, added, modified and deleted. It replaces a proposal of the conversation
/// that waits. The event of the type approval says what is decided; changes that come after this make the proposal stale.
pub fn propose_changes(conversation: &str, words: &str) -> Result<Json> {
    host("proposeChanges", Json::object(vec![("conversation", conversation.into()), ("words", words.into())]))
}

/// Ends a conversation, and throws away what is not committed.
pub fn discard_changes(conversation: &str) -> Result<()> {
    host("discardChanges", Json::object(vec![("conversation", conversation.into())])).map(drop)
}

pub use abort_facet as abort_sub_agent;
pub use delete_facet as delete_sub_agent;
/// The same for facets that are agents.
pub use facet as sub_agent;

/// What the gatekeepers are that this agent may use: a list, or that of one name.
pub fn gatekeepers(name: Option<&str>) -> Result<Json> {
    host("gatekeepers", Json::object(name.map(|name| ("gatekeeper", name.into())).into_iter().collect()))
}

/// Reads by a gatekeeper of the owner's, such as rows of a table. args is an object. The manifest names the gatekeeper.
pub fn gate_read(gatekeeper: &str, method: &str, args: Json) -> Result<Json> {
    host("gateRead", Json::object(vec![("gatekeeper", gatekeeper.into()), ("method", method.into()), ("args", args)]))
}

/// Proposes an action of a gatekeeper and returns its id, state, before and after. Its end comes as an event of the type approval, whose reply_to is the id. The
/// same event that comes again proposes it once. words are for those who decide.
pub fn gate_propose(gatekeeper: &str, action: &str, args: Json, words: &str) -> Result<Json> {
    let params = vec![("gatekeeper", gatekeeper.into()), ("action", action.into()), ("args", args), ("words", words.into())];
    host("gatePropose", Json::object(params))
}

fn pubsub(method: &str, params: Vec<(&str, Json)>) -> Result<Json> {
    abi_pubsub::binding().invoke(method, Json::object(params))
}

/// Sends a text to the channel of the event, and returns the message's id. It is delivered when `on_event` has returned.
pub fn send(text: &str, reply_to: Option<&str>) -> Result<String> {
    let options = reply_to.map(|id| ("reply_to", Json::from(id))).into_iter().collect();
    send_json(text.into(), Json::object(options))
}

/// Sends any JSON, with the options to, type and reply_to.
pub fn send_json(content: Json, options: Json) -> Result<String> {
    Ok(pubsub("send", vec![("content", content), ("options", options)])?["id"].text().into())
}

/// Replaces what a message says.
pub fn update(id: &str, content: Json) -> Result<()> {
    pubsub("update", vec![("id", id.into()), ("content", content)]).map(drop)
}

/// Says that a message gets no more updates.
pub fn complete(id: &str) -> Result<()> {
    pubsub("complete", vec![("id", id.into())]).map(drop)
}

/// The members of the channel.
pub fn roster() -> Result<Json> {
    pubsub("roster", vec![])
}

/// The methods that members offer: providerId, methodName, description and schema of each.
pub fn discover() -> Result<Json> {
    pubsub("discoverMethodDefs", vec![])
}

pub fn call_method(provider: &str, method: &str, args: Json) -> Result<Json> {
    pubsub("callMethod", vec![("providerId", provider.into()), ("methodName", method.into()), ("args", args)])
}

pub fn settings() -> Result<Json> {
    pubsub("getSettings", vec![])
}

/// Merges into the settings of the channel.
pub fn update_settings(patch: Json) -> Result<()> {
    pubsub("updateSettings", vec![("patch", patch)]).map(drop)
}

/// The agent's own SQLite database. Its tables for memory are there from the beginning.
pub mod storage {
    use super::{abi_storage, Json, Result};

    fn invoke(method: &str, sql: &str, params: Vec<Json>) -> Result<Json> {
        abi_storage::binding().invoke(method, Json::object(vec![("sql", sql.into()), ("params", Json::List(params))]))
    }

    /// Executes a statement, such as CREATE TABLE.
    pub fn exec(sql: &str) -> Result<()> {
        abi_storage::binding().invoke("exec", Json::object(vec![("sql", sql.into())])).map(drop)
    }

    /// Executes a statement with parameters, and returns {"changes", "lastRowId"}.
    pub fn run(sql: &str, params: Vec<Json>) -> Result<Json> {
        invoke("run", sql, params)
    }

    /// Returns the first row as an object, or Null.
    pub fn get(sql: &str, params: Vec<Json>) -> Result<Json> {
        invoke("get", sql, params)
    }

    /// Returns all rows, a list of objects.
    pub fn query(sql: &str, params: Vec<Json>) -> Result<Json> {
        invoke("query", sql, params)
    }
}

/// Models by role. Keys never come into the jail.
pub mod ai {
    use super::{abi_ai, error_of, unwrap, Error, Json, Result};

    pub fn roles() -> Result<Json> {
        abi_ai::binding().invoke("listRoles", Json::object(vec![]))
    }

    /// Asks a model, and calls part with each part of its answer's text. params are those of streamText: role, prompt or messages, system and others.
    pub fn stream(params: Json, part: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        let answer = abi_ai::binding().open("streamText", &params)?;
        let mut lines = Lines { line: Vec::new(), is_error: false };
        let mut bytes = [0u8; 8192];
        loop {
            let n = answer.read(&mut bytes)?;
            if n == 0 {
                return lines.take(part);
            }
            for c in &bytes[..n] {
                match c {
                    b'\n' => lines.take(part)?,
                    b'\r' => {}
                    c => lines.line.push(*c),
                }
            }
        }
    }

    /// Asks a model and returns the text of its answer.
    pub fn ask(prompt: &str) -> Result<String> {
        let mut all = String::new();
        stream(Json::object(vec![("prompt", prompt.into())]), &mut |text| {
            all.push_str(text);
            Ok(())
        })?;
        Ok(all)
    }

    struct Lines {
        line: Vec<u8>,
        is_error: bool,
    }

    impl Lines {
        fn take(&mut self, part: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
            let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
            if line.is_empty() {
                self.is_error = false;
            } else if line.starts_with('{') {
                // The answer is no stream.
                unwrap(&line)?;
            } else if let Some(name) = line.strip_prefix("event:") {
                self.is_error = name.trim() == "error";
            } else if let Some(data) = line.strip_prefix("data:") {
                let data = data.trim();
                if data == "[DONE]" {
                    return Ok(());
                }
                let event = Json::parse(data)?;
                if self.is_error {
                    let e: Error = error_of(&event);
                    return Err(e);
                }
                let text = delta(&event);
                if !text.is_empty() {
                    return part(text);
                }
            }
            Ok(())
        }
    }

    /// The text that an event of a model's answer adds, in the three forms of APIs that there are.
    fn delta(event: &Json) -> &str {
        match event["type"].text() {
            "content_block_delta" => event["delta"]["text"].text(),
            "response.output_text.delta" => event["delta"].text(),
            _ => event["choices"].items().first().map_or("", |choice| choice["delta"]["content"].text()),
        }
    }
}

/// What the model of a tick is told first. The libraries of all languages have the same text and the same statements.
const TICK: &str = "You work towards your goals by yourself, one step at a time. You are told your open goals, what you did lately, and what you have learned. Do the next step,
and answer with one JSON object:
{\"summary\": \"what you did, in a sentence\", \"goals\": [{\"id\": \"g1\", \"progress\": 0.5, \"status\": \"open\"}],
 \"patterns\": [{\"id\": \"p1\", \"pattern_type\": \"habit\", \"description\": \"what you have learned\", \"confidence\": 0.8}]}
The status of a goal that you have reached is \"done\". Leave out goals and patterns that do not change.";

/// Reads what the model is told; no row if no goal is open.
const TICK_CONTEXT: &str = "SELECT json_object(
'goals', (SELECT json_group_array(json_object('id', id, 'description', description,
'priority', priority, 'status', status, 'progress', progress)) FROM (SELECT * FROM goals
WHERE coalesce(status, '') NOT IN ('done', 'dropped') ORDER BY priority DESC, id)),
'memories', (SELECT json_group_array(json_object('started_at', started_at, 'summary', summary))
FROM (SELECT * FROM conversations WHERE summary <> '' ORDER BY started_at DESC, id DESC LIMIT 10)),
'patterns', (SELECT json_group_array(json_object('id', id, 'pattern_type', pattern_type,
'description', description, 'confidence', confidence)) FROM (SELECT * FROM learned_patterns
ORDER BY confidence DESC, id LIMIT 20))) AS context
WHERE EXISTS (SELECT 1 FROM goals WHERE coalesce(status, '') NOT IN ('done', 'dropped'))";

/// Reads an answer, ?1: the JSON object in it, its summary, and what is published.
const TICK_SAID: &str = "SELECT said, summary, json_object('text', summary,
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
substr(rtrim(?1, replace(?1, '}', '')), instr(?1, '{')) AS text)))";

/// Keeps an answer: ?1 is its object, ?2 the id of the conversation, ?3 what the model was told, ?4 the answer, ?5 its summary.
const TICK_KEEP: &str = "UPDATE goals SET
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
(?2 || '/2', ?2, 'assistant', ?4, CAST(strftime('%s', 'now') AS INTEGER))";

/// Takes one step towards the goals in the agent's memory, for an event of the type tick with that id: it tells the model the open goals, the last memories
/// and the surest patterns, keeps the answer in goals, learned_patterns, conversations and messages, and publishes it with the type tick_result. Returns what
/// it published, Null if no goal is open: then it asks no model. An answer that is no JSON is a summary, and changes no goal.
pub fn tick(id: &str, role: Option<&str>, instructions: &str) -> Result<Json> {
    let told = storage::get(TICK_CONTEXT, vec![])?;
    let context = &told["context"];
    if *context == Json::Null {
        return Ok(Json::Null);
    }
    let system = format!("{}\n\n{}", TICK, instructions);
    let mut params = vec![("system", system.trim().into()), ("prompt", context.clone())];
    params.extend(role.map(|role| ("role", Json::from(role))));
    let mut answer = String::new();
    ai::stream(Json::object(params), &mut |part| {
        answer.push_str(part);
        Ok(())
    })?;
    let answer = Json::Text(answer);
    let read = storage::get(TICK_SAID, vec![answer.clone()])?;
    storage::run(TICK_KEEP, vec![read["said"].clone(), id.into(), context.clone(), answer, read["summary"].clone()])?;
    let result = Json::parse(read["result"].text())?;
    send_json(result.clone(), Json::object(vec![("type", "tick_result".into())]))?;
    Ok(result)
}

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

static NULL: Json = Json::Null;

impl Json {
    pub fn object(pairs: Vec<(&str, Json)>) -> Json {
        Json::Object(pairs.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
    }

    /// The text, or "" for anything else.
    pub fn text(&self) -> &str {
        match self {
            Json::Text(text) => text,
            _ => "",
        }
    }

    /// The number, or 0 for anything else.
    pub fn number(&self) -> f64 {
        match self {
            Json::Number(n) => *n,
            _ => 0.0,
        }
    }

    /// The items of a list; none for anything else.
    pub fn items(&self) -> &[Json] {
        match self {
            Json::List(items) => items,
            _ => &[],
        }
    }

    pub fn parse(text: &str) -> Result<Json> {
        let mut p = Parser { text: text.as_bytes(), at: 0 };
        let value = p.value(0)?;
        p.space();
        if p.at < p.text.len() {
            return Err("JSON: something behind the value".into());
        }
        Ok(value)
    }
}

impl std::ops::Index<&str> for Json {
    type Output = Json;

    /// The value of a key; Null if there is none.
    fn index(&self, key: &str) -> &Json {
        match self {
            Json::Object(all) => all.get(key).unwrap_or(&NULL),
            _ => &NULL,
        }
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Json::Text(text.into())
    }
}

impl From<i64> for Json {
    fn from(n: i64) -> Self {
        Json::Number(n as f64)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Bool(b) => write!(f, "{}", b),
            Json::Number(n) if n.is_finite() => write!(f, "{}", n),
            Json::Number(_) => f.write_str("null"),
            Json::Text(text) => quote(f, text),
            Json::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{}", if i > 0 { "," } else { "" }, item)?;
                }
                f.write_str("]")
            }
            Json::Object(all) => {
                f.write_str("{")?;
                for (i, (name, value)) in all.iter().enumerate() {
                    f.write_str(if i > 0 { "," } else { "" })?;
                    quote(f, name)?;
                    write!(f, ":{}", value)?;
                }
                f.write_str("}")
            }
        }
    }
}

fn quote(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{}", c)?,
            c if c < ' ' => write!(f, "\\u{:04x}", c as u32)?,
            c => write!(f, "{}", c)?,
        }
    }
    f.write_str("\"")
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn space(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\r' | b'\n') {
            self.at += 1;
        }
    }

    fn wrong<T>(&self) -> Result<T> {
        Err(format!("JSON: unexpected text at byte {}", self.at).into())
    }

    fn word(&mut self, word: &str, value: Json) -> Result<Json> {
        if !self.text[self.at..].starts_with(word.as_bytes()) {
            return self.wrong();
        }
        self.at += word.len();
        Ok(value)
    }

    fn value(&mut self, depth: usize) -> Result<Json> {
        self.space();
        if depth > 100 {
            return self.wrong();
        }
        match self.peek() {
            b'n' => self.word("null", Json::Null),
            b't' => self.word("true", Json::Bool(true)),
            b'f' => self.word("false", Json::Bool(false)),
            b'"' => Ok(Json::Text(self.string()?)),
            b'[' => self.list(depth),
            b'{' => self.map(depth),
            _ => self.number(),
        }
    }

    fn number(&mut self) -> Result<Json> {
        let start = self.at;
        while matches!(self.peek(), b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E') {
            self.at += 1;
        }
        match std::str::from_utf8(&self.text[start..self.at]).ok().and_then(|text| text.parse().ok()) {
            Some(n) => Ok(Json::Number(n)),
            None => self.wrong(),
        }
    }

    /// Goes past a comma and reports true, or past the closing mark and reports false.
    fn more(&mut self, close: u8) -> Result<bool> {
        self.space();
        let c = self.peek();
        self.at += 1;
        match c {
            b',' => Ok(true),
            c if c == close => Ok(false),
            _ => self.wrong(),
        }
    }

    fn empty(&mut self, close: u8) -> bool {
        self.at += 1;
        self.space();
        let empty = self.peek() == close;
        self.at += empty as usize;
        empty
    }

    fn list(&mut self, depth: usize) -> Result<Json> {
        let mut all = Vec::new();
        if !self.empty(b']') {
            loop {
                all.push(self.value(depth + 1)?);
                if !self.more(b']')? {
                    break;
                }
            }
        }
        Ok(Json::List(all))
    }

    fn map(&mut self, depth: usize) -> Result<Json> {
        let mut all = BTreeMap::new();
        if !self.empty(b'}') {
            loop {
                self.space();
                let name = self.string()?;
                self.space();
                self.word(":", Json::Null)?;
                all.insert(name, self.value(depth + 1)?);
                if !self.more(b'}')? {
                    break;
                }
            }
        }
        Ok(Json::Object(all))
    }

    fn string(&mut self) -> Result<String> {
        if self.peek() != b'"' {
            return self.wrong();
        }
        self.at += 1;
        let mut out = Vec::new();
        while self.at < self.text.len() {
            let c = self.peek();
            self.at += 1;
            match c {
                b'"' => return Ok(String::from_utf8_lossy(&out).into_owned()),
                b'\\' => self.escape(&mut out)?,
                c => out.push(c),
            }
        }
        self.wrong()
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let c = self.peek();
        self.at += 1;
        match c {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'u' => {
                let mut code = self.hex()?;
                if (0xd800..0xdc00).contains(&code) && self.text[self.at..].starts_with(b"\\u") {
                    self.at += 2;
                    code = 0x10000 + ((code - 0xd800) << 10) + (self.hex()?.wrapping_sub(0xdc00) & 0x3ff);
                }
                let c = char::from_u32(code).unwrap_or('\u{fffd}');
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            c => out.push(c),
        }
        Ok(())
    }

    fn hex(&mut self) -> Result<u32> {
        let digits = self.text.get(self.at..self.at + 4).and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|d| u32::from_str_radix(d, 16).ok()) {
            Some(n) => {
                self.at += 4;
                Ok(n)
            }
            None => self.wrong(),
        }
    }
}
