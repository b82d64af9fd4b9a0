/* SPDX-License-Identifier: Apache-2.0 */
/* The effect of work on memory, checked and recorded when it is enqueued: everything that is ordered before it has been
 * enqueued before it, so the shadow is then as the work will find it. */
#include <string.h>

#include "internal.h"

/* Rows without gaps are one row. */
static fake_access tidy(const fake_access *access)
{
    fake_access a = *access;
    if (a.n_rows <= 0 || a.row_bytes == 0) return (fake_access){.kind = a.kind, .begin = a.begin};
    if (a.n_rows > 1 && a.stride_bytes <= a.row_bytes) {
        a.row_bytes += (size_t)(a.n_rows - 1) * a.stride_bytes;
        a.n_rows = 1;
    }
    if (a.n_rows == 1) a.stride_bytes = a.row_bytes;
    return a;
}

static size_t span(const fake_access *a) { return (size_t)(a->n_rows - 1) * a->stride_bytes + a->row_bytes; }

static cudaError_t fail_place(const fake_stream *stream, const char *name, const fake_access *a)
{
    const int was = fake_was_freed(a->begin);
    fake_report(was ? FAKE_USE_AFTER_FREE : FAKE_NO_MEMORY,
                was ? "\"%s\" on stream %d uses %zu bytes at %p, which were freed"
                    : "\"%s\" on stream %d uses %zu bytes at %p, where no GPU has memory",
                name, stream->number, span(a), a->begin);
    return cudaErrorIllegalAddress;
}

static int may_reach(const fake_stream *stream, const fake_block *block, int by_engine)
{
    if (by_engine || block->kind != FAKE_DEVICE || block->device == stream->device) return 1;
    if (block->pool) return fake_pool_allows(block->pool, stream->device);
    return fake_peer_enabled(stream->device, block->device);
}

static cudaError_t check_block(const fake_stream *stream, const char *name, const fake_access *a,
                               const fake_block *block, int by_engine)
{
    const size_t at = (uintptr_t)a->begin - block->begin;
    if (block->is_freed) {
        fake_report(FAKE_USE_AFTER_FREE, "\"%s\" on stream %d uses %zu bytes at %p, which were freed", name,
                    stream->number, span(a), a->begin);
        return cudaErrorIllegalAddress;
    }
    if (at + span(a) > block->bytes) {
        fake_report(FAKE_OUT_OF_BOUNDS,
                    "\"%s\" on stream %d uses %zu bytes at %p, %zu after the begin of a block of %zu", name,
                    stream->number, span(a), a->begin, at, block->bytes);
        return cudaErrorIllegalAddress;
    }
    if (may_reach(stream, block, by_engine)) return cudaSuccess;
    fake_report(FAKE_WRONG_DEVICE, "\"%s\" on stream %d of GPU %d uses %p on GPU %d, which it may not reach", name,
                stream->number, stream->device, a->begin, block->device);
    return cudaErrorIllegalAddress;
}

static cudaError_t check_place(const fake_stream *stream, const fake_use_list *uses, const fake_access *a)
{
    if (a->n_rows == 0) return cudaSuccess;
    const fake_block *block = fake_find_block(a->begin);
    if (block) return check_block(stream, uses->name, a, block, uses->by_engine);
    /* Pageable memory may be copied: it was staged, or the host waits. */
    if (uses->by_engine && !fake_in_region(a->begin)) return cudaSuccess;
    return fail_place(stream, uses->name, a);
}

cudaError_t fake_check_places(fake_stream *stream, const fake_use_list *uses)
{
    for (int i = 0; i < uses->n; i++) {
        const fake_access a = tidy(&uses->accesses[i]);
        const cudaError_t error = check_place(stream, uses, &a);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

/* ---- the shadow ---- */

static unsigned char *shadow_of(const void *begin)
{
    const fake_block *block = fake_find_block(begin);
    return block && block->shadow ? block->shadow + ((uintptr_t)begin - block->begin) : NULL;
}

static void shadow_write(const fake_access *a)
{
    unsigned char *shadow = shadow_of(a->begin);
    for (int64_t r = 0; shadow && r < a->n_rows; r++) memset(shadow + (size_t)r * a->stride_bytes, 1, a->row_bytes);
}

/* What the host has written is seen when it is read. */
static void look_at_host(const fake_access *a)
{
    const fake_block *block = a->n_rows ? fake_find_block(a->begin) : NULL;
    if (block && block->kind == FAKE_MANAGED && block->shadow) fake_managed_look(block, a->begin, span(a));
}

static void shadow_copy(const fake_access *from, const fake_access *to)
{
    look_at_host(from);
    const unsigned char *source = shadow_of(from->begin);
    unsigned char *target = shadow_of(to->begin);
    for (int64_t r = 0; target && r < to->n_rows; r++) {
        unsigned char *row = target + (size_t)r * to->stride_bytes;
        if (source)
            memmove(row, source + (size_t)r * from->stride_bytes, to->row_bytes);
        else
            memset(row, 1, to->row_bytes);
    }
}

static void shadow_read(const fake_stream *stream, const char *name, const fake_access *a)
{
    const unsigned char *shadow = shadow_of(a->begin);
    look_at_host(a);
    for (int64_t r = 0; shadow && r < a->n_rows; r++) {
        const unsigned char *row = shadow + (size_t)r * a->stride_bytes;
        const unsigned char *found = memchr(row, 0, a->row_bytes);
        if (!found) continue;
        const size_t at = (size_t)r * a->stride_bytes + (size_t)(found - row);
        fake_report(FAKE_UNWRITTEN,
                    "\"%s\" on stream %d reads %lld x %zu bytes at %p, of which byte %zu was never "
                    "written",
                    name, stream->number, (long long)a->n_rows, a->row_bytes, a->begin, at);
        return;
    }
}

static void book_shadow(const fake_stream *stream, const fake_use_list *uses)
{
    for (int i = 0; i < uses->n; i++) {
        const fake_access a = tidy(&uses->accesses[i]);
        if (a.kind == FAKE_READ) shadow_read(stream, uses->name, &a);
    }
    if (uses->is_copy) shadow_copy(&uses->accesses[0], &uses->accesses[1]);
    for (int i = uses->is_copy ? 2 : 0; i < uses->n; i++) {
        const fake_access a = tidy(&uses->accesses[i]);
        if (a.kind == FAKE_WRITE) shadow_write(&a);
    }
}

/* ---- booking ---- */

static void book_history(fake_stream *stream, const fake_use_list *uses)
{
    fake_follow_host(stream);
    fake_clock_tick(&stream->clock, stream->slot);
    for (int i = 0; i < uses->n; i++) {
        const fake_access a = tidy(&uses->accesses[i]);
        fake_block *block = a.n_rows ? fake_find_block(a.begin) : NULL;
        if (block) fake_history_add(&block->history, &a, stream, uses->name);
    }
}

cudaError_t fake_book(fake_stream *stream, const fake_use_list *uses)
{
    const cudaError_t error = fake_check_places(stream, uses);
    if (error != cudaSuccess) return error;
    book_shadow(stream, uses);
    book_history(stream, uses);
    return cudaSuccess;
}

cudaError_t fake_submit_use(fake_stream *stream, const fake_use_list *uses)
{
    if (!stream->capture) return fake_book(stream, uses);
    const cudaError_t error = fake_check_places(stream, uses);
    if (error == cudaSuccess) fake_capture_use(stream, uses);
    return error;
}

/* From one place to another, in the same rows. */
static int is_copy(const fake_access *a, int n)
{
    return n >= 2 && a[0].kind == FAKE_READ_COPY && a[1].kind == FAKE_WRITE && a[0].n_rows == a[1].n_rows &&
           a[0].row_bytes == a[1].row_bytes;
}

cudaError_t fake_use(cudaStream_t handle, const char *name, const fake_access *accesses, int n)
{
    const fake_use_list uses = {.name = name, .accesses = accesses, .n = n, .is_copy = is_copy(accesses, n)};
    fake_lock();
    fake_stream *stream = fake_find_stream(handle, name);
    cudaError_t error = stream ? fake_capture_check(stream) : cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess) error = fake_submit_use(stream, &uses);
    fake_unlock();
    return fake_note(error);
}
