#include "jail_agent_data.h"

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

// Counts what is added, and refuses every other change.
static int add_one(void *with, const jail_data_change *c) {
	char *total = NULL, text[30];
	(void)with;
	if (strcmp(c->kind, "add") || c->before) return jail_agent_fail("failed", "another change");
	if (jail_data_one("total", "0", &total)) return 1;
	snprintf(text, sizeof text, "%lld", (long long)jail_json_number(total, 0) + 1);
	free(total);
	return jail_data_set("total", text);
}

// Keeps a call in a collection, and returns how many there are as a subscriber has counted.
static int counted(long long by, char **result) {
	static const char *const unique[] = {"n", NULL}, *const index[] = {"by", NULL};
	jail_data *calls, *none;
	int64_t n;
	int removed = 0;
	char key[30], value[100], path[40], *found = NULL, *first = NULL;
	if (jail_data_open("calls", unique, index, &calls) || jail_data_subscribe(calls, add_one, NULL) || jail_data_count(calls, &n)) return 1;
	snprintf(key, sizeof key, "%lld", (long long)n + 1);
	snprintf(value, sizeof value, "{\"by\":%lld,\"n\":%lld}", by, (long long)n + 1);
	if (jail_data_put(calls, key, value)) return 1;
	snprintf(key, sizeof key, "%lld", (long long)n + 2);
	if (!jail_data_put(calls, key, value)) return jail_agent_fail("failed", "two values have the same n");
	snprintf(key, sizeof key, "%lld", by);
	if (jail_data_find(calls, "by", key, &found)) return 1;
	snprintf(path, sizeof path, "%lld.key", (long long)n);
	int64_t last = jail_json_number(jail_json_at(found, path), -1);
	free(found);
	if (last != n + 1) return jail_agent_fail("failed", "a value is not found");
	if (!jail_data_remove(calls, "1", &removed) || removed || jail_data_get(calls, "1", &first) || !first)
		return jail_agent_fail("failed", "a change that a subscriber refuses is there");
	free(first);
	if (!jail_data_open("a b", NULL, NULL, &none)) return jail_agent_fail("failed", "a b is a name");
	if (jail_data_items(calls, "1", key, &found)) return 1;
	free(found);
	jail_data_close(calls);
	return jail_data_one("total", "0", result);
}

static int on_call(const char *method, const char *args, char **result) {
	if (!strcmp(method, "fail")) return 1;
	if (!jail_send("x", NULL, NULL) || strcmp(jail_agent_error_code(), "no_binding")) return 1;
	return counted(jail_json_number(jail_json_at(args, "by"), 0), result);
}

int main(void) {
	if (!strcmp(jail_agent_class(), "worker")) return jail_agent_run(&(jail_agent){.on_call = on_call});
	return jail_agent_run(&(jail_agent){.on_event = on_event});
}
