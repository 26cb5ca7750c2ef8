/* What WASI does not tell about a file, as a program would expect to find it:
 * the mode of a file that its owner may use, and blocks counted from the size.
 * Linked with --wrap, so that each caller of stat gets it. */
#include <sys/stat.h>

int __real_stat(const char *path, struct stat *st);
int __real_lstat(const char *path, struct stat *st);
int __real_fstat(int fd, struct stat *st);
int __real_fstatat(int dir, const char *path, struct stat *st, int flags);

static int fill(int failed, struct stat *st) {
  if (failed) return failed;
  if (S_ISDIR(st->st_mode)) st->st_mode |= 0755;
  else if (S_ISLNK(st->st_mode)) st->st_mode |= 0777;
  else st->st_mode |= 0644;
  st->st_blksize = 4096;
  st->st_blocks = (st->st_size + 511) / 512;
  return 0;
}

int __wrap_stat(const char *path, struct stat *st) {
  return fill(__real_stat(path, st), st);
}

int __wrap_lstat(const char *path, struct stat *st) {
  return fill(__real_lstat(path, st), st);
}

int __wrap_fstat(int fd, struct stat *st) {
  return fill(__real_fstat(fd, st), st);
}

int __wrap_fstatat(int dir, const char *path, struct stat *st, int flags) {
  return fill(__real_fstatat(dir, path, st, flags), st);
}
