/* WASI tells of no changes; the calls fail with ENOSYS. */
#ifndef JAIL_SYS_INOTIFY_H
#define JAIL_SYS_INOTIFY_H
struct inotify_event {
  int wd;
};
#define IN_MODIFY 2
int inotify_init(void);
int inotify_add_watch(int fd, const char *path, unsigned mask);
#endif
