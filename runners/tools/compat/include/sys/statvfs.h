/* Named in toybox's own prototypes; none of the commands built asks. */
#ifndef JAIL_SYS_STATVFS_H
#define JAIL_SYS_STATVFS_H
struct statvfs {
  unsigned long f_bsize;
};
int statvfs(const char *path, struct statvfs *buf);
#endif
