/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and fills. From pageable host memory, the bytes are read immediately; to it, the host waits until they have
 * arrived. */
#include <string.h>

#include "internal.h"

typedef struct copy {
    void *to;
    const void *from; /* NULL: the bytes follow this structure */
    size_t to_stride, from_stride, row_bytes, n_rows;
} copy;

static void copy_rows(const copy *c, const void *from)
{
    char *to = fake_translate(c->to);
    const char *source = fake_translate(from);
    for (size_t r = 0; r < c->n_rows; r++) memmove(to + r * c->to_stride, source + r * c->from_stride, c->row_bytes);
}

static void run_copy(void *args)
{
    const copy *c = args;
    copy_rows(c, c->from ? c->from : c + 1);
}

static int is_pageable(const void *pointer) { return !fake_in_region(pointer) && !fake_find_block(pointer); }

/* The bytes are copied after the description, packed. */
static void submit_staged(fake_stream *stream, const copy *c)
{
    copy *staged = fake_new(sizeof *staged + c->row_bytes * c->n_rows);
    *staged = *c;
    staged->to = staged + 1;
    staged->to_stride = c->row_bytes;
    copy_rows(staged, c->from);
    staged->to = c->to;
    staged->to_stride = c->to_stride;
    staged->from = NULL;
    staged->from_stride = c->row_bytes;
    fake_submit(stream, run_copy, staged, sizeof *staged + c->row_bytes * c->n_rows);
    free(staged);
}

static cudaError_t book_copy(fake_stream *stream, const copy *c)
{
    const fake_access accesses[] = {{FAKE_READ_COPY, c->from, c->row_bytes, c->from_stride, (int64_t)c->n_rows},
                                    {FAKE_WRITE, c->to, c->row_bytes, c->to_stride, (int64_t)c->n_rows}};
    const fake_use_list uses = {"a copy", accesses, 2, 1, 1};
    return fake_submit_use(stream, &uses);
}

/* Managed memory is the host's, too. */
static int is_device_only(const void *pointer)
{
    const fake_block *block = fake_find_block(pointer);
    return block ? block->kind == FAKE_DEVICE : fake_in_region(pointer);
}

/* What a kind of copy says of its two ends must be so. */
static int fits_kind(const copy *c, enum cudaMemcpyKind kind)
{
    const int to_device = is_device_only(c->to), from_device = is_device_only(c->from);
    switch (kind) {
    case cudaMemcpyHostToHost: return !to_device && !from_device;
    case cudaMemcpyHostToDevice: return !from_device;
    case cudaMemcpyDeviceToHost: return !to_device;
    case cudaMemcpyDeviceToDevice: return !is_pageable(c->to) && !is_pageable(c->from);
    default: return 1;
    }
}

static cudaError_t enqueue(fake_stream *stream, const copy *c, enum cudaMemcpyKind kind, int *must_wait)
{
    if (!stream) return cudaErrorInvalidResourceHandle;
    const int from_host = is_pageable(c->from);
    cudaError_t error = fake_capture_check(stream);
    *must_wait = is_pageable(c->to);
    if (error != cudaSuccess || c->row_bytes * c->n_rows == 0) return error;
    if (!fits_kind(c, kind)) return cudaErrorInvalidValue;
    if (stream->capture && (from_host || *must_wait)) {
        fake_capture_break(stream);
        return cudaErrorStreamCaptureUnsupported;
    }
    if (fake_take_failure("copy")) return cudaErrorLaunchFailure;
    error = book_copy(stream, c);
    if (error != cudaSuccess) return error;
    if (from_host)
        submit_staged(stream, c);
    else
        fake_submit(stream, run_copy, c, sizeof *c);
    return cudaSuccess;
}

static cudaError_t copy_async(const copy *c, enum cudaMemcpyKind kind, cudaStream_t handle)
{
    int must_wait = 0;
    fake_lock();
    const cudaError_t error = enqueue(fake_find_stream(handle, "a copy"), c, kind, &must_wait);
    fake_unlock();
    if (error == cudaSuccess && must_wait) return cudaStreamSynchronize(handle);
    return fake_note(error);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    const copy c = {to, from, bytes, bytes, bytes, 1};
    return copy_async(&c, kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_stride, const void *from, size_t from_stride, size_t row_bytes,
                              size_t n_rows, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    const copy c = {to, from, to_stride, from_stride, row_bytes, n_rows};
    if (n_rows > 1 && (row_bytes > to_stride || row_bytes > from_stride)) return fake_note(cudaErrorInvalidPitchValue);
    return copy_async(&c, kind, stream);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                cudaStream_t stream)
{
    (void)to_device;
    (void)from_device;
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    (void)to;
    (void)from;
    (void)bytes;
    (void)kind;
    fake_report(FAKE_DEFAULT_STREAM, "cudaMemcpy");
    return fake_note(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    (void)to;
    (void)value;
    (void)bytes;
    fake_report(FAKE_DEFAULT_STREAM, "cudaMemset");
    return fake_note(cudaErrorInvalidResourceHandle);
}

/* ---- fills ---- */

typedef struct fill {
    void *to;
    size_t stride, row_bytes, n_rows;
    int value;
} fill;

static void run_fill(void *args)
{
    const fill *f = args;
    char *to = fake_translate(f->to);
    for (size_t r = 0; r < f->n_rows; r++) memset(to + r * f->stride, f->value, f->row_bytes);
}

static cudaError_t enqueue_fill(fake_stream *stream, const fill *f)
{
    const fake_access access = {FAKE_WRITE, f->to, f->row_bytes, f->stride, (int64_t)f->n_rows};
    const fake_use_list uses = {.name = "a fill", .accesses = &access, .n = 1};
    if (!stream) return cudaErrorInvalidResourceHandle;
    cudaError_t error = fake_capture_check(stream);
    if (error == cudaSuccess) error = fake_check_current(stream->device, "a fill");
    if (error != cudaSuccess || f->row_bytes * f->n_rows == 0) return error;
    if (fake_take_failure("copy")) return cudaErrorLaunchFailure;
    error = fake_submit_use(stream, &uses);
    if (error == cudaSuccess) fake_submit(stream, run_fill, f, sizeof *f);
    return error;
}

cudaError_t cudaMemset2DAsync(void *to, size_t stride, int value, size_t row_bytes, size_t n_rows, cudaStream_t handle)
{
    const fill f = {to, stride, row_bytes, n_rows, value};
    fake_lock();
    const cudaError_t error = enqueue_fill(fake_find_stream(handle, "a fill"), &f);
    fake_unlock();
    return fake_note(error);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    return cudaMemset2DAsync(to, bytes, value, bytes, 1, stream);
}
