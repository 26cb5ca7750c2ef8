#ifndef JAIL_PATHS_H
#define JAIL_PATHS_H
#define _PATH_DEFPATH "/bin:/usr/bin"
#endif
