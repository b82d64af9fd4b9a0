/* SPDX-License-Identifier: Apache-2.0 */
/* The wrapped functions. They count before they fail, so that a run without failures shows how many calls there are. */
#include "fault/inject.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_int active_kinds;
static atomic_long n_calls, fail_at, n_failed;
static atomic_int failing_onwards;

void inject_begin(int kinds, long n, inject_extent extent)
{
    atomic_store(&active_kinds, 0);
    atomic_store(&n_calls, 0);
    atomic_store(&n_failed, 0);
    atomic_store(&fail_at, n);
    atomic_store(&failing_onwards, extent == INJECT_ONWARDS);
    atomic_store(&active_kinds, kinds);
}

long inject_end(void)
{
    atomic_store(&active_kinds, 0);
    return atomic_load(&n_calls);
}

int inject_happened(void) { return atomic_load(&n_failed) > 0; }

int inject_call(inject_kind kind)
{
    if (!(atomic_load(&active_kinds) & (int)kind)) return 0;
    const long call = atomic_fetch_add(&n_calls, 1), n = atomic_load(&fail_at);
    if (n < 0 || call < n || (call > n && !atomic_load(&failing_onwards))) return 0;
    atomic_fetch_add(&n_failed, 1);
    return 1;
}

static int no_memory(void)
{
    if (!inject_call(INJECT_MEMORY)) return 0;
    errno = ENOMEM;
    return 1;
}

/* The linker gives these names; they are reserved for that. */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
int __real_posix_memalign(void **memory, size_t alignment, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
char *__real_strdup(const char *text);
void __real_free(void *memory);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *user);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
char *__wrap_strdup(const char *text);
void __wrap_free(void *memory);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *user);

/* ---- blocks in use ---- */

enum { MOST_BLOCKS = 1 << 14 };

static struct {
    pthread_mutex_t lock;
    atomic_int n;
    struct block {
        void *memory;
        size_t bytes;
        inject_use *use;
    } blocks[MOST_BLOCKS];
} tracked = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local inject_use *mine;

void inject_track(inject_use *use)
{
    pthread_mutex_lock(&tracked.lock);
    for (int i = atomic_load(&tracked.n); i-- > 0;)
        if (!use && tracked.blocks[i].use == mine) tracked.blocks[i] = tracked.blocks[--tracked.n];
    pthread_mutex_unlock(&tracked.lock);
    mine = use;
}

static void *allocated(void *memory, size_t bytes)
{
    inject_use *use = mine;
    if (!use || !memory) return memory;
    pthread_mutex_lock(&tracked.lock);
    if (atomic_load(&tracked.n) == MOST_BLOCKS) abort();
    tracked.blocks[tracked.n++] = (struct block){memory, bytes, use};
    use->now += bytes;
    if (use->now > use->peak) use->peak = use->now;
    if (bytes > use->largest) use->largest = bytes;
    pthread_mutex_unlock(&tracked.lock);
    return memory;
}

static void freed(const void *memory)
{
    if (!memory || atomic_load(&tracked.n) == 0) return;
    pthread_mutex_lock(&tracked.lock);
    for (int i = atomic_load(&tracked.n); i-- > 0;) {
        if (tracked.blocks[i].memory != memory) continue;
        tracked.blocks[i].use->now -= tracked.blocks[i].bytes;
        tracked.blocks[i] = tracked.blocks[--tracked.n];
        break;
    }
    pthread_mutex_unlock(&tracked.lock);
}

/* ---- the functions ---- */

void *__wrap_malloc(size_t bytes) { return no_memory() ? NULL : allocated(__real_malloc(bytes), bytes); }

void *__wrap_calloc(size_t n, size_t bytes)
{
    return no_memory() ? NULL : allocated(__real_calloc(n, bytes), n * bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    if (no_memory()) return NULL;
    freed(old); /* if it fails, the old block is no longer counted */
    return allocated(__real_realloc(old, bytes), bytes);
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    if (no_memory()) return ENOMEM;
    const int error = __real_posix_memalign(memory, alignment, bytes);
    if (error == 0) (void)allocated(*memory, bytes);
    return error;
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return no_memory() ? NULL : allocated(__real_aligned_alloc(alignment, bytes), bytes);
}

char *__wrap_strdup(const char *text) { return no_memory() ? NULL : allocated(__real_strdup(text), strlen(text) + 1); }

void __wrap_free(void *memory)
{
    freed(memory);
    __real_free(memory);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *user)
{
    return inject_call(INJECT_THREAD) ? EAGAIN : __real_pthread_create(thread, attributes, fn, user);
}
