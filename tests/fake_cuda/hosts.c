/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks of host threads. A thread learns which work is complete when it waits for streams, and what other threads know
 * when it synchronises with them: by mutexes, barriers, or the beginning and end of threads. Order established only by
 * atomics is not detected. */
#include "hosts.h"

#include <string.h>

#include "internal.h"
#include "watch.h"

enum { N_BUCKETS = 1024 };

typedef struct host_thread {
    struct host_thread *next, **link;
    fake_clock clock;
    int enqueues;
} host_thread;

/* Where threads meet. */
typedef struct place {
    struct place *next;
    const void *object;
    fake_clock clock;
} place;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the books' lock comes before it */
static place *places[N_BUCKETS];
static host_thread *threads; /* that know anything */
static host_thread everybody; /* where threads are not watched */
static int is_watched;

/* ---- the fake's own locks ---- */

/* Without watch.c they are not there. */
#pragma weak fake_watch_threads
#pragma weak fake_watch_pause
#pragma weak fake_watch_own

static void pause(int by)
{
    if (is_watched) fake_watch_pause(by);
}

void fake_mutex_lock(pthread_mutex_t *mutex)
{
    pause(1);
    pthread_mutex_lock(mutex);
    pause(-1);
}

void fake_mutex_unlock(pthread_mutex_t *mutex)
{
    pause(1);
    pthread_mutex_unlock(mutex);
    pause(-1);
}

void fake_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    pause(1);
    pthread_cond_wait(cond, mutex);
    pause(-1);
}

int fake_thread_start(void *(*run)(void *), void *user)
{
    pthread_t thread;
    pause(1);
    const int error = pthread_create(&thread, NULL, run, user);
    pause(-1);
    if (!error) pthread_detach(thread);
    return !error;
}

/* ---- what a thread knows ---- */

/* NULL: it does not know anything yet. */
static host_thread *find_self(void) { return is_watched ? *fake_watch_own() : &everybody; }

/* With the lock. */
static host_thread *make_self(void)
{
    host_thread *self = find_self();
    if (self) return self;
    self = fake_new(sizeof *self);
    self->next = threads;
    self->link = &threads;
    if (threads) threads->link = &self->next;
    threads = self;
    *fake_watch_own() = self;
    return self;
}

int fake_threads_are_watched(void) { return is_watched; }

const fake_clock *fake_host_clock(void)
{
    host_thread *self = find_self();
    if (self && self->enqueues) return &self->clock; /* only the thread itself ever changes it */
    fake_mutex_lock(&lock);
    self = make_self();
    self->enqueues = 1;
    fake_mutex_unlock(&lock);
    return &self->clock;
}

void fake_host_join(const fake_clock *clock)
{
    fake_mutex_lock(&lock);
    fake_clock_join(&make_self()->clock, clock);
    fake_mutex_unlock(&lock);
}

static void lower(fake_clock *clock, const fake_clock *other)
{
    for (int i = 0; i < clock->n; i++) {
        const uint64_t time = fake_clock_at(other, i);
        if (time < clock->times[i]) clock->times[i] = time;
    }
}

fake_clock fake_hosts_clock(void)
{
    fake_clock common = {0};
    fake_mutex_lock(&lock);
    fake_clock_join(&common, &make_self()->clock);
    for (const host_thread *each = is_watched ? threads : NULL; each; each = each->next) {
        if (each->enqueues) lower(&common, &each->clock);
    }
    fake_mutex_unlock(&lock);
    return common;
}

/* ---- meeting ---- */

static place **find(const void *object)
{
    place **link = &places[(uintptr_t)object / 8 * 0x9e3779b97f4a7c15u >> 54];
    while (*link && (*link)->object != object) link = &(*link)->next;
    return link;
}

static void release(const void *object)
{
    const host_thread *self = find_self();
    if (!self) return;
    fake_mutex_lock(&lock);
    place **link = find(object);
    if (!*link) {
        *link = fake_new(sizeof **link);
        (*link)->object = object;
    }
    fake_clock_join(&(*link)->clock, &self->clock);
    fake_mutex_unlock(&lock);
}

static void acquire(const void *object)
{
    fake_mutex_lock(&lock);
    const place *found = *find(object);
    if (found) fake_clock_join(&make_self()->clock, &found->clock);
    fake_mutex_unlock(&lock);
}

static void forget(const void *object)
{
    fake_mutex_lock(&lock);
    place **link = find(object), *found = *link;
    if (found) {
        *link = found->next;
        fake_clock_free(&found->clock);
        free(found);
    }
    fake_mutex_unlock(&lock);
}

static void end(void)
{
    host_thread *self = *fake_watch_own();
    if (!self) return;
    fake_mutex_lock(&lock);
    *self->link = self->next;
    if (self->next) self->next->link = self->link;
    fake_mutex_unlock(&lock);
    fake_clock_free(&self->clock);
    free(self);
    *fake_watch_own() = NULL;
}

/* ---- being told ---- */

__attribute__((constructor)) static void begin_watching(void)
{
    static const fake_watcher watcher = {release, acquire, forget, end};
    if (!fake_watch_threads) return;
    is_watched = 1;
    fake_watch_threads(&watcher);
}

__attribute__((destructor)) static void end_watching(void)
{
    if (fake_watch_threads) fake_watch_threads(NULL);
}
