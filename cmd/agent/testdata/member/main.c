#include "jail_agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int pass(int failed, char *json) {
	if (failed) return 1;
	failed = jail_send_json(json, "{}", NULL);
	free(json);
	return failed;
}

static int on_event(const jail_event *e) {
	char *json = NULL, text[2000], options[500];
	const char *handle = getenv("HANDLE");
	if (!strcmp(e->type, "roster")) return jail_send_json(e->data, "{\"type\":\"seen\"}", NULL);
	if (!strcmp(e->type, "call")) {
		snprintf(text, sizeof text, "{\"by\":\"%s\",\"got\":%s}", handle, e->data);
		snprintf(options, sizeof options, "{\"type\":\"result\",\"reply_to\":\"%s\"}", e->id);
		return jail_send_json(text, options, NULL);
	}
	if (e->from_agent || !*e->text) return 0;
	if (pass(jail_roster(&json), json) || pass(jail_discover(&json), json)) return 1;
	if (pass(jail_call_method(e->text, "echo", "{\"n\":1}", &json), json)) return 1;
	snprintf(text, sizeof text, "{\"%s\":true}", handle);
	return jail_update_settings(text) || pass(jail_get_settings(&json), json);
}

int main(void) { return jail_agent_run(&(jail_agent){.on_event = on_event}); }
