// See jail_fetch.h; the functions imported here are described in docs/fetch-abi.md.
#include "jail_fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define IMPORT(name) __attribute__((import_module("jail_fetch_v1"), import_name(#name))) extern uint32_t abi_##name

IMPORT(open)(const char *method, size_t method_size, const char *url, size_t url_size, const char *headers, size_t headers_size, int64_t length,
	uint32_t ms, uint32_t *handle);
IMPORT(write)(uint32_t handle, const void *data, size_t size);
IMPORT(status)(uint32_t handle, uint32_t *status);
IMPORT(head)(uint32_t handle, char *to, size_t size, uint32_t *total);
IMPORT(read)(uint32_t handle, void *to, size_t size, uint32_t *got);
IMPORT(close)(uint32_t handle);
IMPORT(error)(char *to, size_t size, uint32_t *total);

// done turns an error number of the host into errno: they are the same numbers.
static int done(uint32_t e)
{
	if (!e) return 0;
	errno = (int)e;
	return -1;
}

int jail_fetch_open(const char *method, const char *url, const char *headers, int64_t length, unsigned ms)
{
	uint32_t handle;
	if (!headers) headers = "";
	if (done(abi_open(method, strlen(method), url, strlen(url), headers, strlen(headers), length, ms, &handle))) return -1;
	return (int)handle;
}

int jail_fetch_write(int handle, const void *data, size_t size) { return done(abi_write((uint32_t)handle, data, size)); }

int jail_fetch_status(int handle)
{
	uint32_t status;
	return done(abi_status((uint32_t)handle, &status)) ? -1 : (int)status;
}

char *jail_fetch_head(int handle)
{
	uint32_t total = 0;
	if (done(abi_head((uint32_t)handle, NULL, 0, &total))) return NULL;
	char *head = malloc(total + 1);
	if (!head) return NULL;
	if (done(abi_head((uint32_t)handle, head, total, &total))) {
		free(head);
		return NULL;
	}
	head[total] = 0;
	return head;
}

int jail_fetch_header(const char *head, const char *name, char *value, size_t size)
{
	size_t n = strlen(name);
	for (const char *line = strchr(head, '\n'); line && *++line; line = strchr(line, '\n')) {
		if (strncasecmp(line, name, n) || line[n] != ':') continue;
		line += n + 1;
		line += strspn(line, " \t");
		n = strcspn(line, "\r\n");
		while (n && (line[n - 1] == ' ' || line[n - 1] == '\t')) n--;
		if (size) {
			if (n >= size) n = size - 1;
			memcpy(value, line, n);
			value[n] = 0;
		}
		return 1;
	}
	return 0;
}

int64_t jail_fetch_read(int handle, void *data, size_t size)
{
	uint32_t got;
	return done(abi_read((uint32_t)handle, data, size, &got)) ? -1 : (int64_t)got;
}

void jail_fetch_close(int handle) { abi_close((uint32_t)handle); }

const char *jail_fetch_error(void)
{
	static char text[512];
	uint32_t total = 0;
	abi_error(text, sizeof text - 1, &total);
	text[total < sizeof text ? total : sizeof text - 1] = 0;
	return text;
}

char *jail_fetch_get(const char *url, int *status, size_t *size)
{
	size_t used = 0, room = 0;
	char *body = NULL;
	int handle = jail_fetch_open("GET", url, NULL, 0, 0);
	if (handle < 0) return NULL;
	if ((*status = jail_fetch_status(handle)) < 0) goto fail;
	for (;;) {
		if (room - used < 4096) {
			char *more = realloc(body, room = room * 2 + 16384);
			if (!more) goto fail;
			body = more;
		}
		int64_t n = jail_fetch_read(handle, body + used, room - used - 1);
		if (n < 0) goto fail;
		if (n == 0) break;
		used += (size_t)n;
	}
	body[used] = 0;
	*size = used;
	jail_fetch_close(handle);
	return body;
fail:
	free(body);
	jail_fetch_close(handle);
	return NULL;
}
