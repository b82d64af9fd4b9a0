/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events, wakers and poison of the CPU device. */
#include <stdatomic.h>

#include <pthread.h>

#include "dev/clock.h"
#include "dev/dev.h"
#include "qdr_test.h"

#define OK(expression) assert_int_equal((expression), QDR_OK)

static qdri_dev *make_device(void)
{
    qdri_dev *dev = NULL;
    OK(qdri_dev_create_cpu(1, &dev));
    return dev;
}

static qdr_stream *make_stream(qdri_dev *dev, qdri_stream_kind kind)
{
    qdr_stream *stream = NULL;
    OK(qdri_stream_create(dev, kind, &stream));
    return stream;
}

static qdr_event *make_event(qdri_dev *dev)
{
    qdr_event *event = NULL;
    OK(qdri_event_create(dev, &event));
    return event;
}

/* Work that appends its number to a list. */
typedef struct list {
    int n;
    int numbers[4096];
} list;

typedef struct append {
    list *to;
    int number;
} append;

static qdr_status append_run(void *args)
{
    const append *self = args;
    self->to->numbers[self->to->n++] = self->number;
    return QDR_OK;
}

static void enqueue_append(qdr_stream *stream, list *to, int number)
{
    const append args = {to, number};
    OK(qdri_work(stream, append_run, &args, sizeof args));
}

/* Work that waits until a gate is open; it polls. */
static qdr_status gate_run(void *args)
{
    atomic_int *gate = *(atomic_int **)args;
    if (atomic_load(gate)) return QDR_OK;
    qdri_poll_again();
    return QDR_PENDING;
}

static void enqueue_gate(qdr_stream *stream, atomic_int *gate) { OK(qdri_work(stream, gate_run, &gate, sizeof gate)); }

static qdr_status fail_run(void *args)
{
    (void)args;
    return QDR_FAIL(QDR_ERR_DEVICE, "planted failure %d", 7);
}

TEST(work_runs_in_order)
{
    static list done;
    qdri_dev *dev = make_device();
    qdr_stream *stream = make_stream(dev, QDRI_STREAM_COMPUTE);
    done.n = 0;
    for (int i = 0; i < 4096; i++) enqueue_append(stream, &done, i);
    OK(qdri_stream_synchronize(stream));
    assert_int_equal(done.n, 4096);
    for (int i = 0; i < 4096; i++) assert_int_equal(done.numbers[i], i);
    qdri_stream_destroy(&stream);
    assert_null(stream);
    qdri_dev_destroy(&dev);
    assert_null(dev);
}

/* Pending a hundred times, then done. */
static qdr_status hesitate_run(void *args)
{
    int *n_calls = args;
    if (++*n_calls > 100) return QDR_OK;
    qdri_poll_again();
    return QDR_PENDING;
}

TEST(full_ring_makes_the_host_wait)
{
    static list done;
    qdri_dev *dev = make_device();
    qdr_stream *stream = make_stream(dev, QDRI_STREAM_COMM);
    const int n_calls = 0;
    done.n = 0;
    OK(qdri_work(stream, hesitate_run, &n_calls, sizeof n_calls));
    for (int i = 0; i < 3000; i++) enqueue_append(stream, &done, i);
    qdri_stream_destroy(&stream); /* waits */
    assert_int_equal(done.n, 3000);
    qdri_dev_destroy(&dev);
}

TEST(event_orders_two_streams)
{
    static list done;
    qdri_dev *dev = make_device();
    qdr_stream *first = make_stream(dev, QDRI_STREAM_COMPUTE);
    qdr_stream *second = make_stream(dev, QDRI_STREAM_COMM);
    qdr_event *event = make_event(dev);
    for (int round = 0; round < 200; round++) {
        atomic_int gate = 0;
        done.n = 0;
        enqueue_gate(first, &gate);
        enqueue_append(first, &done, 1);
        OK(qdri_event_record(event, first));
        OK(qdri_stream_wait(second, event));
        enqueue_append(second, &done, 2);
        atomic_store(&gate, 1);
        OK(qdri_stream_synchronize(second));
        assert_int_equal(done.n, 2);
        assert_int_equal(done.numbers[0], 1);
        assert_int_equal(done.numbers[1], 2);
        OK(qdri_stream_synchronize(first));
    }
    qdri_event_destroy(&event);
    qdri_stream_destroy(&second);
    qdri_stream_destroy(&first);
    qdri_dev_destroy(&dev);
}

/* Without the wait the second stream does not wait: the mistake can be seen. */
TEST(missing_wait_is_visible)
{
    list *done = test_calloc(1, sizeof *done);
    qdri_dev *dev = make_device();
    qdr_stream *first = make_stream(dev, QDRI_STREAM_COMPUTE);
    qdr_stream *second = make_stream(dev, QDRI_STREAM_COMPUTE);
    atomic_int gate = 0;
    enqueue_gate(first, &gate);
    enqueue_append(first, done, 1);
    enqueue_append(second, done, 2);
    OK(qdri_stream_synchronize(second));
    assert_int_equal(done->n, 1);
    assert_int_equal(done->numbers[0], 2);
    atomic_store(&gate, 1);
    OK(qdri_stream_synchronize(first));
    assert_int_equal(done->n, 2);
    qdri_stream_destroy(&first);
    qdri_stream_destroy(&second);
    qdri_dev_destroy(&dev);
    test_free(done);
}

TEST(unrecorded_event_is_complete)
{
    qdri_dev *dev = make_device();
    qdr_stream *stream = make_stream(dev, QDRI_STREAM_COMPUTE);
    qdr_event *event = make_event(dev);
    OK(qdri_stream_wait(stream, event));
    OK(qdri_stream_synchronize(stream));
    qdri_event_destroy(&event);
    qdri_stream_destroy(&stream);
    qdri_dev_destroy(&dev);
}

/* A wait keeps the mark it saw, whatever is recorded later and wherever; and outlives the event. */
TEST(recording_again_keeps_old_waits)
{
    list *done = test_calloc(1, sizeof *done);
    qdri_dev *dev = make_device();
    qdr_stream *slow = make_stream(dev, QDRI_STREAM_COMPUTE);
    qdr_stream *other = make_stream(dev, QDRI_STREAM_COMPUTE);
    qdr_stream *waiting = make_stream(dev, QDRI_STREAM_COMPUTE);
    qdr_event *event = make_event(dev);
    atomic_int gate = 0;
    atomic_int later = 0;
    enqueue_gate(slow, &gate);
    enqueue_append(slow, done, 1);
    OK(qdri_event_record(event, slow));
    OK(qdri_stream_wait(waiting, event));
    enqueue_append(waiting, done, 2);
    OK(qdri_event_record(event, other)); /* complete at once, but not what `waiting` waits for */
    OK(qdri_stream_synchronize(other));
    enqueue_gate(other, &later);
    OK(qdri_event_record(event, other)); /* complete at the end only */
    qdri_event_destroy(&event);
    assert_int_equal(done->n, 0);
    atomic_store(&gate, 1);
    OK(qdri_stream_synchronize(waiting));
    assert_int_equal(done->n, 2);
    assert_int_equal(done->numbers[0], 1);
    atomic_store(&later, 1);
    qdri_stream_destroy(&slow);
    qdri_stream_destroy(&other);
    qdri_stream_destroy(&waiting);
    qdri_dev_destroy(&dev);
    test_free(done);
}

/* A stream of this kind waits for another one; the most that this can have taken. */
static int64_t wait_for_gate(qdri_dev *dev, qdri_stream_kind kind)
{
    const struct timespec pause = {0, 20000000};
    qdr_stream *slow = make_stream(dev, QDRI_STREAM_COMPUTE), *waiting = make_stream(dev, kind);
    qdr_event *event = make_event(dev);
    atomic_int gate = 0;
    enqueue_gate(slow, &gate);
    OK(qdri_event_record(event, slow));
    const int64_t began_ns = qdri_now_ns();
    OK(qdri_stream_wait(waiting, event));
    nanosleep(&pause, NULL);
    atomic_store(&gate, 1);
    OK(qdri_stream_synchronize(waiting));
    const int64_t most_ns = qdri_now_ns() - began_ns;
    OK(qdri_stream_wait(waiting, event)); /* it has been reached */
    qdri_stream_destroy(&slow);
    qdri_stream_destroy(&waiting);
    qdri_event_destroy(&event);
    return most_ns;
}

TEST(only_waits_of_compute_streams_are_counted)
{
    qdri_dev *dev = make_device();
    int64_t most_ns = 0;
    (void)wait_for_gate(dev, QDRI_STREAM_COMM);
    (void)wait_for_gate(dev, QDRI_STREAM_URGENT);
    assert_int_equal(qdri_dev_waited_ns(dev), 0);
    for (int i = 0; i < 100 && qdri_dev_waited_ns(dev) == 0; i++) /* a busy machine may look only afterwards */
        most_ns += wait_for_gate(dev, QDRI_STREAM_COMPUTE);
    assert_true(qdri_dev_waited_ns(dev) > 0 && qdri_dev_waited_ns(dev) <= most_ns);
    qdri_dev_destroy(&dev);
}

static qdr_status whoami_run(void *args)
{
    **(pthread_t **)args = pthread_self();
    return QDR_OK;
}

static pthread_t thread_of(qdr_stream *stream)
{
    pthread_t thread;
    pthread_t *where = &thread;
    OK(qdri_work(stream, whoami_run, &where, sizeof where));
    OK(qdri_stream_synchronize(stream));
    return thread;
}

TEST(comm_streams_share_a_thread)
{
    qdri_dev *dev = make_device();
    qdr_stream *comm[2] = {make_stream(dev, QDRI_STREAM_COMM), make_stream(dev, QDRI_STREAM_COMM)};
    qdr_stream *compute[2] = {make_stream(dev, QDRI_STREAM_COMPUTE), make_stream(dev, QDRI_STREAM_COMPUTE)};
    assert_true(pthread_equal(thread_of(comm[0]), thread_of(comm[1])));
    assert_false(pthread_equal(thread_of(compute[0]), thread_of(compute[1])));
    assert_false(pthread_equal(thread_of(compute[0]), thread_of(comm[0])));
    assert_null(qdri_current_waker());
    for (int i = 0; i < 2; i++) {
        qdri_stream_destroy(&comm[i]);
        qdri_stream_destroy(&compute[i]);
    }
    qdri_dev_destroy(&dev);
}

TEST(pending_work_lets_other_streams_go_on)
{
    list *done = test_calloc(1, sizeof *done);
    qdri_dev *dev = make_device();
    qdr_stream *stuck = make_stream(dev, QDRI_STREAM_COMM);
    qdr_stream *free_one = make_stream(dev, QDRI_STREAM_COMM);
    atomic_int gate = 0;
    enqueue_gate(stuck, &gate);
    enqueue_append(free_one, done, 1);
    OK(qdri_stream_synchronize(free_one));
    assert_int_equal(done->n, 1);
    atomic_store(&gate, 1);
    qdri_stream_destroy(&stuck);
    qdri_stream_destroy(&free_one);
    qdri_dev_destroy(&dev);
    test_free(done);
}

/* Two devices hand a token to and fro, each waking the other's thread. */
typedef struct token {
    atomic_int turn;
    _Atomic(qdri_waker *) wakers[2];
} token;

typedef struct player {
    token *token;
    int side, n_left;
} player;

static qdr_status player_run(void *args)
{
    player *self = args;
    atomic_store(&self->token->wakers[self->side], qdri_current_waker());
    while (self->n_left > 0) {
        if (atomic_load(&self->token->turn) != self->side) return QDR_PENDING;
        self->n_left--;
        atomic_store(&self->token->turn, 1 - self->side);
        qdri_wake(atomic_load(&self->token->wakers[1 - self->side]));
    }
    return QDR_OK;
}

TEST(wakers_lose_no_signal)
{
    qdri_dev *devs[2];
    qdr_stream *streams[2];
    token shared = {0};
    for (int side = 0; side < 2; side++) {
        const player args = {&shared, side, 3000};
        devs[side] = make_device();
        streams[side] = make_stream(devs[side], QDRI_STREAM_COMM);
        OK(qdri_work(streams[side], player_run, &args, sizeof args));
    }
    for (int side = 0; side < 2; side++) OK(qdri_stream_synchronize(streams[side]));
    for (int side = 0; side < 2; side++) {
        qdri_stream_destroy(&streams[side]);
        qdri_dev_destroy(&devs[side]);
    }
}

TEST(events_ping_pong)
{
    list *done = test_calloc(1, sizeof *done);
    qdri_dev *dev = make_device();
    qdr_stream *streams[2] = {make_stream(dev, QDRI_STREAM_COMPUTE), make_stream(dev, QDRI_STREAM_COMM)};
    qdr_event *events[2] = {make_event(dev), make_event(dev)};
    for (int i = 0; i < 4000; i++) {
        const int side = i % 2;
        OK(qdri_stream_wait(streams[side], events[1 - side]));
        enqueue_append(streams[side], done, i);
        OK(qdri_event_record(events[side], streams[side]));
    }
    for (int i = 0; i < 2; i++) {
        qdri_event_destroy(&events[i]);
        qdri_stream_destroy(&streams[i]);
    }
    assert_int_equal(done->n, 4000);
    for (int i = 0; i < 4000; i++) assert_int_equal(done->numbers[i], i);
    qdri_dev_destroy(&dev);
    test_free(done);
}

static void count_call(void *user) { atomic_fetch_add((atomic_int *)user, 1); }

TEST(failed_work_poisons_the_device)
{
    list *done = test_calloc(1, sizeof *done);
    qdri_dev *dev = make_device();
    qdr_stream *first = make_stream(dev, QDRI_STREAM_COMPUTE);
    qdr_stream *second = make_stream(dev, QDRI_STREAM_COMPUTE);
    qdr_event *event = make_event(dev);
    atomic_int gate = 0;
    atomic_int n_hooks = 0;
    void *memory = NULL;
    qdri_dev_on_poison(dev, count_call, &n_hooks);
    OK(qdri_dev_status(dev));
    enqueue_gate(first, &gate);
    OK(qdri_work(first, fail_run, NULL, 0));
    enqueue_append(first, done, 1);
    OK(qdri_event_record(event, first));
    OK(qdri_stream_wait(second, event));
    enqueue_append(second, done, 2);
    atomic_store(&gate, 1);
    assert_int_equal(qdri_stream_synchronize(second), QDR_ERR_DEVICE);
    assert_int_equal(qdri_stream_synchronize(first), QDR_ERR_DEVICE);
    assert_non_null(strstr(qdr_last_error(), "planted failure 7"));
    assert_int_equal(done->n, 0);
    qdri_dev_poison(dev, QDR_ERR_PEER, "too late");
    assert_int_equal(qdri_dev_status(dev), QDR_ERR_DEVICE);
    assert_int_equal(qdri_work(first, fail_run, NULL, 0), QDR_ERR_DEVICE);
    assert_non_null(strstr(qdr_last_error(), "planted failure 7"));
    assert_int_equal(qdri_mem_alloc(dev, 8, &memory), QDR_ERR_DEVICE);
    assert_int_equal(qdri_event_record(event, first), QDR_ERR_DEVICE);
    qdri_event_destroy(&event);
    qdri_stream_destroy(&first);
    qdri_stream_destroy(&second);
    assert_int_equal(atomic_load(&n_hooks), 1);
    qdri_dev_destroy(&dev);
    test_free(done);
}

/* Work that only poison ends: it says "pending" until the test has poisoned the device. */
typedef struct begun {
    atomic_int *n_calls, *finish;
} begun;

static qdr_status begun_run(void *args)
{
    const begun *self = args;
    atomic_fetch_add(self->n_calls, 1);
    if (atomic_load(self->finish)) return QDR_OK;
    qdri_poll_again();
    return QDR_PENDING;
}

TEST(begun_work_finishes_on_a_poisoned_device)
{
    qdri_dev *dev = make_device();
    qdr_stream *stream = make_stream(dev, QDRI_STREAM_COMM);
    atomic_int n_calls[2] = {0, 0};
    atomic_int finish = 0;
    for (int i = 0; i < 2; i++) {
        const begun args = {&n_calls[i], &finish};
        OK(qdri_work(stream, begun_run, &args, sizeof args));
    }
    while (!atomic_load(&n_calls[0])) {}
    qdri_dev_poison(dev, QDR_ERR_PEER, "from outside");
    const int calls_then = atomic_load(&n_calls[0]);
    while (atomic_load(&n_calls[0]) < calls_then + 3) {}
    atomic_store(&finish, 1);
    assert_int_equal(qdri_stream_synchronize(stream), QDR_ERR_PEER);
    assert_int_equal(atomic_load(&n_calls[1]), 0);
    qdri_stream_destroy(&stream);
    qdri_dev_destroy(&dev);
}

/* Items that ran before leave nothing in the slots of the ring that makes new work seem begun. */
TEST(waiting_work_of_a_used_ring_never_begins)
{
    static list done;
    qdri_dev *dev = make_device();
    qdr_stream *stream = make_stream(dev, QDRI_STREAM_COMM);
    atomic_int n_calls[2] = {0, 0};
    atomic_int finish = 0;
    done.n = 0;
    for (int i = 0; i < 3000; i++) enqueue_append(stream, &done, i);
    for (int i = 0; i < 2; i++) {
        const begun args = {&n_calls[i], &finish};
        OK(qdri_work(stream, begun_run, &args, sizeof args));
    }
    while (!atomic_load(&n_calls[0])) {}
    qdri_dev_poison(dev, QDR_ERR_PEER, "from outside");
    atomic_store(&finish, 1);
    assert_int_equal(qdri_stream_synchronize(stream), QDR_ERR_PEER);
    assert_int_equal(done.n, 3000);
    assert_int_equal(atomic_load(&n_calls[1]), 0);
    qdri_stream_destroy(&stream);
    qdri_dev_destroy(&dev);
}

static double cpu_secs(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Waiting costs next to nothing: polled work a small share of a core, events nothing. */
TEST(waiting_uses_little_cpu)
{
    const struct timespec half_a_second = {0, 500000000};
    qdri_dev *dev = make_device();
    qdr_stream *polling = make_stream(dev, QDRI_STREAM_COMM);
    qdr_stream *asleep = make_stream(dev, QDRI_STREAM_COMPUTE);
    qdr_event *event = make_event(dev);
    atomic_int gate = 0;
    enqueue_gate(polling, &gate);
    OK(qdri_event_record(event, polling));
    OK(qdri_stream_wait(asleep, event));
    const double before = cpu_secs();
    nanosleep(&half_a_second, NULL);
    const double used = cpu_secs() - before;
    atomic_store(&gate, 1);
    OK(qdri_stream_synchronize(asleep));
    assert_true(used < 0.25 * 0.5);
    qdri_event_destroy(&event);
    qdri_stream_destroy(&polling);
    qdri_stream_destroy(&asleep);
    qdri_dev_destroy(&dev);
}

TEST(memory_is_counted_and_aligned)
{
    qdri_dev *dev = make_device();
    void *a = NULL;
    void *b = NULL;
    size_t now = 1;
    size_t peak = 1;
    OK(qdri_mem_alloc(dev, 0, &a));
    assert_non_null(a);
    OK(qdri_mem_alloc(dev, 1001, &b));
    assert_int_equal((uintptr_t)a % 64, 0);
    assert_int_equal((uintptr_t)b % 64, 0);
    memset(b, 1, 1001);
    qdri_mem_usage(dev, &now, &peak);
    assert_int_equal(now, 1001);
    qdri_mem_free(dev, &a);
    qdri_mem_free(dev, &b);
    assert_null(b);
    qdri_mem_free(dev, &b);
    qdri_mem_usage(dev, &now, &peak);
    assert_int_equal(now, 0);
    assert_int_equal(peak, 1001);
    qdri_mem_reset_peak(dev);
    qdri_mem_usage(dev, NULL, &peak);
    assert_int_equal(peak, 0);
    assert_int_equal(qdri_mem_alloc(dev, SIZE_MAX - 5, &a), QDR_ERR_MEMORY);
    assert_null(a);
    qdri_dev_destroy(&dev);
}

TEST(copies_and_fills_are_work)
{
    qdri_dev *dev = make_device();
    qdr_stream *stream = make_stream(dev, QDRI_STREAM_COMPUTE);
    char from[] = "eight by";
    char to[] = "--------";
    OK(qdri_copy(stream, to, from, 5));
    OK(qdri_fill_zero(stream, from, 2));
    OK(qdri_copy(stream, to, NULL, 0));
    OK(qdri_stream_synchronize(stream));
    assert_memory_equal(to, "eight---", 8);
    assert_memory_equal(from, "\0\0ght by", 8);
    assert_int_equal(qdri_copy(stream, NULL, from, 1), QDR_ERR_ARGUMENT);
    assert_int_equal(qdri_fill_zero(stream, NULL, 1), QDR_ERR_ARGUMENT);
    qdri_stream_destroy(&stream);
    qdri_dev_destroy(&dev);
}

TEST(bad_arguments_are_refused)
{
    qdri_dev *dev = NULL;
    qdri_dev *other = make_device();
    const char args[QDRI_WORK_BYTES + 1] = {0};
    assert_int_equal(qdri_dev_create_cpu(0, &dev), QDR_ERR_ARGUMENT);
    assert_null(dev);
    dev = make_device();
    qdr_stream *stream = make_stream(dev, QDRI_STREAM_COMPUTE);
    qdr_event *foreign = make_event(other);
    assert_int_equal(qdri_work(NULL, fail_run, NULL, 0), QDR_ERR_ARGUMENT);
    assert_int_equal(qdri_work(stream, NULL, NULL, 0), QDR_ERR_ARGUMENT);
    assert_int_equal(qdri_work(stream, fail_run, NULL, 1), QDR_ERR_ARGUMENT);
    assert_int_equal(qdri_work(stream, fail_run, args, sizeof args), QDR_ERR_ARGUMENT);
    assert_int_equal(qdri_event_record(NULL, stream), QDR_ERR_ARGUMENT);
    assert_int_equal(qdri_event_record(foreign, stream), QDR_ERR_ARGUMENT);
    assert_int_equal(qdri_stream_wait(stream, foreign), QDR_ERR_ARGUMENT);
    assert_int_equal(qdri_stream_synchronize(NULL), QDR_ERR_ARGUMENT);
    OK(qdri_dev_status(dev));
    qdri_event_destroy(&foreign);
    qdri_stream_destroy(&stream);
    qdri_stream_destroy(&stream);
    qdri_dev_destroy(&other);
    qdri_dev_destroy(&dev);
    qdri_dev_destroy(&dev);
}
