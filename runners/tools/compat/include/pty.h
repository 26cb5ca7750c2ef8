/* Included by toybox, used by none of the commands built. */
#ifndef JAIL_PTY_H
#define JAIL_PTY_H
#endif
