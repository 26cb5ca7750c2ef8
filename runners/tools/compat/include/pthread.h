/* Threads for programs that have only one: WASI preview 1 starts none, so a lock
 * is never held by another, and what would wait for another thread fails. */
#ifndef JAIL_PTHREAD_H
#define JAIL_PTHREAD_H

#include <errno.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#define PTHREAD_MUTEX_INITIALIZER {0}
#define PTHREAD_COND_INITIALIZER {0}
#define PTHREAD_ONCE_INIT {0}
#define PTHREAD_CREATE_DETACHED 1

/* wasi-libc names these types and leaves them without a member or a meaning. */
#define pthread_t jail_pthread_t
#define pthread_attr_t jail_pthread_attr_t
#define pthread_mutex_t jail_pthread_mutex_t
#define pthread_mutexattr_t jail_pthread_attr_t
#define pthread_cond_t jail_pthread_cond_t
#define pthread_condattr_t jail_pthread_attr_t
#define pthread_once_t jail_pthread_once_t
#define pthread_key_t jail_pthread_key_t
typedef struct { int unused; } jail_pthread_t, jail_pthread_attr_t, jail_pthread_mutex_t, jail_pthread_cond_t;
typedef struct { int done; } jail_pthread_once_t;
typedef struct { void *value; } *jail_pthread_key_t;

static inline int pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a) { return 0; }
static inline int pthread_mutex_destroy(pthread_mutex_t *m) { return 0; }
static inline int pthread_mutex_lock(pthread_mutex_t *m) { return 0; }
static inline int pthread_mutex_unlock(pthread_mutex_t *m) { return 0; }

static inline int pthread_cond_init(pthread_cond_t *c, const pthread_condattr_t *a) { return 0; }
static inline int pthread_cond_destroy(pthread_cond_t *c) { return 0; }
static inline int pthread_cond_signal(pthread_cond_t *c) { return 0; }
static inline int pthread_cond_broadcast(pthread_cond_t *c) { return 0; }
/* Nobody would signal it. */
static inline int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m) { return EDEADLK; }
static inline int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t) { return ETIMEDOUT; }

static inline int pthread_attr_init(pthread_attr_t *a) { return 0; }
static inline int pthread_attr_destroy(pthread_attr_t *a) { return 0; }
static inline int pthread_attr_setdetachstate(pthread_attr_t *a, int s) { return 0; }
static inline int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg) { return EAGAIN; }

static inline int pthread_once(pthread_once_t *o, void (*f)(void)) {
  if (!o->done) {
    o->done = 1;
    f();
  }
  return 0;
}

/* The values of the one thread; a destructor runs when a thread ends, and this one ends with the program. */
void *calloc(size_t, size_t);
static inline int pthread_key_create(pthread_key_t *k, void (*f)(void *)) {
  *k = calloc(1, sizeof(**k));
  return *k ? 0 : ENOMEM;
}
static inline void *pthread_getspecific(pthread_key_t k) { return k ? k->value : NULL; }
static inline int pthread_setspecific(pthread_key_t k, const void *v) {
  k->value = (void *)v;
  return 0;
}

#endif
