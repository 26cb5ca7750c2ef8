/* Extended regular expressions with back references. The C library takes \1 in
 * one for the digit, so such an expression is compiled as the basic one that
 * means the same, in which the library knows every operator by its backslash. */
#include "toys.h"
#include "lines.h"

static int has_reference(char *s) {
  for (; *s; s++) {
    if (*s == '[') s = skip_bracket(s);
    else if (*s == '\\' && *++s >= '1' && *s <= '9') return 1;
    if (!*s) break;
  }
  return 0;
}

static char *basic(char *s) {
  char *out = xmalloc(2 * strlen(s) + 1), *to = out, *start = s;

  for (; *s; s++) {
    if (*s == '[') {
      char *end = skip_bracket(s);

      while (s < end) *to++ = *s++;
      if (*s) *to++ = *s;
      else break;
    } else if (*s == '\\' && s[1]) {
      /* an operator that was quoted is plain in a basic expression */
      if (!strchr("(){}|+?", *++s)) *to++ = '\\';
      *to++ = *s;
    } else {
      /* a star with nothing before it is plain in one kind, and an error or an
       * operator on nothing in the other: it is kept from meaning a repetition */
      if (strchr("(){}|+?", *s) || (*s == '*' && s == start)) *to++ = '\\';
      *to++ = *s;
    }
  }
  *to = 0;
  return out;
}

int jail_regcomp(regex_t *reg, char *pattern, int flags) {
  char *other;
  int rc;

  if (!has_reference(pattern)) return regcomp(reg, pattern, flags);
  rc = regcomp(reg, other = basic(pattern), flags & ~REG_EXTENDED);
  free(other);
  return rc;
}
