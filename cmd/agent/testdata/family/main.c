#include "jail_agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char said[1000];

static void say(const char *text) {
	if (*said) strcat(said, ", ");
	strcat(said, text);
}

static int count(void) {
	static const char *names[] = {"a", "b", "c"};
	char *all, text[100] = "";
	for (int i = 0; i < 3; i++)
		if (jail_facet(names[i], "{\"class\":\"worker\",\"bindings\":[\"STORAGE\"]}", NULL)) return 1;
	if (jail_call_facets("[{\"name\":\"a\",\"method\":\"count\",\"args\":{\"by\":1}},{\"name\":\"b\",\"method\":\"count\",\"args\":{\"by\":1}},"
						 "{\"name\":\"c\",\"method\":\"count\",\"args\":{\"by\":1}}]",
						 &all))
		return 1;
	for (int i = 0; i < 3; i++) {
		char path[20], n[30];
		snprintf(path, sizeof path, "%d.result", i);
		snprintf(n, sizeof n, "%s%lld", i ? " " : "", (long long)jail_json_number(jail_json_at(all, path), -1));
		strcat(text, n);
	}
	free(all);
	say(text);
	return 0;
}

static int on_event(const jail_event *e) {
	char *all, text[30];
	(void)e;
	*said = 0;
	if (count() || jail_abort_facet("a", "a test") || jail_delete_facet("b") || jail_facets(&all)) return 1;
	snprintf(text, sizeof text, "%d left", jail_json_at(all, "1") ? jail_json_at(all, "2") ? 3 : 2 : 1);
	free(all);
	say(text);
	if (count() || !jail_call_facet("a", "fail", NULL, NULL)) return 1;
	say(jail_agent_error_code());
	if (jail_load("x", "x.js", "{\"x.js\":\"print(6 * 7)\"}", NULL, &all)) return 1;
	char *out = jail_json_text(jail_json_at(all, "stdout"));
	out[strcspn(out, "\n")] = 0;
	say(out);
	free(out);
	free(all);
	return jail_delete_sub_agent("a") || jail_send(said, NULL, NULL);
}

static int on_call(const char *method, const char *args, char **result) {
	char *row, params[60];
	if (!strcmp(method, "fail")) return 1;
	if (!jail_send("x", NULL, NULL) || strcmp(jail_agent_error_code(), "no_binding")) return 1;
	snprintf(params, sizeof params, "[%lld]", (long long)jail_json_number(jail_json_at(args, "by"), 0));
	if (jail_storage_exec("CREATE TABLE IF NOT EXISTS n (n INTEGER)") || jail_storage_run("INSERT INTO n VALUES (?)", params, NULL, NULL) ||
		jail_storage_get("SELECT count(*) AS n FROM n", NULL, &row))
		return 1;
	*result = jail_json_text(jail_json_at(row, "n"));
	free(row);
	return 0;
}

int main(void) {
	if (!strcmp(jail_agent_class(), "worker")) return jail_agent_run(&(jail_agent){.on_call = on_call});
	return jail_agent_run(&(jail_agent){.on_event = on_event});
}
