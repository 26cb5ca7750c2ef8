// Typed storage over the agent's database: collections, indexes and single values, for C and C++.
//
//	jail_data *customers;
//	static const char *unique[] = {"email", NULL}, *index[] = {"address.city", NULL};
//	jail_data_open("customers", unique, index, &customers);
//	jail_data_put(customers, "7", "{\"email\":\"ann@example.com\",\"address\":{\"city\":\"Bern\"}}");
//	jail_data_find(customers, "address.city", "\"Bern\"", &json);    // [{"key":7,"value":{...}}]
//
// Keys and values are JSON: keys numbers or texts, values anything. Numbers order as numbers, and come before texts. Libraries of the other languages use the
// same tables. Everything goes with the transaction of the event. All functions return 0, or -1: then jail_agent_error says why.
#ifndef JAIL_AGENT_DATA_H
#define JAIL_AGENT_DATA_H

#include "jail_agent.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct jail_data jail_data;

// A change of a value: kind is add, update or remove; before and after are NULL where there is no value.
typedef struct {
	const char *kind, *key, *before, *after;
} jail_data_change;

// Calls f(with). What f writes is there as a whole when it returns 0, or else not at all.
int jail_data_transaction(int (*f)(void *with), void *with);

// Opens the collection of that name, or makes it. unique and index are lists of fields of the values up to a NULL, or NULL, with dots between the names of
// fields in fields. A unique index refuses a second value with the same field; values without the field are not in it. Indexes that are not named any more are
// removed. jail_data_close frees *data.
int jail_data_open(const char *name, const char *const *unique, const char *const *index, jail_data **data);
void jail_data_close(jail_data *data);

// Into *value comes the value of a key, NULL if there is none. The caller frees what it gets.
int jail_data_get(jail_data *data, const char *key, char **value);
// Adds a value, or replaces that of the key. Subscribers run in the same transaction: if one fails, nothing is written.
int jail_data_put(jail_data *data, const char *key, const char *value);
// removed, which may be NULL, says whether there was one.
int jail_data_remove(jail_data *data, const char *key, int *removed);
// *json is a list of {"key": ..., "value": ...} in the order of the keys: all, or those from low on and before high; low and high may be NULL.
int jail_data_items(jail_data *data, const char *low, const char *high, char **json);
// Those whose field is that text, number or null, by an index if there is one.
int jail_data_find(jail_data *data, const char *field, const char *value, char **json);
int jail_data_count(jail_data *data, int64_t *n);
// Has f called for each change, in its transaction. At most 8.
int jail_data_subscribe(jail_data *data, int (*f)(void *with, const jail_data_change *change), void *with);

// One value by a name. *value is otherwise, which may be NULL, if it was never set, or was reset.
int jail_data_one(const char *name, const char *otherwise, char **value);
int jail_data_set(const char *name, const char *value);
int jail_data_reset(const char *name);

#ifdef __cplusplus
}
#endif
#endif
