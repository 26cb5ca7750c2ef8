/* The working directory. WASI has none: wasi-libc keeps one of its own that
 * starts at "/". A shell's answer is in $PWD, so a relative path means there
 * what it means to the caller. An unreachable $PWD is not an error by itself:
 * the first relative path that fails says it better. */
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void enter_pwd(void) {
  const char *dir = getenv("PWD");

  if (dir && *dir == '/') (void)chdir(dir);
}
