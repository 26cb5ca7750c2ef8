#ifndef JAIL_TOYBOX_LINES_H
#define JAIL_TOYBOX_LINES_H
#include <sys/types.h>

/* How much is read at once, at least. */
#define LINES_READ 65536

/* A text of which a line must have at least one. */
struct must {
  struct must *next;
  char *text, *seen;
  size_t length;
};

struct lines {
  int fd, over, error;
  char *buf;
  size_t size, start, end;
};

/* Starts on a file; the first bytes are then in buf, up to end. */
void lines_open(struct lines *in, int fd);

/* The next line, delimiter included, as a new allocation, and its length, or -1
 * at the end (error is then an errno or 0). Where texts are given, lines without
 * any of them are passed over, counted in count and bytes. */
ssize_t lines_next(struct lines *in, char **line, int delim,
                   struct must *texts, int fold, long *count, long *bytes);

/* A text that each line which matches the pattern has in it, or null. */
struct must *lines_must(char *pattern, int fixed, int extended, int fold);

/* The last character of the bracket expression that opens at s, or the end of the
 * text where it does not close. */
char *skip_bracket(char *s);
#endif
