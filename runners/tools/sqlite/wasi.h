/* Forced into SQLite's files, behind posix.h. WASI has no locks on files: SQLite's
 * code for them is compiled and not used, since the dot-file locking is the default. */
#ifndef F_RDLCK
#define F_RDLCK 0
#define F_WRLCK 1
#define F_UNLCK 2
#define F_GETLK 5
#define F_SETLK 6
#define F_SETLKW 7
#endif
