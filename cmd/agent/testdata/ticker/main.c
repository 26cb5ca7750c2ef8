#include "jail_agent.h"

#include <stdlib.h>
#include <string.h>

static int on_event(const jail_event *e) {
	char *json = NULL;
	if (!strcmp(e->type, "tick")) return jail_tick(e->id, "fast", "Be brief.", NULL);
	if (strncmp(e->text, "SELECT", 6)) return jail_storage_exec(e->text);
	int err = jail_storage_query(e->text, NULL, &json) || jail_send_json(json, NULL, NULL);
	free(json);
	return err;
}

int main(void) { return jail_agent_run(&(jail_agent){.on_event = on_event}); }
