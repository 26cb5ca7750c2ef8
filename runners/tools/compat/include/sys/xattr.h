/* Included by toybox, used by none of the commands built. */
#ifndef JAIL_SYS_XATTR_H
#define JAIL_SYS_XATTR_H
#endif
