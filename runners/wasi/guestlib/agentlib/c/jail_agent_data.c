#include "jail_agent_data.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8, NAME = 48 };

struct jail_data {
	char table[NAME + 8];
	int subscribers;
	struct {
		int (*f)(void *, const jail_data_change *);
		void *with;
	} subscriber[MOST];
};

// A text that is made of a format; the caller frees it.
static char *text(const char *format, ...) {
	va_list args, again;
	va_start(args, format);
	va_copy(again, args);
	int n = vsnprintf(NULL, 0, format, args);
	char *out = malloc(n + 1);
	if (!out) {
		fputs("out of memory\n", stderr);
		abort();
	}
	vsnprintf(out, n + 1, format, again);
	va_end(args);
	va_end(again);
	return out;
}

// Executes a statement, which is freed.
static int exec(char *sql) {
	int err = jail_storage_exec(sql);
	free(sql);
	return err;
}

// Returns a query's one text, NULL for no row. sql and params are freed.
static int one_text(char *sql, char *params, char **out) {
	char *row = NULL;
	int err = jail_storage_get(sql, params, &row);
	const char *value = err ? NULL : jail_json_at(row, "v");
	*out = value && *value == '"' ? jail_json_text(value) : NULL;
	free(row);
	free(sql);
	free(params);
	return err;
}

int jail_data_transaction(int (*f)(void *), void *with) {
	if (jail_storage_exec("SAVEPOINT data")) return -1;
	int err = f(with);
	if (!err) return jail_storage_exec("RELEASE data");
	// What is said is why f failed.
	char *why = text("%s", jail_agent_error()), *code = text("%s", jail_agent_error_code());
	int kept = jail_storage_exec("ROLLBACK TO data") || jail_storage_exec("RELEASE data");
	if (!kept) jail_agent_fail(*code ? code : "failed", *why ? why : "the transaction failed");
	free(why);
	free(code);
	return -1;
}

// Whether n bytes are a name: letters, digits and _, capital ones too if upper.
static int is_name(const char *s, size_t n, int upper) {
	static const char lower[] = "abcdefghijklmnopqrstuvwxyz", all[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
	if (!n || n > NAME || strspn(s, all) < n || strchr("0123456789", *s)) return 0;
	if (upper) return 1;
	for (size_t i = 0; i < n; i++)
		if (s[i] >= 'A' && s[i] <= 'Z') return 0;
	return strchr(lower, *s) != NULL;
}

static int is_field(const char *field) {
	for (const char *p = field;; p++) {
		size_t n = strcspn(p, ".");
		if (!is_name(p, n, 1)) return jail_agent_fail("bad_params", "this is no name of a field"), 0;
		p += n;
		if (!*p) return 1;
	}
}

// The name of an index; the caller frees it.
static char *index_name(const jail_data *d, char mark, const char *field) {
	char *out = text("%s_%c_%*s", d->table, mark, (int)(2 * strlen(field)), ""), *to = out + strlen(d->table) + 3;
	for (; *field; field++) {
		if (*field == '.') *to++ = '_';
		*to++ = *field == '.' ? '_' : *field;
	}
	*to = 0;
	return out;
}

// Makes the indexes of fields. Their names go into *names, a list in JSON without its end.
static int indexes(jail_data *d, char mark, const char *const *fields, char **names) {
	for (; fields && *fields; fields++) {
		if (!is_field(*fields)) return -1;
		char *name = index_name(d, mark, *fields), *more = text("%s%s\"%s\"", *names, (*names)[1] ? "," : "", name);
		free(*names);
		*names = more;
		int err = exec(text("CREATE %s INDEX IF NOT EXISTS \"%s\" ON %s (json_extract(value, '$.%s'))", mark == 'u' ? "UNIQUE" : "", name, d->table, *fields));
		free(name);
		if (err) return err;
	}
	return 0;
}

// Removes the indexes that are not among names.
static int drop_others(jail_data *d, const char *names) {
	char *quoted = jail_json_quote(names), *params = text("[\"%s\",%s]", d->table, quoted), *there = NULL, path[32];
	free(quoted);
	int err = jail_storage_query("SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL AND name NOT IN "
								 "(SELECT value FROM json_each(?))",
								 params, &there);
	free(params);
	for (int i = 0; !err; i++) {
		snprintf(path, sizeof path, "%d.name", i);
		const char *value = jail_json_at(there, path);
		if (!value) break;
		char *name = jail_json_text(value);
		err = exec(text("DROP INDEX \"%s\"", name));
		free(name);
	}
	free(there);
	return err;
}

int jail_data_open(const char *name, const char *const *unique, const char *const *index, jail_data **data) {
	if (!is_name(name, strlen(name), 0)) return jail_agent_fail("bad_params", "this is no name of a collection: lower-case letters, digits and _");
	jail_data *d = calloc(1, sizeof *d);
	if (!d) return jail_agent_fail("failed", "out of memory");
	snprintf(d->table, sizeof d->table, "data_%s", name);
	char *names = text("["), *whole;
	int err = exec(text("CREATE TABLE IF NOT EXISTS %s (key PRIMARY KEY NOT NULL, value TEXT NOT NULL) WITHOUT ROWID", d->table)) ||
		indexes(d, 'u', unique, &names) || indexes(d, 'i', index, &names);
	whole = text("%s]", names);
	err = err || drop_others(d, whole);
	free(names);
	free(whole);
	if (err) {
		free(d);
		return -1;
	}
	*data = d;
	return 0;
}

void jail_data_close(jail_data *data) { free(data); }

int jail_data_get(jail_data *d, const char *key, char **value) {
	return one_text(text("SELECT value AS v FROM %s WHERE key = ?", d->table), text("[%s]", key), value);
}

static int tell(jail_data *d, const jail_data_change *c) {
	for (int i = 0; i < d->subscribers; i++)
		if (d->subscriber[i].f(d->subscriber[i].with, c)) return -1;
	return 0;
}

// A change that is made in a transaction; after is NULL for a removal.
struct change {
	jail_data *d;
	const char *key, *after;
	int found;
};

static int change(void *with) {
	struct change *c = with;
	char *before = NULL, *sql, *params;
	if (jail_data_get(c->d, c->key, &before)) return -1;
	c->found = before != NULL;
	if (!c->after && !before) return 0;
	if (c->after) {
		char *quoted = jail_json_quote(c->after);
		sql = text("INSERT INTO %s VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", c->d->table);
		params = text("[%s,%s]", c->key, quoted);
		free(quoted);
	} else {
		sql = text("DELETE FROM %s WHERE key = ?", c->d->table);
		params = text("[%s]", c->key);
	}
	int err = jail_storage_run(sql, params, NULL, NULL);
	free(sql);
	free(params);
	jail_data_change told = {!c->after ? "remove" : before ? "update" : "add", c->key, before, c->after};
	err = err || tell(c->d, &told);
	free(before);
	return err ? -1 : 0;
}

int jail_data_put(jail_data *d, const char *key, const char *value) {
	struct change c = {d, key, value, 0};
	return jail_data_transaction(change, &c);
}

int jail_data_remove(jail_data *d, const char *key, int *removed) {
	struct change c = {d, key, NULL, 0};
	int err = jail_data_transaction(change, &c);
	if (removed) *removed = !err && c.found;
	return err;
}

// The rows that a condition chooses, as a list; where and params are freed.
static int items(jail_data *d, char *where, char *params, char **json) {
	char *sql = text("SELECT json_group_array(json_object('key', key, 'value', json(value))) AS v FROM (SELECT key, value FROM %s WHERE %s ORDER BY key)",
					 d->table, where);
	free(where);
	int err = one_text(sql, params, json);
	return !err && !*json ? jail_agent_fail("failed", "the database has no list of the values") : err;
}

int jail_data_items(jail_data *d, const char *low, const char *high, char **json) {
	return items(d, text("(?1 IS NULL OR key >= ?1) AND (?2 IS NULL OR key < ?2)"), text("[%s,%s]", low ? low : "null", high ? high : "null"), json);
}

int jail_data_find(jail_data *d, const char *field, const char *value, char **json) {
	if (!is_field(field)) return -1;
	return items(d, text("json_extract(value, '$.%s') IS ?", field), text("[%s]", value), json);
}

int jail_data_count(jail_data *d, int64_t *n) {
	char *sql = text("SELECT count(*) AS n FROM %s", d->table), *row = NULL;
	int err = jail_storage_get(sql, NULL, &row);
	if (!err) *n = jail_json_number(jail_json_at(row, "n"), 0);
	free(sql);
	free(row);
	return err;
}

int jail_data_subscribe(jail_data *d, int (*f)(void *, const jail_data_change *), void *with) {
	if (d->subscribers == MOST) return jail_agent_fail("too_large", "the collection has 8 subscribers already");
	d->subscriber[d->subscribers].f = f;
	d->subscriber[d->subscribers++].with = with;
	return 0;
}

// Does one thing to the value of a name: *read is where it goes, set what it becomes; both NULL reset it.
static int single(const char *name, char **read, const char *set) {
	jail_data *d;
	if (jail_data_open("singletons", NULL, NULL, &d)) return -1;
	char *key = jail_json_quote(name);
	int err = read ? jail_data_get(d, key, read) : set ? jail_data_put(d, key, set) : jail_data_remove(d, key, NULL);
	free(key);
	jail_data_close(d);
	return err;
}

int jail_data_one(const char *name, const char *otherwise, char **value) {
	int err = single(name, value, NULL);
	if (!err && !*value && otherwise) *value = text("%s", otherwise);
	return err;
}

int jail_data_set(const char *name, const char *value) { return single(name, NULL, value); }
int jail_data_reset(const char *name) { return single(name, NULL, NULL); }
