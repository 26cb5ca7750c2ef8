#include "jail_agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char all[1000];

static int part(void *with, const char *text) {
	char message[200];
	(void)with;
	strcat(all, text);
	snprintf(message, sizeof message, "part %s", text);
	char *json = jail_json_quote(message);
	int err = jail_send_json(json, "{\"to\":\"other\",\"type\":\"part\"}", NULL);
	free(json);
	return err;
}

static int on_event(const jail_event *e) {
	char *answer, *roles, text[200];
	if (!strcmp(e->text, "fail")) return 1;
	if (!strcmp(e->text, "tool")) {
		if (jail_command("[\"wc\",\"-l\"]", "a\"b\n", "{\"limits\":[\"wall=5s\"]}", &answer)) return jail_send(jail_agent_error_code(), NULL, NULL);
		snprintf(all, sizeof all, "%d", atoi(jail_json_at(answer, "exitCode")));
		free(answer);
		return jail_send_json(all, NULL, NULL);
	}
	if (!strcmp(e->text, "later")) {
		if (jail_set_alarm_at("tea", "2040-01-02T03:04:05Z", "\"green\"") || jail_propose("{\"type\":\"brew\"}", &answer)) return 1;
		int err = jail_send(answer, NULL, NULL);
		free(answer);
		return err;
	}
	if (jail_send("…", e->id, &answer)) return 1;
	*all = 0;
	if (jail_ai_stream("fast", e->text, part, NULL)) snprintf(all, sizeof all, "%s: %s", jail_agent_error_code(), jail_agent_error());
	if (jail_update(answer, all) || jail_complete(answer)) return 1;
	free(answer);
	snprintf(text, sizeof text, "{\"asked\":%llu}", (unsigned long long)e->seq);
	if (jail_set_state(text) || jail_ai_roles(&roles)) return 1;
	snprintf(text, sizeof text, "{\"roles\":%s}", roles);
	free(roles);
	return jail_update_settings(text) || jail_clear_alarm("none") || jail_log("warn", "asked");
}

int main(void) { return jail_agent_run(&(jail_agent){.on_event = on_event}); }
