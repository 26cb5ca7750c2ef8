#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>
#include "yq.h"

/* A document that is made a value of jq's: an anchor's value is made once, however often it is named. */
typedef struct {
	yaml_document_t doc;
	struct made {
		jv value;
		double size; /* of its text */
		enum { NOT_YET, NOW, DONE } state;
	} *nodes;
	const char *why;
	yaml_mark_t where;
} reading;

static jv fail(reading *r, yaml_node_t *node, const char *why) {
	if (!r->why) {
		r->why = why;
		r->where = node->start_mark;
	}
	return jv_invalid();
}

/* integer is the decimal text of an integer of YAML, or an empty one where it has too many digits for one in another base. */
static void integer(const char *text, char *out, size_t room) {
	const char *sign = *text == '-' ? "-" : "";
	if (*text == '-' || *text == '+') text++;
	int base = 10;
	if (text[0] == '0' && text[1] == 'x') base = 16, text += 2;
	else if (text[0] == '0' && text[1] == 'o') base = 8, text += 2;
	else if (text[0] == '0' && strspn(text, "01234567") == strlen(text)) base = 8; /* as Debian's: 0644 is a mode */
	while (text[0] == '0' && text[1]) text++;
	if (base == 10) {
		snprintf(out, room, "%s%s", sign, text);
		return;
	}
	*out = 0;
	errno = 0;
	unsigned long long n = strtoull(text, 0, base);
	if (!errno) snprintf(out, room, "%s%llu", n ? sign : "", n);
}

static jv number(yq_kind kind, const char *text) {
	char *out = malloc(strlen(text) + 32);
	if (!out) abort();
	jv v;
	if (kind == YQ_INT) {
		integer(text, out, strlen(text) + 32);
		v = *out ? jv_number_with_literal(out) : jv_string(text);
	} else if (strpbrk(text, "nN")) {
		v = jv_number(strpbrk(text, "aA") ? NAN : *text == '-' ? -INFINITY : INFINITY);
	} else {
		v = jv_number(strtod(text, 0));
		if (isfinite(jv_number_value(v))) { /* 1.0 stays one, and 2.50 becomes 2.5 */
			jv shown = jv_dump_string(v, 0);
			strcpy(out, jv_string_value(shown));
			if (!strpbrk(out, ".e")) strcat(out, ".0");
			jv_free(shown);
			v = jv_number_with_literal(out);
		}
	}
	free(out);
	return v;
}

static jv scalar(reading *r, yaml_node_t *node) {
	static const char core[] = "tag:yaml.org,2002:";
	const char *text = (char *)node->data.scalar.value, *tag = (char *)node->tag;
	size_t length = node->data.scalar.length;
	yq_kind kind = YQ_STRING;
	if (!strcmp(tag, "?")) { /* plain, and not said otherwise */
		kind = yq_resolve(text, length);
	} else if (!strncmp(tag, core, strlen(core))) {
		static const struct {
			const char *name;
			yq_kind a, b;
		} tags[] = {{"null", YQ_NULL, YQ_NULL}, {"bool", YQ_TRUE, YQ_FALSE}, {"int", YQ_INT, YQ_INT}, {"float", YQ_FLOAT, YQ_INT}};
		for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
			if (!strcmp(tag + strlen(core), tags[i].name)) {
				kind = yq_resolve(text, length);
				if (kind != tags[i].a && kind != tags[i].b) return fail(r, node, "a value that is not what its tag says");
			}
	}
	switch (kind) {
	case YQ_NULL: return jv_null();
	case YQ_TRUE: return jv_true();
	case YQ_FALSE: return jv_false();
	case YQ_INT:
	case YQ_FLOAT: return number(kind, text);
	default: return jv_string_sized(text, length);
	}
}

static jv convert(reading *r, int id, int depth, double *size);

static int merges(reading *r, yaml_node_pair_t *pair) {
	yaml_node_t *key = yaml_document_get_node(&r->doc, pair->key);
	return key->type == YAML_SCALAR_NODE && !strcmp((char *)key->tag, "?") && !strcmp((char *)key->data.scalar.value, "<<");
}

/* merge adds what stands behind <<: of two mappings in a list the first one has the last word. */
static jv merge(reading *r, jv to, int id, int depth, int list, double *size) {
	yaml_node_t *node = yaml_document_get_node(&r->doc, id);
	if (node->type == YAML_SEQUENCE_NODE && list) {
		for (yaml_node_item_t *i = node->data.sequence.items.top; i > node->data.sequence.items.start && jv_is_valid(to);)
			to = merge(r, to, *--i, depth + 1, 0, size);
		return to;
	}
	if (node->type != YAML_MAPPING_NODE) {
		jv_free(to);
		return fail(r, node, "what << merges is no mapping, and no list of mappings");
	}
	jv from = convert(r, id, depth + 1, size);
	if (!jv_is_valid(from)) {
		jv_free(to);
		return from;
	}
	to = jv_object_merge(to, from);
	return to;
}

static jv mapping(reading *r, yaml_node_t *node, int depth, double *size) {
	jv object = jv_object();
	yaml_node_pair_t *first = node->data.mapping.pairs.start, *end = node->data.mapping.pairs.top;
	for (yaml_node_pair_t *p = first; p < end; p++) {
		if (!merges(r, p)) continue;
		object = merge(r, object, p->value, depth, 1, size);
		if (!jv_is_valid(object)) return object;
	}
	for (yaml_node_pair_t *p = first; p < end; p++) {
		if (merges(r, p)) continue;
		yaml_node_t *k = yaml_document_get_node(&r->doc, p->key);
		if (k->type != YAML_SCALAR_NODE) {
			jv_free(object);
			return fail(r, k, "a key that is a mapping or a list, which JSON has not");
		}
		jv key = convert(r, p->key, depth + 1, size);
		if (jv_is_valid(key) && jv_get_kind(key) != JV_KIND_STRING) key = jv_dump_string(key, 0);
		jv value = jv_is_valid(key) ? convert(r, p->value, depth + 1, size) : jv_invalid();
		if (!jv_is_valid(value)) {
			jv_free(key);
			jv_free(object);
			return value;
		}
		object = jv_object_set(object, key, value);
	}
	return object;
}

static jv convert(reading *r, int id, int depth, double *size) {
	yaml_node_t *node = yaml_document_get_node(&r->doc, id);
	struct made *made = &r->nodes[id - 1];
	if (depth > YQ_DEPTH) return fail(r, node, "more than 250 lists and mappings in each other");
	if (made->state == NOW) return fail(r, node, "an alias inside of what it stands for");
	if (made->state == NOT_YET) {
		made->state = NOW;
		double own = 2;
		jv v;
		if (node->type == YAML_SCALAR_NODE) {
			own += node->data.scalar.length;
			v = scalar(r, node);
		} else if (node->type == YAML_MAPPING_NODE) {
			v = mapping(r, node, depth, &own);
		} else {
			v = jv_array();
			for (yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top; i++) {
				jv item = convert(r, *i, depth + 1, &own);
				if (!jv_is_valid(item)) {
					jv_free(v);
					return item;
				}
				v = jv_array_append(v, item);
			}
		}
		made->value = v;
		made->size = own;
		if (!jv_is_valid(v)) return v;
		made->state = DONE;
	}
	*size += made->size;
	return jv_copy(made->value);
}

static int document(const char *name, reading *r, long expansion, yq_text *json) {
	yaml_node_t *root = yaml_document_get_root_node(&r->doc);
	size_t count = r->doc.nodes.top - r->doc.nodes.start;
	r->nodes = calloc(count, sizeof *r->nodes);
	if (!r->nodes) abort();
	double size = 0;
	jv v = convert(r, 1, 0, &size);
	double length = root->end_mark.index - root->start_mark.index + 64.0;
	if (jv_is_valid(v) && size > length * expansion) {
		jv_free(v);
		v = fail(r, root, "aliases that stand for far more text than there is: --max-expansion-factor allows more");
	}
	for (size_t i = 0; i < count; i++)
		if (r->nodes[i].state == DONE) jv_free(r->nodes[i].value);
	free(r->nodes);
	if (r->why) {
		fprintf(stderr, "yq: %s: line %zu, column %zu: %s\n", name, r->where.line + 1, r->where.column + 1, r->why);
		return 1;
	}
	v = jv_dump_string(v, 0);
	yq_append(json, jv_string_value(v), jv_string_length_bytes(jv_copy(v)));
	yq_append(json, "\n", 1);
	jv_free(v);
	return 0;
}

int yq_read(const char *name, long expansion, yq_text *json) {
	int standard = !strcmp(name, "-");
	FILE *f = standard ? stdin : fopen(name, "r");
	if (!f) {
		fprintf(stderr, "yq: %s: %s\n", name, strerror(errno));
		return 2;
	}
	if (standard) name = "standard input";
	yaml_parser_t parser;
	if (!yaml_parser_initialize(&parser)) abort();
	yaml_parser_set_input_file(&parser, f);
	int bad = 0;
	for (int more = 1; more && !bad;) {
		reading r = {0};
		if (!yaml_parser_load(&parser, &r.doc)) {
			bad = 1;
			if (parser.error == YAML_READER_ERROR)
				fprintf(stderr, "yq: %s: byte %zu: %s\n", name, parser.problem_offset, ferror(f) ? strerror(errno) : parser.problem);
			else
				fprintf(stderr, "yq: %s: line %zu, column %zu: %s\n", name, parser.problem_mark.line + 1, parser.problem_mark.column + 1, parser.problem);
			break;
		}
		more = yaml_document_get_root_node(&r.doc) != 0;
		if (more) bad = document(name, &r, expansion, json);
		yaml_document_delete(&r.doc);
	}
	yaml_parser_delete(&parser);
	if (!standard) fclose(f);
	return bad;
}
