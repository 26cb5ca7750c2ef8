// An agent that answers: it counts messages, and reminds.
#include "jail_agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int on_wake(const char *reason) {
	(void)reason;
	return jail_storage_exec("CREATE TABLE IF NOT EXISTS seen (n INTEGER PRIMARY KEY, text TEXT)");
}

// Sends a text that is made of a format.
static int say(const char *reply_to, const char *format, const char *text, long long n) {
	size_t size = strlen(format) + strlen(text) + 32;
	char *out = malloc(size);
	if (!out) return 1;
	snprintf(out, size, format, text, n);
	int err = jail_send(out, reply_to, NULL);
	free(out);
	return err;
}

static int remind(const jail_event *e) {
	char *what = jail_json_quote(e->text + strlen("remind "));
	int err = jail_set_alarm("remind", 1000, what);
	free(what);
	return err ? err : jail_send("I will remind you", e->id, NULL);
}

static int on_event(const jail_event *e) {
	if (!strcmp(e->type, "alarm")) {
		char *what = jail_json_text(jail_json_at(e->data, "data"));
		int err = say(NULL, "reminder: %s", what, 0);
		free(what);
		return err;
	}
	// Two that answer each other would never end.
	if (e->from_agent) return 0;
	if (!strncmp(e->text, "remind ", strlen("remind "))) return remind(e);
	if (!*e->text) return 0;
	char *text = jail_json_quote(e->text);
	char *params = malloc(strlen(text) + 3);
	int64_t n = 0;
	sprintf(params, "[%s]", text);
	int err = jail_storage_run("INSERT INTO seen (text) VALUES (?)", params, NULL, &n);
	free(text);
	free(params);
	return err ? err : say(e->id, "echo: %s (%lld)", e->text, n);
}

static int on_sleep(void) { return jail_log("info", "good night"); }

int main(void) {
	static const jail_agent agent = {on_wake, on_event, on_sleep};
	return jail_agent_run(&agent);
}
