#include "jail_agent.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define BINDING(b, m) \
	IMPORT(m, "call") uint32_t b##_call(const char *, uint32_t, const char *, uint32_t, uint32_t *); \
	IMPORT(m, "read") uint32_t b##_read(uint32_t, char *, uint32_t, uint32_t *); \
	IMPORT(m, "close") uint32_t b##_close(uint32_t); \
	IMPORT(m, "error") uint32_t b##_error(char *, uint32_t, uint32_t *);

BINDING(host, "jail_agent_host_v1")
BINDING(pubsub, "jail_agent_pubsub_v1")
BINDING(storage, "jail_agent_storage_v1")
BINDING(ai, "jail_agent_ai_v1")
IMPORT("jail_agent_host_v1", "wait") uint32_t host_wait(uint32_t, uint32_t *);

// The functions of one binding. Each has a table of its own, so that a program without it does not import them.
typedef struct {
	uint32_t (*call)(const char *, uint32_t, const char *, uint32_t, uint32_t *);
	uint32_t (*read)(uint32_t, char *, uint32_t, uint32_t *);
	uint32_t (*close)(uint32_t);
	uint32_t (*error)(char *, uint32_t, uint32_t *);
} binding;

static const binding HOST = {host_call, host_read, host_close, host_error};
static const binding PUBSUB = {pubsub_call, pubsub_read, pubsub_close, pubsub_error};
static const binding STORAGE = {storage_call, storage_read, storage_close, storage_error};
static const binding AI = {ai_call, ai_read, ai_close, ai_error};

static char *message, *code;

static void *room(void *p) {
	if (!p) {
		fputs("out of memory\n", stderr);
		abort();
	}
	return p;
}

static char *copied(const char *s, size_t n) {
	char *out = room(malloc(n + 1));
	memcpy(out, s, n);
	out[n] = 0;
	return out;
}

static int fail(const char *why, const char *text) {
	free(code);
	free(message);
	code = copied(why, strlen(why));
	message = copied(text, strlen(text));
	return -1;
}

int jail_agent_fail(const char *why, const char *text) { return fail(why, text); }
const char *jail_agent_error(void) { return message ? message : ""; }
const char *jail_agent_error_code(void) { return code ? code : ""; }

// Texts that grow.
typedef struct {
	char *text;
	size_t len, room;
} buffer;

static void add(buffer *b, const char *s, size_t n) {
	if (b->len + n + 1 > b->room) {
		b->room = 2 * (b->len + n + 1);
		b->text = room(realloc(b->text, b->room));
	}
	memcpy(b->text + b->len, s, n);
	b->len += n;
	b->text[b->len] = 0;
}

// Adds strings up to a NULL.
static void adds(buffer *b, ...) {
	va_list all;
	va_start(all, b);
	for (const char *s; (s = va_arg(all, const char *));) add(b, s, strlen(s));
	va_end(all);
}

// JSON. What comes from the host is well-formed.

static const char *space(const char *p) {
	while (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n') p++;
	return p;
}

static const char *past_text(const char *p) {
	for (p++; *p && *p != '"'; p++)
		if (*p == '\\' && p[1]) p++;
	return *p ? p + 1 : p;
}

static const char *past(const char *p) {
	p = space(p);
	if (*p == '"') return past_text(p);
	if (*p != '{' && *p != '[') {
		while (*p && !strchr(",]} \t\r\n", *p)) p++;
		return p;
	}
	for (int depth = 0; *p; p++) {
		if (*p == '"') {
			p = past_text(p) - 1;
		} else if (*p == '{' || *p == '[') {
			depth++;
		} else if ((*p == '}' || *p == ']') && --depth == 0) {
			return p + 1;
		}
	}
	return p;
}

const char *jail_json_at(const char *json, const char *path) {
	const char *p = json ? space(json) : NULL;
	while (p && *path) {
		size_t n = strcspn(path, ".");
		char open = *p;
		if (open != '{' && open != '[') return NULL;
		long want = open == '[' ? strtol(path, NULL, 10) : 0;
		for (p = space(p + 1); *p && *p != '}' && *p != ']';) {
			int found = open == '[' && want-- == 0;
			if (open == '{') {
				char *key = jail_json_text(p);
				found = strlen(key) == n && !strncmp(key, path, n);
				free(key);
				p = space(past_text(p));
				p = space(p + 1);
			}
			if (found) break;
			p = space(past(p));
			if (*p == ',') p = space(p + 1);
		}
		if (!*p || *p == '}' || *p == ']') return NULL;
		path += n + (path[n] == '.');
	}
	return p;
}

static void add_rune(buffer *b, unsigned long c) {
	char out[4];
	if (c < 0x80) {
		out[0] = c;
		add(b, out, 1);
	} else if (c < 0x800) {
		out[0] = 0xc0 | c >> 6, out[1] = 0x80 | (c & 0x3f);
		add(b, out, 2);
	} else if (c < 0x10000) {
		out[0] = 0xe0 | c >> 12, out[1] = 0x80 | (c >> 6 & 0x3f), out[2] = 0x80 | (c & 0x3f);
		add(b, out, 3);
	} else {
		out[0] = 0xf0 | c >> 18, out[1] = 0x80 | (c >> 12 & 0x3f), out[2] = 0x80 | (c >> 6 & 0x3f), out[3] = 0x80 | (c & 0x3f);
		add(b, out, 4);
	}
}

static unsigned long hex4(const char *p) {
	char digits[5] = {0};
	strncpy(digits, p, 4);
	return strtoul(digits, NULL, 16);
}

char *jail_json_text(const char *value) {
	buffer b = {0};
	add(&b, "", 0);
	if (!value) return b.text;
	const char *end = past(value), *p = space(value);
	if (*p != '"') {
		add(&b, p, end - p);
		return b.text;
	}
	for (p++; *p && *p != '"'; p++) {
		if (*p != '\\') {
			add(&b, p, 1);
			continue;
		}
		static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
		const char *known = strchr(from, *++p);
		if (!*p) break;
		if (*p == 'u' && strlen(p) > 4) {
			unsigned long c = hex4(p + 1);
			p += 4;
			if (c >= 0xd800 && c < 0xdc00 && p[1] == '\\' && p[2] == 'u') {
				c = 0x10000 + ((c - 0xd800) << 10) + (hex4(p + 3) - 0xdc00);
				p += 6;
			}
			add_rune(&b, c);
		} else {
			add(&b, known ? to + (known - from) : p, 1);
		}
	}
	return b.text;
}

int64_t jail_json_number(const char *value, int64_t otherwise) {
	char *end;
	long long n = value ? strtoll(value, &end, 10) : 0;
	return value && end != value ? n : otherwise;
}

char *jail_json_quote(const char *text) {
	buffer b = {0};
	add(&b, "\"", 1);
	for (; *text; text++) {
		unsigned char c = *text;
		if (c < ' ') {
			char out[8];
			add(&b, out, snprintf(out, sizeof out, "\\u%04x", c));
		} else {
			if (c == '"' || c == '\\') add(&b, "\\", 1);
			add(&b, text, 1);
		}
	}
	add(&b, "\"", 1);
	return b.text;
}

// Calls.

static int refused(const binding *b, uint32_t number) {
	char text[512];
	uint32_t total = 0;
	if (b->error(text, sizeof text - 1, &total)) return fail("failed", strerror(number));
	text[total < sizeof text ? total : sizeof text - 1] = 0;
	return fail("failed", text);
}

static int slurp(const binding *b, uint32_t handle, char **into) {
	buffer out = {0};
	char part[8192];
	uint32_t got, number;
	add(&out, "", 0);
	while (!(number = b->read(handle, part, sizeof part, &got)) && got) add(&out, part, got);
	b->close(handle);
	*into = out.text;
	return number ? refused(b, number) : 0;
}

static int failed_with(const char *error) {
	char *why = jail_json_text(jail_json_at(error, "code")), *text = jail_json_text(jail_json_at(error, "message"));
	fail(*why ? why : "failed", text);
	free(why);
	free(text);
	return -1;
}

// Makes a call with params, which are freed. *result is JSON, unless result is NULL.
static int call(const binding *b, const char *method, char *params, char **result) {
	uint32_t handle, number = b->call(method, strlen(method), params, strlen(params), &handle);
	char *text = NULL;
	free(params);
	if (number) return refused(b, number);
	int err = slurp(b, handle, &text);
	const char *error = err ? NULL : jail_json_at(text, "error"), *value;
	if (error) err = failed_with(error);
	if (!err && result) {
		value = jail_json_at(text, "result");
		*result = value ? copied(value, past(value) - value) : copied("null", 4);
	}
	free(text);
	return err;
}

// Makes {"name": value, ...} of pairs up to a NULL. A name that begins with = has JSON as its value, others a text. Pairs with the value NULL are left out.
static char *object(const char *name, ...) {
	buffer b = {0};
	va_list all;
	va_start(all, name);
	for (; name; name = va_arg(all, const char *)) {
		const char *value = va_arg(all, const char *);
		if (!value) continue;
		adds(&b, b.len ? "," : "{", "\"", name + (*name == '='), "\":", NULL);
		char *quoted = *name == '=' ? NULL : jail_json_quote(value);
		adds(&b, quoted ? quoted : value, NULL);
		free(quoted);
	}
	va_end(all);
	adds(&b, b.len ? "}" : "{}", NULL);
	return b.text;
}

static char *digits(int64_t n) {
	static char text[32];
	snprintf(text, sizeof text, "%lld", (long long)n);
	return text;
}

int jail_log(const char *level, const char *text) { return call(&HOST, "log", object("level", level, "message", text, NULL), NULL); }
int jail_set_state(const char *json) { return call(&HOST, "setState", object("=state", json, NULL), NULL); }
int jail_set_alarm(const char *name, int64_t in_ms, const char *json) {
	return call(&HOST, "setAlarm", object("name", name, "=in_ms", digits(in_ms), "=data", json, NULL), NULL);
}
int jail_set_alarm_at(const char *name, const char *at, const char *json) {
	return call(&HOST, "setAlarm", object("name", name, "at", at, "=data", json, NULL), NULL);
}
int jail_clear_alarm(const char *name) { return call(&HOST, "clearAlarm", object("name", name, NULL), NULL); }

// Makes a call that answers {"id": ...}. id may be NULL.
static int call_id(const binding *b, const char *method, char *params, char **id) {
	char *result = NULL;
	int err = call(b, method, params, &result);
	if (!err && id) *id = jail_json_text(jail_json_at(result, "id"));
	free(result);
	return err;
}

int jail_propose(const char *json, char **id) { return call_id(&HOST, "propose", object("=action", json, NULL), id); }

const char *jail_agent_class(void) {
	const char *class = getenv("CLASS");
	return class ? class : "";
}

int jail_facet(const char *name, const char *ask, char **json) {
	// The name goes into the object of what is asked for.
	buffer b = {0};
	char *quoted = jail_json_quote(name);
	const char *rest = space(ask && *space(ask) == '{' ? space(ask) + 1 : "}");
	adds(&b, "{\"name\":", quoted, *rest == '}' ? "" : ",", rest, NULL);
	free(quoted);
	return call(&HOST, "facet", b.text, json);
}

int jail_call_facets(const char *calls, char **json) { return call(&HOST, "callFacets", object("=calls", calls, NULL), json); }

int jail_call_facet(const char *name, const char *method, const char *args, char **json) {
	char *one = object("name", name, "method", method, "=args", args, NULL), *all = NULL;
	buffer b = {0};
	adds(&b, "[", one, "]", NULL);
	int err = jail_call_facets(b.text, &all);
	const char *error = err ? NULL : jail_json_at(all, "0.error");
	if (error) err = failed_with(error);
	if (!err && json) {
		const char *value = jail_json_at(all, "0.result");
		*json = value ? copied(value, past(value) - value) : copied("null", 4);
	}
	free(one);
	free(all);
	free(b.text);
	return err;
}

int jail_load(const char *execution_id, const char *main_module, const char *modules, const char *env, char **json) {
	return call(&HOST, "load", object("executionId", execution_id, "mainModule", main_module, "=modules", modules, "=env", env, NULL), json);
}

int jail_command(const char *argv, const char *stdin_text, const char *more, char **json) {
	// The two go into the object of the rest.
	buffer b = {0};
	char *quoted = jail_json_quote(stdin_text ? stdin_text : "");
	const char *rest = space(more && *space(more) == '{' ? space(more) + 1 : "}");
	adds(&b, "{\"argv\":", argv, ",\"stdin\":", quoted, *rest == '}' ? "" : ",", rest, NULL);
	free(quoted);
	return call(&HOST, "command", b.text, json);
}

int jail_propose_changes(const char *conversation, const char *words, char **json) {
	return call(&HOST, "proposeChanges", object("conversation", conversation, "words", words, NULL), json);
}
int jail_discard_changes(const char *conversation) { return call(&HOST, "discardChanges", object("conversation", conversation, NULL), NULL); }

int jail_facets(char **json) { return call(&HOST, "facets", object(NULL), json); }
int jail_abort_facet(const char *name, const char *reason) { return call(&HOST, "abortFacet", object("name", name, "reason", reason, NULL), NULL); }
int jail_delete_facet(const char *name) { return call(&HOST, "deleteFacet", object("name", name, NULL), NULL); }

int jail_gatekeepers(const char *name, char **json) { return call(&HOST, "gatekeepers", object("gatekeeper", name, NULL), json); }
int jail_gate_read(const char *gatekeeper, const char *method, const char *args, char **json) {
	return call(&HOST, "gateRead", object("gatekeeper", gatekeeper, "method", method, "=args", args, NULL), json);
}
int jail_gate_propose(const char *gatekeeper, const char *action, const char *args, const char *words, char **json) {
	return call(&HOST, "gatePropose", object("gatekeeper", gatekeeper, "action", action, "=args", args, "words", words, NULL), json);
}

int jail_send_json(const char *json, const char *options, char **id) {
	return call_id(&PUBSUB, "send", object("=content", json, "=options", options ? options : "{}", NULL), id);
}

int jail_send(const char *text, const char *reply_to, char **id) {
	char *json = jail_json_quote(text), *options = object("reply_to", reply_to, NULL);
	int err = jail_send_json(json, options, id);
	free(json);
	free(options);
	return err;
}

int jail_update(const char *id, const char *text) { return call(&PUBSUB, "update", object("id", id, "content", text, NULL), NULL); }
int jail_complete(const char *id) { return call(&PUBSUB, "complete", object("id", id, NULL), NULL); }
int jail_roster(char **json) { return call(&PUBSUB, "roster", object(NULL), json); }
int jail_discover(char **json) { return call(&PUBSUB, "discoverMethodDefs", object(NULL), json); }
int jail_call_method(const char *provider, const char *method, const char *args, char **json) {
	return call(&PUBSUB, "callMethod", object("providerId", provider, "methodName", method, "=args", args ? args : "{}", NULL), json);
}
int jail_get_settings(char **json) { return call(&PUBSUB, "getSettings", object(NULL), json); }
int jail_update_settings(const char *patch) { return call(&PUBSUB, "updateSettings", object("=patch", patch, NULL), NULL); }

int jail_storage_exec(const char *sql) { return call(&STORAGE, "exec", object("sql", sql, NULL), NULL); }
int jail_storage_run(const char *sql, const char *params, int64_t *changes, int64_t *last_row_id) {
	char *result = NULL;
	int err = call(&STORAGE, "run", object("sql", sql, "=params", params, NULL), &result);
	if (!err && changes) *changes = jail_json_number(jail_json_at(result, "changes"), 0);
	if (!err && last_row_id) *last_row_id = jail_json_number(jail_json_at(result, "lastRowId"), 0);
	free(result);
	return err;
}
int jail_storage_get(const char *sql, const char *params, char **json) { return call(&STORAGE, "get", object("sql", sql, "=params", params, NULL), json); }
int jail_storage_query(const char *sql, const char *params, char **json) { return call(&STORAGE, "query", object("sql", sql, "=params", params, NULL), json); }

int jail_ai_roles(char **json) { return call(&AI, "listRoles", object(NULL), json); }

// The text that an event of a model's answer adds, in the three forms of APIs that there are; the caller frees it.
static char *delta(const char *event) {
	char *type = jail_json_text(jail_json_at(event, "type"));
	const char *path = !strcmp(type, "content_block_delta") ? "delta.text" : !strcmp(type, "response.output_text.delta") ? "delta" : "choices.0.delta.content";
	free(type);
	const char *value = jail_json_at(event, path);
	return jail_json_text(value && *value == '"' ? value : NULL);
}

// Takes one line of the stream. is_error is set while the lines of an error come.
static int line_of(char *line, int *is_error, int (*part)(void *, const char *), void *with) {
	if (!*line) *is_error = 0;
	if (*line == '{') {
		const char *error = jail_json_at(line, "error");
		return error ? failed_with(error) : 0;
	}
	if (!strncmp(line, "event:", 6)) *is_error = !strcmp(space(line + 6), "error");
	if (strncmp(line, "data:", 5)) return 0;
	const char *event = space(line + 5);
	if (*is_error) return failed_with(event);
	if (*event != '{') return 0;
	char *text = delta(event);
	int err = *text && part(with, text) ? fail("stopped", "the answer was not read to its end") : 0;
	free(text);
	return err;
}

int jail_ai_stream_json(const char *params, int (*part)(void *, const char *), void *with) {
	uint32_t handle, got = 0, number = AI.call("streamText", 10, params, strlen(params), &handle);
	if (number) return refused(&AI, number);
	buffer line = {0};
	char bytes[8192];
	int err = 0, is_error = 0;
	add(&line, "", 0);
	while (!err && !(number = AI.read(handle, bytes, sizeof bytes, &got)) && got) {
		for (uint32_t i = 0; i < got && !err; i++) {
			if (bytes[i] != '\n') {
				if (bytes[i] != '\r') add(&line, bytes + i, 1);
				continue;
			}
			err = line_of(line.text, &is_error, part, with);
			line.text[line.len = 0] = 0;
		}
	}
	if (!err && number) err = refused(&AI, number);
	// An answer that is no stream has one line without an end.
	if (!err && line.len) err = line_of(line.text, &is_error, part, with);
	AI.close(handle);
	free(line.text);
	return err;
}

int jail_ai_stream(const char *role, const char *prompt, int (*part)(void *, const char *), void *with) {
	char *params = object("role", role, "prompt", prompt, NULL);
	int err = jail_ai_stream_json(params, part, with);
	free(params);
	return err;
}

// What the model of a tick is told first. The libraries of all languages have the same text and the same statements.
static const char TICK[] =
	"You work towards your goals by yourself, one step at a time. You are told your open goals, what you did lately, and what you have learned. Do the next step,\n"
	"and answer with one JSON object:\n"
	"{\"summary\": \"what you did, in a sentence\", \"goals\": [{\"id\": \"g1\", \"progress\": 0.5, \"status\": \"open\"}],\n"
	" \"patterns\": [{\"id\": \"p1\", \"pattern_type\": \"habit\", \"description\": \"what you have learned\", \"confidence\": 0.8}]}\n"
	"The status of a goal that you have reached is \"done\". Leave out goals and patterns that do not change.";

// Reads what the model is told; no row if no goal is open.
static const char TICK_CONTEXT[] =
	"SELECT json_object(\n"
	"'goals', (SELECT json_group_array(json_object('id', id, 'description', description,\n"
	"'priority', priority, 'status', status, 'progress', progress)) FROM (SELECT * FROM goals\n"
	"WHERE coalesce(status, '') NOT IN ('done', 'dropped') ORDER BY priority DESC, id)),\n"
	"'memories', (SELECT json_group_array(json_object('started_at', started_at, 'summary', summary))\n"
	"FROM (SELECT * FROM conversations WHERE summary <> '' ORDER BY started_at DESC, id DESC LIMIT 10)),\n"
	"'patterns', (SELECT json_group_array(json_object('id', id, 'pattern_type', pattern_type,\n"
	"'description', description, 'confidence', confidence)) FROM (SELECT * FROM learned_patterns\n"
	"ORDER BY confidence DESC, id LIMIT 20))) AS context\n"
	"WHERE EXISTS (SELECT 1 FROM goals WHERE coalesce(status, '') NOT IN ('done', 'dropped'))";

// Reads an answer, ?1: the JSON object in it, its summary, and what is published.
static const char TICK_SAID[] =
	"SELECT said, summary, json_object('text', summary,\n"
	"'goals', (SELECT json_group_array(id) FROM goals\n"
	"WHERE coalesce(status, '') NOT IN ('done', 'dropped') AND id IN\n"
	"(SELECT json_extract(said, fullkey || '.id') FROM json_each(said, '$.goals')\n"
	"WHERE json_type(said, '$.goals') = 'array' AND json_type(said, fullkey || '.id') = 'text')),\n"
	"'patterns', (SELECT json_group_array(json_extract(said, fullkey || '.id'))\n"
	"FROM json_each(said, '$.patterns') WHERE json_type(said, '$.patterns') = 'array'\n"
	"AND json_type(said, fullkey || '.id') = 'text' AND json_extract(said, fullkey || '.id') <> ''\n"
	"AND json_type(said, fullkey || '.description') = 'text'\n"
	"AND json_extract(said, fullkey || '.description') <> '')) AS result\n"
	"FROM (SELECT said, CASE json_type(said, '$.summary') WHEN 'text' THEN json_extract(said, '$.summary')\n"
	"ELSE trim(?1, char(32, 9, 10, 13)) END AS summary FROM (SELECT CASE WHEN NOT json_valid(text) THEN '{}'\n"
	"WHEN json_type(text) <> 'object' THEN '{}' ELSE text END AS said FROM (SELECT\n"
	"substr(rtrim(?1, replace(?1, '}', '')), instr(?1, '{')) AS text)))";

// Keeps an answer: ?1 is its object, ?2 the id of the conversation, ?3 what the model was told, ?4 the answer, ?5 its summary.
static const char TICK_KEEP[] =
	"UPDATE goals SET\n"
	"progress = CASE WHEN json_type(?1, at || '.progress') IN ('integer', 'real')\n"
	"THEN min(max(json_extract(?1, at || '.progress'), 0.0), 1.0) ELSE progress END,\n"
	"status = CASE json_type(?1, at || '.status') WHEN 'text' THEN json_extract(?1, at || '.status')\n"
	"ELSE status END FROM (SELECT fullkey AS at, json_extract(?1, fullkey || '.id') AS goal\n"
	"FROM json_each(?1, '$.goals') WHERE json_type(?1, '$.goals') = 'array'\n"
	"AND json_type(?1, fullkey || '.id') = 'text')\n"
	"WHERE id = goal AND coalesce(status, '') NOT IN ('done', 'dropped');\n"
	"INSERT INTO learned_patterns SELECT json_extract(?1, fullkey || '.id'),\n"
	"CASE json_type(?1, fullkey || '.pattern_type') WHEN 'text'\n"
	"THEN json_extract(?1, fullkey || '.pattern_type') ELSE '' END,\n"
	"json_extract(?1, fullkey || '.description'),\n"
	"CASE WHEN json_type(?1, fullkey || '.confidence') IN ('integer', 'real')\n"
	"THEN min(max(json_extract(?1, fullkey || '.confidence'), 0.0), 1.0) ELSE 0.5 END\n"
	"FROM json_each(?1, '$.patterns') WHERE json_type(?1, '$.patterns') = 'array'\n"
	"AND json_type(?1, fullkey || '.id') = 'text' AND json_extract(?1, fullkey || '.id') <> ''\n"
	"AND json_type(?1, fullkey || '.description') = 'text'\n"
	"AND json_extract(?1, fullkey || '.description') <> ''\n"
	"ON CONFLICT DO UPDATE SET pattern_type = excluded.pattern_type,\n"
	"description = excluded.description, confidence = excluded.confidence;\n"
	"INSERT INTO conversations VALUES (?2, CAST(strftime('%s', 'now') AS INTEGER), ?5, 0);\n"
	"INSERT INTO messages VALUES (?2 || '/1', ?2, 'user', ?3, CAST(strftime('%s', 'now') AS INTEGER)),\n"
	"(?2 || '/2', ?2, 'assistant', ?4, CAST(strftime('%s', 'now') AS INTEGER))";

static int collect(void *with, const char *text) {
	adds(with, text, NULL);
	return 0;
}

// Copies a value of a row: a text with its quotes.
static char *raw_at(const char *json, const char *path) {
	const char *value = jail_json_at(json, path);
	return value ? copied(value, past(value) - value) : copied("null", 4);
}

// Keeps and publishes an answer to what the model was told, a JSON text.
static int keep_tick(const char *id, const char *told, const char *answer, char **json) {
	char *quoted = jail_json_quote(answer), *name = jail_json_quote(id), *row = NULL;
	buffer b = {0};
	adds(&b, "[", quoted, "]", NULL);
	int err = jail_storage_get(TICK_SAID, b.text, &row);
	if (!err) {
		char *said = raw_at(row, "said"), *summary = raw_at(row, "summary"), *result = jail_json_text(jail_json_at(row, "result"));
		b.len = 0;
		adds(&b, "[", said, ",", name, ",", told, ",", quoted, ",", summary, "]", NULL);
		err = jail_storage_run(TICK_KEEP, b.text, NULL, NULL) || jail_send_json(result, "{\"type\":\"tick_result\"}", NULL) ? -1 : 0;
		free(said);
		free(summary);
		if (err || !json) free(result);
		else *json = result;
	}
	free(quoted);
	free(name);
	free(row);
	free(b.text);
	return err;
}

int jail_tick(const char *id, const char *role, const char *instructions, char **json) {
	char *row = NULL;
	if (json) *json = NULL;
	if (jail_storage_get(TICK_CONTEXT, NULL, &row)) return -1;
	const char *context = jail_json_at(row, "context");
	if (!context) {
		free(row);
		return 0;
	}
	buffer system = {0}, answer = {0};
	adds(&system, TICK, instructions && *instructions ? "\n\n" : "", instructions ? instructions : "", NULL);
	adds(&answer, "", NULL);
	char *told = raw_at(row, "context"), *params = object("role", role, "system", system.text, "=prompt", told, NULL);
	int err = jail_ai_stream_json(params, collect, &answer) || keep_tick(id, told, answer.text, json) ? -1 : 0;
	free(system.text);
	free(answer.text);
	free(params);
	free(told);
	free(row);
	return err;
}

// The loop.

static int answer(const jail_agent *a, const char *data) {
	char *method = jail_json_text(jail_json_at(data, "method")), *result = NULL;
	const char *value = jail_json_at(data, "args");
	char *args = value ? copied(value, past(value) - value) : copied("null", 4);
	int err = a->on_call(method, args, &result);
	if (!err) err = call(&HOST, "return", object("=result", result ? result : "null", NULL), NULL);
	free(method);
	free(args);
	free(result);
	return err;
}

static int one(const jail_agent *a, const char *json) {
	enum { ID, TIME, SOURCE, CHANNEL, TYPE, KIND, REPLY_TO, ALL };
	static const char *names[ALL] = {"id", "time", "source", "channel", "type", "kind", "reply_to"};
	char *texts[ALL];
	for (int i = 0; i < ALL; i++) texts[i] = jail_json_text(jail_json_at(json, names[i]));
	const char *data = jail_json_at(json, "data"), *text = data && *data == '"' ? data : jail_json_at(data, "text");
	char *data_copy = data ? copied(data, past(data) - data) : copied("null", 4);
	char *text_copy = jail_json_text(text && *text == '"' ? text : NULL);
	jail_event e = {.seq = jail_json_number(jail_json_at(json, "seq"), 0), .attempt = (int)jail_json_number(jail_json_at(json, "attempt"), 1),
		.id = texts[ID], .time = texts[TIME], .source = texts[SOURCE], .channel = texts[CHANNEL], .type = texts[TYPE], .kind = texts[KIND],
		.reply_to = texts[REPLY_TO], .from_agent = !strncmp(texts[SOURCE], "agent:", 6), .data = data_copy, .text = text_copy};
	fail("", "");
	int is_call = a->on_call && !strcmp(e.type, "call");
	int err = is_call ? answer(a, e.data) : a->on_event ? a->on_event(&e) : 0;
	if (err) {
		fprintf(stderr, "event %llu: %s\n", (unsigned long long)e.seq, jail_agent_error());
		char *why = copied(*jail_agent_error() ? jail_agent_error() : "on_event failed", strlen(*jail_agent_error() ? jail_agent_error() : "on_event failed"));
		err = call(&HOST, "fail", object("=seq", digits(e.seq), "message", why, NULL), NULL);
		free(why);
	} else if (call(&HOST, "checkpoint", object("=seq", digits(e.seq), NULL), NULL)) {
		// The host has said so itself, and delivers the event again.
		fprintf(stderr, "event %llu is not committed: %s\n", (unsigned long long)e.seq, jail_agent_error());
	}
	for (int i = 0; i < ALL; i++) free(texts[i]);
	free(data_copy);
	free(text_copy);
	return err;
}

int jail_agent_run(const jail_agent *a) {
	int err = call(&HOST, "ready", object(NULL), NULL);
	while (!err) {
		uint32_t handle, number = host_wait(30000, &handle);
		char *said = NULL;
		if (number ? refused(&HOST, number) : slurp(&HOST, handle, &said)) break;
		char *type = jail_json_text(jail_json_at(said, "type"));
		int sleep = !strcmp(type, "sleep");
		if (!strcmp(type, "wake") && a->on_wake) {
			char *reason = jail_json_text(jail_json_at(said, "wake.reason"));
			err = a->on_wake(reason);
			free(reason);
		} else if (!strcmp(type, "event")) {
			err = one(a, jail_json_at(said, "event"));
		} else if (sleep && a->on_sleep) {
			err = a->on_sleep();
		}
		free(type);
		free(said);
		if (sleep && !err) return 0;
	}
	fprintf(stderr, "%s\n", jail_agent_error());
	return 1;
}
