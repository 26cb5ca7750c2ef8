// The agent of the bench in C: it writes a row for each event. An event whose text is "when" has it send the time at which it began to work on that, in
// nanoseconds since 1970.
#include "jail_agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int on_wake(const char *reason) {
	(void)reason;
	return jail_storage_exec("CREATE TABLE IF NOT EXISTS counted (id TEXT PRIMARY KEY, n INTEGER) WITHOUT ROWID");
}

static int on_event(const jail_event *e) {
	if (!strcmp(e->text, "when")) {
		struct timespec now;
		char text[32];
		clock_gettime(CLOCK_REALTIME, &now);
		snprintf(text, sizeof text, "%lld", now.tv_sec * 1000000000LL + now.tv_nsec);
		return jail_send_json(text, "{\"type\":\"result\"}", NULL);
	}
	char *id = jail_json_quote(e->id), *params = malloc(strlen(id) + 3);
	if (!params) return jail_agent_fail("failed", "out of memory");
	sprintf(params, "[%s]", id);
	int err = jail_storage_run("INSERT INTO counted VALUES (?, 1) ON CONFLICT DO UPDATE SET n = n + 1", params, NULL, NULL);
	free(id);
	free(params);
	return err;
}

int main(void) { return jail_agent_run(&(jail_agent){.on_wake = on_wake, .on_event = on_event}); }
