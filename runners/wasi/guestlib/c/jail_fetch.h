// Fetching from inside a jail, for C and C++ compiled to WebAssembly (WASI preview 1).
//
// Compile jail_fetch.c with your program; nothing else is needed. The functions stand on the host functions of docs/fetch-abi.md, which a module may
// import where the policy grants a fetch. There is no TLS here: the fetch proxy outside speaks it, so https:// URLs are asked for as they are.
//
//	size_t size;
//	int status;
//	char *body = jail_fetch_get("https://example.com/", &status, &size);
//	if (!body) fprintf(stderr, "%s\n", jail_fetch_error());
//
// A refusal of the proxy is an answer too: its status is 403, it has the header X-Jail-Fetch, and its body says in JSON what to do.
#ifndef JAIL_FETCH_H
#define JAIL_FETCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Length of a body that is not known when the request starts.
#define JAIL_FETCH_CHUNKED (-1)

// Starts a request and returns its handle, or -1 with errno set. headers is NULL or lines of "Name: value\n"; length is that of the body in bytes;
// the whole request may take ms milliseconds, or for 0 as long as the policy lets it.
int jail_fetch_open(const char *method, const char *url, const char *headers, int64_t length, unsigned ms);

// Writes size bytes of the body, all of them or -1. With EPIPE the host has answered already: ask for the status.
int jail_fetch_write(int handle, const void *data, size_t size);

// Ends the body, waits for the answer, and returns its status, or -1.
int jail_fetch_status(int handle);

// Returns the status line and the headers as they came, each line with CR LF. The caller frees it. NULL with errno set where there is none.
char *jail_fetch_head(int handle);

// Copies the value of a header into value, which has room for size bytes, and returns 1; returns 0 where the head has no such header.
int jail_fetch_header(const char *head, const char *name, char *value, size_t size);

// Reads at most size bytes of the answer's body. 0 is its end; -1 with ECONNRESET means that it was cut short.
int64_t jail_fetch_read(int handle, void *data, size_t size);

// Ends the request. Handles are few: 16 at one time.
void jail_fetch_close(int handle);

// Says what the last error was, in words. It is valid until the next call.
const char *jail_fetch_error(void);

// Fetches a URL by GET and returns its body, with a NUL after it that size does not count, or NULL. The caller frees it.
char *jail_fetch_get(const char *url, int *status, size_t *size);

#ifdef __cplusplus
}
#endif
#endif
