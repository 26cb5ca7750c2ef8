/* WASI has no users: the one there is owns everything. */
#ifndef JAIL_PWD_H
#define JAIL_PWD_H
#include <stddef.h>
#include <sys/types.h>
struct passwd {
  char *pw_name, *pw_passwd;
  uid_t pw_uid;
  gid_t pw_gid;
  char *pw_gecos, *pw_dir, *pw_shell;
};
struct passwd *getpwnam(const char *name);
struct passwd *getpwuid(uid_t uid);
int getpwnam_r(const char *name, struct passwd *pw, char *buf, size_t size,
               struct passwd **result);
int getpwuid_r(uid_t uid, struct passwd *pw, char *buf, size_t size,
               struct passwd **result);
#endif
