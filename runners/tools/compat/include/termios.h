/* No terminal can be set up from WASI; the shape is what toybox's library
 * expects to compile against. */
#ifndef JAIL_TERMIOS_H
#define JAIL_TERMIOS_H
#include <sys/ioctl.h>
struct termios {
  unsigned c_iflag, c_oflag, c_cflag, c_lflag;
  unsigned char c_cc[32];
};
struct winsize {
  unsigned short ws_row, ws_col, ws_xpixel, ws_ypixel;
};
#define TIOCGWINSZ 0x5413
#define TIOCNOTTY 0x5422
#endif
