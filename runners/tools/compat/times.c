/* The two special times of utimensat, "now" and "leave it", which this wasi-libc
 * passes on as times that do not exist. Linked with --wrap, like stat.c. */
#include <errno.h>
#include <sys/stat.h>

int __real_utimensat(int dir, const char *path, const struct timespec times[2],
                     int flags);
int __real_futimens(int fd, const struct timespec times[2]);

/* Plain times for those wanted; st is how the file has them. */
static const struct timespec *plain(const struct timespec wanted[2],
                                    const struct stat *st,
                                    struct timespec times[2]) {
  struct timespec now;

  clock_gettime(CLOCK_REALTIME, &now);
  times[0] = wanted ? wanted[0] : now;
  times[1] = wanted ? wanted[1] : now;
  for (int i = 0; i < 2; i++) {
    if (times[i].tv_nsec == UTIME_NOW) times[i] = now;
    else if (times[i].tv_nsec == UTIME_OMIT)
      times[i] = i ? st->st_mtim : st->st_atim;
  }
  return times;
}

int __wrap_utimensat(int dir, const char *path, const struct timespec times[2],
                     int flags) {
  struct timespec set[2];
  struct stat st;

  if (fstatat(dir, path, &st, flags)) return -1;
  return __real_utimensat(dir, path, plain(times, &st, set), flags);
}

int __wrap_futimens(int fd, const struct timespec times[2]) {
  struct timespec set[2];
  struct stat st;

  if (fstat(fd, &st)) return -1;
  return __real_futimens(fd, plain(times, &st, set));
}
