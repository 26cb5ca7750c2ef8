// What a URL is made of, and how one is read against another (RFC 3986, section 5).
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fetch.h"

// The end of the part that starts at s and ends before any of the bytes.
static const char *upto(const char *s, const char *ends) { return s + strcspn(s, ends); }

static int has_scheme(const char *s)
{
	const char *end = upto(s, ":/?#");
	return end > s && end[0] == ':' && end[1] == '/' && end[2] == '/';
}

// plain_path adds a path without its dot segments.
static void plain_path(struct text *out, const char *path, size_t size)
{
	size_t root = out->size;
	const char *end = path + size;
	while (path < end) {
		const char *next = memchr(path + 1, '/', (size_t)(end - path - 1));
		if (!next) next = end;
		size_t n = (size_t)(next - path);
		int last = next == end;
		if (n == 2 && !memcmp(path, "/.", 2)) {
			if (last) adds(out, "/");
		} else if (n == 3 && !memcmp(path, "/..", 3)) {
			while (out->size > root && out->p[out->size - 1] != '/') out->size--;
			if (out->size > root) out->size--;
			if (last) adds(out, "/");
		} else {
			add(out, path, n);
		}
		path = next;
	}
	if (out->size == root) adds(out, "/");
	out->p[out->size] = 0;
}

// normal makes the form that is sent of a whole URL.
static int normal(const char *text, char **url, const char **why)
{
	struct text out = {0};
	const char *colon = strchr(text, ':');
	const char *host = colon + 3, *end = upto(host, "/?#"), *path = end;
	size_t n = (size_t)(colon - text);
	if (!(n == 4 && !strncasecmp(text, "http", 4)) && !(n == 5 && !strncasecmp(text, "https", 5))) {
		*why = "the scheme is neither http nor https";
		return 1; // CURLE_UNSUPPORTED_PROTOCOL
	}
	if (end == host) {
		*why = "the URL has no host";
		return BAD_URL;
	}
	if (memchr(host, '@', (size_t)(end - host))) {
		*why = "the URL has a name or a password, and credentials are the proxy's: the policy names the one that a host gets";
		return BAD_URL;
	}
	for (const char *s = text; *s; s++) {
		if ((unsigned char)*s <= ' ' || *s == 0x7f) {
			*why = "the URL has a space or a control character, which must be written as %20 and the like";
			return BAD_URL;
		}
	}
	for (const char *s = text; s < colon; s++) add(&out, (char[]){(char)(*s | 0x20)}, 1);
	add(&out, colon, (size_t)(end - colon));
	end = upto(path, "?#");
	plain_path(&out, path, (size_t)(end - path));
	add(&out, end, (size_t)(upto(end, "#") - end));
	*url = out.p;
	return OK;
}

int absolute(const char *text, char **url, const char **why)
{
	struct text whole = {0};
	if (!has_scheme(text)) adds(&whole, "http://");
	adds(&whole, text);
	int code = normal(whole.p, url, why);
	free(whole.p);
	return code;
}

int against(const char *base, const char *reference, char **url, const char **why)
{
	const char *host = strchr(base, ':') + 3, *path = upto(host, "/?#"), *query = upto(path, "?#");
	struct text whole = {0}, clean = {0};
	for (const char *s = reference; *s; s++) { // what hosts leave as it is
		static const char hex[] = "0123456789ABCDEF";
		unsigned char c = (unsigned char)*s;
		if (c <= ' ' || c >= 0x7f) add(&clean, (char[]){'%', hex[c >> 4], hex[c & 15]}, 3);
		else add(&clean, s, 1);
	}
	adds(&clean, "");
	const char *r = clean.p;
	if (has_scheme(r)) {
		adds(&whole, r);
	} else if (r[0] == '/' && r[1] == '/') {
		add(&whole, base, (size_t)(host - 2 - base));
		adds(&whole, r);
	} else if (r[0] == '/') {
		add(&whole, base, (size_t)(path - base));
		adds(&whole, r);
	} else if (r[0] == '?' || r[0] == '#' || !r[0]) {
		add(&whole, base, r[0] == '?' ? (size_t)(query - base) : strlen(base));
		adds(&whole, r);
	} else {
		while (query > path && query[-1] != '/') query--;
		add(&whole, base, (size_t)(query - base));
		if (query == path) adds(&whole, "/");
		adds(&whole, r);
	}
	int code = normal(whole.p, url, why);
	free(whole.p);
	free(clean.p);
	return code;
}

// origin returns the size of scheme, host and port, without a port that the scheme says already.
static size_t origin(const char *url)
{
	const char *host = strchr(url, ':') + 3, *end = upto(host, "/?#");
	const char *usual = url[4] == 's' ? ":443" : ":80";
	size_t n = strlen(usual);
	if ((size_t)(end - host) > n && !memcmp(end - n, usual, n)) end -= n;
	return (size_t)(end - url);
}

int same_origin(const char *a, const char *b)
{
	size_t n = origin(a);
	return n == origin(b) && !strncasecmp(a, b, n);
}

char *with_name(char *url, const char *file)
{
	static const char hex[] = "0123456789ABCDEF";
	const char *slash = strrchr(file, '/');
	struct text t = {0};
	if (strchr(url, '?') || url[strlen(url) - 1] != '/') return url;
	adds(&t, url);
	for (const char *s = slash ? slash + 1 : file; *s; s++) {
		unsigned char c = (unsigned char)*s;
		if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z' || c >= '0' && c <= '9' || strchr("-._~", c)) add(&t, s, 1);
		else add(&t, (char[]){'%', hex[c >> 4], hex[c & 15]}, 3);
	}
	free(url);
	return t.p;
}

char *last_part(const char *url)
{
	const char *path = upto(strchr(url, ':') + 3, "/?#"), *end = upto(path, "?#"), *from = end;
	while (from > path && from[-1] != '/') from--;
	if (from == end) return NULL;
	char *name = must(malloc((size_t)(end - from) + 1));
	memcpy(name, from, (size_t)(end - from));
	name[end - from] = 0;
	return name;
}
