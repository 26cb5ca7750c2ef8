/* No library can be loaded into a module. */
#ifndef JAIL_DLFCN_H
#define JAIL_DLFCN_H

#define RTLD_NOW 2
#define RTLD_LOCAL 0

static inline void *dlopen(const char *name, int mode) { return 0; }
static inline void *dlsym(void *library, const char *name) { return 0; }
static inline int dlclose(void *library) { return -1; }
static inline char *dlerror(void) { return "no library can be loaded here"; }

#endif
