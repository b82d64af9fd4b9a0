/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU device: streams are rings of work items, executors are the threads that run them. */
#ifndef QDRI_DEV_CPU_CPU_H
#define QDRI_DEV_CPU_CPU_H

#include "dev/cpu/room.h"
#include "dev/device.h"

#define QDRI_RING_ITEMS 1024u /* of a stream; when they are full, enqueueing waits */

typedef struct qdri_cpu_dev {
    qdri_dev base;
    int n_threads; /* of BLAS */
    int executors_made; /* numbers them */
    qdri_waker *comm; /* the executor of all COMM streams, while there are any */
    pthread_mutex_t lock; /* of the list below */
    qdri_waker *executors;
    pthread_mutex_t panels_lock; /* one product at a time converts through the panels */
    void *panels; /* fp32 blocks of converted products, made at the first of them */
} qdri_cpu_dev;

typedef struct qdri_item {
    qdri_work_fn fn;
    void (*drop)(void *args); /* called instead of fn on a poisoned device; NULL: begun work runs on, other work is
                                 dropped */
    int begun;
    _Alignas(16) unsigned char args[QDRI_WORK_BYTES];
} qdri_item;

typedef struct qdri_cpu_stream {
    qdr_stream base;
    qdri_waker *executor;
    struct qdri_cpu_stream *next; /* of the executor's streams */
    qdri_item *items;
    atomic_uint_least64_t head, tail; /* items run, items enqueued */
    atomic_uint_least64_t wanted; /* items after which a waiting host goes on; UINT64_MAX: none waits */
    pthread_mutex_t lock; /* of enqueueing and of host waits */
    pthread_cond_t changed;
} qdri_cpu_stream;

/* An executor, known outside as a waker. */
struct qdri_waker {
    qdri_cpu_dev *dev;
    qdri_waker *next; /* of the device's executors */
    uint64_t bit; /* its place in masks of waiters; executors 64 apart share one */
    qdri_bell *bell; /* may be another executor's, too */
    pthread_t thread;
    qdri_room room; /* of an executor of products, until the first of them */
    atomic_int quit;
    pthread_mutex_t streams_lock; /* held for a whole round */
    qdri_cpu_stream *streams;
    int poll_wanted, n_polls; /* of its own thread, like these */
    int64_t polling_since_ns, look_within_ns; /* INT64_MAX: no need to look */
};

/* executor.c; room: what it will hold, given back in any case */
QDR_NODISCARD qdr_status qdri_executor_create(qdri_cpu_dev *dev, qdri_room room, qdri_waker **executor);
/* Before a product: the calling executor's room is for what BLAS now takes. */
void qdri_executor_use_room(void);
void qdri_executor_destroy(qdri_waker *executor); /* it has no streams, or none that is used again */
void qdri_executor_attach(qdri_waker *executor, qdri_cpu_stream *stream);
void qdri_executor_detach(qdri_waker *executor, qdri_cpu_stream *stream);
void qdri_executors_wake(qdri_cpu_dev *dev, uint64_t mask);

/* stream.c */
qdr_status qdri_cpu_stream_create(qdri_dev *dev, qdri_stream_kind kind, qdr_stream **stream);
void qdri_cpu_stream_destroy(qdr_stream *stream);
qdr_status qdri_cpu_stream_synchronize(qdr_stream *stream);
/* Enqueues; waits while the ring is full. drop may be NULL. */
QDR_NODISCARD qdr_status qdri_cpu_enqueue(qdr_stream *stream, qdri_work_fn fn, void (*drop)(void *args),
                                          const void *args, size_t bytes);
int qdri_cpu_stream_advance(qdri_cpu_stream *stream); /* runs what can run; 1 if anything did */

/* event.c */
qdr_status qdri_cpu_event_create(qdri_dev *dev, qdr_event **event);
void qdri_cpu_event_destroy(qdr_event *event);
qdr_status qdri_cpu_event_record(qdr_event *event, qdr_stream *stream);
qdr_status qdri_cpu_stream_wait(qdr_stream *stream, qdr_event *event);
int qdri_cpu_event_reached(qdr_event *event);

/* Called by a stream's thread before each item that has not begun; NULL: nothing. For tests, which let tasks be late.
 * Set before there are devices. */
extern void (*qdri_cpu_before_item)(void);

/* gemm.c, gemm_blas.c or gemm_plain.c */
qdr_status qdri_cpu_gemm(qdr_stream *stream, const qdri_gemm *gemm);
size_t qdri_cpu_fixed_bytes(const qdri_dev *dev, qdr_dtype dtype);
size_t qdri_cpu_product_bytes(qdr_stream *stream, const qdri_gemm *gemm);
const char *qdri_cpu_products(const qdri_dev *dev);

/* kernels.c */
qdr_status qdri_cpu_kernel(qdr_stream *stream, const qdri_kernel *kernel);

#endif
