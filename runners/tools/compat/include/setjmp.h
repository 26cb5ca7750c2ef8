/* The tools are patched not to need non-local jumps, which WebAssembly lacks
 * without the exceptions proposal. What still names the type gets a setjmp that
 * returns once, and a longjmp that stops the program. */
#ifndef JAIL_SETJMP_H
#define JAIL_SETJMP_H
typedef int jmp_buf[1];
typedef jmp_buf sigjmp_buf;
#define setjmp(buf) ((buf)[0] = 0)
#define sigsetjmp(buf, mask) ((buf)[0] = 0)
#define longjmp(buf, value) __builtin_trap()
#define siglongjmp(buf, value) __builtin_trap()
#endif
