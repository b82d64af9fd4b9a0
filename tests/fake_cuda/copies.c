/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and fills. From pageable host memory, the bytes are read immediately; to it, the host waits until they have
 * arrived. */
#include <string.h>

#include "internal.h"

typedef struct copy {
    void *to;
    const void *from; /* NULL: the bytes follow this structure */
    size_t bytes;
} copy;

static void run_copy(void *args)
{
    const copy *c = args;
    memmove(fake_translate(c->to), c->from ? fake_translate(c->from) : c + 1, c->bytes);
}

static int is_pageable(const void *pointer) { return !fake_in_region(pointer) && !fake_find_block(pointer); }

/* The bytes are copied after the description. */
static void submit_staged(fake_stream *stream, const copy *c)
{
    copy *staged = fake_new(sizeof *staged + c->bytes);
    *staged = (copy){c->to, NULL, c->bytes};
    memcpy(staged + 1, c->from, c->bytes);
    fake_submit(stream, run_copy, staged, sizeof *staged + c->bytes);
    free(staged);
}

static cudaError_t book_copy(fake_stream *stream, const copy *c)
{
    const fake_access accesses[] = {{FAKE_READ_COPY, c->from, c->bytes, 0, 1}, {FAKE_WRITE, c->to, c->bytes, 0, 1}};
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
    if (error != cudaSuccess || c->bytes == 0) return error;
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

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t handle)
{
    const copy c = {to, from, bytes};
    int must_wait = 0;
    fake_lock();
    const cudaError_t error = enqueue(fake_find_stream(handle, "a copy"), &c, kind, &must_wait);
    fake_unlock();
    if (error == cudaSuccess && must_wait) return cudaStreamSynchronize(handle);
    return fake_note(error);
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
