/* Gzip streams by zlib: toybox's own deflate stores without compressing, and
 * its inflate trusts what it reads. Both return 0, or 1 with a message said. */
#include "toys.h"
#include <zlib.h>

#define GZIP_WINDOW (15 + 16) /* the largest window, in gzip's framing */

static unsigned char in[65536], out[65536];

static int broken(char *what) {
  error_msg("%s", what);
  return 1;
}

/* Writes what z has produced and gives it the buffer back. */
static int drain(z_stream *z, int fd) {
  ssize_t length = sizeof(out) - z->avail_out;

  if (fd == 1) fflush(stdout);
  z->next_out = out;
  z->avail_out = sizeof(out);
  if (writeall(fd, out, length) == length) return 0;
  perror_msg("write");
  return 1;
}

static ssize_t fill(z_stream *z, int fd) {
  ssize_t length = read(fd, in, sizeof(in));

  z->next_in = in;
  z->avail_in = length < 0 ? 0 : length;
  if (length < 0) perror_msg("read");
  return length;
}

int jail_gzip(int from, int to, int level) {
  z_stream z = {0};
  ssize_t length = 1;
  int state = Z_OK;

  if (deflateInit2(&z, level, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY))
    return broken("out of memory");
  z.next_out = out;
  z.avail_out = sizeof(out);
  while (state != Z_STREAM_END) {
    if (!z.avail_in && length && (length = fill(&z, from)) < 0) return 1;
    state = deflate(&z, length ? Z_NO_FLUSH : Z_FINISH);
    if ((!z.avail_out || state == Z_STREAM_END) && drain(&z, to)) return 1;
  }
  deflateEnd(&z);
  return 0;
}

int jail_gunzip(int from, int to) {
  z_stream z = {0};
  ssize_t length = 1;
  int state = Z_OK, members = 0;

  if (inflateInit2(&z, GZIP_WINDOW)) return broken("out of memory");
  z.next_out = out;
  z.avail_out = sizeof(out);
  for (;;) {
    if (!z.avail_in && length && (length = fill(&z, from)) < 0) return 1;
    if (state == Z_STREAM_END) {
      /* A file may hold several streams; zeroes after the last are padding. */
      while (z.avail_in && !*z.next_in) z.next_in++, z.avail_in--;
      if (!z.avail_in && length) continue;
      if (!length) break;
      inflateReset(&z);
    }
    state = inflate(&z, Z_NO_FLUSH);
    if (state == Z_STREAM_END) members++;
    else if (state == Z_DATA_ERROR && !members && !z.total_out)
      return broken("not gzip");
    else if (state == Z_BUF_ERROR && !z.avail_in && !length)
      return broken("unexpected end of file");
    else if (state != Z_OK && state != Z_BUF_ERROR) return broken("bad data");
    if ((!z.avail_out || state == Z_STREAM_END) && drain(&z, to)) return 1;
  }
  inflateEnd(&z);
  return 0;
}
