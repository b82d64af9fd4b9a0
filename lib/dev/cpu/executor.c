/* SPDX-License-Identifier: Apache-2.0 */
/* Executors: threads that run streams. They go round their streams until none can make progress; then they sleep until
 * something happens, or poll with growing pauses if nothing will wake them for some work. A host thread that waits may
 * take an executor's place.
 *
 * No item is left without a thread: each sleeper reads the signals of its wake event, then looks for items or for what
 * they wait for, then sleeps unless there are newer signals; whoever changes either signals after that. */
#include <fenv.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/size.h"
#include "core/status.h"
#include "dev/clock.h"
#include "dev/cpu/cpu.h"

#define YIELDS_MAX 32
#define YIELD_NS 50000
#define PAUSE_MIN_NS 20000
#define PAUSE_MAX_NS 500000
#define NAP_AFTER 8 /* prompt waits */
#define NAP_NS 200000
#define ITEMS_PER_TURN 16 /* then it is the turn of the executor's other streams */

void (*qdri_cpu_before_item)(void);

static _Thread_local qdri_waker *current;

/* How the thread that runs items rests when none can make progress. */
static _Thread_local struct pace {
    int poll_wanted, n_polls;
    int64_t polling_since_ns, look_within_ns; /* look_within_ns = INT64_MAX: need not check again */
} pace;

qdri_waker *qdri_current_waker(void) { return current; }

void qdri_poll_again(void) { pace.poll_wanted = 1; }

void qdri_progressed(void) { pace.n_polls = 0; }

void qdri_look_within(int64_t ns)
{
    if (ns < pace.look_within_ns) pace.look_within_ns = ns;
}

void qdri_wake(qdri_waker *waker)
{
    if (waker) qdri_wake_event_signal(waker->wake_event);
}

int qdri_waker_wake_event(const qdri_waker *waker) { return (int)(waker->wake_event - waker->dev->base.wake_events); }

void qdri_executors_wake(qdri_cpu_dev *dev, uint64_t mask)
{
    pthread_mutex_lock(&dev->lock);
    for (qdri_waker *executor = dev->executors; executor; executor = executor->next)
        if (executor->bit & mask) qdri_wake(executor);
    pthread_mutex_unlock(&dev->lock);
}

void qdri_executor_call(qdri_waker *executor)
{
    qdri_wake(executor);
    qdri_wake_event_signal(&executor->idle);
}

/* Pauses for a quarter of the time waited so far, so that the end of a wait is noticed at most a quarter late. */
static void executor_pause(qdri_waker *executor, unsigned seen)
{
    const int64_t now = qdri_now_ns();
    if (pace.n_polls++ == 0) pace.polling_since_ns = now;
    const int64_t waited_ns = now - pace.polling_since_ns;
    if (pace.n_polls <= YIELDS_MAX && waited_ns < YIELD_NS) {
        sched_yield();
        return;
    }
    int64_t pause_ns = waited_ns / 4;
    if (pause_ns < PAUSE_MIN_NS) pause_ns = PAUSE_MIN_NS;
    if (pause_ns > PAUSE_MAX_NS) pause_ns = PAUSE_MAX_NS;
    qdri_wake_event_wait(executor->wake_event, seen, now + pause_ns);
}

/* After a round without progress. `seen`: the signals of the wake event before the round. */
static void executor_rest(qdri_waker *executor, unsigned seen)
{
    if (pace.poll_wanted) {
        executor_pause(executor, seen);
        return;
    }
    const int64_t within_ns = pace.look_within_ns;
    pace.n_polls = 0;
    qdri_wake_event_wait(executor->wake_event, seen, within_ns == INT64_MAX ? 0 : qdri_now_ns() + within_ns);
}

static void round_begin(void)
{
    pace.poll_wanted = 0;
    pace.look_within_ns = INT64_MAX;
}

/* ---- the items of a stream ---- */

static void item_done(qdri_cpu_stream *stream, uint64_t head)
{
    atomic_store(&stream->head, head + 1);
    if (head + 1 < atomic_load(&stream->wanted)) return;
    pthread_mutex_lock(&stream->lock);
    atomic_store(&stream->wanted, UINT64_MAX); /* a waiter that wants more sets it again */
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

static qdr_status item_run(qdri_dev *dev, qdri_item *item)
{
    if (qdri_dev_status(dev) != QDR_OK && (item->drop || !item->begun)) {
        if (item->drop) item->drop(item->args);
        return QDR_OK;
    }
    if (!item->begun && qdri_cpu_before_item) qdri_cpu_before_item();
    item->begun = 1;
    const qdr_status status = item->fn(item->args);
    if (status < QDR_OK) qdri_dev_poison(dev, status, qdr_last_error());
    return status;
}

/* Runs what can run of the first n_items items; returns 1 if anything did. */
static int stream_advance(qdri_cpu_stream *stream, uint64_t n_items)
{
    int progress = 0;
    for (int i = 0; i < ITEMS_PER_TURN; i++) {
        const uint64_t head = atomic_load(&stream->head);
        if (head >= n_items || head == atomic_load(&stream->tail)) break;
        if (item_run(stream->base.dev, &stream->items[head % QDRI_RING_ITEMS]) == QDR_PENDING) break;
        item_done(stream, head);
        progress = 1;
    }
    return progress;
}

/* ---- a host thread that waits ---- */

/* What items change of the thread that runs them, and what its owner expects unchanged after a call that succeeds. */
typedef struct caller {
    fenv_t arithmetic;
    qdri_kept_error error;
} caller;

/* The thread becomes the executor: sums round as on the executor's own thread, whoever runs them. */
static void caller_leave(caller *self, qdri_waker *executor)
{
    fegetenv(&self->arithmetic);
    fesetenv(&executor->arithmetic);
    qdri_keep_last_error(&self->error);
    current = executor;
    qdri_address_space_keep(&executor->space);
    pace.n_polls = 0;
}

static void caller_return(const caller *self)
{
    current = NULL;
    qdri_address_space_keep(NULL);
    qdri_restore_last_error(&self->error);
    fesetenv(&self->arithmetic);
}

/* To wake the executor, and be woken by it, takes longer than most small collectives. The driver keeps the lock until
 * its wait ends, also while it sleeps, and until then it is the executor for everybody else: what wakes pending work
 * signals the wake event on which the driver sleeps. */
void qdri_executor_drive(qdri_waker *executor, qdri_cpu_stream *stream, uint64_t n_items)
{
    caller host;
    int n_yields = 0;
    if (atomic_load(&stream->head) >= n_items || pthread_mutex_trylock(&executor->streams_lock) != 0) return;
    caller_leave(&host, executor);
    while (atomic_load(&stream->head) < n_items) {
        const unsigned seen = atomic_load(&executor->wake_event->n_signals);
        round_begin();
        if (stream_advance(stream, n_items)) {
            pace.n_polls = 0;
            n_yields = 0;
        } else if (n_yields < YIELDS_MAX) {
            n_yields++;
            sched_yield();
        } else
            executor_rest(executor, seen);
    }
    caller_return(&host);
    pthread_mutex_unlock(&executor->streams_lock);
    /* Another thread may have enqueued meanwhile, and relied on this one. Whoever finds the lock taken has changed
     * `tail`, or seen it changed, before; `tail` is read here after unlocking: either the change or the free lock is
     * seen. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load(&stream->head) < atomic_load(&stream->tail)) qdri_executor_call(executor);
}

void qdri_executor_note_wait(qdri_waker *executor, int is_prompt)
{
    if (is_prompt)
        atomic_fetch_add(&executor->n_prompt, 1);
    else if (atomic_exchange(&executor->n_prompt, 0) >= NAP_AFTER)
        qdri_executor_call(executor);
}

/* ---- the executor's thread ---- */

/* Lets each stream make as much progress as it can; returns 1 if any did. *is_idle: nothing is left, or another thread
 * has locked the streams: it will call the executor if it leaves anything. */
static int executor_round(qdri_waker *executor, int *is_idle)
{
    int progress = 0;
    *is_idle = 1;
    atomic_thread_fence(memory_order_seq_cst); /* see qdri_executor_drive() */
    if (pthread_mutex_trylock(&executor->streams_lock) != 0) return 0;
    round_begin();
    for (qdri_cpu_stream *stream = executor->streams; stream; stream = stream->next) {
        progress |= stream_advance(stream, UINT64_MAX);
        *is_idle &= atomic_load(&stream->head) == atomic_load(&stream->tail);
    }
    pthread_mutex_unlock(&executor->streams_lock);
    return progress;
}

/* Sleeps until it is called; `seen`: the calls before the last round. While host threads wait promptly, it naps
 * instead: they need not call it for what they are about to run themselves. */
static void executor_idle(qdri_waker *executor, unsigned seen)
{
    unsigned n_prompt = atomic_load(&executor->n_prompt);
    if (n_prompt < NAP_AFTER) {
        qdri_wake_event_wait(&executor->idle, seen, 0);
        return;
    }
    atomic_store(&executor->is_napping, 1);
    qdri_wake_event_wait(&executor->idle, seen, qdri_now_ns() + NAP_NS);
    atomic_store(&executor->is_napping, 0);
    atomic_compare_exchange_strong(&executor->n_prompt, &n_prompt, n_prompt / 2); /* no wait meanwhile */
}

static void *executor_main(void *argument)
{
    qdri_waker *executor = argument;
    current = executor;
    qdri_address_space_settle();
    qdri_address_space_keep(&executor->space);
    for (;;) {
        const unsigned seen = atomic_load(&executor->wake_event->n_signals);
        const unsigned seen_idle = atomic_load(&executor->idle.n_signals);
        int is_idle;
        if (atomic_load(&executor->quit)) break;
        if (executor_round(executor, &is_idle))
            pace.n_polls = 0;
        else if (is_idle)
            executor_idle(executor, seen_idle);
        else
            executor_rest(executor, seen);
    }
    qdri_onednn_forget();
    return NULL;
}

static void executor_init(qdri_waker *executor, qdri_cpu_dev *dev)
{
    const int number = dev->executors_made++;
    executor->dev = dev;
    executor->bit = UINT64_C(1) << (number % 64);
    fegetenv(&executor->arithmetic); /* a new thread has its maker's */
    executor->wake_event = &dev->base.wake_events[number % QDRI_DEV_WAKE_EVENTS];
    atomic_init(&executor->quit, 0);
    atomic_init(&executor->is_napping, 0);
    atomic_init(&executor->n_prompt, 0);
    pthread_mutex_init(&executor->streams_lock, NULL);
}

static void executor_free(qdri_waker *executor)
{
    qdri_address_space_give_back(&executor->space);
    pthread_mutex_destroy(&executor->streams_lock);
    free(executor);
}

int qdri_start_thread(pthread_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failure = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

qdr_status qdri_executor_create(qdri_cpu_dev *dev, qdri_address_space space, qdri_waker **executor)
{
    qdri_waker *made = NULL;
    *executor = NULL;
    const qdr_status status = QDRI_NEW(1, "a thread of the device", &made);
    if (status != QDR_OK) qdri_address_space_give_back(&space);
    QDR_TRY(status);
    executor_init(made, dev);
    made->space = space;
    const int failure = qdri_start_thread(&made->thread, executor_main, made);
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
    qdri_executor_call(executor);
    pthread_join(executor->thread, NULL);
    executor_free(executor);
}

/* Releases the streams for the executor, which may have found them locked and gone to sleep. */
static void streams_unlock(qdri_waker *executor)
{
    pthread_mutex_unlock(&executor->streams_lock);
    qdri_executor_call(executor);
}

void qdri_executor_attach(qdri_waker *executor, qdri_cpu_stream *stream)
{
    pthread_mutex_lock(&executor->streams_lock);
    qdri_cpu_stream **link = &executor->streams;
    while (*link) link = &(*link)->next;
    *link = stream;
    streams_unlock(executor);
}

void qdri_executor_detach(qdri_waker *executor, qdri_cpu_stream *stream)
{
    pthread_mutex_lock(&executor->streams_lock);
    qdri_cpu_stream **link = &executor->streams;
    while (*link != stream) link = &(*link)->next;
    *link = stream->next;
    streams_unlock(executor);
}
