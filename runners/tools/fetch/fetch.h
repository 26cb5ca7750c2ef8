// fetch: curl's everyday flags, over the fetch proxy of a jail.
#ifndef FETCH_H
#define FETCH_H

#include <stddef.h>
#include <stdint.h>

// Exit codes, those of curl.
enum {
	OK = 0,
	BAD_USAGE = 2,
	BAD_URL = 3,
	NO_HOST = 6,    // the name has no address
	NO_CONNECT = 7, // no connection, or the policy does not allow it
	PARTIAL = 18,
	HTTP_ERROR = 22, // with -f
	CANNOT_WRITE = 23,
	CANNOT_READ = 26,
	NO_MEMORY = 27,
	TIMED_OUT = 28,
	TLS_FAILED = 35,
	TOO_MANY_REDIRECTS = 47,
	NO_ANSWER = 52,
	CANNOT_RECEIVE = 56,
	BAD_CERTIFICATE = 60,
};

// A text that grows. p is never NULL once something was added, and ends with a NUL that size does not count.
struct text {
	char *p;
	size_t size, room;
};

void add(struct text *t, const void *p, size_t size);
void adds(struct text *t, const char *s);
void *must(void *p); // ends the program where there is no memory

struct options {
	char **urls, **outputs; // outputs[i] is NULL for standard output, "" for the name in the URL
	size_t url_count, output_count;
	const char *method, *write_out, *dump, *upload;
	const char *agent, *referer; // NULL where none is given, "" for none at all
	struct text cookies;         // of -b, all of them
	struct text headers; // lines of -H
	struct text data;    // of -d and its like
	int has_data, as_query, json;
	int silent, show_errors, fail, fail_with_body, include, head, follow, verbose, create_dirs, fail_early;
	long max_redirects;
	unsigned ms; // --max-time; 0 is none
};

// parse reads the command line. It returns -1, or the code to exit with at once.
int parse(struct options *o, int argc, char **argv);

// say prints an error of the program itself, and returns its code.
int say(const struct options *o, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

// A URL in the form that is sent: a scheme and a host, no fragment, a path without dot segments. Returns a code, with the reason in *why.
int absolute(const char *text, char **url, const char **why);
// against resolves a reference of an answer.
int against(const char *base, const char *reference, char **url, const char **why);
// with_name returns a URL with the name of a file behind a path that ends in /, and the URL itself where its path does not.
char *with_name(char *url, const char *file);
// same_origin reports whether two URLs have the same scheme, host and port.
int same_origin(const char *a, const char *b);
// last_part returns the name of the file in a URL, or NULL where it has none.
char *last_part(const char *url);

// transfer fetches the i-th URL, and returns a code.
int transfer(const struct options *o, size_t i);

#endif
