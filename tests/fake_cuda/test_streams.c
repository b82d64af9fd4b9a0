/* SPDX-License-Identifier: Apache-2.0 */
/* Order of streams, events, copies of pageable and pinned memory. */
#include <cuda.h>

#include "test_fake.h"

typedef struct diary {
    atomic_int n;
    int entries[2];
} diary;

typedef struct line {
    diary *book;
    int entry;
} line;

static void write_line(void *args)
{
    const line *l = args;
    l->book->entries[atomic_fetch_add(&l->book->n, 1)] = l->entry;
}

static void enqueue_line(cudaStream_t stream, diary *book, int entry)
{
    const line l = {book, entry};
    fake_enqueue(stream, write_line, &l, sizeof l);
}

/* One stream stands still, the other goes on; the calls return meanwhile. */
FAKE_TEST(test_asynchronous)
{
    static diary book;
    gate g;
    cudaStream_t held = new_stream(), free_one = new_stream();
    close_gate(held, &g);
    enqueue_line(held, &book, 1);
    enqueue_line(free_one, &book, 2);
    OK(cudaStreamSynchronize(free_one));
    GIVES(cudaStreamQuery(held), cudaErrorNotReady);
    assert_int_equal(atomic_load(&book.n), 1);
    assert_int_equal(book.entries[0], 2);
    open_gate(&g);
    OK(cudaDeviceSynchronize());
    OK(cudaStreamQuery(held));
    assert_int_equal(book.entries[1], 1);
}

/* A wait is for the record before it, whatever becomes of the event. */
FAKE_TEST(test_record_again)
{
    gate g;
    cudaStream_t first = new_stream(), held = new_stream(), waits = new_stream();
    cudaEvent_t event = new_event();
    OK(cudaStreamWaitEvent(waits, event, 0)); /* never recorded */
    OK(cudaEventQuery(event));
    OK(cudaEventSynchronize(event));
    OK(cudaEventRecord(event, first));
    OK(cudaStreamWaitEvent(waits, event, 0));
    close_gate(held, &g);
    OK(cudaEventRecord(event, held));
    OK(cudaStreamSynchronize(waits)); /* of the first record */
    GIVES(cudaEventQuery(event), cudaErrorNotReady); /* of the second */
    REPORTS(FAKE_LEFT_ERROR, OK(cudaSetDevice(0)));
    GIVES(cudaGetLastError(), cudaErrorNotReady);
    QUIET(OK(cudaSetDevice(0)));
    OK(cudaStreamWaitEvent(waits, event, 0));
    OK(cudaEventDestroy(event));
    GIVES(cudaStreamQuery(waits), cudaErrorNotReady);
    open_gate(&g);
    OK(cudaStreamSynchronize(waits));
}

FAKE_TEST(test_destroyed_stream_finishes)
{
    static diary book;
    gate g;
    cudaStream_t stream = new_stream(), other = new_stream();
    cudaEvent_t event = new_event();
    close_gate(stream, &g);
    enqueue_line(stream, &book, 7);
    OK(cudaEventRecord(event, stream));
    OK(cudaStreamDestroy(stream));
    OK(cudaStreamWaitEvent(other, event, 0));
    open_gate(&g);
    OK(cudaStreamSynchronize(other));
    assert_int_equal(book.entries[0], 7);
}

FAKE_TEST(test_pageable_source_is_staged)
{
    gate g;
    int source[4] = {1, 2, 3, 4}, got[4] = {0};
    cudaStream_t stream = new_stream();
    int *data = new_memory(sizeof source), *pinned = new_pinned(sizeof source);
    close_gate(stream, &g);
    OK(cudaMemcpyAsync(data, source, sizeof source, cudaMemcpyHostToDevice, stream));
    source[0] = 99; /* too late */
    pinned[0] = 5;
    int *other = new_memory(sizeof source);
    OK(cudaMemcpyAsync(other, pinned, sizeof source, cudaMemcpyDefault, stream));
    pinned[0] = 6; /* in time */
    open_gate(&g);
    OK(cudaMemcpyAsync(got, data, sizeof got, cudaMemcpyDeviceToHost, stream));
    assert_int_equal(got[0], 1); /* it has come */
    assert_int_equal(got[3], 4);
    OK(cudaMemcpyAsync(got, other, sizeof got, cudaMemcpyDeviceToHost, stream));
    assert_int_equal(got[0], 6);
}

FAKE_TEST(test_pinned_target_comes_later)
{
    gate g;
    const int source = 3;
    cudaStream_t stream = new_stream();
    int *data = new_memory(sizeof *data), *pinned = new_pinned(sizeof *pinned);
    OK(cudaMemcpyAsync(data, &source, sizeof source, cudaMemcpyDefault, stream));
    *pinned = 0;
    close_gate(stream, &g);
    OK(cudaMemcpyAsync(pinned, data, sizeof *data, cudaMemcpyDefault, stream));
    assert_int_equal(*pinned, 0);
    open_gate(&g);
    OK(cudaStreamSynchronize(stream));
    assert_int_equal(*pinned, 3);
}

FAKE_TEST(test_times)
{
    float millisecs = -1;
    gate g;
    cudaStream_t stream = new_stream();
    cudaEvent_t begin, end, untimed = new_event();
    OK(cudaEventCreate(&begin));
    OK(cudaEventCreate(&end));
    keep(begin, destroy_event);
    keep(end, destroy_event);
    GIVES(cudaEventElapsedTime(&millisecs, begin, end), cudaErrorInvalidResourceHandle);
    OK(cudaEventRecord(begin, stream));
    close_gate(stream, &g);
    OK(cudaEventRecord(end, stream));
    OK(cudaEventSynchronize(begin));
    GIVES(cudaEventElapsedTime(&millisecs, begin, end), cudaErrorNotReady);
    open_gate(&g);
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&millisecs, begin, end));
    assert_true(millisecs >= 0);
    OK(cudaEventRecord(untimed, stream));
    GIVES(cudaEventElapsedTime(&millisecs, begin, untimed), cudaErrorInvalidResourceHandle);
}

typedef CUresult (*value_call)(CUstream, CUdeviceptr, cuuint32_t, unsigned);

static value_call find_call(const char *name)
{
    void *found = NULL;
    value_call call = NULL;
    enum cudaDriverEntryPointQueryResult result;
    OK(cudaGetDriverEntryPointByVersion(name, &found, 12000, 0, &result));
    assert_int_equal(result, cudaDriverEntryPointSuccess);
    memcpy(&call, &found, sizeof found);
    return call;
}

/* What stands first in two flags goes into the second. */
static void copy_flag(void *user)
{
    atomic_uint *flags = user;
    atomic_store(&flags[1], atomic_load(&flags[0]));
}

FAKE_TEST(test_values)
{
    void *none = NULL;
    const value_call wait = find_call("cuStreamWaitValue32");
    const value_call write = find_call("cuStreamWriteValue32");
    cudaStream_t stream = new_stream(), other = new_stream();
    atomic_uint *flags = new_pinned(2 * sizeof *flags);
    const CUdeviceptr at = (CUdeviceptr)(uintptr_t)flags;
    atomic_store(&flags[0], 3);
    atomic_store(&flags[1], 0);
    assert_int_equal(wait(stream, at, 5, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
    OK(cudaLaunchHostFunc(stream, copy_flag, flags));
    for (int i = 0; i < 200; i++) finish_unnoticed(other); /* time enough to go wrong */
    assert_int_equal(write(other, at, 6, 0), CUDA_SUCCESS);
    OK(cudaStreamSynchronize(stream));
    assert_int_equal(atomic_load(&flags[1]), 6);
    assert_int_equal(wait(stream, 64, 5, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cudaGetDriverEntryPointByVersion("cuNothing", &none, 12000, 0, NULL), cudaErrorSymbolNotFound);
}

FAKE_TEST(test_wrong_handles)
{
    int value = 0;
    cudaStream_t stream = new_stream();
    cudaEvent_t event = new_event();
    int *data = new_memory(sizeof value);
    REPORTS(FAKE_DEFAULT_STREAM, cudaMemcpyAsync(data, &value, sizeof value, cudaMemcpyDefault, 0));
    REPORTS(FAKE_DEFAULT_STREAM, cudaEventRecord(event, cudaStreamLegacy));
    OK(cudaStreamDestroy(stream));
    OK(cudaEventDestroy(event));
    REPORTS(FAKE_DESTROYED, cudaMemsetAsync(data, 0, sizeof value, stream));
    REPORTS(FAKE_DESTROYED, cudaStreamSynchronize(stream));
    REPORTS(FAKE_DOUBLE_FREE, cudaStreamDestroy(stream));
    stream = new_stream();
    REPORTS(FAKE_DESTROYED, cudaEventRecord(event, stream));
    REPORTS(FAKE_DESTROYED, cudaStreamWaitEvent(stream, event, 0));
    REPORTS(FAKE_DOUBLE_FREE, cudaEventDestroy(event));
}
