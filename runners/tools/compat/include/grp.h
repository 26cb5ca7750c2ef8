/* See pwd.h. */
#ifndef JAIL_GRP_H
#define JAIL_GRP_H
#include <stddef.h>
#include <sys/types.h>
struct group {
  char *gr_name, *gr_passwd;
  gid_t gr_gid;
  char **gr_mem;
};
struct group *getgrnam(const char *name);
struct group *getgrgid(gid_t gid);
int getgrnam_r(const char *name, struct group *gr, char *buf, size_t size,
               struct group **result);
int getgrgid_r(gid_t gid, struct group *gr, char *buf, size_t size,
               struct group **result);
#endif
