/* A guest sees no mount table. */
#ifndef JAIL_MNTENT_H
#define JAIL_MNTENT_H
#include <stdio.h>
struct mntent {
  char *mnt_fsname, *mnt_dir, *mnt_type, *mnt_opts;
};
FILE *setmntent(const char *path, const char *mode);
struct mntent *getmntent(FILE *stream);
int endmntent(FILE *stream);
#endif
