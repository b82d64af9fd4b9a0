/* SPDX-License-Identifier: Apache-2.0 */
/* The wrapped functions. */
#include "count.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

static atomic_int counting;
static atomic_size_t largest_bytes;
static _Atomic int64_t live_bytes, peak_bytes;

/* The linker gives these names; they are reserved for that. */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
int __real_posix_memalign(void **memory, size_t alignment, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void __wrap_free(void *memory);

void count_begin(void)
{
    atomic_store(&largest_bytes, 0);
    atomic_store(&live_bytes, 0);
    atomic_store(&peak_bytes, 0);
    atomic_store(&counting, 1);
}

void count_so_far(size_t *largest, size_t *peak)
{
    *largest = atomic_load(&largest_bytes);
    *peak = (size_t)atomic_load(&peak_bytes);
}

static void *note(void *memory)
{
    if (!memory || !atomic_load(&counting)) return memory;
    const size_t bytes = malloc_usable_size(memory);
    size_t seen = atomic_load(&largest_bytes);
    while (bytes > seen && !atomic_compare_exchange_weak(&largest_bytes, &seen, bytes)) {}
    const int64_t live = atomic_fetch_add(&live_bytes, (int64_t)bytes) + (int64_t)bytes;
    int64_t peak = atomic_load(&peak_bytes);
    while (live > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, live)) {}
    return memory;
}

static void note_gone(void *memory)
{
    if (memory && atomic_load(&counting)) atomic_fetch_sub(&live_bytes, (int64_t)malloc_usable_size(memory));
}

void *__wrap_malloc(size_t bytes) { return note(__real_malloc(bytes)); }

void *__wrap_calloc(size_t n, size_t bytes) { return note(__real_calloc(n, bytes)); }

void *__wrap_realloc(void *old, size_t bytes)
{
    note_gone(old);
    return note(__real_realloc(old, bytes));
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    const int code = __real_posix_memalign(memory, alignment, bytes);
    if (code == 0) note(*memory);
    return code;
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) { return note(__real_aligned_alloc(alignment, bytes)); }

void __wrap_free(void *memory)
{
    note_gone(memory);
    __real_free(memory);
}
