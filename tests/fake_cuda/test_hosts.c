/* SPDX-License-Identifier: Apache-2.0 */
/* What one host thread has waited for, another knows only if the two have synchronised since. */
#include "internal.h"
#include "test_fake.h"

/* Work of one thread on a stream of its own, and of another that uses the same memory. Turns are passed by atomics,
 * which order nothing here. */
typedef struct scene {
    cudaStream_t first, second;
    cudaEvent_t event;
    char *data;
    atomic_int turn;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_barrier_t barrier;
    int is_said;
} scene;

static void take_turn(scene *s, int turn)
{
    while (atomic_load(&s->turn) < turn) sched_yield();
}

static void next_turn(scene *s) { atomic_fetch_add(&s->turn, 1); }

static void open_scene(scene *s)
{
    *s = (scene){.first = new_stream(), .second = new_stream(), .event = new_event(), .data = new_memory(1000)};
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    pthread_barrier_init(&s->barrier, NULL, 2);
    OK(cudaMemsetAsync(s->data, 0, 1000, s->first));
    OK(cudaStreamSynchronize(s->first));
}

static void close_scene(scene *s)
{
    destroy_all();
    pthread_mutex_destroy(&s->mutex);
    pthread_cond_destroy(&s->changed);
    pthread_barrier_destroy(&s->barrier);
}

static void pass_through(scene *s)
{
    pthread_mutex_lock(&s->mutex);
    pthread_mutex_unlock(&s->mutex);
}

static void write_and_wait(scene *s)
{
    OK(use(s->first, "write", FAKE_WRITE, s->data, 100));
    OK(cudaStreamSynchronize(s->first));
}

static void read_there(scene *s) { OK(use(s->second, "read", FAKE_READ, s->data, 100)); }

/* What the two threads do; the second is there before the first begins. */
typedef struct play {
    void (*first)(scene *s);
    void (*second)(scene *s);
    scene *s;
} play;

static void *run_second(void *user)
{
    const play *p = user;
    p->second(p->s);
    return NULL;
}

static void run(scene *s, void (*first)(scene *s), void (*second)(scene *s))
{
    play p = {first, second, s};
    pthread_t thread;
    atomic_store(&s->turn, 0);
    assert_int_equal(pthread_create(&thread, NULL, run_second, &p), 0);
    first(s);
    next_turn(s);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void expect(fake_fault fault, void (*first)(scene *s), void (*second)(scene *s))
{
    scene s;
    open_scene(&s);
    REPORTS(fault, run(&s, first, second));
    close_scene(&s);
}

/* ---- threads that do not meet ---- */

static void read_unmet(scene *s)
{
    take_turn(s, 1);
    read_there(s);
}

static void query(scene *s)
{
    OK(use(s->first, "write", FAKE_WRITE, s->data, 100));
    OK(cudaEventRecord(s->event, s->first));
    while (cudaEventQuery(s->event) != cudaSuccess) sched_yield();
}

static void synchronise_all(scene *s)
{
    OK(use(s->first, "write", FAKE_WRITE, s->data, 100));
    OK(cudaDeviceSynchronize());
}

static void meet_too_early(scene *s)
{
    pass_through(s);
    write_and_wait(s);
}

static void read_after_mutex(scene *s)
{
    take_turn(s, 1);
    pass_through(s);
    read_there(s);
}

/* It waits for the stream that reads, which has not waited for the one that writes. */
static void read_on_new_stream(scene *s)
{
    take_turn(s, 1);
    cudaStream_t stream = new_stream();
    OK(use(stream, "read", FAKE_READ, s->data, 100));
    OK(cudaStreamSynchronize(stream));
}

FAKE_TEST(test_unmet)
{
    assert_true(fake_threads_are_watched());
    for (int i = 0; i < 20; i++) expect(FAKE_RACE, write_and_wait, read_unmet);
    expect(FAKE_RACE, query, read_unmet);
    expect(FAKE_RACE, synchronise_all, read_unmet);
    expect(FAKE_RACE, meet_too_early, read_after_mutex);
    expect(FAKE_RACE, write_and_wait, read_on_new_stream);
}

/* It is done, but this thread does not know. */
static void free_there(scene *s)
{
    take_turn(s, 1);
    OK(cudaFree(s->data));
}

FAKE_TEST(test_freed) { expect(FAKE_RACE, write_and_wait, free_there); }

/* ---- threads that meet ---- */

static void write_and_pass(scene *s)
{
    write_and_wait(s);
    pass_through(s);
}

static void say(scene *s)
{
    write_and_wait(s);
    pthread_mutex_lock(&s->mutex);
    s->is_said = 1;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

/* The mutex is taken before it is said; only the condition's wait lets go of it. */
static void hear(scene *s)
{
    pthread_mutex_lock(&s->mutex);
    while (!s->is_said) pthread_cond_wait(&s->changed, &s->mutex);
    read_there(s);
    pthread_mutex_unlock(&s->mutex);
}

static void hear_in_time(scene *s)
{
    const struct timespec far = {.tv_sec = (time_t)1 << 40};
    pthread_mutex_lock(&s->mutex);
    while (!s->is_said) pthread_cond_timedwait(&s->changed, &s->mutex, &far);
    read_there(s);
    pthread_mutex_unlock(&s->mutex);
}

static void read_if_free(scene *s)
{
    take_turn(s, 1);
    assert_int_equal(pthread_mutex_trylock(&s->mutex), 0);
    pthread_mutex_unlock(&s->mutex);
    read_there(s);
}

static void write_and_meet(scene *s)
{
    write_and_wait(s);
    pthread_barrier_wait(&s->barrier);
}

static void meet_and_read(scene *s)
{
    pthread_barrier_wait(&s->barrier);
    read_there(s);
}

FAKE_TEST(test_met)
{
    for (int i = 0; i < 20; i++) {
        expect(FAKE_N_FAULTS, write_and_pass, read_after_mutex);
        expect(FAKE_N_FAULTS, say, hear);
        expect(FAKE_N_FAULTS, say, hear_in_time);
        expect(FAKE_N_FAULTS, write_and_pass, read_if_free);
        expect(FAKE_N_FAULTS, write_and_meet, meet_and_read);
    }
}

static void nothing(scene *s) { (void)s; }

/* What a thread begins with, and what is known of one that has ended. */
FAKE_TEST(test_begin_and_end)
{
    scene s;
    open_scene(&s);
    write_and_wait(&s);
    QUIET(run(&s, nothing, read_there));
    OK(cudaStreamSynchronize(s.second));
    QUIET(run(&s, nothing, write_and_wait));
    QUIET(read_there(&s));
    close_scene(&s);
}

/* ---- through streams ---- */

/* What the thread knows who records, is known where the event is waited for. */
static void write_and_record(scene *s)
{
    cudaStream_t third = new_stream();
    write_and_wait(s);
    OK(cudaEventRecord(s->event, third));
}

static void wait_and_read(scene *s)
{
    take_turn(s, 1);
    OK(cudaStreamWaitEvent(s->second, s->event, 0));
    read_there(s);
}

/* A wait that one thread enqueues comes before what another enqueues there later. */
static void write_and_make_wait(scene *s)
{
    write_and_record(s);
    OK(cudaStreamWaitEvent(s->second, s->event, 0));
}

static void pass_by_stream(void *user)
{
    scene *s = user;
    pass_through(s);
    next_turn(s);
}

/* The thread itself waits for nothing; the function tells what its stream has done. */
static void write_and_call(scene *s)
{
    OK(use(s->first, "write", FAKE_WRITE, s->data, 100));
    OK(cudaLaunchHostFunc(s->first, pass_by_stream, s));
    take_turn(s, 1);
}

static void call_and_write(scene *s)
{
    OK(cudaLaunchHostFunc(s->first, pass_by_stream, s));
    OK(use(s->first, "write", FAKE_WRITE, s->data, 100));
    take_turn(s, 1);
}

FAKE_TEST(test_through_streams)
{
    expect(FAKE_N_FAULTS, write_and_record, wait_and_read);
    expect(FAKE_N_FAULTS, write_and_make_wait, read_unmet);
    expect(FAKE_N_FAULTS, write_and_call, read_after_mutex);
    expect(FAKE_RACE, call_and_write, read_after_mutex);
}

/* ---- the books ---- */

/* Threads that come and go, each of which writes: old accesses do not pile up. */
FAKE_TEST(test_short_history)
{
    scene s;
    open_scene(&s);
    for (ptrdiff_t i = 0; i < 300; i++) {
        OK(use(s.first, "write", FAKE_WRITE, s.data + i % 7 * 100 + i % 90, 10));
        QUIET(run(&s, nothing, write_and_wait));
    }
    fake_lock();
    assert_in_range(fake_find_block(s.data)->history.n, 1, 70);
    fake_unlock();
    close_scene(&s);
}
