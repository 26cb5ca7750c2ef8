/* Paths that wasi-libc leaves out: temporary names, and realpath. */
#include <errno.h>
#include <limits.h>

#define TRIES 100
#define LINKS_MAX 40

/* Replaces the six X at the end of a template by random letters. */
static int random_suffix(char *template) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyz012345";
  size_t length = strlen(template);
  unsigned char bytes[6];

  if (length < 6) return -1;
  if (getentropy(bytes, sizeof(bytes))) return -1;
  for (int i = 0; i < 6; i++) template[length - 6 + i] = letters[bytes[i] & 31];
  return 0;
}

static int has_suffix(const char *template) {
  size_t length = strlen(template);

  if (length >= 6 && !strcmp(template + length - 6, "XXXXXX")) return 1;
  errno = EINVAL;
  return 0;
}

int mkstemp(char *template) {
  if (!has_suffix(template)) return -1;
  for (int i = 0; i < TRIES; i++) {
    if (random_suffix(template)) return -1;
    int fd = open(template, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

char *mkdtemp(char *template) {
  if (!has_suffix(template)) return NULL;
  for (int i = 0; i < TRIES; i++) {
    if (random_suffix(template)) return NULL;
    if (!mkdir(template, 0700)) return template;
    if (errno != EEXIST) return NULL;
  }
  return NULL;
}

/* Walks the path component by component as text, because a guest cannot hold a
 * directory and go up from it: what is above may be another mount. */
char *realpath(const char *path, char *resolved) {
  char done[PATH_MAX], todo[PATH_MAX], target[PATH_MAX];
  int links = 0;
  size_t length = 0;

  if (!*path) return errno = ENOENT, NULL;
  if (*path != '/') {
    if (!getcwd(done, sizeof(done))) return NULL;
    length = strlen(done);
    if (length == 1) length = 0;
  }
  if (strlen(path) >= sizeof(todo)) return errno = ENAMETOOLONG, NULL;
  strcpy(todo, path);

  char *next = todo;
  while (*next) {
    size_t size = strcspn(next, "/");
    char *rest = next + size + (next[size] == '/');

    if (!size || (size == 1 && *next == '.')) {
      next = rest;
      continue;
    }
    if (size == 2 && next[0] == '.' && next[1] == '.') {
      while (length && done[--length] != '/') {
      }
      next = rest;
      continue;
    }
    if (length + size + 2 > sizeof(done)) return errno = ENAMETOOLONG, NULL;
    done[length] = '/';
    memcpy(done + length + 1, next, size);
    done[length + 1 + size] = 0;

    ssize_t linked = readlink(done, target, sizeof(target) - 1);
    if (linked < 0) {
      struct stat st;

      if (lstat(done, &st)) return NULL;
      if (*rest && !S_ISDIR(st.st_mode)) return errno = ENOTDIR, NULL;
      length += 1 + size;
      next = rest;
      continue;
    }
    if (++links > LINKS_MAX) return errno = ELOOP, NULL;
    target[linked] = 0;
    if (linked + 1 + strlen(rest) >= sizeof(todo))
      return errno = ENAMETOOLONG, NULL;
    if (*target == '/') length = 0;
    memmove(todo + linked + 1, rest, strlen(rest) + 1);
    memcpy(todo, target, linked);
    todo[linked] = '/';
    next = todo;
  }
  if (!length) done[length++] = '/';
  done[length] = 0;
  return resolved ? strcpy(resolved, done) : strdup(done);
}
