/* SPDX-License-Identifier: Apache-2.0 */
/* Wraps pthreads: informs the watcher, then calls the original. Locks with a time limit, read-write locks and
 * semaphores are not observed; nothing here uses them. */
#define _GNU_SOURCE 1
#pragma GCC visibility push(default) /* what stands before others must be seen */
#include "watch.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static void ignore(const void *object) { (void)object; }
static void ignore_end(void) {}
static const fake_watcher nobody = {ignore, ignore, ignore, ignore_end};
static _Atomic(const fake_watcher *) the_watcher = &nobody;

static _Thread_local int n_pauses;
static _Thread_local void *own;

static const fake_watcher *watcher(void)
{
    if (n_pauses > 0) return &nobody;
    return atomic_load_explicit(&the_watcher, memory_order_acquire);
}

void fake_watch_pause(int by) { n_pauses += by; }

void **fake_watch_own(void) { return &own; }

void fake_watch_threads(const fake_watcher *hears) { atomic_store(&the_watcher, hears ? hears : &nobody); }

/* ---- the functions that these wrap ---- */

static struct functions {
    __typeof__(&pthread_mutex_lock) mutex_lock;
    __typeof__(&pthread_mutex_trylock) mutex_trylock;
    __typeof__(&pthread_mutex_unlock) mutex_unlock;
    __typeof__(&pthread_mutex_destroy) mutex_destroy;
    __typeof__(&pthread_cond_wait) cond_wait;
    __typeof__(&pthread_cond_timedwait) cond_timedwait;
    __typeof__(&pthread_cond_clockwait) cond_clockwait;
    __typeof__(&pthread_barrier_wait) barrier_wait;
    __typeof__(&pthread_barrier_destroy) barrier_destroy;
    __typeof__(&pthread_create) create;
    __typeof__(&pthread_join) join;
} functions;

/* *function: of any type. Conditions have an older version, too, which is not meant. */
static void find(const char *name, const char *version, void *function)
{
    void *found = version ? dlvsym(RTLD_NEXT, name, version) : NULL;
    if (!found) found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    memcpy(function, &found, sizeof found);
}

static void find_all(void)
{
    find("pthread_mutex_lock", NULL, &functions.mutex_lock);
    find("pthread_mutex_trylock", NULL, &functions.mutex_trylock);
    find("pthread_mutex_unlock", NULL, &functions.mutex_unlock);
    find("pthread_mutex_destroy", NULL, &functions.mutex_destroy);
    find("pthread_cond_wait", "GLIBC_2.3.2", &functions.cond_wait);
    find("pthread_cond_timedwait", "GLIBC_2.3.2", &functions.cond_timedwait);
    find("pthread_cond_clockwait", "GLIBC_2.3.2", &functions.cond_clockwait);
    find("pthread_barrier_wait", NULL, &functions.barrier_wait);
    find("pthread_barrier_destroy", NULL, &functions.barrier_destroy);
    find("pthread_create", NULL, &functions.create);
    find("pthread_join", NULL, &functions.join);
}

static const struct functions *real(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_all);
    return &functions;
}

/* ---- mutexes and conditions ---- */

static int has(pthread_mutex_t *mutex, int error)
{
    if (error == 0 || error == EOWNERDEAD) watcher()->acquire(mutex);
    return error;
}

int pthread_mutex_lock(pthread_mutex_t *mutex) { return has(mutex, real()->mutex_lock(mutex)); }

int pthread_mutex_trylock(pthread_mutex_t *mutex) { return has(mutex, real()->mutex_trylock(mutex)); }

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    watcher()->release(mutex);
    return real()->mutex_unlock(mutex);
}

int pthread_mutex_destroy(pthread_mutex_t *mutex)
{
    watcher()->forget(mutex);
    return real()->mutex_destroy(mutex);
}

/* Whatever comes of it, the thread has had the mutex again. */
static int waited(pthread_mutex_t *mutex, int error)
{
    watcher()->acquire(mutex);
    return error;
}

int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    watcher()->release(mutex);
    return waited(mutex, real()->cond_wait(cond, mutex));
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until)
{
    watcher()->release(mutex);
    return waited(mutex, real()->cond_timedwait(cond, mutex, until));
}

int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until)
{
    watcher()->release(mutex);
    return waited(mutex, real()->cond_clockwait(cond, mutex, clock, until));
}

int pthread_barrier_wait(pthread_barrier_t *barrier)
{
    watcher()->release(barrier);
    const int error = real()->barrier_wait(barrier);
    watcher()->acquire(barrier);
    return error;
}

int pthread_barrier_destroy(pthread_barrier_t *barrier)
{
    const int error = real()->barrier_destroy(barrier);
    if (error == 0) watcher()->forget(barrier);
    return error;
}

/* ---- threads ---- */

typedef struct beginning {
    void *(*run)(void *);
    void *user;
} beginning;

static void end(void *unused)
{
    (void)unused;
    watcher()->release((const void *)pthread_self());
    watcher()->end();
}

static void *begin(void *args)
{
    const beginning it = *(beginning *)args;
    void *result;
    watcher()->acquire(args);
    watcher()->forget(args);
    free(args);
    pthread_cleanup_push(end, NULL); /* a thread may leave by pthread_exit(), too */
    result = it.run(it.user);
    pthread_cleanup_pop(1);
    return result;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user)
{
    beginning *it = malloc(sizeof *it);
    if (!it) return EAGAIN;
    *it = (beginning){run, user};
    watcher()->release(it);
    const int error = real()->create(thread, attributes, begin, it);
    if (error == 0) return 0;
    watcher()->forget(it);
    free(it);
    return error;
}

int pthread_join(pthread_t thread, void **result)
{
    const int error = real()->join(thread, result);
    if (error) return error;
    watcher()->acquire((const void *)thread);
    watcher()->forget((const void *)thread);
    return 0;
}
