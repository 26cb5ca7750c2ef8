/* What QuickJS's library of operating system functions wants and neither wasi-libc
 * nor ../compat has. */
#include <errno.h>

/* A file without a name, in the folder that a tool has for such. */
FILE *tmpfile(void) {
  char name[] = "/tmp/qjs.XXXXXX";
  int fd = mkstemp(name);
  FILE *f;

  if (fd < 0) return NULL;
  f = fdopen(fd, "w+");
  unlink(name);
  return f;
}

int setuid(uid_t uid) {
  errno = ENOSYS;
  return -1;
}

int setgid(gid_t gid) {
  errno = ENOSYS;
  return -1;
}
