// One URL: its requests, its answers, and what is written of them.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>

#include "fetch.h"
#include "jail_fetch.h"

// A transfer of one URL, over all its redirects.
struct transfer {
	const struct options *o;
	char *url;
	const char *method, *path; // path of the output: NULL for standard output
	FILE *out;
	int body; // the request has one
	int crossed; // a redirect led to another host, which gets no secrets of -H
	int64_t start, until; // milliseconds; until is 0 for no end
	int status, redirects;
	int64_t size;
	char *head, *location;
	char why[600]; // the error, for -w
};

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

#define fail(t, code, ...) (snprintf((t)->why, sizeof(t)->why, __VA_ARGS__), say((t)->o, code, "%s", (t)->why))

// failed says why a call of the library did not work, as curl would.
static int failed(struct transfer *t)
{
	switch (errno) {
	case ETIMEDOUT:
		return fail(t, TIMED_OUT, "Operation timed out after %lld milliseconds with %lld bytes received", now() - t->start, t->size);
	case ECONNRESET:
		return t->status ? fail(t, PARTIAL, "transfer closed with outstanding read data remaining") : fail(t, NO_ANSWER, "Empty reply from server");
	case EPROTO:
		return fail(t, CANNOT_RECEIVE, "%s", jail_fetch_error());
	case EINVAL:
		return fail(t, strstr(jail_fetch_error(), "URL") ? BAD_URL : BAD_USAGE, "%s", jail_fetch_error());
	}
	return fail(t, NO_CONNECT, "%s", jail_fetch_error());
}

// Output.

static void make_folders(const char *path)
{
	struct text t = {0};
	for (const char *s = path; (s = strchr(s, '/')); s++) {
		if (s == path) continue;
		t.size = 0;
		add(&t, path, (size_t)(s - path));
		mkdir(t.p, 0777); // the file that cannot be opened says it
	}
	free(t.p);
}

static int open_output(struct transfer *t)
{
	if (t->out) return OK;
	if (t->path && t->o->create_dirs) make_folders(t->path);
	t->out = t->path ? fopen(t->path, "wb") : stdout;
	return t->out ? OK : fail(t, CANNOT_WRITE, "cannot write to %s: %s", t->path, strerror(errno));
}

// nowhere reports whether a path is where nothing is kept: jails have no such device.
static int nowhere(const char *path) { return path && !strcmp(path, "/dev/null"); }

static int put(struct transfer *t, const void *p, size_t size)
{
	if (nowhere(t->path)) return OK;
	int code = open_output(t);
	if (code) return code;
	if (fwrite(p, 1, size, t->out) != size || fflush(t->out))
		return fail(t, CANNOT_WRITE, "cannot write to %s: %s", t->path ? t->path : "standard output", strerror(errno));
	return OK;
}

// The request.

// wanted reports whether a line of -H is sent, and whether it stands for a header of ours.
static int names(const char *line, const char *name)
{
	size_t n = strlen(name);
	return !strncasecmp(line, name, n) && (line[n] == ':' || line[n] == ';');
}

static int given(const struct options *o, const char *name)
{
	for (const char *line = o->headers.p; line && *line; line = strchr(line, '\n') + 1)
		if (names(line, name)) return 1;
	return 0;
}

static void line_of(struct text *h, const char *name, const char *value)
{
	if (!value || !*value) return;
	adds(h, name);
	adds(h, ": ");
	adds(h, value);
	adds(h, "\n");
}

static char *request_headers(struct transfer *t)
{
	const struct options *o = t->o;
	struct text h = {0};
	adds(&h, "");
	if (!given(o, "User-Agent")) line_of(&h, "User-Agent", o->agent ? o->agent : "jail-fetch/1.0");
	if (!given(o, "Referer")) line_of(&h, "Referer", o->referer);
	if (!given(o, "Cookie") && !t->crossed) line_of(&h, "Cookie", o->cookies.p);
	if (!given(o, "Accept")) adds(&h, o->json ? "Accept: application/json\n" : "Accept: */*\n");
	if (t->body && !o->upload && !given(o, "Content-Type"))
		adds(&h, o->json ? "Content-Type: application/json\n" : "Content-Type: application/x-www-form-urlencoded\n");
	for (const char *line = o->headers.p; line && *line; line = strchr(line, '\n') + 1) {
		size_t n = strcspn(line, "\r\n"), name = strcspn(line, ":;");
		if (t->crossed && (names(line, "Authorization") || names(line, "Cookie"))) continue;
		if (name >= n) {
			if (n) adds(&h, ""), add(&h, line, n), adds(&h, "\n"); // the library says what is wrong with it
		} else if (line[name] == ';') {
			if (name + 1 == n) add(&h, line, name), adds(&h, ":\n");
		} else if (name + 1 + strspn(line + name + 1, " \t") < n) {
			add(&h, line, n);
			adds(&h, "\n");
		}
	}
	return h.p;
}

static int send_upload(struct transfer *t, int handle, FILE *f)
{
	static char part[65536];
	for (size_t n; (n = fread(part, 1, sizeof part, f));)
		if (jail_fetch_write(handle, part, n)) return errno == EPIPE ? OK : failed(t);
	return ferror(f) ? fail(t, CANNOT_READ, "cannot read %s", t->o->upload) : OK;
}

// start sends the request, and its body.
static int start(struct transfer *t, int *handle)
{
	const struct options *o = t->o;
	FILE *f = NULL;
	int64_t length = 0;
	struct stat st;
	if (t->body && o->upload) {
		f = strcmp(o->upload, "-") ? fopen(o->upload, "rb") : stdin;
		if (!f) return fail(t, CANNOT_READ, "cannot read %s: %s", o->upload, strerror(errno));
		length = f != stdin && !fstat(fileno(f), &st) && S_ISREG(st.st_mode) ? st.st_size : JAIL_FETCH_CHUNKED;
	} else if (t->body) {
		length = (int64_t)o->data.size;
	}
	int64_t left = t->until ? t->until - now() : 0;
	if (t->until && left < 1) left = 1;
	char *headers = request_headers(t);
	if (o->verbose) fprintf(stderr, "> %s %s\n%s", t->method, t->url, headers);
	*handle = jail_fetch_open(t->method, t->url, headers, length, (unsigned)left);
	free(headers);
	int code = *handle < 0 ? failed(t) : OK;
	if (!code && f) code = send_upload(t, *handle, f);
	else if (!code && length && jail_fetch_write(*handle, o->data.p, (size_t)length) && errno != EPIPE) code = failed(t);
	if (f && f != stdin) fclose(f);
	return code;
}

// The answer.

// unquoted copies a string of a JSON object on one level, and returns whether it is there.
static int unquoted(const char *json, const char *name, char *to, size_t size)
{
	char key[32];
	snprintf(key, sizeof key, "\"%s\":\"", name);
	const char *s = strstr(json, key);
	size_t n = 0;
	for (s = s ? s + strlen(key) : ""; *s && *s != '"' && n + 1 < size; s++) {
		if (*s == '\\' && s[1] == 'u') {
			char hex[5] = {0};
			strncpy(hex, s + 2, 4);
			long c = strtol(hex, NULL, 16);
			to[n++] = c >= ' ' && c < 0x7f ? (char)c : '?';
			s += 1 + strlen(hex);
		} else if (*s == '\\' && s[1]) {
			to[n++] = *++s == 'n' || *s == 't' ? ' ' : *s;
		} else {
			to[n++] = *s;
		}
	}
	to[n] = 0;
	return n > 0;
}

// refused tells what the proxy says in place of an answer, with the code that curl has for the like.
static int refused(struct transfer *t, int handle, const char *kind)
{
	static char body[16384];
	char message[400], next[200];
	size_t n = 0;
	for (int64_t got; n < sizeof body - 1 && (got = jail_fetch_read(handle, body + n, sizeof body - 1 - n)) > 0;) n += (size_t)got;
	body[n] = 0;
	if (!unquoted(body, "message", message, sizeof message)) snprintf(message, sizeof message, "the fetch proxy refused the request: %s", kind);
	if (unquoted(body, "next", next, sizeof next)) strncat(message, "; ", 3);
	else *next = 0;
	int code = NO_CONNECT;
	if (!strcmp(kind, "bad_request")) code = BAD_URL;
	else if (!strcmp(kind, "timeout")) code = TIMED_OUT;
	else if (!strcmp(kind, "upstream")) {
		if (strstr(body, "name has no address")) code = NO_HOST;
		else if (strstr(message, "certificate")) code = BAD_CERTIFICATE;
		else if (strstr(message, "tls:")) code = TLS_FAILED;
		else if (strstr(message, "refused") || strstr(message, "unreachable") || strstr(message, "no route")) code = NO_CONNECT;
		else if (strstr(message, "EOF")) code = NO_ANSWER;
		else code = CANNOT_RECEIVE;
	}
	t->status = 0;
	return fail(t, code, "%s%s", message, next);
}

static int show_head(struct transfer *t)
{
	const struct options *o = t->o;
	struct text h = {0};
	adds(&h, t->head);
	adds(&h, "\r\n");
	if (o->verbose) fprintf(stderr, "< %s", h.p);
	int code = o->include || o->head ? put(t, h.p, h.size) : OK;
	if (!code && o->dump && !nowhere(o->dump)) {
		FILE *f = strcmp(o->dump, "-") ? fopen(o->dump, t->redirects ? "ab" : "wb") : stdout;
		if (!f || fwrite(h.p, 1, h.size, f) != h.size) code = fail(t, CANNOT_WRITE, "cannot write to %s", o->dump);
		if (f && f != stdout) fclose(f);
	}
	free(h.p);
	return code;
}

static int copy_body(struct transfer *t, int handle)
{
	static char part[65536];
	for (;;) {
		int64_t n = jail_fetch_read(handle, part, sizeof part);
		if (n < 0) return failed(t);
		if (!n) return t->path && !nowhere(t->path) ? open_output(t) : OK; // an empty answer makes an empty file
		t->size += n;
		int code = put(t, part, (size_t)n);
		if (code) return code;
	}
}

// next_hop makes the request that a redirect asks for.
static int next_hop(struct transfer *t)
{
	char *url;
	const char *why;
	if (t->o->max_redirects >= 0 && t->redirects >= t->o->max_redirects)
		return fail(t, TOO_MANY_REDIRECTS, "Maximum (%ld) redirects followed", t->o->max_redirects);
	int code = against(t->url, t->location, &url, &why);
	if (code) return fail(t, code, "the redirect to %s: %s", t->location, why);
	t->redirects++;
	t->crossed |= !same_origin(t->url, url);
	int post = !strcmp(t->method, "POST") || t->o->method && t->body && !t->o->upload;
	if (t->status == 303 ? strcmp(t->method, "HEAD") : post && (t->status == 301 || t->status == 302)) {
		t->body = 0;
		if (!t->o->method) t->method = "GET";
	}
	free(t->url);
	t->url = url;
	return -1;
}

// hop makes one request. -1 means that there is another one to make.
static int hop(struct transfer *t)
{
	const struct options *o = t->o;
	char value[8192];
	int handle = -1;
	t->status = 0;
	int code = start(t, &handle);
	if (!code && (t->status = jail_fetch_status(handle)) < 0) {
		t->status = 0;
		code = failed(t);
	}
	if (code) goto end;
	free(t->head);
	t->head = must(jail_fetch_head(handle));
	if (jail_fetch_header(t->head, "X-Jail-Fetch", value, sizeof value)) {
		code = refused(t, handle, value);
		goto end;
	}
	if (o->fail && t->status >= 400) {
		if ((code = show_head(t))) goto end;
		code = fail(t, HTTP_ERROR, "The requested URL returned error: %d", t->status);
		goto end;
	}
	if ((code = show_head(t))) goto end;
	free(t->location);
	t->location = NULL;
	if (t->status / 100 == 3 && jail_fetch_header(t->head, "Location", value, sizeof value) && *value) {
		t->location = must(strdup(value));
		if (o->follow) {
			code = next_hop(t);
			goto end;
		}
	}
	code = copy_body(t, handle);
	if (!code && o->fail_with_body && t->status >= 400) code = fail(t, HTTP_ERROR, "The requested URL returned error: %d", t->status);
end:
	if (handle >= 0) jail_fetch_close(handle);
	return code;
}

// write_out prints what -w asks for.
static void write_out(struct transfer *t, int code, const char *as_given)
{
	char value[8192];
	FILE *to = stdout;
	for (const char *s = t->o->write_out; *s; s++) {
		if (*s == '\\' && s[1]) {
			s++;
			fputs(*s == 'n' ? "\n" : *s == 't' ? "\t" : *s == 'r' ? "\r" : (char[]){'\\', *s, 0}, to);
			continue;
		}
		if (*s != '%' || s[1] != '{' || !strchr(s, '}')) {
			if (*s == '%' && s[1] == '%') s++;
			fputc(*s, to);
			continue;
		}
		const char *name = s + 2;
		size_t n = strcspn(name, "}");
#define IS(text) (n == strlen(text) && !memcmp(name, text, n))
		s = name + n;
		if (IS("http_code") || IS("response_code")) fprintf(to, "%03d", t->status);
		else if (IS("size_download")) fprintf(to, "%lld", t->size);
		else if (IS("num_redirects")) fprintf(to, "%d", t->redirects);
		else if (IS("url_effective")) fputs(t->url, to);
		else if (IS("url")) fputs(as_given, to);
		else if (IS("method")) fputs(t->method, to);
		else if (IS("scheme")) fputs(t->url[4] == 's' ? "HTTPS" : "HTTP", to);
		else if (IS("http_version")) fputs(t->status ? "1.1" : "0", to);
		else if (IS("exitcode")) fprintf(to, "%d", code);
		else if (IS("errormsg")) fputs(t->why, to);
		else if (IS("filename_effective")) fputs(t->path ? t->path : "", to);
		else if (IS("content_type")) fputs(t->head && jail_fetch_header(t->head, "Content-Type", value, sizeof value) ? value : "", to);
		else if (IS("time_total")) fprintf(to, "%lld.%03lld000", (now() - t->start) / 1000, (now() - t->start) % 1000);
		else if (IS("stderr")) to = stderr;
		else if (IS("stdout")) to = stdout;
		else if (IS("redirect_url")) {
			char *url;
			const char *why;
			if (t->location && against(t->url, t->location, &url, &why) == OK) fputs(url, to), free(url);
		} else fprintf(stderr, "fetch: unknown --write-out variable: '%.*s'\n", (int)n, name);
	}
}

int transfer(const struct options *o, size_t i)
{
	struct transfer t = {.o = o, .start = now()};
	const char *why;
	struct text url = {0};
	adds(&url, o->urls[i]);
	int code = absolute(url.p, &t.url, &why);
	if (code) return say(o, code, "%s: %s", o->urls[i], why);
	if (o->as_query && o->has_data) {
		struct text with = {0};
		adds(&with, t.url);
		adds(&with, strchr(t.url, '?') ? "&" : "?");
		add(&with, o->data.p, o->data.size);
		free(t.url);
		code = absolute(with.p, &t.url, &why);
		free(with.p);
		if (code) return say(o, code, "%s: %s", o->urls[i], why);
	}
	if (o->upload && strcmp(o->upload, "-")) t.url = with_name(t.url, o->upload);
	t.until = o->ms ? t.start + o->ms : 0;
	t.body = o->upload || o->has_data && !o->as_query;
	t.method = o->method ? o->method : o->head ? "HEAD" : o->upload ? "PUT" : t.body ? "POST" : "GET";
	if (i < o->output_count && o->outputs[i]) {
		t.path = *o->outputs[i] ? o->outputs[i] : last_part(t.url);
		if (!t.path) return say(o, CANNOT_WRITE, "Remote file name has no length!");
	}
	do code = hop(&t);
	while (code < 0);
	if (t.out && t.out != stdout && fclose(t.out) && !code) code = fail(&t, CANNOT_WRITE, "cannot write to %s: %s", t.path, strerror(errno));
	if (o->write_out) write_out(&t, code, o->urls[i]);
	free(url.p);
	free(t.url);
	free(t.head);
	free(t.location);
	return code;
}
