/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: memory, streams, events, products and element-wise kernels through one function table. The functions here
 * check and count; a backend only translates. Streams and events have the same meaning as in CUDA: work on one stream
 * runs in order, work on two streams in any order unless an event orders it; enqueueing returns before the work is
 * done. A device belongs to one rank. */
#ifndef QDRI_DEV_DEV_H
#define QDRI_DEV_DEV_H

#include <stdatomic.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/kernels.h"
#include "core/life.h"
#include "core/status.h"

/* Wake events: counters on which threads of one or several processes sleep. One is plain zeroed memory, so it may be in
 * shared memory. */
typedef struct qdri_wake_event {
    atomic_uint n_signals;
    atomic_int n_asleep;
    char unused[56]; /* keeps two of them out of one cache line */
} qdri_wake_event;

/* Wakes all threads that sleep on it; they see everything that the signalling thread wrote before. Any thread. */
void qdri_wake_event_signal(qdri_wake_event *wake_event);
/* Sleeps until there is a signal newer than `seen`, or until this time on CLOCK_MONOTONIC (0: no limit). May wake up
 * spuriously. */
void qdri_wake_event_wait(qdri_wake_event *wake_event, unsigned seen, int64_t until_ns);

typedef struct qdri_dev qdri_dev;

typedef struct qdri_gemm {
    /* C[m,n] = alpha·op(A)·op(B) + beta·C, row-major. A is [m,k] ([k,m] if trans_a), B is [k,n] ([n,k] if trans_b);
     * leading dimensions in elements. beta = 0 never reads C; m, n = 0 do nothing; k = 0 gives beta·C (zeros). */
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    int64_t lda, ldb, ldc;
    int trans_a, trans_b;
    double alpha, beta;
    qdr_dtype dtype; /* of A and B: F32, F64, BF16, F16; sums in fp32 (f64) */
    qdr_dtype c_dtype; /* of C: dtype, or F32 for products of BF16 and F16 */
    qdri_rounding round_a, round_b; /* both or neither, at most one of them E5M2; then the type is BF16 or F32, and the
                                     * sums are those of the rounded factors */
    int algorithm; /* one of the device's algorithms for such a product, by its number from qdri_gemm_list_algorithms();
                    * 0, or one that the device lacks: the one it considers best */
    /* Applied to the sums before they are rounded, if not NULL; only if qdri_dev_fuses() allows it. */
    const void *bias; /* n elements of C's type, added to each row */
    void *gelu; /* like C: receives gelu() of what is stored in C */
    const void *gelu_of; /* like C: C is multiplied by gelu'() of it */
} qdri_gemm;

/* Work on a stream. Called by the stream's thread with a private copy of the arguments, repeatedly while it returns
 * QDR_PENDING. It must not block. Any error poisons the device. The work may keep its state in its copy of the
 * arguments. Work that has begun (has been called once) is called until it finishes, even on a poisoned device: peers
 * may be reading its memory. Only work that has not begun is dropped. */
typedef qdr_status (*qdri_work_fn)(void *args);
#define QDRI_WORK_BYTES 272 /* maximum size of the arguments */

/* Which thread runs a stream; and on a GPU, which of them gets multiprocessors first. */
typedef enum qdri_stream_kind {
    QDRI_STREAM_COMPUTE = 0, /* a thread of its own; last */
    QDRI_STREAM_COMM = 1, /* all of these share one thread, which runs whichever can make progress, and sleeps when
                           * idle; first */
    QDRI_STREAM_URGENT = 2 /* a thread of its own; first: other ranks wait for its kernels */
} qdri_stream_kind;

typedef struct qdri_dev_table {
    const char *name;
    int runs_work; /* 1: its threads run `work` until it returns something other than QDR_PENDING, and its memory is
                    * host memory; 0: work runs once and may not be pending */
    /* Aligned to 64 bytes. is_shared: preferably memory from the library that connects the ranks. */
    qdr_status (*mem_alloc)(qdri_dev *dev, int is_shared, size_t bytes, void **data);
    size_t (*mem_free)(qdri_dev *dev, void *data); /* returns the number of bytes that were requested */
    qdr_status (*stream_create)(qdri_dev *dev, qdri_stream_kind kind, qdr_stream **stream);
    void (*stream_destroy)(qdr_stream *stream); /* waits for its work */
    qdr_status (*stream_synchronize)(qdr_stream *stream);
    qdr_status (*event_create)(qdri_dev *dev, qdr_event **event);
    void (*event_destroy)(qdr_event *event);
    qdr_status (*event_record)(qdr_event *event, qdr_stream *stream);
    qdr_status (*stream_wait)(qdr_stream *stream, qdr_event *event);
    int (*event_reached)(qdr_event *event);
    /* Whether the device has failed if it did not accept work because of this; optional: it has not. */
    int (*is_failure)(qdr_stream *stream, qdr_status status);
    qdr_status (*stamp)(qdr_stream *stream, int64_t *nanosecs);
    qdr_status (*work)(qdr_stream *stream, qdri_work_fn fn, const void *args, size_t bytes);
    qdr_status (*work_anywhere)(qdr_stream *stream, qdri_work_fn fn, const void *args, size_t bytes); /* optional:
                                                                                                       * `work` */
    qdr_status (*copy)(qdr_stream *stream, void *dst, const void *src, size_t bytes);
    qdr_status (*fill_zero)(qdr_stream *stream, void *dst, size_t bytes);
    qdr_status (*gemm)(qdr_stream *stream, const qdri_gemm *gemm);
    qdr_status (*kernel)(qdr_stream *stream, const qdri_kernel *kernel);
    int (*fuses)(const qdri_dev *dev, const qdri_gemm *gemm); /* optional: it fuses nothing */
    qdr_status (*list_algorithms)(qdr_stream *stream, const qdri_gemm *gemm, int most, int algorithms[],
                                  int *n); /* optional: one algorithm */
    qdr_status (*check_rounding)(const qdri_dev *dev); /* optional: it supports rounding */
    size_t (*fixed_bytes)(const qdri_dev *dev, qdr_dtype dtype);
    /* Optional, both: additional memory of a stream that a product needs. */
    size_t (*product_bytes)(qdr_stream *stream, const qdri_gemm *gemm);
    qdr_status (*reserve_product)(qdr_stream *stream, size_t bytes);
    /* The same of a kernel, except that it can run without. */
    size_t (*kernel_bytes)(qdr_stream *stream, const qdri_kernel *kernel);
    void (*reserve_kernel)(qdr_stream *stream, size_t bytes);
    const char *(*products)(const qdri_dev *dev);
    /* For a device other than the host, else NULL: wraps a native stream of the caller's, returns the native stream,
     * and the GPU's number and address on PCI. */
    qdr_status (*stream_wrap)(qdri_dev *dev, void *native, qdr_stream **stream);
    void *(*stream_native)(qdr_stream *stream);
    int (*gpu)(const qdri_dev *dev);
    const char *(*bus)(const qdri_dev *dev);
    /* Host memory that streams can access; a flag in it that streams set to `value`, or wait for. */
    qdr_status (*pin)(qdri_dev *dev, void *memory, size_t bytes);
    void (*unpin)(qdri_dev *dev, void *memory);
    qdr_status (*flag_raise)(qdr_stream *stream, uint32_t *flag, uint32_t value);
    qdr_status (*flag_wait)(qdr_stream *stream, uint32_t *flag, uint32_t value);
    /* Work that is recorded instead of run; NULL: not supported. */
    qdr_status (*record_begin)(qdr_stream *stream);
    qdr_status (*record_end)(qdr_stream *stream, void **record);
    int (*record_is_lost)(qdr_stream *stream);
    qdr_status (*record_run)(qdr_stream *stream, void *record);
    void (*record_free)(qdri_dev *dev, void *record);
    qdr_status (*check_memory)(qdri_dev *dev, const void *data, const char *what);
    int (*open_to)(qdri_dev *dev, int gpu); /* 1: that GPU can use its memory from now on */
    void (*free_bytes)(qdri_dev *dev, size_t *bytes_free, size_t *bytes); /* free and total memory; optional */
    /* Ranges for a profiler, optional: whether one wants them; begins a range, nested in those that have begun; ends
     * the last one. */
    int (*wants_ranges)(const qdri_dev *dev);
    void (*range_begin)(qdri_dev *dev, const char *name);
    void (*range_end)(qdri_dev *dev);
    void (*wake_all)(qdri_dev *dev); /* makes every stream and every waiting host thread notice that the device is
                                      * poisoned; optional: the hook does */
    void (*drain)(qdri_dev *dev); /* waits for the work of all streams; optional */
    /* Ends the threads of streams that a program has not destroyed; these are not used again. Optional. */
    void (*stop)(qdri_dev *dev);
    void (*destroy)(qdri_dev *dev);
} qdri_dev_table;

/* Whether a limit on address space (ulimit -v), if there is one, leaves enough for n_devices more CPU devices of one
 * BLAS thread each. Must be called first: hwloc crashes if nothing is left.
 * @retval QDR_ERR_MEMORY  no; the message has the numbers */
QDR_NODISCARD qdr_status qdri_dev_check_address_space(int n_devices);

/* Creates the CPU device. n_threads: those that compute a kernel, the stream's and others. The device is used by one
 * host thread and its own workers. */
QDR_NODISCARD qdr_status qdri_dev_create_cpu(int n_threads, qdri_dev **dev);
/* Makes the device's threads sleep on these wake events, QDRI_DEV_WAKE_EVENTS of them, instead of its own: other
 * processes may signal them. Call it before the device has streams; the events must outlive those. */
void qdri_dev_use_wake_events(qdri_dev *dev, qdri_wake_event *wake_events);
#define QDRI_DEV_WAKE_EVENTS 8
/* Where a device takes memory from before it uses the C library. */
typedef struct qdri_mem_source {
    void *(*alloc)(void *user, size_t bytes); /* zeroed, aligned to 64 bytes; NULL: not available here */
    void (*free)(void *user, void *memory);
    void *user;
} qdri_mem_source;
/* Applies from now on; the source must live until all of its memory is freed. */
void qdri_dev_use_memory(qdri_dev *dev, qdri_mem_source source);
void qdri_dev_drain(qdri_dev *dev); /* as in the table, like the next one */
void qdri_dev_stop(qdri_dev *dev);
void qdri_dev_destroy(qdri_dev **dev);

/* Counted memory. Any thread. what: its purpose ("parameters"), for the message if there is too little. */
QDR_NODISCARD qdr_status qdri_mem_alloc_for(qdri_dev *dev, const char *what, size_t bytes, void **data);
QDR_NODISCARD qdr_status qdri_mem_alloc(qdri_dev *dev, size_t bytes, void **data); /* "an array" */
/* The same for memory used by collectives: it comes from the communication library if that has memory that is better
 * for them. All ranks request the same, and free it when nothing uses it. */
QDR_NODISCARD qdr_status qdri_mem_alloc_shared(qdri_dev *dev, const char *what, size_t bytes, void **data);
void qdri_mem_free(qdri_dev *dev, void **data);
void qdri_mem_usage(const qdri_dev *dev, size_t *bytes_now, size_t *bytes_peak);
void qdri_mem_reset_peak(qdri_dev *dev);
/* Bytes, counted, that the device itself allocates at its first product of this type and keeps: panels for converting
 * BF16 or F16 if the machine has no such products; else 0. */
size_t qdri_dev_fixed_bytes(const qdri_dev *dev, qdr_dtype dtype);
/* Additional bytes, counted, that the device allocates for a product on this stream and keeps for later ones: rounded
 * factors. Of the product's addresses only the alignment matters. */
size_t qdri_product_bytes(qdr_stream *stream, const qdri_gemm *gemm);
/* Allocates them now, for products that need up to this many bytes, together with what the stream's products and
 * kernels share: later, other work would already be running. */
QDR_NODISCARD qdr_status qdri_reserve_product(qdr_stream *stream, size_t bytes);
/* The same for a kernel, of which only the shape matters. If there is too little memory, it makes do with less. */
size_t qdri_kernel_bytes(qdr_stream *stream, const qdri_kernel *kernel);
void qdri_reserve_kernel(qdr_stream *stream, size_t bytes);

int qdri_dev_runs_work(const qdri_dev *dev);
/* How long its compute streams have waited so far for events of other streams; 0 on GPUs, where nobody knows. Any
 * thread. */
int64_t qdri_dev_waited_ns(const qdri_dev *dev);
int qdri_dev_gpu(const qdri_dev *dev); /* its number; -1: not a GPU */
const char *qdri_dev_bus(const qdri_dev *dev); /* its address on PCI, in any case; NULL: not a GPU */
/* 1: it can fuse the operations that `bias`, `gelu` and `gelu_of` request with this product. */
int qdri_dev_fuses(const qdri_dev *dev, const qdri_gemm *gemm);
/* Whether it supports products of factors that are rounded to fp8.
 * @retval QDR_ERR_UNSUPPORTED  no; the message says why */
QDR_NODISCARD qdr_status qdri_dev_check_rounding(const qdri_dev *dev);
/* Lets this GPU access all of the device's memory from now on. @return 0: not possible on this machine */
int qdri_dev_open_to(qdri_dev *dev, int gpu);
/* Whether its kernels can use elements of this size at `data`, which the caller calls `what`. NULL is accepted.
 * @retval QDR_ERR_ARGUMENT  the address is not a multiple of the size; or the memory is on the host, on another GPU, or
 * unallocated */
QDR_NODISCARD qdr_status qdri_dev_check_memory(qdri_dev *dev, const void *data, size_t elem_bytes, const char *what);
/* The same for an argument: "who: what". */
QDR_NODISCARD qdr_status qdri_dev_check_argument(qdri_dev *dev, const void *data, size_t elem_bytes, const char *who,
                                                 const char *what);
/* A named range around everything enqueued between the two calls, for a profiler; does nothing without one. */
int qdri_dev_wants_ranges(const qdri_dev *dev);
void qdri_range_begin(qdri_dev *dev, const char *name);
void qdri_range_end(qdri_dev *dev);

/* What computes its products: the library, its version and kernels. One thread at a time; valid until the process
 * ends. */
const char *qdri_dev_products(const qdri_dev *dev);

QDR_NODISCARD qdr_status qdri_stream_create(qdri_dev *dev, qdri_stream_kind kind, qdr_stream **stream);
/* Wraps a native stream of the caller's, and returns the native stream; NULL: the backend has none. */
QDR_NODISCARD qdr_status qdri_stream_wrap(qdri_dev *dev, void *native, qdr_stream **stream);
void *qdri_stream_native(qdr_stream *stream);
/* Keeps `needs` alive until the stream is destroyed; may be called once. */
void qdri_stream_keep(qdr_stream *stream, qdri_life *needs);
void qdri_stream_destroy(qdr_stream **stream);
QDR_NODISCARD qdr_status qdri_stream_synchronize(qdr_stream *stream);
qdri_dev *qdri_stream_dev(const qdr_stream *stream);
QDR_NODISCARD qdr_status qdri_event_create(qdri_dev *dev, qdr_event **event);
void qdri_event_keep(qdr_event *event, qdri_life *needs);
void qdri_event_destroy(qdr_event **event);
QDR_NODISCARD qdr_status qdri_event_record(qdr_event *event, qdr_stream *stream);
QDR_NODISCARD qdr_status qdri_stream_wait(qdr_stream *stream, qdr_event *event);
/* The same if the event and the stream may belong to different ranks of this process; the caller ensures that neither
 * rank uses them at the time. */
QDR_NODISCARD qdr_status qdri_stream_wait_across(qdr_stream *stream, qdr_event *event);
/* 1: everything before the event's last record is complete, or it was never recorded. */
int qdri_event_reached(qdr_event *event);
/* Writes the time on CLOCK_MONOTONIC at which the stream reaches this point to *nanosecs, which is valid once the
 * stream has been synchronised. */
QDR_NODISCARD qdr_status qdri_stamp(qdr_stream *stream, int64_t *nanosecs);
QDR_NODISCARD qdr_status qdri_work(qdr_stream *stream, qdri_work_fn fn, const void *args, size_t bytes);
/* The same for work of the library's own that any thread may run: a thread that waits for the stream may run it in the
 * place of the stream's thread, whose waker is then current on it. */
QDR_NODISCARD qdr_status qdri_work_anywhere(qdr_stream *stream, qdri_work_fn fn, const void *args, size_t bytes);
QDR_NODISCARD qdr_status qdri_gemm_run(qdr_stream *stream, const qdri_gemm *gemm);
/* The device's algorithms for a product, the one that it considers best first: at least one, at most `most`. A number
 * identifies the same algorithm for other products that have it. */
QDR_NODISCARD qdr_status qdri_gemm_list_algorithms(qdr_stream *stream, const qdri_gemm *gemm, int most,
                                                   int algorithms[], int *n);
QDR_NODISCARD qdr_status qdri_kernel_run(qdr_stream *stream, const qdri_kernel *kernel);
QDR_NODISCARD qdr_status qdri_copy(qdr_stream *stream, void *dst, const void *src, size_t bytes);
QDR_NODISCARD qdr_status qdri_fill_zero(qdr_stream *stream, void *dst, size_t bytes);

/* The first asynchronous failure; later calls return it. Poisoning wakes all waiting threads: streams then drop their
 * work. */
qdr_status qdri_dev_status(const qdri_dev *dev);
/* Copies the message of that failure into the calling thread's last error, and returns the status. */
qdr_status qdri_dev_raise(const qdri_dev *dev);
void qdri_dev_poison(qdri_dev *dev, qdr_status status, const char *sentence);
/* Sets a hook that the poisoning thread calls once, after it has poisoned the device and without holding any lock (it
 * may call qdri_wake()); NULL: none. Set it before the device has work; unset it when the streams are idle. */
void qdri_dev_on_poison(qdri_dev *dev, void (*hook)(void *user), void *user);

/* For a device with its own memory. Pins host memory from qdri_calloc() and the like, so that its streams can copy to
 * and from it asynchronously until it is unpinned. */
QDR_NODISCARD qdr_status qdri_pin(qdri_dev *dev, void *memory, size_t bytes);
void qdri_unpin(qdri_dev *dev, void *memory); /* requires that the streams no longer use it */
/* Flags in pinned memory are counters that may wrap around: a stream sets one, or waits until it has reached or passed
 * `value`. The host may do both, too. */
QDR_NODISCARD qdr_status qdri_flag_raise(qdr_stream *stream, uint32_t *flag, uint32_t value);
QDR_NODISCARD qdr_status qdri_flag_wait(qdr_stream *stream, uint32_t *flag, uint32_t value);

/* For messages about too little memory on a GPU. */
#define QDRI_GPU_MEMORY_REMEDY                                                                                         \
    "use more GPUs, fewer ranks on each where they share one, a smaller batch or a smaller model"

/* Records what is enqueued on the stream, and on streams joined to it by events, from begin to end. If end fails,
 * nothing is being recorded any more, and *record is NULL. Freeing waits for the last run. */
QDR_NODISCARD qdr_status qdri_record_begin(qdr_stream *stream);
QDR_NODISCARD qdr_status qdri_record_end(qdr_stream *stream, void **record);
/* Whether the stream is part of a recording that has been invalidated, so that nothing can be enqueued; and the same as
 * an error, with QDR_ERR_UNSUPPORTED. */
int qdri_record_is_lost(qdr_stream *stream);
QDR_NODISCARD qdr_status qdri_record_check(qdr_stream *stream);
QDR_NODISCARD qdr_status qdri_record_run(qdr_stream *stream, void *record);
void qdri_record_free(qdri_dev *dev, void *record); /* accepts NULL */

/* For work that waits for something outside the device. A waker belongs to the thread that runs a stream. */
typedef struct qdri_waker qdri_waker;
/* The waker of the calling stream thread; NULL on other threads. */
qdri_waker *qdri_current_waker(void);
/* Makes the waker's thread check its pending work again; any thread may call it. */
void qdri_wake(qdri_waker *waker);
/* The index of the waker's wake event among the device's. */
int qdri_waker_wake_event(const qdri_waker *waker);
/* Called by work that returns QDR_PENDING and that nothing will wake: the thread polls, with growing pauses (it yields
 * at first, and later sleeps up to 0.5 ms), instead of sleeping until it is woken. */
void qdri_poll_again(void);
/* Called by work that returns QDR_PENDING but has made progress: the pauses start again at the shortest. */
void qdri_progressed(void);
/* Called by work that returns QDR_PENDING and that may miss a wake-up: the thread checks again after this time at the
 * latest. */
void qdri_look_within(int64_t ns);

#endif
