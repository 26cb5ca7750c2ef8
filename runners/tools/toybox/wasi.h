/* What toybox's own headers declare only for systems that they know, and what
 * wasi.c adds for the patches. */
#ifndef JAIL_TOYBOX_WASI_H
#define JAIL_TOYBOX_WASI_H
#include "posix.h"
#include <regex.h>

struct string_list;
char *jail_path(struct string_list *done, char *name);
int jail_scratch(void);
int jail_gzip(int from, int to, int level);
int jail_gunzip(int from, int to);
int jail_regcomp(regex_t *reg, char *pattern, int flags);
char *bunzipStream(int src_fd, int dst_fd);
void do_xzcat(int fd, char *name);
extern int xzcat_out;

ssize_t xattr_get(const char *path, const char *name, void *value, size_t n);
ssize_t xattr_lget(const char *path, const char *name, void *value, size_t n);
ssize_t xattr_fget(int fd, const char *name, void *value, size_t n);
ssize_t xattr_flist(int fd, char *list, size_t n);
ssize_t xattr_fset(int fd, const char *name, const void *value, size_t n,
                   int flags);
#endif
