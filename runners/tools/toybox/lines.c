/* Lines for grep, those that cannot match left out. Most patterns hold some text
 * that every match has in it, and looking for that text in a large buffer costs a
 * hundredth of running the C library's regular expressions over each line. */
#include "toys.h"
#include "lines.h"

/* The first place of text in [at, end), or null. Folding is ASCII only, as in
 * the rest of grep. */
static char *find(struct must *text, int fold, char *at, char *end) {
  if (!fold) return memmem(at, end - at, text->text, text->length);
  for (; end - at >= (long)text->length; at++) {
    size_t i = 0;

    while (i < text->length && tolower(at[i]) == text->text[i]) i++;
    if (i == text->length) return at;
  }
  return 0;
}

/* The first place of any of the texts, each of which remembers where it was last
 * seen, so that none is looked for twice in one buffer. */
static char *find_any(struct must *texts, int fold, char *at, char *end) {
  char *first = end;

  for (struct must *text = texts; text; text = text->next) {
    if (!text->seen || text->seen < at) {
      text->seen = find(text, fold, at, end);
      if (!text->seen) text->seen = end;
    }
    if (text->seen < first) first = text->seen;
  }
  return first;
}

static void forget(struct must *texts) {
  for (; texts; texts = texts->next) texts->seen = 0;
}

/* Reads once more, behind what is still wanted. */
static void more(struct lines *in) {
  ssize_t length;

  memmove(in->buf, in->buf + in->start, in->end - in->start);
  in->end -= in->start;
  in->start = 0;
  if (in->size - in->end < LINES_READ)
    in->buf = xrealloc(in->buf, in->size = in->end * 2 + LINES_READ);
  length = read(in->fd, in->buf + in->end, in->size - in->end);
  if (length > 0) in->end += length;
  else in->over = 1;
  if (length < 0) in->error = errno;
}

void lines_open(struct lines *in, int fd) {
  in->fd = fd;
  in->start = in->end = in->over = in->error = 0;
  more(in);
}

ssize_t lines_next(struct lines *in, char **line, int delim,
                   struct must *texts, int fold, long *count, long *bytes) {
  for (;;) {
    char *start = in->buf + in->start, *end = in->buf + in->end, *stop;

    /* whole lines only, until there is no more to come */
    stop = in->over ? end : memrchr(start, delim, end - start);
    if (stop && stop != end) stop++;
    if (stop && stop != start) {
      if (texts) {
        char *hit, *next;

        forget(texts);
        hit = find_any(texts, fold, start, stop);
        while (start < stop && (next = memchr(start, delim, stop - start)) &&
               next < hit) {
          ++*count;
          *bytes += ++next - start;
          start = next;
        }
        if (hit == stop) start = stop;
        in->start = start - in->buf;
      }
      if (start < stop) {
        char *next = memchr(start, delim, stop - start);
        size_t length = (next ? next + 1 : stop) - start;

        *line = xmalloc(length + 1);
        memcpy(*line, start, length);
        (*line)[length] = 0;
        in->start += length;
        ++*count;
        return length;
      }
    }
    if (in->over) return -1;
    more(in);
  }
}


char *skip_bracket(char *s) {
  s++;
  if (*s == '^') s++;
  if (*s == ']') s++;
  for (; *s && *s != ']'; s++) {
    char kind = s[1];

    if (*s != '[' || (kind != ':' && kind != '.' && kind != '=')) continue;
    for (s += 2; *s && (*s != kind || s[1] != ']');) s++;
    if (!*s) return s;
    s++;
  }
  return s;
}

static char *skip_group(char *s, int extended) {
  for (int depth = 0; *s; s++) {
    if (*s == '[') {
      if (!*(s = skip_bracket(s))) return s;
      continue;
    }
    int special = extended;

    if (*s == '\\') {
      if (!*++s) return s;
      special = !extended;
    }
    if (special && *s == '(') depth++;
    if (special && *s == ')' && !--depth) return s;
  }
  return s;
}

/* The longest text that each match of a pattern holds, into text; its length, or
 * 0 where there is none or it is not plain that there is one. */
static size_t required(char *s, int extended, char *text) {
  char run[256];
  size_t length = 0, best = 0;

  for (;; s++) {
    int c = *s, literal = 0, operator = c;

    if (c == '\\') {
      c = *++s;
      operator = 0;
      if (c == '|') return 0;
      if (!extended && (c == '(' || c == '{' || c == '?' || c == '+'))
        operator = c;
      else literal = ispunct(c) && !strchr("<>`'", c);
    } else if (!extended && c && strchr("({?+|)}", c)) literal = 1;
    else literal = c > ' ' - 1 && c < 127 && !strchr(".[]^$*(){}?+|", c);

    if (extended && !literal && operator == '|') return 0;
    if (literal && length < sizeof(run)) {
      run[length++] = c;
      continue;
    }
    /* what may be there no time at all was not required */
    if (length && (operator == '*' || operator == '?' || operator == '{'))
      length--;
    if (length > best) memcpy(text, run, best = length);
    length = 0;
    if (!c) return best;
    if (literal) run[length++] = c;
    else if (operator == '[') s = skip_bracket(s);
    else if (operator == '(') s = skip_group(extended ? s : s - 1, extended);
    else if (operator == '{') while (*s && *s != '}') s++;
    if (!*s) return best;
  }
}

struct must *lines_must(char *pattern, int fixed, int extended, int fold) {
  char text[256];
  size_t length = fixed ? strlen(pattern) : required(pattern, extended, text);
  struct must *must = length ? xzalloc(sizeof(*must)) : 0;

  if (!must) return 0;
  must->text = xmemdup(fixed ? pattern : text, must->length = length);
  for (size_t i = 0; fold && i < length; i++)
    must->text[i] = tolower(must->text[i]);
  return must;
}
