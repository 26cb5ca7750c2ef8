/* Processes, pipes, signals and devices: WASI preview 1 has none. Starting something
 * fails and says why; a handler is accepted because no signal will come. */
#include <errno.h>
#include <sys/wait.h>

static int absent(void) {
  errno = ENOSYS;
  return -1;
}

pid_t fork(void) { return absent(); }
pid_t vfork(void) { return absent(); }
pid_t setsid(void) { return absent(); }
pid_t waitpid(pid_t pid, int *status, int options) { return absent(); }
int kill(pid_t pid, int sig) { return absent(); }
int pipe(int fds[2]) { return absent(); }
int dup2(int from, int to) { return absent(); }
int execv(const char *path, char *const argv[]) { return absent(); }
int execve(const char *path, char *const argv[], char *const envp[]) {
  return absent();
}
int execvp(const char *file, char *const argv[]) { return absent(); }
int system(const char *command) { return absent(); }
FILE *popen(const char *command, const char *mode) {
  absent();
  return NULL;
}
int pclose(FILE *stream) { return absent(); }
int chroot(const char *path) { return absent(); }
int settimeofday(const struct timeval *tv, const void *zone) { return absent(); }

/* Nor can a guest make devices, or go to a directory by its descriptor. */
int mknod(const char *path, mode_t mode, dev_t dev) { return absent(); }
int mknodat(int dir, const char *path, mode_t mode, dev_t dev) {
  return absent();
}
int fchdir(int fd) { return absent(); }

/* A directory can be opened again through itself; a file cannot, and the tools
 * that would duplicate one are patched not to. */
int dup(int fd) {
  int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY);

  return copy < 0 ? absent() : copy;
}

int sigaction(int sig, const struct sigaction *act, struct sigaction *old) {
  if (old) memset(old, 0, sizeof(*old));
  return 0;
}

int sigprocmask(int how, const sigset_t *set, sigset_t *old) { return 0; }
int sigfillset(sigset_t *set) { return 0; }
int sigemptyset(sigset_t *set) { return 0; }
int sigaddset(sigset_t *set, int sig) { return 0; }

/* Time zones come from $TZ alone, which wasi-libc reads where it needs it. */
void tzset(void) {}
