/* Named in toybox's own prototypes; a guest cannot ask for it. */
#ifndef JAIL_SYS_MOUNT_H
#define JAIL_SYS_MOUNT_H
struct statfs {
  unsigned long f_type, f_bsize, f_frsize, f_fsid, f_namelen;
  unsigned long long f_blocks, f_bfree, f_bavail, f_files, f_ffree;
};
int statfs(const char *path, struct statfs *buf);
#endif
