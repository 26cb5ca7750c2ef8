/* Forced into every file of the tools: declares the POSIX functions that
 * wasi-libc leaves out and that ../ provides. What WASI has no notion of
 * (processes, owners, terminals) fails with ENOSYS there, or does nothing
 * where doing nothing is the truth: see each definition. */
#ifndef JAIL_POSIX_H
#define JAIL_POSIX_H

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

/* paths and files */
char *realpath(const char *path, char *resolved);
char *mkdtemp(char *template);
int mkstemp(char *template);
int fchdir(int fd);
void sync(void);
int mknod(const char *path, mode_t mode, dev_t dev);
int mknodat(int dir, const char *path, mode_t mode, dev_t dev);
int mkfifo(const char *path, mode_t mode);
int mkfifoat(int dir, const char *path, mode_t mode);
/* In wasi-libc O_RDONLY is a bit; programs take it for the 0 that it is on every
 * Unix, and open with flags 0 or compare with it. jail_open adds the bit. */
int jail_open(const char *path, int flags, ...);
int jail_openat(int dir, const char *path, int flags, ...);
#define open jail_open
#define openat jail_openat
enum { JAIL_O_READ = O_RDONLY, JAIL_O_RDWR = O_RDWR };
#undef O_RDONLY
#undef O_RDWR
#define O_RDONLY 0
#define O_RDWR JAIL_O_RDWR
#define O_PATH 0
#define O_NOATIME 0
#define ENODATA 9919 /* an error that WASI has not, and so never returns */

/* owners and modes */
mode_t umask(mode_t mask);
int chmod(const char *path, mode_t mode);
int fchmod(int fd, mode_t mode);
int fchmodat(int dir, const char *path, mode_t mode, int flags);
int chown(const char *path, uid_t uid, gid_t gid);
int fchown(int fd, uid_t uid, gid_t gid);
int lchown(const char *path, uid_t uid, gid_t gid);
int fchownat(int dir, const char *path, uid_t uid, gid_t gid, int flags);
uid_t getuid(void);
uid_t geteuid(void);
gid_t getgid(void);
gid_t getegid(void);
int setuid(uid_t uid);
int setgid(gid_t gid);

/* processes, which WASI has not */
int dup(int fd);
int dup2(int from, int to);
int pipe(int fds[2]);
pid_t fork(void);
pid_t vfork(void);
pid_t setsid(void);
int kill(pid_t pid, int sig);
int execv(const char *path, char *const argv[]);
int execve(const char *path, char *const argv[], char *const envp[]);
int execvp(const char *file, char *const argv[]);
int system(const char *command);
FILE *popen(const char *command, const char *mode);
int pclose(FILE *stream);
int chroot(const char *path);
int initgroups(const char *user, gid_t gid);
void tzset(void);
int settimeofday(const struct timeval *tv, const void *zone);
int gethostname(char *name, size_t size);

/* signals, which WASI has not either: handlers are kept and never called */
#define SIG_BLOCK 0
#define SIG_UNBLOCK 1
#define SIG_SETMASK 2
#define SA_RESTART 0x10000000
#define SA_NODEFER 0x40000000
struct sigaction {
  void (*sa_handler)(int);
  sigset_t sa_mask;
  int sa_flags;
};
int sigaction(int sig, const struct sigaction *act, struct sigaction *old);
int sigprocmask(int how, const sigset_t *set, sigset_t *old);
int sigfillset(sigset_t *set);
int sigemptyset(sigset_t *set);
int sigaddset(sigset_t *set, int sig);

#endif
