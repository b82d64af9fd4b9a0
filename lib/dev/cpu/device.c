/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU device: its table, its memory, its work. */
#include <stdlib.h>
#include <string.h>

#include "core/size.h"
#include "dev/clock.h"
#include "dev/cpu/cpu.h"

#define MEM_ALIGN ((size_t)64)

/* Stored directly before the bytes that the caller gets. */
typedef struct mem_head {
    void *block;
    size_t bytes;
    qdri_mem_source source; /* source of the block; free = NULL: the C library */
} mem_head;

_Static_assert(sizeof(mem_head) <= MEM_ALIGN, "the head fits in front of aligned memory");

static qdr_status mem_alloc(qdri_dev *dev, int is_shared, size_t bytes, void **data)
{
    qdri_mem_source source = dev->source; /* the same one throughout */
    void *block = NULL;
    (void)is_shared;
    if (bytes > SIZE_MAX / 2) return QDR_FAIL(QDR_ERR_MEMORY, "%zu bytes are too many", bytes);
    if (source.alloc) block = source.alloc(source.user, bytes + 2 * MEM_ALIGN);
    if (!block) {
        source.free = NULL;
        QDR_TRY(qdri_calloc(bytes + 2 * MEM_ALIGN, 1, "device memory", &block));
    }
    const uintptr_t start = qdri_align_bytes((uintptr_t)block + MEM_ALIGN, MEM_ALIGN);
    ((mem_head *)start)[-1] = (mem_head){block, bytes, source};
    *data = (void *)start;
    return QDR_OK;
}

static size_t mem_free(qdri_dev *dev, void *data)
{
    const mem_head head = ((mem_head *)data)[-1];
    (void)dev;
    if (head.source.free)
        head.source.free(head.source.user, head.block);
    else
        free(head.block);
    return head.bytes;
}

static qdr_status work_anywhere(qdr_stream *stream, qdri_work_fn fn, const void *args, size_t bytes)
{
    return qdri_cpu_enqueue(stream, fn, NULL, args, bytes);
}

typedef struct copy_args {
    void *dst;
    const void *src; /* NULL: zeros */
    size_t bytes;
} copy_args;

static qdr_status copy_run(void *args)
{
    const copy_args *copy = args;
    if (copy->src)
        memmove(copy->dst, copy->src, copy->bytes);
    else
        memset(copy->dst, 0, copy->bytes);
    return QDR_OK;
}

static qdr_status copy(qdr_stream *stream, void *dst, const void *src, size_t bytes)
{
    const copy_args args = {dst, src, bytes};
    return qdri_cpu_enqueue(stream, copy_run, NULL, &args, sizeof args);
}

static qdr_status fill_zero(qdr_stream *stream, void *dst, size_t bytes) { return copy(stream, dst, NULL, bytes); }

static qdr_status stamp_run(void *args)
{
    **(int64_t **)args = qdri_now_ns();
    return QDR_OK;
}

static qdr_status stamp(qdr_stream *stream, int64_t *nanosecs)
{
    return qdri_cpu_enqueue(stream, stamp_run, NULL, &nanosecs, sizeof nanosecs);
}

static void wake_all(qdri_dev *dev) { qdri_executors_wake((qdri_cpu_dev *)dev, UINT64_MAX); }

/* Streams are created and destroyed by the calling thread, so the lists stay as they are. */
static void drain(qdri_dev *dev)
{
    for (qdri_waker *executor = ((qdri_cpu_dev *)dev)->executors; executor; executor = executor->next)
        for (qdri_cpu_stream *stream = executor->streams; stream; stream = stream->next)
            (void)qdri_cpu_stream_synchronize(&stream->base);
}

/* The threads sleep on wake events that belong to the device, or are in memory that ranks share. */
static void stop(qdri_dev *dev)
{
    qdri_cpu_dev *self = (qdri_cpu_dev *)dev;
    while (self->executors) qdri_executor_destroy(self->executors);
    self->comm = NULL;
    qdri_pool_destroy(&self->pool);
}

static void destroy(qdri_dev *dev)
{
    qdri_cpu_dev *self = (qdri_cpu_dev *)dev;
    qdri_pool_destroy(&self->pool);
    qdri_mem_free(dev, &self->work);
    qdri_mem_free(dev, &self->panels);
    pthread_mutex_destroy(&self->work_lock);
    pthread_mutex_destroy(&self->panels_lock);
    pthread_mutex_destroy(&self->lock);
    qdri_dev_finish(dev);
    free(self);
}

static const qdri_dev_table cpu_table = {
    .name = "cpu",
    .runs_work = 1,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .stream_create = qdri_cpu_stream_create,
    .stream_destroy = qdri_cpu_stream_destroy,
    .stream_synchronize = qdri_cpu_stream_synchronize,
    .event_create = qdri_cpu_event_create,
    .event_destroy = qdri_cpu_event_destroy,
    .event_record = qdri_cpu_event_record,
    .stream_wait = qdri_cpu_stream_wait,
    .event_reached = qdri_cpu_event_reached,
    .stamp = stamp,
    .work = qdri_cpu_enqueue_own,
    .work_anywhere = work_anywhere,
    .copy = copy,
    .fill_zero = fill_zero,
    .gemm = qdri_cpu_gemm,
    .kernel = qdri_cpu_kernel,
    .fixed_bytes = qdri_cpu_fixed_bytes,
    .product_bytes = qdri_cpu_product_bytes,
    .kernel_bytes = qdri_cpu_kernel_bytes,
    .reserve_kernel = qdri_cpu_reserve_kernel,
    .products = qdri_cpu_products,
    .wake_all = wake_all,
    .drain = drain,
    .stop = stop,
    .destroy = destroy,
};

qdr_status qdri_dev_create_cpu(int n_threads, qdri_dev **dev)
{
    qdri_cpu_dev *made = NULL;
    QDR_TRY(QDRI_CLEAR_POINTER("device", dev));
    if (n_threads < 1) return QDR_FAIL(QDR_ERR_ARGUMENT, "device: %d threads; use at least 1", n_threads);
    QDR_TRY(QDRI_NEW(1, "the device", &made));
    qdri_dev_init(&made->base, &cpu_table);
    made->n_threads = n_threads;
    pthread_mutex_init(&made->lock, NULL);
    pthread_mutex_init(&made->panels_lock, NULL);
    pthread_mutex_init(&made->work_lock, NULL);
    *dev = &made->base;
    const qdr_status status = qdri_pool_create(n_threads, &made->pool);
    if (status != QDR_OK) qdri_dev_destroy(dev);
    return status;
}
