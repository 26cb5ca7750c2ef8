/* Included by toybox, used by none of the commands built. */
#ifndef JAIL_NET_IF_H
#define JAIL_NET_IF_H
#endif
