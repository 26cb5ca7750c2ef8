/* Owners and modes, of which WASI has none. Setting one succeeds where the file
 * is there, as it would on a file system without them (vfat); there is one user,
 * number 0 because that is the owner which stat gives every file. */
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>

static int exists(int dir, const char *path, int flags) {
  struct stat st;

  return fstatat(dir, path, &st, flags);
}

mode_t umask(mode_t mask) {
  static mode_t current = 022;
  mode_t old = current;

  current = mask & 0777;
  return old;
}

int chmod(const char *path, mode_t mode) { return exists(AT_FDCWD, path, 0); }
int fchmod(int fd, mode_t mode) { return 0; }
int fchmodat(int dir, const char *path, mode_t mode, int flags) {
  return exists(dir, path, flags);
}
int chown(const char *path, uid_t uid, gid_t gid) {
  return exists(AT_FDCWD, path, 0);
}
int fchown(int fd, uid_t uid, gid_t gid) { return 0; }
int lchown(const char *path, uid_t uid, gid_t gid) {
  return exists(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW);
}
int fchownat(int dir, const char *path, uid_t uid, gid_t gid, int flags) {
  return exists(dir, path, flags);
}

uid_t getuid(void) { return 0; }
uid_t geteuid(void) { return 0; }
gid_t getgid(void) { return 0; }
gid_t getegid(void) { return 0; }

static struct passwd user = {"user", "x", 0, 0, "", "/", "/bin/sh"};
static char *no_members[1];
static struct group group = {"user", "x", 0, no_members};

struct passwd *getpwuid(uid_t uid) { return uid ? NULL : &user; }
struct passwd *getpwnam(const char *name) {
  return strcmp(name, user.pw_name) ? NULL : &user;
}
struct group *getgrgid(gid_t gid) { return gid ? NULL : &group; }
struct group *getgrnam(const char *name) {
  return strcmp(name, group.gr_name) ? NULL : &group;
}

int getpwuid_r(uid_t uid, struct passwd *pw, char *buf, size_t size,
               struct passwd **result) {
  *result = uid ? NULL : pw;
  *pw = user;
  return 0;
}

int getgrgid_r(gid_t gid, struct group *gr, char *buf, size_t size,
               struct group **result) {
  *result = gid ? NULL : gr;
  *gr = group;
  return 0;
}

int getpwnam_r(const char *name, struct passwd *pw, char *buf, size_t size,
               struct passwd **result) {
  *result = getpwnam(name) ? pw : NULL;
  *pw = user;
  return 0;
}

int getgrnam_r(const char *name, struct group *gr, char *buf, size_t size,
               struct group **result) {
  *result = getgrnam(name) ? gr : NULL;
  *gr = group;
  return 0;
}
