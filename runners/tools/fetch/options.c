// The command line.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fetch.h"

static const char help[] =
	"usage: fetch [options] URL...\n"
	"Fetches URLs through the fetch proxy of the jail, as far as the policy grants it.\n"
	"  -o FILE, --output        write there; -O, --remote-name: to the name in the URL\n"
	"      --create-dirs        make the folders of FILE; --output-dir DIR: put files there\n"
	"  -s, --silent  -S, --show-error  -v, --verbose\n"
	"  -f, --fail               no output and exit code 22 where the status is 400 or more; --fail-with-body; --fail-early\n"
	"  -i, --include            show the headers too; -I, --head: only them; -D FILE, --dump-header\n"
	"  -L, --location           follow redirects, each decided anew; --max-redirs N\n"
	"  -X METHOD, --request     -H 'NAME: VALUE' or @FILE, --header\n"
	"  -d DATA or @FILE, --data; --data-binary, --data-raw, --data-urlencode; --json DATA; -G, --get\n"
	"  -T FILE, --upload-file   put a file\n"
	"  -A AGENT, --user-agent   -e URL, --referer   -b NAME=VALUE, --cookie\n"
	"  -m SECONDS, --max-time   -w FORMAT, --write-out   -h, --help   -V, --version\n"
	"Credentials, TLS and proxies are not the tool's: -u, -k, -x and their like are refused, with the reason.\n"
	"Exit codes are those of curl: 6 no such host, 7 no connection or not allowed, 22, 28 timeout.\n";

int say(const struct options *o, int code, const char *format, ...)
{
	va_list args;
	if (o && o->silent && !o->show_errors) return code;
	fprintf(stderr, "fetch: (%d) ", code);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	return code;
}

void *must(void *p)
{
	if (!p) {
		fputs("fetch: (27) there is no memory left\n", stderr);
		exit(NO_MEMORY);
	}
	return p;
}

void add(struct text *t, const void *p, size_t size)
{
	if (t->room - t->size <= size) {
		t->room = (t->size + size + 64) * 2;
		t->p = must(realloc(t->p, t->room));
	}
	if (size) memcpy(t->p + t->size, p, size);
	t->size += size;
	t->p[t->size] = 0;
}

void adds(struct text *t, const char *s) { add(t, s, strlen(s)); }

static int from_file(struct text *t, const char *name)
{
	static char part[16384];
	FILE *f = strcmp(name, "-") ? fopen(name, "rb") : stdin;
	if (!f) return say(NULL, CANNOT_READ, "cannot read %s", name);
	for (size_t n; (n = fread(part, 1, sizeof part, f));) add(t, part, n);
	int bad = ferror(f);
	if (f != stdin) fclose(f);
	return bad ? say(NULL, CANNOT_READ, "cannot read %s", name) : OK;
}

static void list(char ***all, size_t *n, char *one)
{
	*all = must(realloc(*all, (*n + 1) * sizeof **all));
	(*all)[(*n)++] = one;
}

static int header(struct options *o, const char *value)
{
	if (*value != '@') {
		if (value[strcspn(value, "\r\n")]) return say(NULL, BAD_USAGE, "-H: a header is one line");
		adds(&o->headers, value);
		adds(&o->headers, "\n");
		return OK;
	}
	int code = from_file(&o->headers, value + 1);
	if (o->headers.size && o->headers.p[o->headers.size - 1] != '\n') adds(&o->headers, "\n");
	return code;
}

// one_line takes the value of a header that has a flag of its own: the last one counts.
static int one_line(const char *name, const char **to, const char *value)
{
	if (value[strcspn(value, "\r\n")]) return say(NULL, BAD_USAGE, "%s: a header is one line", name);
	*to = value;
	return OK;
}

static int cookie(struct options *o, const char *value)
{
	int code = one_line("--cookie", &value, value);
	if (!code && !strchr(value, '=')) code = say(NULL, BAD_USAGE, "--cookie: cookies are not kept in files: give NAME=VALUE");
	if (!code && o->cookies.size) adds(&o->cookies, ";");
	if (!code) adds(&o->cookies, value);
	return code;
}

static void escaped(struct text *t, const char *s, size_t size)
{
	static const char hex[] = "0123456789ABCDEF";
	for (; size--; s++) {
		unsigned char c = (unsigned char)*s;
		if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z' || c >= '0' && c <= '9' || c && strchr("-._~", c)) add(t, s, 1);
		else if (c == ' ') adds(t, "+");
		else add(t, (char[]){'%', hex[c >> 4], hex[c & 15]}, 3);
	}
}

// without_lines takes out what a text file has for its own sake, as curl does.
static void without_lines(struct text *t)
{
	size_t n = 0;
	for (size_t i = 0; i < t->size; i++)
		if (t->p[i] != '\n' && t->p[i] != '\r' && t->p[i]) t->p[n++] = t->p[i];
	t->p[t->size = n] = 0;
}

// format takes what -w says, or the file that it names has.
static int format(struct options *o, const char *value)
{
	struct text t = {0};
	adds(&t, "");
	int code = OK;
	if (*value == '@') {
		code = from_file(&t, value + 1);
		without_lines(&t);
	} else {
		adds(&t, value);
	}
	o->write_out = t.p;
	return code;
}

// data adds what -d and its like say. Kinds: d, binary, raw, urlencode, json.
static int data(struct options *o, const char *kind, const char *value)
{
	struct text t = {0};
	int code = OK;
	adds(&t, "");
	if (*kind == 'u') { // NAME=TEXT, =TEXT, TEXT, NAME@FILE, @FILE
		size_t n = strcspn(value, "=@");
		struct text content = {0};
		adds(&content, "");
		if (value[n] && n) {
			add(&t, value, n);
			adds(&t, "=");
		}
		if (value[n] == '@') code = from_file(&content, value + n + 1);
		else adds(&content, value[n] ? value + n + 1 : value);
		escaped(&t, content.p, content.size);
		free(content.p);
	} else if (*value == '@' && *kind != 'r') {
		code = from_file(&t, value + 1);
		if (*kind == 'd') without_lines(&t);
	} else {
		adds(&t, value);
	}
	if (o->has_data && *kind != 'j') adds(&o->data, "&");
	add(&o->data, t.p, t.size);
	o->has_data = 1;
	if (*kind == 'j') o->json = 1;
	free(t.p);
	return code;
}

static int number(const char *name, const char *value, long *n)
{
	char *end;
	*n = strtol(value, &end, 10);
	return *end || end == value ? say(NULL, BAD_USAGE, "%s: %s is no number", name, value) : OK;
}

static int seconds(const char *name, const char *value, unsigned *ms)
{
	char *end;
	double s = strtod(value, &end);
	if (*end || end == value || !(s >= 0 && s < 4000000)) return say(NULL, BAD_USAGE, "%s: %s is no number of seconds", name, value);
	*ms = (unsigned)(s * 1000);
	if (s > 0 && !*ms) *ms = 1;
	return OK;
}

// Options: their letter, their name, and whether a value follows.
static const struct option {
	char letter;
	const char *name;
	int value;
} known[] = {
	{'o', "output", 1}, {'O', "remote-name", 0}, {0, "output-dir", 1}, {0, "create-dirs", 0}, {'s', "silent", 0}, {'S', "show-error", 0},
	{'v', "verbose", 0}, {'f', "fail", 0}, {0, "fail-with-body", 0}, {'i', "include", 0}, {'I', "head", 0}, {'D', "dump-header", 1},
	{'L', "location", 0}, {0, "max-redirs", 1}, {'X', "request", 1}, {'H', "header", 1}, {'d', "data", 1}, {0, "data-ascii", 1},
	{0, "data-binary", 1}, {0, "data-raw", 1}, {0, "data-urlencode", 1}, {0, "json", 1}, {'G', "get", 0}, {'T', "upload-file", 1},
	{'A', "user-agent", 1}, {'e', "referer", 1}, {'b', "cookie", 1}, {'m', "max-time", 1}, {'w', "write-out", 1}, {0, "url", 1},
	{0, "fail-early", 0}, {'h', "help", 0}, {'V', "version", 0},
	// Of no effect: it is so already, or is the proxy's to say.
	{'N', "no-buffer", 0}, {'q', "disable", 0}, {'#', "progress-bar", 0}, {0, "no-progress-meter", 0}, {'g', "globoff", 0}, {'4', "ipv4", 0},
	{'6', "ipv6", 0}, {0, "compressed", 0}, {0, "http1.1", 0}, {0, "connect-timeout", 1},
	// Refused, with the reason.
	{'u', "user", 1}, {0, "oauth2-bearer", 1}, {'n', "netrc", 0}, {'E', "cert", 1}, {0, "key", 1}, {0, "aws-sigv4", 1}, {'k', "insecure", 0},
	{0, "cacert", 1}, {0, "capath", 1}, {'x', "proxy", 1}, {'U', "proxy-user", 1}, {0, "noproxy", 1}, {0, "resolve", 1},
	{0, "connect-to", 1}, {0, "interface", 1}, {0, "unix-socket", 1}, {'c', "cookie-jar", 1},
};

static int refused(const char *name)
{
	const char *why = NULL;
	if (strstr("user oauth2-bearer netrc cert key aws-sigv4", name))
		why = "credentials are the proxy's: the policy names the one that a host gets, and the tool never sees it";
	else if (strstr("insecure cacert capath", name)) why = "the proxy checks certificates, and nothing inside can tell it not to";
	else if (strstr("proxy proxy-user noproxy resolve connect-to interface unix-socket", name))
		why = "the only way out is the fetch proxy, which resolves names and connects by itself";
	else if (!strcmp(name, "cookie-jar")) why = "cookies are not kept between requests";
	return why ? say(NULL, BAD_USAGE, "--%s: %s", name, why) : OK;
}

static const char *directory;

static int apply(struct options *o, const char *name, char *value)
{
	struct {
		const char *name;
		int *flag;
	} flags[] = {
		{"silent", &o->silent}, {"show-error", &o->show_errors}, {"verbose", &o->verbose}, {"fail", &o->fail},
		{"fail-with-body", &o->fail_with_body}, {"include", &o->include}, {"head", &o->head}, {"location", &o->follow}, {"get", &o->as_query},
		{"create-dirs", &o->create_dirs}, {"fail-early", &o->fail_early},
	};
	struct {
		const char *name;
		const char **text;
	} texts[] = {{"dump-header", &o->dump}, {"request", &o->method}, {"output-dir", &directory}, {"upload-file", &o->upload}};
	int code = refused(name);
	if (code) return code;
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
		if (!strcmp(name, flags[i].name)) *flags[i].flag = 1;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		if (!strcmp(name, texts[i].name)) *texts[i].text = value;
	if (!strcmp(name, "url")) list(&o->urls, &o->url_count, value);
	else if (!strcmp(name, "output")) list(&o->outputs, &o->output_count, strcmp(value, "-") ? value : NULL);
	else if (!strcmp(name, "remote-name")) list(&o->outputs, &o->output_count, "");
	else if (!strcmp(name, "max-redirs")) code = number("--max-redirs", value, &o->max_redirects);
	else if (!strcmp(name, "max-time")) code = seconds("--max-time", value, &o->ms);
	else if (!strcmp(name, "header")) code = header(o, value);
	else if (!strcmp(name, "user-agent")) code = one_line("--user-agent", &o->agent, value);
	else if (!strcmp(name, "referer")) code = one_line("--referer", &o->referer, value);
	else if (!strcmp(name, "cookie")) code = cookie(o, value);
	else if (!strcmp(name, "write-out")) code = format(o, value);
	else if (!strcmp(name, "data") || !strcmp(name, "data-ascii")) code = data(o, "d", value);
	else if (!strncmp(name, "data-", 5)) code = data(o, name + 5, value);
	else if (!strcmp(name, "json")) code = data(o, "json", value);
	else if (!strcmp(name, "help")) return fputs(help, stdout), -2;
	else if (!strcmp(name, "version")) return puts("fetch 1.0 (jail): http https, through the fetch proxy"), -2;
	return code;
}

static const struct option *find(const char *name, size_t n, char letter)
{
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (letter ? known[i].letter == letter : strlen(known[i].name) == n && !memcmp(known[i].name, name, n)) return &known[i];
	return NULL;
}

static int unknown(const char *arg)
{
	return say(NULL, BAD_USAGE, "%s: there is no such option; fetch --help shows those that there are", arg);
}

// one reads the argument at *i, and the value after it.
static int one(struct options *o, int argc, char **argv, int *i)
{
	char *arg = argv[*i];
	if (arg[1] == '-') {
		const struct option *k = find(arg + 2, strlen(arg + 2), 0);
		if (!k) return unknown(arg);
		if (k->value && ++*i >= argc) return say(NULL, BAD_USAGE, "%s: its value is missing", arg);
		return apply(o, k->name, k->value ? argv[*i] : NULL);
	}
	for (char *s = arg + 1; *s; s++) {
		const struct option *k = find(NULL, 0, *s);
		if (!k) return unknown((char[]){'-', *s, 0});
		if (!k->value) {
			int code = apply(o, k->name, NULL);
			if (code) return code;
			continue;
		}
		if (s[1]) return apply(o, k->name, s + 1);
		if (++*i >= argc) return say(NULL, BAD_USAGE, "-%c: its value is missing", *s);
		return apply(o, k->name, argv[*i]);
	}
	return OK;
}

int parse(struct options *o, int argc, char **argv)
{
	int plain = 0;
	o->max_redirects = 50;
	for (int i = 1; i < argc; i++) {
		if (!plain && !strcmp(argv[i], "--")) {
			plain = 1;
			continue;
		}
		if (plain || argv[i][0] != '-' || !argv[i][1]) {
			list(&o->urls, &o->url_count, argv[i]);
			continue;
		}
		int code = one(o, argc, argv, &i);
		if (code) return code == -2 ? OK : code;
	}
	if (!o->url_count) return say(NULL, BAD_USAGE, "no URL is given; fetch --help shows how");
	if (o->has_data && o->head && !o->as_query) return say(NULL, BAD_USAGE, "-I and -d: a request for headers alone has no body; -G makes it a query");
	if (o->upload && o->has_data) return say(NULL, BAD_USAGE, "-T and -d: a request has one body");
	if (o->fail && o->fail_with_body) return say(NULL, BAD_USAGE, "--fail and --fail-with-body: take one");
	for (size_t i = 0; directory && i < o->output_count; i++) {
		if (!o->outputs[i] || !*o->outputs[i] || *o->outputs[i] == '/') continue;
		struct text t = {0};
		adds(&t, directory);
		adds(&t, "/");
		adds(&t, o->outputs[i]);
		o->outputs[i] = t.p;
	}
	return -1;
}

int main(int argc, char **argv)
{
	struct options o = {0};
	int code = parse(&o, argc, argv);
	if (code >= 0) return code;
	for (size_t i = 0; i < o.url_count; i++) {
		code = transfer(&o, i); // as curl: that of the last one counts
		if (code && o.fail_early) break;
	}
	if (fflush(stdout) || ferror(stdout)) return say(&o, CANNOT_WRITE, "cannot write to standard output");
	return code;
}
