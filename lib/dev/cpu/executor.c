/* SPDX-License-Identifier: Apache-2.0 */
/* Executors: threads that run streams. They go round their streams until none can make progress; then they sleep until
 * something happens, or poll with growing pauses if nothing will wake them for some work. */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/size.h"
#include "dev/clock.h"
#include "dev/cpu/cpu.h"

#define YIELDS_MAX 32
#define YIELD_NS 50000
#define PAUSE_MIN_NS 20000
#define PAUSE_MAX_NS 500000
#define NS_PER_S 1000000000

static _Thread_local qdri_waker *current;

qdri_waker *qdri_current_waker(void) { return current; }

void qdri_executor_use_address_space(void)
{
    if (current && current->room.start) qdri_address_space_give_back(&current->room);
}

void qdri_poll_again(void)
{
    if (current) current->poll_wanted = 1;
}

void qdri_progressed(void)
{
    if (current) current->n_polls = 0;
}

void qdri_look_within(int64_t ns)
{
    if (current && ns < current->look_within_ns) current->look_within_ns = ns;
}

void qdri_wake(qdri_waker *waker)
{
    if (waker) qdri_wake_event_signal(waker->wake_event);
}

int qdri_waker_wake_event(const qdri_waker *waker) { return (int)(waker->wake_event - waker->dev->base.wake_events); }

void qdri_executors_wake(qdri_cpu_dev *dev, uint64_t mask)
{
    pthread_mutex_lock(&dev->lock);
    for (qdri_waker *executor = dev->executors; executor; executor = executor->next) {
        if (executor->bit & mask) qdri_wake(executor);
    }
    pthread_mutex_unlock(&dev->lock);
}

/* Pauses for a quarter of the time waited so far, so that the end of a wait is noticed at most a quarter late. */
static void executor_pause(qdri_waker *executor, unsigned seen)
{
    const int64_t now = qdri_now_ns();
    if (executor->n_polls++ == 0) executor->polling_since_ns = now;
    const int64_t waited_ns = now - executor->polling_since_ns;
    if (executor->n_polls <= YIELDS_MAX && waited_ns < YIELD_NS) {
        sched_yield();
        return;
    }
    int64_t pause_ns = waited_ns / 4;
    if (pause_ns < PAUSE_MIN_NS) pause_ns = PAUSE_MIN_NS;
    if (pause_ns > PAUSE_MAX_NS) pause_ns = PAUSE_MAX_NS;
    qdri_wake_event_wait(executor->wake_event, seen, now + pause_ns);
}

/* Lets each stream make as much progress as it can; returns 1 if any did. */
static int executor_round(qdri_waker *executor)
{
    int progress = 0;
    executor->poll_wanted = 0;
    executor->look_within_ns = INT64_MAX;
    pthread_mutex_lock(&executor->streams_lock);
    for (qdri_cpu_stream *stream = executor->streams; stream; stream = stream->next) {
        progress |= qdri_cpu_stream_advance(stream);
    }
    pthread_mutex_unlock(&executor->streams_lock);
    return progress;
}

static void *executor_main(void *argument)
{
    qdri_waker *executor = argument;
    current = executor;
    qdri_address_space_settle();
    for (;;) {
        const unsigned seen = atomic_load(&executor->wake_event->n_signals);
        if (atomic_load(&executor->quit)) return NULL;
        if (executor_round(executor)) {
            executor->n_polls = 0;
        } else if (executor->poll_wanted) {
            executor_pause(executor, seen);
        } else {
            const int64_t within_ns = executor->look_within_ns;
            executor->n_polls = 0;
            qdri_wake_event_wait(executor->wake_event, seen, within_ns == INT64_MAX ? 0 : qdri_now_ns() + within_ns);
        }
    }
}

static void executor_init(qdri_waker *executor, qdri_cpu_dev *dev)
{
    const int number = dev->executors_made++;
    executor->dev = dev;
    executor->bit = UINT64_C(1) << (number % 64);
    executor->wake_event = &dev->base.wake_events[number % QDRI_DEV_WAKE_EVENTS];
    atomic_init(&executor->quit, 0);
    pthread_mutex_init(&executor->streams_lock, NULL);
}

static void executor_free(qdri_waker *executor)
{
    qdri_address_space_give_back(&executor->room);
    pthread_mutex_destroy(&executor->streams_lock);
    free(executor);
}

/* The thread blocks all signals: they belong to the program's own threads. */
static int start_thread(qdri_waker *executor)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failure = pthread_create(&executor->thread, NULL, executor_main, executor);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

qdr_status qdri_executor_create(qdri_cpu_dev *dev, qdri_address_space room, qdri_waker **executor)
{
    qdri_waker *made = NULL;
    *executor = NULL;
    const qdr_status status = QDRI_NEW(1, "a thread of the device", &made);
    if (status != QDR_OK) qdri_address_space_give_back(&room);
    QDR_TRY(status);
    executor_init(made, dev);
    made->room = room;
    const int failure = start_thread(made);
    if (failure) {
        executor_free(made);
        return QDR_FAIL(QDR_ERR_THREAD,
                        "device: a thread for a stream could not be started (%s); allow more "
                        "threads (ulimit -u) and address space (ulimit -v), or use fewer ranks on this machine",
                        strerror(failure));
    }
    pthread_mutex_lock(&dev->lock);
    made->next = dev->executors;
    dev->executors = made;
    pthread_mutex_unlock(&dev->lock);
    *executor = made;
    return QDR_OK;
}

void qdri_executor_destroy(qdri_waker *executor)
{
    qdri_cpu_dev *dev = executor->dev;
    pthread_mutex_lock(&dev->lock);
    qdri_waker **link = &dev->executors;
    while (*link != executor) link = &(*link)->next;
    *link = executor->next;
    pthread_mutex_unlock(&dev->lock);
    atomic_store(&executor->quit, 1);
    qdri_wake(executor);
    pthread_join(executor->thread, NULL);
    executor_free(executor);
}

void qdri_executor_attach(qdri_waker *executor, qdri_cpu_stream *stream)
{
    pthread_mutex_lock(&executor->streams_lock);
    qdri_cpu_stream **link = &executor->streams;
    while (*link) link = &(*link)->next;
    *link = stream;
    pthread_mutex_unlock(&executor->streams_lock);
}

void qdri_executor_detach(qdri_waker *executor, qdri_cpu_stream *stream)
{
    pthread_mutex_lock(&executor->streams_lock);
    qdri_cpu_stream **link = &executor->streams;
    while (*link != stream) link = &(*link)->next;
    *link = stream->next;
    pthread_mutex_unlock(&executor->streams_lock);
}
