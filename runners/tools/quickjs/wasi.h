/* Forced into QuickJS's files, behind posix.h: what its library of operating
 * system functions wants of terminals, and no memory allocator that can be asked. */
#include <termios.h>

#define IGNBRK 1
#define BRKINT 2
#define PARMRK 8
#define ISTRIP 32
#define INLCR 64
#define IGNCR 128
#define ICRNL 256
#define IXON 1024
#define OPOST 1
#define CSIZE 48
#define PARENB 256
#define CS8 48
#define ECHO 8
#define ECHONL 64
#define ICANON 2
#define IEXTEN 32768
#define ISIG 1
#define VMIN 6
#define VTIME 5
#define TCSANOW 0

static inline int tcgetattr(int fd, struct termios *t) { return -1; }
static inline int tcsetattr(int fd, int when, const struct termios *t) { return -1; }
static inline size_t malloc_usable_size(const void *p) { return 0; }
