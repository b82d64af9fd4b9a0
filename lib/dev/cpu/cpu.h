/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU device: streams are ring buffers of work items, and executors are the threads that run them. */
#ifndef QDRI_DEV_CPU_CPU_H
#define QDRI_DEV_CPU_CPU_H

#include <fenv.h>

#include "dev/cpu/pool.h"
#include "dev/device.h"

/* Reserved address space (address_space.c). OpenBLAS (0.3.21) allocates a buffer of 128 MiB for each thread that
 * multiplies, and if a limit (ulimit -v) leaves no space for it, it retries forever. So, under a limit, the space is
 * reserved in advance, and a thread gives it back when its first product begins. */
typedef struct qdri_address_space { /* empty if there is no limit */
    void *start;
    size_t bytes;
} qdri_address_space;

/* Reserves the space that products on one more thread need. */
QDR_NODISCARD qdr_status qdri_address_space_take(qdri_address_space *space);
void qdri_address_space_give_back(qdri_address_space *space);
/* The calling thread's from now on, which qdri_address_space_use() gives back; NULL: none. The latter is called before
 * a product: BLAS will now use it. */
void qdri_address_space_keep(qdri_address_space *space);
void qdri_address_space_use(void);
/* The C library creates a heap for each new thread that allocates; this makes it do so now, before reserved space is
 * given back, which the heap would otherwise use. */
void qdri_address_space_settle(void);

#define QDRI_RING_ITEMS 1024u /* per stream; when it is full, enqueueing waits */

typedef struct qdri_cpu_dev {
    qdri_dev base;
    int n_threads; /* that compute one kernel */
    qdri_pool *pool; /* the others of them; NULL: there are none */
    int executors_made; /* their number so far, used to number them */
    qdri_waker *comm; /* the executor of all COMM streams; NULL: there are none */
    pthread_mutex_t lock; /* protects the list below */
    qdri_waker *executors;
    pthread_mutex_t panels_lock; /* one product at a time converts through the panels */
    void *panels; /* fp32 blocks of converted products, for each thread, allocated at the first one */
    pthread_mutex_t work_lock; /* one attention at a time has the workspaces */
    void *work; /* of attention, for each thread of the pool but the one that runs the kernel */
    size_t work_bytes;
} qdri_cpu_dev;

typedef struct qdri_item {
    qdri_work_fn fn;
    void (*drop)(void *args); /* called instead of fn on a poisoned device; NULL: work that has begun continues, other
                               * work is dropped */
    int begun;
    _Alignas(16) unsigned char args[QDRI_WORK_BYTES];
} qdri_item;

typedef struct qdri_cpu_stream {
    qdr_stream base;
    qdri_waker *executor;
    int computes; /* its waits are counted */
    struct qdri_cpu_stream *next; /* in the executor's list */
    qdri_item *items;
    atomic_uint_least64_t head, tail; /* number of items run, and of items enqueued */
    atomic_uint_least64_t wanted; /* number of items for which a host thread waits; UINT64_MAX: none */
    uint64_t own_end; /* number of items up to the last one that only the executor may run; protected by `lock` */
    uint64_t n_waited; /* number of items for which the host has waited; protected by `lock` */
    _Atomic int64_t begun_ns; /* when it last ceased to be empty */
    pthread_mutex_t lock; /* for enqueueing and for host waits */
    pthread_cond_t changed;
} qdri_cpu_stream;

/* An executor; other modules know it as a waker. A host thread that waits for a stream may drive it in the executor's
 * place: see qdri_executor_drive(). */
struct qdri_waker {
    qdri_cpu_dev *dev;
    qdri_waker *next; /* in the device's list */
    uint64_t bit; /* its bit in masks of waiting executors; executors 64 apart share one */
    qdri_wake_event *wake_event; /* may be shared with another executor */
    pthread_t thread;
    qdri_address_space space; /* of an executor of products, until its first product */
    atomic_int quit;
    pthread_mutex_t streams_lock; /* held by the thread that runs items: the executor for a round, or a driver */
    qdri_cpu_stream *streams;
    fenv_t arithmetic; /* of its thread: how the sums of collectives round */
    qdri_wake_event idle; /* on which the executor sleeps while all its streams are empty */
    atomic_int is_napping; /* the executor is idle, but looks again soon: it need not be called for each item */
    atomic_uint n_prompt; /* prompt waits of host threads in a row */
};

/* executor.c; space: reserved address space, which it takes over; given back in any case */
QDR_NODISCARD qdr_status qdri_executor_create(qdri_cpu_dev *dev, qdri_address_space space, qdri_waker **executor);
void qdri_executor_destroy(qdri_waker *executor); /* it must have no streams, or none that are used again */
void qdri_executor_attach(qdri_waker *executor, qdri_cpu_stream *stream);
void qdri_executor_detach(qdri_waker *executor, qdri_cpu_stream *stream);
void qdri_executors_wake(qdri_cpu_dev *dev, uint64_t mask);
/* Wakes the executor, which may be idle: it has new items. */
void qdri_executor_call(qdri_waker *executor);
/* Runs items of the stream on the calling thread, which waits for them, until n_items have run; any thread may run
 * these. Does nothing if another thread is running the stream's items. */
void qdri_executor_drive(qdri_waker *executor, qdri_cpu_stream *stream, uint64_t n_items);
/* A host thread has begun to wait for new items. is_prompt: as soon as it had enqueued them, and will drive. */
void qdri_executor_note_wait(qdri_waker *executor, int is_prompt);

/* As pthread_create(); the thread blocks all signals, which belong to the program's own threads. */
int qdri_start_thread(pthread_t *thread, void *(*run)(void *), void *argument);

/* Called before each item that has not begun, by the thread that runs it; NULL: nothing. For tests, which delay tasks.
 * Set it before there are devices. */
extern void (*qdri_cpu_before_item)(void);

/* stream.c */
qdr_status qdri_cpu_stream_create(qdri_dev *dev, qdri_stream_kind kind, qdr_stream **stream);
void qdri_cpu_stream_destroy(qdr_stream *stream);
qdr_status qdri_cpu_stream_synchronize(qdr_stream *stream);
/* Enqueues an item that any thread may run; waits while the ring is full. drop may be NULL. */
QDR_NODISCARD qdr_status qdri_cpu_enqueue(qdr_stream *stream, qdri_work_fn fn, void (*drop)(void *args),
                                          const void *args, size_t bytes);
/* The same for an item that only the executor may run: a user's function, or work for which OpenMP keeps threads and
 * settings for each thread that calls it. */
QDR_NODISCARD qdr_status qdri_cpu_enqueue_own(qdr_stream *stream, qdri_work_fn fn, const void *args, size_t bytes);

/* event.c */
qdr_status qdri_cpu_event_create(qdri_dev *dev, qdr_event **event);
void qdri_cpu_event_destroy(qdr_event *event);
qdr_status qdri_cpu_event_record(qdr_event *event, qdr_stream *stream);
qdr_status qdri_cpu_stream_wait(qdr_stream *stream, qdr_event *event);
int qdri_cpu_event_reached(qdr_event *event);

/* gemm.c, gemm_blas.c or gemm_plain.c */
qdr_status qdri_cpu_gemm(qdr_stream *stream, const qdri_gemm *gemm);
size_t qdri_cpu_fixed_bytes(const qdri_dev *dev, qdr_dtype dtype);
size_t qdri_cpu_product_bytes(qdr_stream *stream, const qdri_gemm *gemm);
const char *qdri_cpu_products(const qdri_dev *dev);

/* gemm_blas.c, or gemm_plain.c in a build without BLAS.
 * Enclose calls of BLAS, which then uses n_threads. Afterwards the number is the host program's again, unless the
 * program has set another one meanwhile. */
void qdri_blas_begin(int n_threads);
void qdri_blas_end(void);
/* The number that BLAS uses now. */
int qdri_blas_threads(void);
/* F32 or F64, extents that fit into int, m, n and k at least 1. */
void qdri_gemm_blas(const qdri_gemm *gemm);
/* BF16 or F16, or F32 with rounded factors: fp32 sums, C rounded once. panels: QDRI_PANELS_BYTES for each thread. */
QDR_NODISCARD qdr_status qdri_gemm_converted(const qdri_gemm *gemm, float *panels, qdri_pool *pool, int n_threads);

/* 1 if oneDNN was built in and this machine has instructions for BF16 products. */
int qdri_bf16_native(void);
/* BF16, or F32 for tests on machines without BF16 instructions; on the calling thread alone, as all of its later
 * products. Extents must be at least 1. */
qdr_status qdri_gemm_onednn(const qdri_gemm *gemm);
/* From now on the calling thread's products use no other threads. */
void qdri_onednn_alone(void);
/* Frees what the calling thread keeps of its last product; before it ends. */
void qdri_onednn_forget(void);

/* kernels.c */
qdr_status qdri_cpu_kernel(qdr_stream *stream, const qdri_kernel *kernel);
size_t qdri_cpu_kernel_bytes(qdr_stream *stream, const qdri_kernel *kernel);
void qdri_cpu_reserve_kernel(qdr_stream *stream, size_t bytes);

/* parts.c: runs it on the threads of the device; fn computes a part. */
QDR_NODISCARD qdr_status qdri_cpu_run_parts(qdri_cpu_dev *dev, const qdri_kernel *kernel,
                                            void (*fn)(const qdri_kernel *part));
/* Least work of a part: elements, or scores of attention. Tests make it small; set it before there are devices. */
extern int64_t qdri_cpu_part_elems;

#endif
