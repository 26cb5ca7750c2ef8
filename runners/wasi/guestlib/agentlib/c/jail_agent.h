// The bindings of an agent in a jail, for C and C++ compiled to WebAssembly (WASI preview 1).
//
// Compile jail_agent.c with your program; nothing else is needed. The functions stand on the host functions of docs/agent-abi.md. A program that uses
// none of jail_storage_... or jail_ai_... does not import those bindings; for the others the manifest must ask.
//
//	static int on_event(const jail_event *e) {
//		return jail_send(e->text, e->id, NULL);
//	}
//	int main(void) { return jail_agent_run(&(jail_agent){.on_event = on_event}); }
//
// One event is one transaction: what on_event writes to storage and what it sends are there together when it returns 0, or not at all. Then the
// event comes again, with the kind "replay".
#ifndef JAIL_AGENT_H
#define JAIL_AGENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// What an agent is woken for; docs/agent-abi.md describes the fields. Strings are never NULL, and are valid until the handler returns.
typedef struct {
	uint64_t seq;
	int attempt;
	const char *id, *time, *source, *channel, *type, *kind, *reply_to;
	// JSON.
	const char *data;
	// Whether another agent sent it. Two agents that answer each other's messages on one channel never end.
	int from_agent;
	// The text of a message: data if that is a text, or its field text; else "".
	const char *text;
} jail_event;

// The handlers of an agent; each may be NULL. They return 0, or another number if they failed.
typedef struct {
	// reason is message, mention, direct, alarm, tick and others.
	int (*on_wake)(const char *reason);
	// Events come one at a time and in order.
	int (*on_event)(const jail_event *e);
	// Has a few seconds.
	int (*on_sleep)(void);
	// A call of the parent, for a facet, or of another agent. Into *result comes JSON, which is freed. Without it, calls are events of the type call.
	int (*on_call)(const char *method, const char *args_json, char **result);
} jail_agent;

// Runs an agent until it is asked to sleep, and returns the exit code of the program.
int jail_agent_run(const jail_agent *a);

// All functions below return 0, or -1: then jail_agent_error says why, and jail_agent_error_code for programs (no_binding, busy, storage, ...).
const char *jail_agent_error(void);
const char *jail_agent_error_code(void);
// Sets them, and returns -1: why an event of yours failed.
int jail_agent_fail(const char *code, const char *message);

// HOST. level is info, warn or error. json is any JSON value.
int jail_log(const char *level, const char *message);
int jail_set_state(const char *json);
// An event of the type alarm comes in so many milliseconds, whose data has the field data: json, or nothing for NULL.
int jail_set_alarm(const char *name, int64_t in_ms, const char *json);
// The same at a time as in RFC 3339.
int jail_set_alarm_at(const char *name, const char *at, const char *json);
int jail_clear_alarm(const char *name);
// Asks for the approval of an action, which is JSON. What is decided comes as an event of the type approval, whose reply_to is the proposal's id. Into *id,
// unless id is NULL, comes that id, which the caller frees.
int jail_propose(const char *json, char **id);

// Which of the agents of its module a facet is, as its parent named it; "" for the agent itself.
const char *jail_agent_class(void);
// Gets the facet of that name, or makes it. ask is an object with class, bindings (names such as "STORAGE"), network, facets, policy (the text of a policy
// file), limits (as in ["memory=32MiB"]), storage (bytes), gatekeepers (names) and config; NULL for none. The facet gets of that what the agent has itself. It needs
// capabilities.facets = true. *json says what the facet is.
int jail_facet(const char *name, const char *ask, char **json);
// Calls a facet. args may be NULL.
int jail_call_facet(const char *name, const char *method, const char *args_json, char **json);
// Calls facets in parallel: a list of {"name": ..., "method": ..., "args": ...}. *json is a list of {"result": ...} or {"error": {"code": ..., "message": ...}}.
int jail_call_facets(const char *calls_json, char **json);
int jail_facets(char **json);
// Ends a facet at once. What it has committed stays, and the next call starts it anew.
int jail_abort_facet(const char *name, const char *reason);
// Ends a facet, and removes its storage and its own facets.
int jail_delete_facet(const char *name);
// Runs a program once, in a fresh jail without files and network. modules is an object of texts, or of {"base64": ...}, by their names; main_module names one
// of them by its ending: .wasm, .py or .js. env is all that the program has, or NULL: texts are variables, and {"facet": ...}, {"gatekeeper": ...} and
// {"binding": "AI"} are bindings. *json has exitCode, stdout, stderr, limit, trap and usage.
int jail_load(const char *execution_id, const char *main_module, const char *modules, const char *env, char **json);
// Runs a tool that the manifest names in capabilities.tools, in a jail of its own. argv is a list such as ["wc","-l"], a command of a bundle and its
// arguments; stdin_text may be NULL; more is an object with cwd (below the workspace), env, limits (as in ["wall=5s"]) and conversation,
// which has a shadow of the workspace of its own, or NULL. *json has exitCode,
// stdout, stderr, truncated and meta. An error with the code pending says that somebody has to approve it first: the event of the type approval says what
// is decided.
int jail_command(const char *argv, const char *stdin_text, const char *more, char **json);
// Proposes to commit what tools changed in a conversation; both may be NULL. It replaces a proposal of the conversation that waits. *json has id, state, added,
// modified and deleted. The event of the type approval says what is decided; changes that come after this make the proposal stale.
int jail_propose_changes(const char *conversation, const char *words, char **json);
// Ends a conversation, and throws away what is not committed.
int jail_discard_changes(const char *conversation);
// The same for facets that are agents.
#define jail_sub_agent jail_facet
#define jail_abort_sub_agent jail_abort_facet
#define jail_delete_sub_agent jail_delete_facet

// Gatekeepers of the owner's, which the manifest names. *json is a list of what those are that this agent may use, or of the one of that name; name may be NULL.
int jail_gatekeepers(const char *name, char **json);
// Reads at once, such as rows of a table. args is an object, or NULL.
int jail_gate_read(const char *gatekeeper, const char *method, const char *args, char **json);
// Proposes an action. *json has id, state, before and after. Its end comes as an event of the type approval, whose reply_to is the id. The same event that comes
// again proposes it once. words are for those who decide, and may be NULL.
int jail_gate_propose(const char *gatekeeper, const char *action, const char *args, const char *words, char **json);

// PUBSUB. Sends a text to the channel of the event. reply_to and id may be NULL; into *id comes the message's id, which the caller frees.
// Messages are delivered when on_event has returned.
int jail_send(const char *text, const char *reply_to, char **id);
// Sends any JSON, with options as JSON: {"to": ..., "type": ..., "reply_to": ...}.
int jail_send_json(const char *json, const char *options, char **id);
int jail_update(const char *id, const char *text);
int jail_complete(const char *id);
// Into *json comes the result, which the caller frees.
int jail_roster(char **json);
int jail_discover(char **json);
int jail_call_method(const char *provider, const char *method, const char *args_json, char **json);
int jail_get_settings(char **json);
int jail_update_settings(const char *patch_json);

// STORAGE: the agent's own SQLite database. params is a JSON list, or NULL for none.
int jail_storage_exec(const char *sql);
int jail_storage_run(const char *sql, const char *params, int64_t *changes, int64_t *last_row_id);
// *json is the row as an object or null, or all rows as a list. The caller frees it.
int jail_storage_get(const char *sql, const char *params, char **json);
int jail_storage_query(const char *sql, const char *params, char **json);

// AI: calls part with each part of the answer's text as it comes. role may be NULL if the manifest has one. part returns 0 to go on.
int jail_ai_roles(char **json);
int jail_ai_stream(const char *role, const char *prompt, int (*part)(void *with, const char *text), void *with);
// The same with the parameters of streamText as JSON.
int jail_ai_stream_json(const char *params, int (*part)(void *with, const char *text), void *with);

// Takes one step towards the goals in the agent's memory, for an event of the type tick with that id: tells the model the open goals, the last memories and the
// surest patterns, keeps the answer in goals, learned_patterns, conversations and messages, and publishes it with the type tick_result. role and instructions may
// be NULL. Into *json, unless json is NULL, comes what was published, NULL if no goal is open: then no model is asked. An answer that is no JSON is a summary,
// and changes no goal.
int jail_tick(const char *id, const char *role, const char *instructions, char **json);

// JSON, as far as an agent needs it. Returns the value at a path such as "data.items.0.name", or NULL. It ends where JSON says that it ends.
const char *jail_json_at(const char *json, const char *path);
// Copies a value: a text without its quotes and escapes, anything else as it is written; "" for NULL. The caller frees it.
char *jail_json_text(const char *value);
// Returns a number, or otherwise.
int64_t jail_json_number(const char *value, int64_t otherwise);
// Returns a text with quotes and escapes. The caller frees it.
char *jail_json_quote(const char *text);

#ifdef __cplusplus
}
#endif
#endif
