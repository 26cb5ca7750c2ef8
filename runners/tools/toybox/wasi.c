/* What toybox keeps in lib/portability.c and lib/tty.c for each system it runs
 * on, here for WASI, together with what the patches call. */
#include "toys.h"

int terminal_size(unsigned *columns, unsigned *rows) {
  unsigned x = 0, y = 0;
  char *s;

  if ((s = getenv("COLUMNS"))) x = atoi(s);
  if ((s = getenv("LINES"))) y = atoi(s);
  if (columns && x) *columns = x;
  if (rows && y) *rows = y;
  return x || y;
}

pid_t xfork(void) {
  perror_exit("cannot start another program: fork%c", fork() ? 0 : '?');
}

void xgetrandom(void *buf, unsigned length) {
  for (unsigned done = 0; done < length; done += 256)
    if (getentropy((char *)buf + done, minof(256, length - done)))
      perror_exit("getrandom");
}

/* Nobody tells a guest that a file grew, so tail -f looks once a second. */
struct xnotify *xnotify_init(int max) {
  struct xnotify *not = xzalloc(sizeof(*not));

  not->max = max;
  not->paths = xmalloc(max * sizeof(char *));
  not->fds = xmalloc(max * sizeof(int));
  return not;
}

int xnotify_add(struct xnotify *not, int fd, char *path) {
  if (not->count == not->max) error_exit("too many files to follow");
  not->paths[not->count] = path;
  not->fds[not->count++] = fd;
  return 0;
}

int xnotify_wait(struct xnotify *not, char **path) {
  struct stat st;

  for (;; msleep(1000)) {
    fflush(stdout);
    for (int i = 0; i < not->count; i++) {
      int fd = not->fds[i];

      if (fstat(fd, &st) || st.st_size <= lseek(fd, 0, SEEK_CUR)) continue;
      *path = not->paths[i];
      return fd;
    }
  }
}

/* No file has extended attributes. */
static ssize_t no_attributes(void) {
  errno = ENOTSUP;
  return -1;
}

ssize_t xattr_get(const char *path, const char *name, void *value, size_t n) {
  return no_attributes();
}
ssize_t xattr_lget(const char *path, const char *name, void *value, size_t n) {
  return no_attributes();
}
ssize_t xattr_fget(int fd, const char *name, void *value, size_t n) {
  return no_attributes();
}
ssize_t xattr_flist(int fd, char *list, size_t n) { return 0; }
ssize_t xattr_fset(int fd, const char *name, const void *value, size_t n,
                   int flags) {
  return no_attributes();
}

void xsignal_all_killers(void *handler) {}

int sig_to_num(char *name) { return -1; }
char *num_to_sig(int sig) { return 0; }

/* No file is a device; the numbers only have to survive a round trip. */
int dev_major(int dev) { return (dev >> 8) & 0xff; }
int dev_minor(int dev) { return dev & 0xff; }
int dev_makedev(int major, int minor) { return major << 8 | minor; }
int get_block_device_size(int fd, unsigned long long *size) { return 0; }

struct mtab_list *xgetmountlist(char *path) { return 0; }
char *fs_type_name(struct statfs *fs) { return "unknown"; }
int statfs(const char *path, struct statfs *fs) {
  errno = ENOSYS;
  return -1;
}

/* A call to the host costs as much as copying some kilobytes, hence a buffer
 * that is larger than toybox's own. */
long long sendfile_len(int in, int out, long long bytes, long long *consumed) {
  static char buf[65536];
  long long total = 0;

  if (consumed) *consumed = 0;
  while (in >= 0 && bytes != total) {
    long long want = sizeof(buf);

    if (bytes >= 0 && bytes - total < want) want = bytes - total;
    ssize_t length = read(in, buf, want);
    if (length < 0 && errno == EAGAIN) continue;
    if (length < 1) break;
    if (consumed) *consumed += length;
    if (out == 1) fflush(stdout);
    if (writeall(out, buf, length) != length) return -1;
    total += length;
  }
  return total;
}

/* The path of one more component below those of done, innermost first. */
char *jail_path(struct string_list *done, char *name) {
  size_t length = strlen(name) + 2;
  struct string_list *dir;

  for (dir = done; dir; dir = dir->next) length += strlen(dir->str) + 1;
  char *path = xmalloc(length), *at = path + length - strlen(name) - 1;
  strcpy(at, name);
  for (dir = done; dir; dir = dir->next) {
    *--at = '/';
    at -= strlen(dir->str);
    memcpy(at, dir->str, strlen(dir->str));
  }
  *--at = '/';
  return path;
}

/* A file that is gone when it is closed, for what a pipe to another program
 * would carry elsewhere. */
int jail_scratch(void) {
  char *dir = getenv("TMPDIR"), *name;
  int fd;

  name = xmprintf("%s/toybox.XXXXXX", dir && *dir ? dir : "/tmp");
  if ((fd = mkstemp(name)) < 0) perror_exit("%s", name);
  if (unlink(name)) perror_exit("%s", name);
  free(name);
  return fd;
}
