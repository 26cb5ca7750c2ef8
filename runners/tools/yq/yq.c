#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>
#include "yq.h"

void yq_append(yq_text *to, const char *text, size_t length) {
	if (length > to->room - to->length) {
		to->room = 2 * (to->room + length) + 4096;
		if (!(to->text = realloc(to->text, to->room))) {
			fprintf(stderr, "yq: out of memory\n");
			exit(2);
		}
	}
	memcpy(to->text + to->length, text, length);
	to->length += length;
}

/* What jq reads, in place of its files. */
int yq_reading;
static yq_text json;
static size_t json_read;

size_t yq_more(char *buf, size_t size, int *last) {
	size_t left = json.length - json_read, n = left < size - 1 ? left : size - 1;
	const char *from = json.text + json_read, *newline = n ? memchr(from, '\n', n) : 0;
	if (newline) n = newline + 1 - from;
	if (n) memcpy(buf, from, n);
	buf[n] = 0;
	json_read += n;
	*last = json_read == json.length;
	return n;
}

static const char help[] =
	"usage: yq [options] <jq filter> [YAML file...]\n"
	"Reads YAML, applies a filter of jq to it, and prints JSON, or YAML with -y.\n\n"
	"  -y, --yaml-output       print YAML\n"
	"  -i, --in-place          with -y: write what is printed of each file to the file\n"
	"  -w, --width N           with -y: break lines after N columns, 80 where not said\n"
	"      --indentless-lists  with -y: lists in mappings are not indented\n"
	"      --explicit-start    with -y: a line --- before each document\n"
	"      --explicit-end      with -y: a line ... behind each document\n"
	"      --yaml-output-grammar-version 1.1|1.2\n"
	"                          whether words like on and no are written as 'on' (1.1, which is so where not said)\n"
	"      --max-expansion-factor N\n"
	"                          how much longer than its text a document may become by its aliases, 1024 where not said\n"
	"      --version           the versions of jq and libyaml\n\n"
	"All other options are jq's: jq --help\n";

static int usage(int code, const char *what, const char *option) {
	fprintf(stderr, "yq: %s%s%s\nyq --help lists the options\n", option ? option : "", option ? ": " : "", what);
	return code;
}

static const char *files[4096];
static int file_count, in_place;
static long expansion = 1024;

/* run has jq read what is in json, and hands over what it printed as YAML. */
static int run(int argc, char **argv, yq_text *out) {
	yq_reading = 1;
	json_read = 0;
	int code = jq_main(argc, argv);
	if (yq_finish(out) && code <= 0) code = 5;
	return code;
}

static int edit(const char *name, int argc, char **argv) {
	json.length = 0;
	int code = yq_read(name, expansion, &json);
	yq_text out;
	if (!code) code = run(argc, argv, &out);
	if (code || !out.length) return code;
	FILE *f = fopen(name, "w");
	if (!f || fwrite(out.text, 1, out.length, f) != out.length || fclose(f)) {
		fprintf(stderr, "yq: %s: %s\n", name, strerror(errno));
		return 2;
	}
	free(out.text);
	return 0;
}

static int work(int argc, char **argv, int null) {
	int code = 0;
	if (in_place) {
		if (!yq_output.on) return usage(1, "-i works with -y only", 0);
		if (!file_count) return usage(1, "-i works on files, and none is named", 0);
		for (int i = 0; i < file_count && !code; i++) code = edit(files[i], argc, argv);
		return code;
	}
	if (!file_count && !null) {
		if (isatty(0)) return usage(2, "there is nothing to read: name a file, or pipe YAML into it", 0);
		files[file_count++] = "-";
	}
	for (int i = 0; i < file_count; i++)
		if ((code = yq_read(files[i], expansion, &json))) return code;
	yq_text out;
	code = run(argc, argv, &out);
	fwrite(out.text, 1, out.length, stdout);
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "yq: writing: %s\n", strerror(errno));
		return 2;
	}
	return code;
}

/* number reads what an option wants, least at least. */
static int number(const char *text, long least, long *to) {
	char *end;
	errno = 0;
	*to = text ? strtol(text, &end, 10) : 0;
	return text && *text && !*end && !errno && *to >= least;
}

/* own is what an option of yq's is, and consumes its value: 0 for one of jq's. */
static int own(int argc, char **argv, int *i, int *code) {
	static const struct {
		const char *names[3];
		char what;
	} options[] = {
		{{"--yaml-output", "--yml-output", "-y"}, 'y'}, {{"--in-place", "-i"}, 'i'}, {{"--width", "-w"}, 'w'},
		{{"--indentless-lists", "--indentless"}, 'l'}, {{"--explicit-start"}, 's'}, {{"--explicit-end"}, 'e'},
		{{"--yaml-output-grammar-version", "--yml-out-ver"}, 'g'}, {{"--max-expansion-factor"}, 'x'}, {{"--version"}, 'v'},
		{{"--help", "-h"}, 'h'}, {{"--yaml-roundtrip", "--yml-roundtrip", "-Y"}, '-'}, {{"--no-expand-aliases"}, '-'},
	};
	const char *arg = argv[*i], *equals = strncmp(arg, "--", 2) ? 0 : strchr(arg, '=');
	size_t length = equals ? (size_t)(equals - arg) : strlen(arg);
	char what = 0;
	for (size_t o = 0; o < sizeof options / sizeof *options; o++)
		for (int n = 0; n < 3 && options[o].names[n]; n++)
			if (strlen(options[o].names[n]) == length && !strncmp(options[o].names[n], arg, length)) what = options[o].what;
	if (!what) return 0;
	const char *with = equals ? equals + 1 : 0;
	if (strchr("wgx", what) && !with && *i + 1 < argc) with = argv[++*i];
	long n;
	switch (what) {
	case 'y': yq_output.on = 1; break;
	case 'i': in_place = 1; break;
	case 'l': yq_output.indentless = 1; break;
	case 's': yq_output.start = 1; break;
	case 'e': yq_output.end = 1; break;
	case 'w':
		if (!number(with, 1, &n)) *code = usage(2, "wants a number of columns", "--width");
		yq_output.width = n;
		break;
	case 'x':
		if (!number(with, 1, &expansion)) *code = usage(2, "wants a number", "--max-expansion-factor");
		break;
	case 'g':
		if (!with || (strcmp(with, "1.1") && strcmp(with, "1.2"))) *code = usage(2, "wants 1.1 or 1.2", "--yaml-output-grammar-version");
		else yq_output.version = strcmp(with, "1.1") ? 12 : 11;
		break;
	case 'v':
		printf("yq with jq %s and libyaml %s\n", YQ_JQ_VERSION, yaml_get_version_string());
		exit(0);
	case 'h':
		fputs(help, stdout);
		exit(0);
	default: *code = usage(2, "is not in this yq", arg);
	}
	return 1;
}

/* values is how many arguments an option of jq's takes, so that they are not taken for the filter or a file. */
static int values(const char *arg) {
	static const char *one[] = {"--indent", "-L", "--library-path"}, *two[] = {"--arg", "--argjson", "--slurpfile", "--rawfile"};
	for (size_t i = 0; i < sizeof one / sizeof *one; i++)
		if (!strcmp(arg, one[i])) return 1;
	for (size_t i = 0; i < sizeof two / sizeof *two; i++)
		if (!strcmp(arg, two[i])) return 2;
	return 0;
}

static int yq(int argc, char **argv) {
	char **to = calloc(argc + 3, sizeof *to), *filter = 0;
	int n = 0, code = 0, null = 0, from_file = 0, done = 0, rest = 0;
	if (!to) abort();
	to[n++] = "jq";
	for (int i = 1; i < argc && !code; i++) {
		char *arg = argv[i];
		if (done || rest || arg[0] != '-' || !arg[1]) {
			if (!filter) filter = to[n++] = arg;
			else if (rest) to[n++] = arg;
			else if (file_count < (int)(sizeof files / sizeof *files)) files[file_count++] = arg;
			else code = usage(2, "more than 4096 files", 0);
		} else if (!strcmp(arg, "--")) {
			done = 1;
		} else if (!strcmp(arg, "--args") || !strcmp(arg, "--jsonargs")) {
			to[n++] = arg;
			rest = 1;
		} else if (!strcmp(arg, "-f") || !strcmp(arg, "--from-file")) {
			if (i + 1 >= argc || from_file) code = usage(2, "wants one file", arg);
			else from_file = 1, to[n++] = "-f", filter = to[n++] = argv[++i];
		} else if (own(argc, argv, &i, &code)) {
			continue;
		} else if (values(arg)) {
			to[n++] = arg;
			for (int v = values(arg); v > 0 && i + 1 < argc; v--) to[n++] = argv[++i];
		} else if (arg[1] == '-') {
			null |= !strcmp(arg, "--null-input");
			to[n++] = arg;
		} else { /* letters in a row, of which some may be yq's */
			char *keep = arg + 1;
			for (char *c = arg + 1; *c; c++) {
				if (*c == 'y') yq_output.on = 1;
				else if (*c == 'i') in_place = 1;
				else if (strchr("Yx", *c)) code = usage(2, "is not in this yq", arg);
				else null |= *c == 'n', *keep++ = *c;
			}
			*keep = 0;
			if (arg[1]) to[n++] = arg;
		}
	}
	return code ? code : work(n, to, null && !file_count);
}

/* gojq is jq by the name of an older bundle's second one. With its options for YAML it is yq. */
static int gojq(int argc, char **argv) {
	int n = 0, yaml = 0;
	for (int i = 0; i < argc; i++) {
		if (!strcmp(argv[i], "--yaml-input")) {
			yaml = 1;
		} else if (!strcmp(argv[i], "--yaml-output")) {
			yaml = 1;
			argv[n++] = "-y";
		} else {
			argv[n++] = argv[i];
		}
	}
	argv[n] = 0;
	return yaml ? yq(n, argv) : jq_main(n, argv);
}

int main(int argc, char *argv[]) {
	const char *slash = argc ? strrchr(argv[0], '/') : 0, *name = slash ? slash + 1 : argc ? argv[0] : "";
	if (!strcmp(name, "yq")) return yq(argc, argv);
	return strcmp(name, "gojq") ? jq_main(argc, argv) : gojq(argc, argv);
}
