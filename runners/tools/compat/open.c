/* open and openat as Unix programs call them: see O_RDONLY in posix.h. */
#include <stdarg.h>

#undef open
#undef openat

#define ACCESS_BITS (JAIL_O_READ | O_WRONLY | O_EXEC | O_SEARCH)

static int unix_flags(int flags) {
  return flags & ACCESS_BITS ? flags : flags | JAIL_O_READ;
}

/* WASI has no modes, so the third argument has nobody to go to. */
int jail_open(const char *path, int flags, ...) {
  return open(path, unix_flags(flags), 0666);
}

int jail_openat(int dir, const char *path, int flags, ...) {
  return openat(dir, path, unix_flags(flags), 0666);
}
