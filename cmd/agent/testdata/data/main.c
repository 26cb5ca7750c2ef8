#include "jail_agent_data.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char said[2000];

static void say(const char *format, ...) {
	size_t at = strlen(said);
	va_list args;
	va_start(args, format);
	vsnprintf(said + at, sizeof said - at, format, args);
	va_end(args);
}

static int fail(void) { return jail_agent_fail("failed", "as it was asked to"); }

// Says a field of each value of a list, with spaces between them. The list is freed.
static void say_each(char *list, const char *field) {
	char path[40];
	for (int i = 0;; i++) {
		snprintf(path, sizeof path, "%d.%s", i, field);
		const char *value = jail_json_at(list, path);
		if (!value) break;
		char *text = jail_json_text(value);
		say("%s%s", i ? " " : "", text);
		free(text);
	}
	free(list);
}

static int log_change(void *with, const jail_data_change *c) {
	jail_data *log = with;
	char key[30], value[60];
	int64_t n;
	if (jail_data_count(log, &n)) return -1;
	snprintf(key, sizeof key, "%lld", (long long)n + 1);
	snprintf(value, sizeof value, "[\"%s\",%s]", c->kind, c->key);
	return jail_data_put(log, key, value);
}

static int refuse_13(void *with, const jail_data_change *c) {
	(void)with;
	return strcmp(c->key, "13") ? 0 : fail();
}

static int put(jail_data *customers, const char *key, const char *email, const char *city) {
	char value[100];
	snprintf(value, sizeof value, "{\"address\":{\"city\":\"%s\"},\"email\":\"%s\"}", city, email);
	return jail_data_put(customers, key, value);
}

static int half(void *customers) { return put(customers, "4", "cleo", "Bern") ? -1 : fail(); }

static int say_keys(void) {
	static const char *const index[] = {"n", NULL}, *const keys[] = {"10", "9", "2.5", "-1"};
	jail_data *numbers, *texts;
	char *all, *some, *words;
	if (jail_data_open("numbers", NULL, index, &numbers)) return -1;
	for (int i = 0; i < 4; i++)
		if (jail_data_put(numbers, keys[i], "1")) return -1;
	jail_data_close(numbers);
	if (jail_data_open("numbers", NULL, NULL, &numbers) || jail_data_open("texts", NULL, NULL, &texts)) return -1;
	if (jail_data_put(texts, "\"9\"", "1") || jail_data_put(texts, "\"10\"", "1")) return -1;
	if (jail_data_items(numbers, NULL, NULL, &all) || jail_data_items(numbers, "9", "10", &some) || jail_data_items(texts, NULL, NULL, &words)) return -1;
	say_each(all, "key");
	say(", ");
	say_each(some, "key");
	say(", ");
	say_each(words, "key");
	say("; ");
	jail_data_close(numbers);
	jail_data_close(texts);
	return 0;
}

static int say_tones(void) {
	for (int i = 0; i < 3; i++) {
		char *tone = NULL;
		if (jail_data_one("tone", "\"short\"", &tone)) return -1;
		say("%s%.*s", i ? " " : "", (int)strlen(tone) - 2, tone + 1);
		free(tone);
		if (i == 1 ? jail_data_reset("tone") : jail_data_set("tone", "\"long\"")) return -1;
	}
	return 0;
}

static int keep(const jail_event *e, jail_data *customers, jail_data *log) {
	char *list, *email;
	int64_t n;
	if (!strcmp(e->text, "fail")) return put(customers, "5", "eve", "Bern") ? -1 : fail();
	*said = 0;
	if (say_keys() || put(customers, "1", "ann", "Bern") || put(customers, "2", "bob", "Bern")) return -1;
	say("%s, ", put(customers, "3", "ann", "Zug") ? "refused" : "done");
	if (jail_data_count(customers, &n) || jail_data_find(customers, "address.city", "\"Bern\"", &list) || jail_data_find(customers, "email", "\"bob\"", &email))
		return -1;
	say("%lld, ", (long long)n);
	say_each(list, "key");
	say(", ");
	say_each(email, "key");
	say("; ");
	if (put(customers, "2", "bob", "Zug") || jail_data_remove(customers, "2", NULL) || jail_data_items(log, NULL, NULL, &list)) return -1;
	for (int i = 0; i < 4; i++) {
		char path[40];
		snprintf(path, sizeof path, "%d.value.0", i);
		char *kind = jail_json_text(jail_json_at(list, path));
		snprintf(path, sizeof path, "%d.value.1", i);
		say("%s%s %lld", i ? " " : "", kind, (long long)jail_json_number(jail_json_at(list, path), -1));
		free(kind);
	}
	free(list);
	say(", %s", put(customers, "13", "dan", "Bern") ? "refused" : "done");
	if (jail_data_count(log, &n)) return -1;
	say(", %lld; %s", (long long)n, jail_data_transaction(half, customers) ? "refused" : "done");
	if (jail_data_get(customers, "4", &list)) return -1;
	say(", %s; ", list ? list : "none");
	free(list);
	return say_tones() || jail_send(said, NULL, NULL);
}

static int on_event(const jail_event *e) {
	static const char *const unique[] = {"email", NULL}, *const index[] = {"address.city", NULL};
	jail_data *customers, *log;
	if (jail_data_open("customers", unique, index, &customers) || jail_data_open("log", NULL, NULL, &log)) return -1;
	if (jail_data_subscribe(customers, log_change, log) || jail_data_subscribe(customers, refuse_13, NULL)) return -1;
	int err = keep(e, customers, log);
	jail_data_close(customers);
	jail_data_close(log);
	return err;
}

int main(void) { return jail_agent_run(&(jail_agent){.on_event = on_event}); }
