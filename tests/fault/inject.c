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
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *user);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
char *__wrap_strdup(const char *text);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *user);

void *__wrap_malloc(size_t bytes) { return no_memory() ? NULL : __real_malloc(bytes); }

void *__wrap_calloc(size_t n, size_t bytes) { return no_memory() ? NULL : __real_calloc(n, bytes); }

void *__wrap_realloc(void *old, size_t bytes) { return no_memory() ? NULL : __real_realloc(old, bytes); }

int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    return no_memory() ? ENOMEM : __real_posix_memalign(memory, alignment, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return no_memory() ? NULL : __real_aligned_alloc(alignment, bytes);
}

char *__wrap_strdup(const char *text) { return no_memory() ? NULL : __real_strdup(text); }

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *user)
{
    return inject_call(INJECT_THREAD) ? EAGAIN : __real_pthread_create(thread, attributes, fn, user);
}
