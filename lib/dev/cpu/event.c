/* SPDX-License-Identifier: Apache-2.0 */
/* Events of the CPU device. Recording takes a ticket of the event's mark; the stream completes the ticket when it
 * reaches it. A wait keeps the ticket that it saw, so recording again does not change it. */
#include <stdlib.h>

#include "core/size.h"
#include "dev/clock.h"
#include "dev/cpu/cpu.h"

/* Tickets of one stream complete in order. The mark is shared by the event and by enqueued items; the last one frees
 * it. */
typedef struct event_mark {
    atomic_int n_users;
    uint64_t n_recorded; /* accessed by the host thread */
    atomic_uint_least64_t n_completed;
    atomic_uint_least64_t waiters; /* bits of executors that wait for it */
} event_mark;

typedef struct cpu_event {
    qdr_event base;
    event_mark *mark;
    const qdr_stream *stream; /* the mark's stream; only compared, never used */
} cpu_event;

typedef struct ticket {
    event_mark *mark;
    qdri_cpu_dev *dev;
    uint64_t number;
    int computes; /* of a wait: the stream's */
    int64_t since_ns; /* the stream got here; 0: it has not had to wait */
} ticket;

static qdr_status mark_create(event_mark **result)
{
    QDR_TRY(QDRI_NEW(1, "an event", result));
    atomic_init(&(*result)->n_users, 1);
    atomic_init(&(*result)->n_completed, 0);
    atomic_init(&(*result)->waiters, 0);
    return QDR_OK;
}

static void mark_release(event_mark *mark)
{
    if (mark && atomic_fetch_sub(&mark->n_users, 1) == 1) free(mark);
}

static int mark_reached(event_mark *mark, uint64_t number) { return atomic_load(&mark->n_completed) >= number; }

static void ticket_drop(void *args) { mark_release(((ticket *)args)->mark); }

static qdr_status ticket_complete(void *args)
{
    ticket *self = args;
    atomic_store(&self->mark->n_completed, self->number);
    const uint64_t waiters = atomic_exchange(&self->mark->waiters, 0);
    if (waiters) qdri_executors_wake(self->dev, waiters);
    mark_release(self->mark);
    return QDR_OK;
}

/* Registers as a waiter before it checks, so that a thread that completes the ticket in between wakes it. */
static qdr_status ticket_wait(void *args)
{
    ticket *self = args;
    if (!mark_reached(self->mark, self->number)) {
        atomic_fetch_or(&self->mark->waiters, qdri_current_waker()->bit);
        if (!mark_reached(self->mark, self->number)) {
            if (self->computes && self->since_ns == 0) self->since_ns = qdri_now_ns();
            return QDR_PENDING;
        }
    }
    if (self->since_ns)
        atomic_fetch_add_explicit(&self->dev->base.waited_ns, qdri_now_ns() - self->since_ns, memory_order_relaxed);
    mark_release(self->mark);
    return QDR_OK;
}

static qdr_status ticket_enqueue(cpu_event *event, qdr_stream *stream, qdri_work_fn fn)
{
    const ticket made = {.mark = event->mark,
                         .dev = (qdri_cpu_dev *)stream->dev,
                         .number = event->mark->n_recorded,
                         .computes = ((const qdri_cpu_stream *)stream)->computes};
    atomic_fetch_add(&made.mark->n_users, 1);
    return qdri_cpu_enqueue(stream, fn, ticket_drop, &made, sizeof made);
}

qdr_status qdri_cpu_event_create(qdri_dev *dev, qdr_event **event)
{
    cpu_event *made = NULL;
    QDR_TRY(QDRI_NEW(1, "an event", &made));
    const qdr_status status = mark_create(&made->mark);
    if (status != QDR_OK) {
        free(made);
        return status;
    }
    made->base.dev = dev;
    *event = &made->base;
    return QDR_OK;
}

void qdri_cpu_event_destroy(qdr_event *event)
{
    cpu_event *self = (cpu_event *)event;
    mark_release(self->mark);
    free(self);
}

qdr_status qdri_cpu_event_record(qdr_event *event, qdr_stream *stream)
{
    cpu_event *self = (cpu_event *)event;
    if (stream != self->stream && !mark_reached(self->mark, self->mark->n_recorded)) {
        /* Another stream may get there first: earlier waits keep the old mark. */
        event_mark *fresh = NULL;
        QDR_TRY(mark_create(&fresh));
        mark_release(self->mark);
        self->mark = fresh;
    }
    self->stream = stream;
    self->mark->n_recorded++;
    return ticket_enqueue(self, stream, ticket_complete);
}

qdr_status qdri_cpu_stream_wait(qdr_stream *stream, qdr_event *event)
{
    cpu_event *self = (cpu_event *)event;
    if (self->stream == stream || mark_reached(self->mark, self->mark->n_recorded)) return QDR_OK;
    return ticket_enqueue(self, stream, ticket_wait);
}

int qdri_cpu_event_reached(qdr_event *event)
{
    const cpu_event *self = (cpu_event *)event;
    return mark_reached(self->mark, self->mark->n_recorded);
}
