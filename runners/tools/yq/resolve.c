#include <oniguruma.h>
#include <string.h>
#include "yq.h"

/* The patterns are those of Debian's yq, which are YAML's own. */
static const char null_or[] = "~|null|Null|NULL|";
static const char true_or[] = "true|True|TRUE";
static const char false_or[] = "false|False|FALSE";
static const char int_12[] = "0o[0-7]+|[-+]?[0-9]+|0x[0-9a-fA-F]+";
static const char float_12[] = "[-+]?(?:\\.[0-9]+|[0-9]+(?:\\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\\.(?:inf|Inf|INF)|\\.(?:nan|NaN|NAN)";
static const char other_11[] = "yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|="
	"|[-+]?[0-9][0-9_]*\\.[0-9_]*(?:[eE][-+][0-9]+)?|\\.[0-9_]+(?:[eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\\.[0-9_]*"
	"|[-+]?\\.(?:inf|Inf|INF)|\\.(?:nan|NaN|NAN)"
	"|[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+"
	"|[0-9]{4}-[0-9][0-9]-[0-9][0-9]|[0-9]{4}-[0-9][0-9]?-[0-9][0-9]?(?:[Tt]|[ \\t]+)[0-9][0-9]?:[0-9][0-9]:[0-9][0-9](?:\\.[0-9]*)?"
	"(?:[ \\t]*(?:Z|[-+][0-9][0-9]?(?::[0-9][0-9])?))?";

/* matches says whether all of the text is what a pattern describes. */
static int matches(regex_t **made, const char *pattern, const char *text, size_t length) {
	if (!*made) {
		char whole[1024] = "\\A(?:";
		strcat(strcat(whole, pattern), ")\\z");
		OnigErrorInfo info;
		if (onig_new(made, (OnigUChar *)whole, (OnigUChar *)whole + strlen(whole), ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_RUBY, &info))
			abort();
	}
	const OnigUChar *s = (const OnigUChar *)text;
	return onig_match(*made, s, s + length, s, 0, ONIG_OPTION_NONE) >= 0;
}

yq_kind yq_resolve(const char *text, size_t length) {
	static regex_t *null_re, *true_re, *false_re, *int_re, *float_re;
	if (matches(&null_re, null_or, text, length)) return YQ_NULL;
	if (matches(&true_re, true_or, text, length)) return YQ_TRUE;
	if (matches(&false_re, false_or, text, length)) return YQ_FALSE;
	if (matches(&int_re, int_12, text, length)) return YQ_INT;
	if (matches(&float_re, float_12, text, length)) return YQ_FLOAT;
	return YQ_STRING;
}

int yq_plain(const char *text, size_t length, int version) {
	static regex_t *null_re, *true_re, *false_re, *other_re;
	if (length == 2 && !memcmp(text, "<<", 2)) return 0;
	if (version == 12) return yq_resolve(text, length) == YQ_STRING;
	return !matches(&null_re, null_or, text, length) && !matches(&true_re, true_or, text, length) &&
		!matches(&false_re, false_or, text, length) && !matches(&other_re, other_11, text, length);
}
