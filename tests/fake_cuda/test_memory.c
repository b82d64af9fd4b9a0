/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: addresses, pools, detected errors. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_fake.h"

FAKE_TEST(test_addresses)
{
    char *data = new_memory(1000), *pinned = new_pinned(10), local;
    assert_ptr_not_equal(fake_translate(data), data);
    assert_ptr_equal(fake_translate(data + 999), (char *)fake_translate(data) + 999);
    assert_ptr_equal(fake_translate(&local), &local);
    assert_ptr_equal(fake_translate(pinned), pinned);
    assert_ptr_equal(fake_translate(NULL), NULL);
    assert_int_equal((uintptr_t)data % 256, 0);
    struct cudaPointerAttributes is;
    OK(cudaPointerGetAttributes(&is, data + 5));
    assert_int_equal(is.type, cudaMemoryTypeDevice);
    assert_int_equal(is.device, 0);
    OK(cudaPointerGetAttributes(&is, &local));
    assert_int_equal(is.type, cudaMemoryTypeUnregistered);
    OK(cudaPointerGetAttributes(&is, pinned));
    assert_int_equal(is.type, cudaMemoryTypeHost);
    void *mapped = NULL;
    OK(cudaHostGetDevicePointer(&mapped, pinned, 0));
    assert_ptr_equal(mapped, pinned);
}

FAKE_TEST(test_limit)
{
    size_t bytes_free = 0, bytes = 0, left = 0;
    OK(cudaMemGetInfo(&bytes_free, &bytes));
    assert_int_equal(bytes_free, bytes);
    void *all = new_memory(bytes), *more = NULL;
    GIVES(cudaMalloc(&more, 1), cudaErrorMemoryAllocation);
    assert_null(more);
    GIVES(cudaGetLastError(), cudaErrorMemoryAllocation);
    GIVES(cudaGetLastError(), cudaSuccess);
    OK(cudaMemGetInfo(&left, &bytes));
    assert_int_equal(left, 0);
    OK(cudaFree(all));
    OK(cudaMallocManaged(&all, 100, cudaMemAttachGlobal));
    OK(cudaMemGetInfo(&left, &bytes));
    assert_int_equal(left, bytes - 100);
    memset(all, 1, 100); /* the host may */
    OK(cudaFree(all));
}

FAKE_TEST(test_frees)
{
    int local = 0;
    cudaStream_t stream = new_stream();
    char *data = new_memory(100), *pinned = new_pinned(100);
    REPORTS(FAKE_NO_MEMORY, cudaFree(data + 1));
    REPORTS(FAKE_NO_MEMORY, cudaFree(&local));
    REPORTS(FAKE_NO_MEMORY, cudaFree(pinned));
    QUIET(OK(cudaFree(data)));
    QUIET(OK(cudaFree(NULL)));
    REPORTS(FAKE_DOUBLE_FREE, cudaFree(data));
    REPORTS(FAKE_DOUBLE_FREE, cudaFreeAsync(data, stream));
    REPORTS(FAKE_USE_AFTER_FREE, cudaMemsetAsync(data, 0, 100, stream));
    REPORTS(FAKE_USE_AFTER_FREE, cudaMemcpyAsync(pinned, data, 4, cudaMemcpyDefault, stream));
    OK(cudaFreeHost(pinned));
    REPORTS(FAKE_DOUBLE_FREE, cudaFreeHost(pinned));
}

FAKE_TEST(test_bounds)
{
    char local[200] = {0};
    cudaStream_t stream = new_stream();
    char *data = new_memory(100);
    QUIET(OK(cudaMemsetAsync(data, 0, 100, stream)));
    REPORTS(FAKE_OUT_OF_BOUNDS, cudaMemsetAsync(data, 0, 101, stream));
    REPORTS(FAKE_OUT_OF_BOUNDS, cudaMemcpyAsync(data, local, 101, cudaMemcpyDefault, stream));
    REPORTS(FAKE_OUT_OF_BOUNDS, use(stream, "kernel", FAKE_READ, data + 100, 1));
    QUIET(OK(cudaMemset2DAsync(data + 1, 30, 0, 9, 4, stream)));
    REPORTS(FAKE_OUT_OF_BOUNDS, cudaMemset2DAsync(data + 1, 30, 0, 10, 4, stream));
    REPORTS(FAKE_NO_MEMORY, use(stream, "kernel", FAKE_READ, local, 4));
    REPORTS(FAKE_NO_MEMORY, cudaMemsetAsync(data + 100000, 0, 1, stream));
    GIVES(cudaMemcpyAsync(data, local, 4, cudaMemcpyDeviceToDevice, stream), cudaErrorInvalidValue);
    OK(cudaStreamSynchronize(stream));
}

/* Memory of the caller's own is pinned as long as it is registered. */
FAKE_TEST(test_registered)
{
    gate g;
    int *memory = malloc(100), *data = new_memory(4), local = 0;
    cudaStream_t stream = new_stream();
    OK(cudaHostRegister(memory, 100, cudaHostRegisterMapped));
    GIVES(cudaHostRegister(memory + 5, 100, 0), cudaErrorHostMemoryAlreadyRegistered);
    OK(cudaMemsetAsync(data, 0, 4, stream));
    memory[3] = 7;
    close_gate(stream, &g);
    OK(cudaMemcpyAsync(memory + 3, data, 4, cudaMemcpyDefault, stream)); /* returns */
    assert_int_equal(memory[3], 7);
    open_gate(&g);
    OK(cudaStreamSynchronize(stream));
    assert_int_equal(memory[3], 0);
    REPORTS(FAKE_NO_MEMORY, cudaFreeHost(memory));
    REPORTS(FAKE_NO_MEMORY, cudaHostUnregister(&local));
    QUIET(OK(cudaHostUnregister(memory)));
    REPORTS(FAKE_DOUBLE_FREE, cudaHostUnregister(memory));
    free(memory);
}

/* Copies carry along what is unwritten. */
FAKE_TEST(test_unwritten)
{
    cudaStream_t stream = new_stream();
    char *data = new_memory(100), *other = new_memory(100);
    REPORTS(FAKE_UNWRITTEN, use(stream, "kernel", FAKE_READ, data, 1));
    QUIET(OK(cudaMemsetAsync(data, 0, 50, stream)));
    QUIET(OK(use(stream, "kernel", FAKE_READ, data, 50)));
    REPORTS(FAKE_UNWRITTEN, use(stream, "kernel", FAKE_READ, data + 49, 2));
    QUIET(OK(cudaMemcpyAsync(other, data + 10, 60, cudaMemcpyDefault, stream)));
    QUIET(OK(use(stream, "kernel", FAKE_READ, other, 40)));
    REPORTS(FAKE_UNWRITTEN, use(stream, "kernel", FAKE_READ, other + 39, 2));
    QUIET(OK(use(stream, "kernel", FAKE_WRITE, other + 40, 60)));
    QUIET(OK(use(stream, "kernel", FAKE_READ, other, 100)));
    const fake_access rows = {FAKE_READ, data, 10, 20, 3}; /* 0-9, 20-29, 40-49 */
    const fake_access too_far = {FAKE_READ, data, 11, 20, 3};
    QUIET(OK(fake_use(stream, "kernel", &rows, 1)));
    REPORTS(FAKE_UNWRITTEN, fake_use(stream, "kernel", &too_far, 1));
    OK(cudaStreamSynchronize(stream));
}

FAKE_TEST(test_pools)
{
    uint64_t keep = UINT64_MAX;
    cudaMemPool_t pool = new_pool();
    cudaStream_t stream = new_stream(), other = new_stream();
    void *data = NULL;
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    OK(cudaMallocFromPoolAsync(&data, 100, pool, stream));
    QUIET(OK(cudaMemsetAsync(data, 0, 100, stream)));
    QUIET(OK(cudaFreeAsync(data, stream)));
    REPORTS(FAKE_USE_AFTER_FREE, cudaMemsetAsync(data, 0, 100, stream));
    OK(cudaMallocFromPoolAsync(&data, 100, pool, stream));
    REPORTS(FAKE_RACE, cudaMemsetAsync(data, 0, 100, other)); /* not there yet */
    OK(cudaDeviceSynchronize());
    QUIET(OK(use(other, "kernel", FAKE_WRITE, data, 100)));
    REPORTS(FAKE_RACE, cudaFreeAsync(data, stream)); /* still in use */
    OK(cudaMallocFromPoolAsync(&data, 100, pool, stream));
    OK(cudaFreeAsync(data, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaStreamSynchronize(other));
    REPORTS(FAKE_DOUBLE_FREE, cudaFreeAsync(data, stream));
    OK(cudaMemPoolDestroy(pool));
    REPORTS(FAKE_DOUBLE_FREE, cudaMemPoolDestroy(pool));
    REPORTS(FAKE_DESTROYED, cudaMallocFromPoolAsync(&data, 100, pool, stream));
}

FAKE_TEST(test_failures)
{
    void *data = NULL, *pinned = NULL;
    cudaStream_t stream = NULL, none = NULL;
    cudaEvent_t event = NULL;
    fake_fail("malloc:2,create:2,launch:2,host:1,copy:1,sync:1");
    OK(cudaMalloc(&data, 8));
    GIVES(cudaMalloc(&pinned, 8), cudaErrorMemoryAllocation);
    GIVES(cudaHostAlloc(&pinned, 8, 0), cudaErrorMemoryAllocation);
    OK(cudaStreamCreateWithFlags(&stream, 0));
    GIVES(cudaStreamCreateWithFlags(&none, 0), cudaErrorMemoryAllocation);
    OK(cudaEventCreate(&event));
    OK(fake_take_launch_failure());
    GIVES(fake_take_launch_failure(), cudaErrorLaunchFailure);
    OK(fake_take_launch_failure());
    GIVES(cudaMemsetAsync(data, 0, 8, stream), cudaErrorLaunchFailure);
    OK(cudaMemsetAsync(data, 0, 8, stream));
    GIVES(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    OK(cudaStreamSynchronize(stream));
    fake_fail(NULL);
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(data));
}

FAKE_TEST(test_leaks)
{
    cudaStream_t stream = new_stream();
    cudaEvent_t event = new_event();
    void *data = new_memory(8), *pinned = new_pinned(8);
    cudaMemPool_t pool = new_pool();
    REPORTS(FAKE_LEAK, assert_int_equal(fake_check_leaks(), 5));
    OK(cudaStreamDestroy(stream));
    OK(cudaEventDestroy(event));
    OK(cudaFree(data));
    OK(cudaFreeHost(pinned));
    OK(cudaMemPoolDestroy(pool));
    QUIET(assert_int_equal(fake_check_leaks(), 0));
}

/* ---- a process that is at fault ends, and says why ---- */

static void fault_free(void)
{
    void *data = new_memory(8);
    OK(cudaFree(data));
    (void)cudaFree(data);
}

static void fault_leak(void) { (void)new_memory(8); }

/* What it said, of a child that runs the fault and exits; its status. */
static int run_child(void (*fault)(void), char *said, size_t bytes)
{
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        fake_count_reports(0);
        fault();
        exit(0);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; n + 1 < bytes && (got = read(ends[0], said + n, bytes - 1 - n)) > 0;) n += (size_t)got;
    said[n] = '\0';
    close(ends[0]);
    waitpid(child, &status, 0);
    return status;
}

TEST(test_aborts)
{
    char said[4096];
    int status = run_child(fault_free, said, sizeof said);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(said, "fake cuda: double free: \"cudaFree\" of 0x"));
    assert_non_null(strstr(said, "FAKE_CUDA_SEED="));
    status = run_child(fault_leak, said, sizeof said);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(said, "fake cuda: leak: 1 blocks of memory left"));
}
