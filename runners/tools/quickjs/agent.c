/* The module "jail" of JavaScript: streams to the host of an agent and to the
 * fetch proxy, which are accepted on a listener whose number is in the
 * environment (docs/agent-abi.md, docs/fetch-abi.md). Bytes are strings whose
 * characters are 0 to 255; HTTP is spoken in JavaScript. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "quickjs.h"
#include "quickjs-libc.h"

__attribute__((import_module("wasi_snapshot_preview1"), import_name("sock_accept")))
int wasi_sock_accept(int fd, int flags, int *stream);

static JSValue failed(JSContext *ctx, const char *what, int number) {
  return JS_ThrowTypeError(ctx, "%s: %s", what, strerror(number));
}

/* env(name): the value of a variable, or undefined */
static JSValue js_env(JSContext *ctx, JSValueConst this, int argc, JSValueConst *argv) {
  const char *name = JS_ToCString(ctx, argv[0]), *value;

  if (!name) return JS_EXCEPTION;
  value = getenv(name);
  JS_FreeCString(ctx, name);
  return value ? JS_NewString(ctx, value) : JS_UNDEFINED;
}

/* accept(listener): a stream */
static JSValue js_accept(JSContext *ctx, JSValueConst this, int argc, JSValueConst *argv) {
  int32_t fd;
  int stream, number;

  if (JS_ToInt32(ctx, &fd, argv[0])) return JS_EXCEPTION;
  number = wasi_sock_accept(fd, 0, &stream);
  return number ? failed(ctx, "accept", number) : JS_NewInt32(ctx, stream);
}

static int write_all(int fd, const char *text, size_t len) {
  while (len > 0) {
    ssize_t n = write(fd, text, len);
    if (n < 0) return errno;
    text += n;
    len -= n;
  }
  return 0;
}

/* send(stream, head, body): sends a request whose head lacks only the length of
 * the body, both as UTF-8 */
static JSValue js_send(JSContext *ctx, JSValueConst this, int argc, JSValueConst *argv) {
  int32_t fd;
  size_t head_len, body_len;
  const char *head, *body;
  char *all;
  int number = ENOMEM;

  if (JS_ToInt32(ctx, &fd, argv[0])) return JS_EXCEPTION;
  head = JS_ToCStringLen(ctx, &head_len, argv[1]);
  body = head ? JS_ToCStringLen(ctx, &body_len, argv[2]) : NULL;
  if (!body) {
    if (head) JS_FreeCString(ctx, head);
    return JS_EXCEPTION;
  }
  all = malloc(head_len + body_len + 64);
  if (all) {
    memcpy(all, head, head_len);
    head_len += snprintf(all + head_len, 64, "Content-Length: %zu\r\n\r\n", body_len);
    memcpy(all + head_len, body, body_len);
    number = write_all(fd, all, head_len + body_len);
    free(all);
  }
  JS_FreeCString(ctx, head);
  JS_FreeCString(ctx, body);
  return number ? failed(ctx, "send", number) : JS_UNDEFINED;
}

/* recv(stream): some bytes, "" at the end */
static JSValue js_recv(JSContext *ctx, JSValueConst this, int argc, JSValueConst *argv) {
  static unsigned char in[16384];
  static char out[2 * sizeof in];
  int32_t fd;
  ssize_t n, i, len = 0;

  if (JS_ToInt32(ctx, &fd, argv[0])) return JS_EXCEPTION;
  n = read(fd, in, sizeof in);
  if (n < 0) return failed(ctx, "recv", errno);
  for (i = 0; i < n; i++) {
    if (in[i] < 0x80) {
      out[len++] = in[i];
    } else {
      out[len++] = 0xc0 | in[i] >> 6;
      out[len++] = 0x80 | (in[i] & 0x3f);
    }
  }
  return JS_NewStringLen(ctx, out, len);
}

/* utf8(bytes): the text that the bytes are in UTF-8 */
static JSValue js_utf8(JSContext *ctx, JSValueConst this, int argc, JSValueConst *argv) {
  size_t len, i, n = 0;
  const char *text = JS_ToCStringLen(ctx, &len, argv[0]);
  char *out;
  JSValue value;

  if (!text) return JS_EXCEPTION;
  out = malloc(len + 1);
  if (!out) {
    JS_FreeCString(ctx, text);
    return JS_ThrowOutOfMemory(ctx);
  }
  for (i = 0; i < len; i++) {
    unsigned char c = text[i];
    /* a character of 128 to 255 has two bytes */
    out[n++] = c < 0x80 || i + 1 == len ? c : (c & 3) << 6 | (text[++i] & 0x3f);
  }
  JS_FreeCString(ctx, text);
  value = JS_NewStringLen(ctx, out, n);
  free(out);
  return value;
}

static JSValue js_close(JSContext *ctx, JSValueConst this, int argc, JSValueConst *argv) {
  int32_t fd;

  if (JS_ToInt32(ctx, &fd, argv[0])) return JS_EXCEPTION;
  close(fd);
  return JS_UNDEFINED;
}

/* log(text): a line on standard error */
static JSValue js_log(JSContext *ctx, JSValueConst this, int argc, JSValueConst *argv) {
  size_t len;
  const char *text = JS_ToCStringLen(ctx, &len, argv[0]);

  if (!text) return JS_EXCEPTION;
  write_all(2, text, len);
  write_all(2, "\n", 1);
  JS_FreeCString(ctx, text);
  return JS_UNDEFINED;
}

static const JSCFunctionListEntry functions[] = {
  JS_CFUNC_DEF("env", 1, js_env),   JS_CFUNC_DEF("accept", 1, js_accept),
  JS_CFUNC_DEF("send", 3, js_send), JS_CFUNC_DEF("recv", 1, js_recv),
  JS_CFUNC_DEF("utf8", 1, js_utf8), JS_CFUNC_DEF("close", 1, js_close),
  JS_CFUNC_DEF("log", 1, js_log),
};

#define COUNT (sizeof functions / sizeof *functions)

static int init(JSContext *ctx, JSModuleDef *m) {
  return JS_SetModuleExportList(ctx, m, functions, COUNT);
}

JSModuleDef *js_init_module_jail(JSContext *ctx, const char *name) {
  JSModuleDef *m = JS_NewCModule(ctx, name, init);

  if (m) JS_AddModuleExportList(ctx, m, functions, COUNT);
  return m;
}
