/* SPDX-License-Identifier: Apache-2.0 */
/* Memory words that streams wait for and write: functions of the driver, looked up by name. What a stream did before
 * writing a word is ordered before streams that wait for it, if the wait is enqueued later. */
#include <string.h>
#include <time.h>

#include "internal.h"

typedef struct value {
    CUdeviceptr at;
    cuuint32_t number;
} value;

static uint32_t *place(const value *v) { return fake_translate((const void *)(uintptr_t)v->at); }

static int is_reached(const value *v)
{
    return (int32_t)(__atomic_load_n(place(v), __ATOMIC_ACQUIRE) - v->number) >= 0;
}

static void run_wait(void *args)
{
    const struct timespec pause = {0, 20000};
    while (!is_reached(args)) nanosleep(&pause, NULL);
}

static void run_write(void *args)
{
    const value *v = args;
    __atomic_store_n(place(v), v->number, __ATOMIC_RELEASE);
}

/* ---- what orders ---- */

typedef struct written {
    CUdeviceptr at;
    fake_clock clock;
} written;

static written *all_written;
static int n_written;

static written *find_written(CUdeviceptr at)
{
    for (int i = 0; i < n_written; i++) {
        if (all_written[i].at == at) return &all_written[i];
    }
    return NULL;
}

static void book_write(fake_stream *stream, CUdeviceptr at)
{
    written *found = find_written(at);
    if (!found) {
        all_written = fake_grow(all_written, (size_t)n_written + 1, sizeof *all_written);
        found = &all_written[n_written++];
        *found = (written){.at = at};
    }
    fake_follow_host(stream);
    fake_clock_join(&found->clock, &stream->clock);
}

static void book_wait(fake_stream *stream, CUdeviceptr at)
{
    const written *found = find_written(at);
    fake_follow_host(stream);
    if (found) fake_clock_join(&stream->clock, &found->clock);
}

/* The host may write it, and other things before. */
static void wait_for_host(fake_stream *stream, CUdeviceptr at)
{
    fake_managed_be_unsure();
    book_wait(stream, at);
}

/* ---- the calls ---- */

static CUresult enqueue(CUstream handle, const value *v, int waits)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    fake_lock();
    fake_stream *stream = fake_find_stream(handle, waits ? "cuStreamWaitValue32" : "cuStreamWriteValue32");
    const fake_block *block = fake_find_block((const void *)(uintptr_t)v->at);
    if (stream && block && !block->is_freed && v->at % sizeof(uint32_t) == 0 &&
        fake_capture_check(stream) == cudaSuccess) {
        if (waits)
            wait_for_host(stream, v->at);
        else
            book_write(stream, v->at);
        fake_submit(stream, waits ? run_wait : run_write, v, sizeof *v);
        result = CUDA_SUCCESS;
    }
    fake_unlock();
    return result;
}

static CUresult wait_value(CUstream stream, CUdeviceptr at, cuuint32_t number, unsigned flags)
{
    const value v = {at, number};
    return flags == CU_STREAM_WAIT_VALUE_GEQ ? enqueue(stream, &v, 1) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult write_value(CUstream stream, CUdeviceptr at, cuuint32_t number, unsigned flags)
{
    const value v = {at, number};
    return flags == 0 ? enqueue(stream, &v, 0) : CUDA_ERROR_INVALID_VALUE; /* others are not faked */
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *status)
{
    void (*found)(void) = NULL;
    const cudaError_t error = fake_ready();
    (void)version;
    (void)flags;
    *function = NULL;
    if (error != cudaSuccess) return fake_note(error);
    if (strcmp(symbol, "cuStreamWaitValue32") == 0) found = (void (*)(void))wait_value;
    if (strcmp(symbol, "cuStreamWriteValue32") == 0) found = (void (*)(void))write_value;
    if (strcmp(symbol, "cuCtxGetCurrent") == 0) found = (void (*)(void))fake_ctx_get;
    if (strcmp(symbol, "cuCtxSetCurrent") == 0) found = (void (*)(void))fake_ctx_set;
    memcpy(function, &found, sizeof found);
    if (status) *status = found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return found ? cudaSuccess : fake_note(cudaErrorSymbolNotFound);
}
