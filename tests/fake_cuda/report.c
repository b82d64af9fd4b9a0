/* SPDX-License-Identifier: Apache-2.0 */
/* Reports, the lock of the records, and the last error of a thread. */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t reports = PTHREAD_MUTEX_INITIALIZER;
static atomic_int counts;
static int64_t n_reports[FAKE_N_FAULTS];
static char last_report[1024];
static _Thread_local cudaError_t last_error;

void fake_lock(void)
{
    (void)fake_get_settings();
    fake_mutex_lock(&books);
}

void fake_unlock(void) { fake_mutex_unlock(&books); }

static const char *const names[FAKE_N_FAULTS] = {
    [FAKE_USE_AFTER_FREE] = "use after free",
    [FAKE_OUT_OF_BOUNDS] = "out of bounds",
    [FAKE_NO_MEMORY] = "not memory of a GPU",
    [FAKE_DOUBLE_FREE] = "double free",
    [FAKE_DESTROYED] = "use of what was destroyed",
    [FAKE_LEAK] = "leak",
    [FAKE_WRONG_DEVICE] = "wrong device",
    [FAKE_UNWRITTEN] = "read of unwritten memory",
    [FAKE_DEFAULT_STREAM] = "work on the default stream",
    [FAKE_RACE] = "race",
    [FAKE_LEFT_ERROR] = "an error that was left",
    [FAKE_NCCL] = "NCCL",
};

void fake_report(fake_fault fault, const char *format, ...)
{
    va_list args;
    if (fake_broken() != cudaSuccess && fault != FAKE_NCCL) return; /* nothing on the GPU is as it was */
    fake_mutex_lock(&reports);
    n_reports[fault]++;
    va_start(args, format);
    vsnprintf(last_report, sizeof last_report, format, args);
    va_end(args);
    if (!atomic_load(&counts)) {
        fprintf(stderr, "fake cuda: %s: %s (FAKE_CUDA_SEED=%llu)\n", names[fault], last_report,
                (unsigned long long)fake_seed());
        abort();
    }
    fake_mutex_unlock(&reports);
}

int64_t fake_reports(fake_fault fault)
{
    fake_mutex_lock(&reports);
    const int64_t n = n_reports[fault];
    fake_mutex_unlock(&reports);
    return n;
}

const char *fake_last_report(void) { return last_report; }

void fake_forget(void)
{
    fake_mutex_lock(&reports);
    memset(n_reports, 0, sizeof n_reports);
    last_report[0] = '\0';
    fake_mutex_unlock(&reports);
}

void fake_count_reports(int does_count) { atomic_store(&counts, does_count); }

/* ---- leaks ---- */

static int64_t leak(int64_t n, const char *what)
{
    if (n) fake_report(FAKE_LEAK, "%lld %s left", (long long)n, what);
    return n;
}

int64_t fake_check_leaks(void)
{
    fake_lock();
    const int64_t n = leak(fake_leaked_blocks(), "blocks of memory") + leak(fake_leaked_streams(), "streams") +
                      leak(fake_leaked_events(), "events") + leak(fake_leaked_graphs(), "graphs") +
                      leak(fake_leaked_pools(), "pools of memory") +
                      leak(fake_leaked_handles(), "handles and descriptions of cublasLt");
    fake_unlock();
    return n;
}

__attribute__((destructor)) static void end(void)
{
    if (fake_broken() == cudaSuccess) fake_check_leaks();
}

/* ---- errors ---- */

cudaError_t fake_note(cudaError_t error)
{
    if (fake_broken() != cudaSuccess) error = fake_broken();
    if (error != cudaSuccess) last_error = error;
    return error;
}

/* CUDA keeps what a query said as any other error: who asks for the last one after a launch of his own takes it for
 * that launch's. */
void fake_check_taken(const char *name)
{
    if (last_error == cudaErrorNotReady)
        fake_report(FAKE_LEFT_ERROR, "\"%s\", and cudaErrorNotReady of a query waits for cudaGetLastError()", name);
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;
    last_error = fake_broken();
    return error;
}
