/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA that runs on host threads: functions for its own parts (emulated kernels, NCCL) and for tests, in addition to
 * the entry points of cudart and cublasLt. Device memory is not host memory: a device address is in a region without
 * access, and its bytes are at a constant distance.
 *
 * Races: what one host thread has waited for, another knows if the two have synchronised since, by mutexes, barriers,
 * or the beginning and end of threads; this is detected if libfake_watch.so is loaded first (LD_PRELOAD, see watch.h).
 * Otherwise, and with sanitizers, all threads are assumed to know it immediately. Order established by atomics alone is
 * not detected, nor what an NCCL collective implies about other ranks.
 *
 * Environment: FAKE_CUDA_GPUS (1), FAKE_CUDA_DRIVER (13000; 0: none), FAKE_CUDA_MEMORY (bytes per GPU, 2 GiB),
 * FAKE_CUDA_CAPABILITY (90), FAKE_CUDA_PRODUCT_US (0: how long a product lasts at least), FAKE_CUDA_SMS (8),
 * FAKE_CUDA_PEERS (1), FAKE_CUDA_POOLS (1), FAKE_CUDA_MANAGED (1: the host may use managed memory while the GPU works),
 * FAKE_CUDA_SEED (random), FAKE_CUDA_DELAY_US (maximum delay of a stream's work, 50), FAKE_CUDA_HOST_US (0: how late
 * the host learns that a stream has ended), FAKE_CUDA_FAIL ("malloc:3,launch:5"; graph launches are "graph", choices of
 * a GPU "device", records of events and waits for them "event"; "illegal" is a launch after which all calls fail). Read
 * once, at the first call.
 * FAKE_CUDA_NO_FP8: cublasLt has no products of codes; FAKE_CUDA_REFUSED: algorithms that are offered but refused
 * (products.c). */
#ifndef FAKE_CUDA_FAKE_H
#define FAKE_CUDA_FAKE_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- addresses ---- */

/* Device addresses: [begin, begin + bytes); their bytes: `bytes` further on. Empty until the first allocation. */
typedef struct fake_region_of_all {
    uintptr_t begin;
    size_t bytes;
} fake_region_of_all;
extern fake_region_of_all fake_region;

/* Where host code of the fake finds the bytes of a device address; other addresses unchanged. */
static inline void *fake_translate(const void *pointer)
{
    const uintptr_t at = (uintptr_t)pointer;
    return (void *)(at - fake_region.begin < fake_region.bytes ? at + fake_region.bytes : at);
}

/* ---- work ---- */

/* Enqueues work; `bytes` of args are copied (aligned to 16). Into the graph, if the stream is being captured: then it
 * runs at each launch, each time on a copy of the same args. */
void fake_enqueue(cudaStream_t stream, void (*run)(void *args), const void *args, size_t bytes);

/* The turn of a product, which keeps SMs of its GPU until it ends, or of another kernel, whose blocks soon end. Taken
 * by the stream's thread; other threads need none. Each waits for more urgent collectives that have room; a kernel also
 * for products that are not less urgent. */
typedef struct fake_turn {
    struct fake_turn *next;
    int device, priority, n_sms;
} fake_turn;
void fake_turn_begin(fake_turn *turn, int n_sms); /* n_sms: 0: not a product */
void fake_turn_end(fake_turn *turn);

/* Whether the stream is being captured; and from now on, for work that a graph holds: what is called with its args when
 * that graph and all that was made of it are no more (with the lock of the books). */
int fake_is_captured(cudaStream_t stream);
void fake_on_forget(void (*run)(void *args), void (*forget)(void *args));

/* What an injected failure makes of this launch; cudaSuccess: launch. Once per launch. */
cudaError_t fake_take_launch_failure(void);
/* 1 if this is the call of `kind` ("nccl", …) that is to fail. */
int fake_take_failure(const char *kind);
/* Sets which calls fail ("malloc:3,launch:5": the third malloc from now on, the fifth launch); NULL or "": none. */
void fake_fail(const char *plan);

/* ---- accesses ---- */

typedef enum fake_access_kind {
    FAKE_READ, /* computes with it: it must have been written */
    FAKE_READ_COPY, /* moves it on, written or not */
    FAKE_WRITE, /* writes all of it */
    FAKE_SCRATCH /* writes, then reads what it likes of it */
} fake_access_kind;

/* n_rows of row_bytes, stride_bytes apart. Contiguous: n_rows = 1. */
typedef struct fake_access {
    fake_access_kind kind;
    const void *begin;
    size_t row_bytes, stride_bytes;
    int64_t n_rows;
} fake_access;

/* The work that is enqueued next on the stream will make these accesses. Checks them all: memory that is no more or
 * never was, ends of allocations, the GPU, bytes that nobody wrote, races. To be called by the thread that enqueues the
 * work, before it. name: of the operation, lives forever. Memory of the host that CUDA does not know is an error, what
 * is empty is nothing. A FAKE_READ_COPY and a FAKE_WRITE of the same rows in front are a copy: what is unwritten stays
 * so at its new place.
 * @return cudaSuccess, or what a GPU would say; the work must not be enqueued then */
cudaError_t fake_use(cudaStream_t stream, const char *name, const fake_access *accesses, int n);

/* As cudaSetDevice(), which never fails then: NCCL chooses GPUs, too. */
void fake_set_device(int device);
/* The GPU of the stream; -1 (and a report) for a stream that is none. */
int fake_stream_device(cudaStream_t stream, const char *name);

/* ---- reports ---- */

typedef enum fake_fault {
    FAKE_USE_AFTER_FREE,
    FAKE_OUT_OF_BOUNDS,
    FAKE_NO_MEMORY, /* not an address of a GPU, of managed or of pinned memory */
    FAKE_DOUBLE_FREE, /* or destroyed twice */
    FAKE_DESTROYED, /* a stream, event, … is used that is no more */
    FAKE_LEAK,
    FAKE_WRONG_DEVICE,
    FAKE_UNWRITTEN, /* bytes are read that nobody wrote */
    FAKE_DEFAULT_STREAM,
    FAKE_RACE,
    FAKE_LEFT_ERROR, /* by a query; seen when the thread chooses its GPU next */
    FAKE_NCCL, /* misuse, leaks, and kernels that wait for each other forever */
    FAKE_N_FAULTS
} fake_fault;

/* Says it with the seed, then aborts, or counts. */
void fake_report(fake_fault fault, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* How often since the last fake_forget(), and the last sentence. */
int64_t fake_reports(fake_fault fault);
const char *fake_last_report(void);
void fake_forget(void);
void fake_count_reports(int counts); /* from now on, instead of ending the process */

/* Reports what is still there: memory, streams, events, graphs, pools, handles of cublasLt. As at the process's end.
 * @return their number */
int64_t fake_check_leaks(void);

uint64_t fake_seed(void);

/* How often since the process began: "heuristic", an algorithm of cublasLt is asked for; a "collective" of NCCL's,
 * and a "registered collective", all of whose memory is; a "launch" of NCCL's, and of these the "urgent", on a stream
 * of the greatest priority, and the "unordered", "shared" and "asynchronous", in no order of the host's, of a
 * communicator that shares another's resources or does not block; a "product", and the "urgent product" and the
 * "confined product", which is told how many SMs to take; a "collective", "exchange" or "kernel beside a product",
 * begun while one runs, and a "collective behind a product", which would otherwise begin; a "kernel" of the library's,
 * and a "kernel of several messages"; a "timed event", recorded; a "blocking stream", made; a "context" of a GPU, and a
 * "context of GPU 0". The most of "CTAs" of a launch, of "SMs" of a confined product. `what` lives forever. The plugin
 * on the fake exports fake_counted(). */
void fake_count(const char *what);
void fake_count_most(const char *what, int64_t n);
/* Memory of the GPU that was in use at most, in bytes. Exported, too. */
size_t fake_bytes_peak(int device);
int64_t fake_counted(const char *what);

#ifdef __cplusplus
}
#endif
#endif
