#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>
#include "yq.h"

yq_style yq_output = {.width = 80, .version = 11};
int yq_indentless;

static struct {
	int open;
	yaml_emitter_t emitter;
	yq_text text;
} to;

static int keep(void *data, unsigned char *buffer, size_t size) {
	yq_append(data, (char *)buffer, size);
	return 1;
}

static int emit(yaml_event_t *event) {
	if (yaml_emitter_emit(&to.emitter, event)) return 0;
	fprintf(stderr, "yq: a result cannot be written as YAML: %s\n", to.emitter.problem ? to.emitter.problem : "out of memory");
	return 1;
}

static int word(const char *text, size_t length, int plain) {
	yaml_event_t event;
	if (!yaml_scalar_event_initialize(&event, 0, 0, (yaml_char_t *)text, length, plain, 1, YAML_ANY_SCALAR_STYLE)) abort();
	return emit(&event);
}

static int string(jv s) {
	const char *text = jv_string_value(s);
	size_t length = jv_string_length_bytes(jv_copy(s));
	int bad = word(text, length, yq_plain(text, length, yq_output.version));
	jv_free(s);
	return bad;
}

/* number is jq's text of a number, as a float of YAML 1.1 where it has an exponent: that wants a point. */
static int number(jv n) {
	char text[2048] = "";
	jv shown = jv_dump_string(n, 0);
	const char *from = jv_string_value(shown);
	size_t length = jv_string_length_bytes(jv_copy(shown));
	size_t e = strcspn(from, "eE");
	int bad;
	if (e < length && length + 3 < sizeof text) {
		snprintf(text, sizeof text, "%.*s%se%s", (int)e, from, memchr(from, '.', e) ? "" : ".0", from + e + 1);
		bad = word(text, strlen(text), 1);
	} else {
		bad = word(from, length, 1);
	}
	jv_free(shown);
	return bad;
}

static int value(jv v, int sorted, int depth);

static int list(jv v, int sorted, int depth) {
	yaml_event_t event;
	yaml_sequence_start_event_initialize(&event, 0, 0, 1, YAML_BLOCK_SEQUENCE_STYLE);
	int bad = emit(&event);
	jv_array_foreach(v, i, item) {
		if (bad) jv_free(item);
		else bad = value(item, sorted, depth);
	}
	jv_free(v);
	yaml_sequence_end_event_initialize(&event);
	return bad || emit(&event);
}

static int mapping(jv v, int sorted, int depth) {
	yaml_event_t event;
	yaml_mapping_start_event_initialize(&event, 0, 0, 1, YAML_BLOCK_MAPPING_STYLE);
	int bad = emit(&event);
	if (sorted) {
		jv keys = jv_keys(jv_copy(v));
		jv_array_foreach(keys, i, key) {
			if (bad) jv_free(key);
			else bad = string(jv_copy(key)) || value(jv_object_get(jv_copy(v), key), sorted, depth);
		}
		jv_free(keys);
	} else {
		jv_object_foreach(v, key, item) {
			if (!bad && !(bad = string(jv_copy(key)))) bad = value(item, sorted, depth);
			else jv_free(item);
			jv_free(key);
		}
	}
	jv_free(v);
	yaml_mapping_end_event_initialize(&event);
	return bad || emit(&event);
}

static int value(jv v, int sorted, int depth) {
	if (depth > YQ_DEPTH) {
		fprintf(stderr, "yq: a result has more than %d lists and mappings in each other\n", YQ_DEPTH);
		jv_free(v);
		return 1;
	}
	switch (jv_get_kind(v)) {
	case JV_KIND_NULL: return word("null", 4, 1);
	case JV_KIND_TRUE: return word("true", 4, 1);
	case JV_KIND_FALSE: return word("false", 5, 1);
	case JV_KIND_NUMBER: return number(v);
	case JV_KIND_STRING: return string(v);
	case JV_KIND_ARRAY: return list(v, sorted, depth + 1);
	default: return mapping(v, sorted, depth + 1);
	}
}

int yq_result(jv v, int sorted) {
	yaml_event_t event;
	if (!to.open) {
		if (!yaml_emitter_initialize(&to.emitter)) abort();
		yq_indentless = yq_output.indentless;
		yaml_emitter_set_output(&to.emitter, keep, &to.text);
		yaml_emitter_set_unicode(&to.emitter, 1);
		yaml_emitter_set_width(&to.emitter, yq_output.width);
		yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING);
		if (emit(&event)) abort();
		to.open = 1;
	}
	yaml_document_start_event_initialize(&event, 0, 0, 0, !yq_output.start);
	int bad = emit(&event) || value(v, sorted, 0);
	yaml_document_end_event_initialize(&event, !yq_output.end);
	return bad || emit(&event);
}

int yq_finish(yq_text *out) {
	yaml_event_t event;
	int bad = 0;
	if (to.open) {
		yaml_stream_end_event_initialize(&event);
		bad = emit(&event);
		yaml_emitter_delete(&to.emitter);
		to.open = 0;
	}
	*out = to.text;
	memset(&to.text, 0, sizeof to.text);
	return bad;
}
