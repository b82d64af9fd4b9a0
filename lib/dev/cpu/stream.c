/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the CPU device: ring buffers of work items, filled by the host and emptied by one executor. */
#include <stdlib.h>
#include <string.h>

#include "core/size.h"
#include "dev/clock.h"
#include "dev/cpu/cpu.h"

#define PROMPT_NS 5000

static qdri_cpu_stream *own(qdr_stream *stream) { return (qdri_cpu_stream *)stream; }

/* Waits, with the stream's lock held, until `n_items` items have run. The host is woken once, at the item for which it
 * waits: waking it at each one would switch threads twice per task. `wanted` is set before `head` is read, and the
 * executor uses the opposite order: at least one of the two sees the other. */
static void wait_for_head(qdri_cpu_stream *stream, uint64_t n_items)
{
    while (atomic_load(&stream->head) < n_items) {
        if (n_items < atomic_load(&stream->wanted)) atomic_store(&stream->wanted, n_items);
        if (atomic_load(&stream->head) >= n_items) return;
        pthread_cond_wait(&stream->changed, &stream->lock);
    }
}

static void enqueue(qdri_cpu_stream *to, qdri_work_fn fn, void (*drop)(void *args), const void *args, size_t bytes,
                    int is_own)
{
    pthread_mutex_lock(&to->lock);
    const uint64_t tail = atomic_load(&to->tail);
    if (tail - atomic_load(&to->head) == QDRI_RING_ITEMS) wait_for_head(to, tail - QDRI_RING_ITEMS / 2);
    qdri_item *item = &to->items[tail % QDRI_RING_ITEMS];
    item->fn = fn;
    item->drop = drop;
    item->begun = 0;
    if (bytes) memcpy(item->args, args, bytes);
    if (is_own) to->own_end = tail + 1;
    atomic_store(&to->tail, tail + 1);
    /* Who still has earlier items of this stream finds the new one by itself. A napping executor, too, looks at `tail`
     * once it has stopped napping. */
    const int was_empty = atomic_load(&to->head) == tail;
    pthread_mutex_unlock(&to->lock);
    if (atomic_load(&to->executor->is_napping) ? is_own : was_empty) qdri_executor_call(to->executor);
    if (was_empty) atomic_store_explicit(&to->begun_ns, qdri_now_ns(), memory_order_relaxed);
}

qdr_status qdri_cpu_enqueue(qdr_stream *stream, qdri_work_fn fn, void (*drop)(void *args), const void *args,
                            size_t bytes)
{
    enqueue(own(stream), fn, drop, args, bytes, 0);
    return QDR_OK;
}

qdr_status qdri_cpu_enqueue_own(qdr_stream *stream, qdri_work_fn fn, const void *args, size_t bytes)
{
    enqueue(own(stream), fn, NULL, args, bytes, 1);
    return QDR_OK;
}

/* A host thread drives a stream only if it can run all of its items, and no other streams have the same executor. An
 * executor, one of whose items waits, remains what it is. */
static int can_drive(const qdri_cpu_stream *stream)
{
    if (qdri_current_waker()) return 0;
    const int has_own_executor = stream->executor != ((const qdri_cpu_dev *)stream->base.dev)->comm;
    return has_own_executor && atomic_load(&stream->head) >= stream->own_end;
}

/* Whether the host waits as soon as it has enqueued what is new. The stream's lock must be held. */
static int is_prompt(const qdri_cpu_stream *stream)
{
    const int64_t begun_ns = atomic_load_explicit(&stream->begun_ns, memory_order_relaxed);
    return stream->own_end <= stream->n_waited && qdri_now_ns() - begun_ns < PROMPT_NS;
}

qdr_status qdri_cpu_stream_synchronize(qdr_stream *stream)
{
    qdri_cpu_stream *self = own(stream);
    pthread_mutex_lock(&self->lock);
    const uint64_t n_items = atomic_load(&self->tail);
    const int drives = can_drive(self);
    if (n_items > self->n_waited) qdri_executor_note_wait(self->executor, drives && is_prompt(self));
    self->n_waited = n_items;
    pthread_mutex_unlock(&self->lock);
    if (drives) qdri_executor_drive(self->executor, self, n_items);
    pthread_mutex_lock(&self->lock);
    wait_for_head(self, n_items);
    pthread_mutex_unlock(&self->lock);
    return QDR_OK;
}

/* The executor of a new stream: a new one, or the one shared by all COMM streams. */
static qdr_status executor_for(qdri_cpu_dev *dev, qdri_stream_kind kind, qdri_waker **executor)
{
    qdri_address_space space = {NULL, 0};
    if (kind != QDRI_STREAM_COMM) {
        QDR_TRY(qdri_address_space_take(&space));
        return qdri_executor_create(dev, space, executor);
    }
    if (!dev->comm) QDR_TRY(qdri_executor_create(dev, space, &dev->comm));
    *executor = dev->comm;
    return QDR_OK;
}

static void stream_free(qdri_cpu_stream *stream)
{
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream->items);
    free(stream);
}

qdr_status qdri_cpu_stream_create(qdri_dev *dev, qdri_stream_kind kind, qdr_stream **stream)
{
    qdri_cpu_stream *made = NULL;
    qdr_status status = QDRI_NEW(1, "a stream", &made);
    if (status != QDR_OK) return status;
    made->base.dev = dev;
    made->computes = kind == QDRI_STREAM_COMPUTE;
    atomic_init(&made->head, 0);
    atomic_init(&made->tail, 0);
    atomic_init(&made->wanted, UINT64_MAX);
    atomic_init(&made->begun_ns, 0);
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    QDR_TRY_OUT(status, QDRI_NEW_UNSET(QDRI_RING_ITEMS, "the items of a stream", &made->items));
    QDR_TRY_OUT(status, executor_for((qdri_cpu_dev *)dev, kind, &made->executor));
    qdri_executor_attach(made->executor, made);
    *stream = &made->base;
out:
    if (status != QDR_OK) stream_free(made);
    return status;
}

void qdri_cpu_stream_destroy(qdr_stream *stream)
{
    qdri_cpu_stream *self = own(stream);
    qdri_cpu_dev *dev = (qdri_cpu_dev *)stream->dev;
    (void)qdri_cpu_stream_synchronize(stream);
    /* Also waits for the round in which the executor ran the last item: it may still hold the stream's lock. */
    qdri_executor_detach(self->executor, self);
    if (!self->executor->streams) {
        if (self->executor == dev->comm) dev->comm = NULL;
        qdri_executor_destroy(self->executor);
    }
    stream_free(self);
}
