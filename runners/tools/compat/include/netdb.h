/* Included by toybox, used by none of the commands built. */
#ifndef JAIL_NETDB_H
#define JAIL_NETDB_H
#endif
