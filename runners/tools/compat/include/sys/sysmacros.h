/* Included by toybox, used by none of the commands built. */
#ifndef JAIL_SYS_SYSMACROS_H
#define JAIL_SYS_SYSMACROS_H
#endif
