/* SPDX-License-Identifier: Apache-2.0 */
/* Host threads that wait for a stream of the CPU device and run its items themselves. */
#include <fenv.h>
#include <stdatomic.h>

#include <pthread.h>
#include <sched.h>

#include "dev/cpu/cpu.h"
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

/* A thread that waits for a compute stream runs what any thread may run; other work stays with the stream's thread. */
TEST(who_waits_runs_the_work)
{
    qdri_dev *dev = make_device();
    qdr_stream *comm = make_stream(dev, QDRI_STREAM_COMM);
    qdr_stream *compute = make_stream(dev, QDRI_STREAM_COMPUTE);
    pthread_t threads[2];
    pthread_t *where[2] = {&threads[0], &threads[1]};
    const pthread_t own = thread_of(compute);
    int n_own = 0;
    for (int i = 0; i < 1000; i++) {
        OK(qdri_work_anywhere(compute, whoami_run, &where[0], sizeof where[0]));
        OK(qdri_stream_synchronize(compute));
        n_own += pthread_equal(threads[0], own) != 0;
        assert_true(pthread_equal(threads[0], own) || pthread_equal(threads[0], pthread_self()));
        assert_null(qdri_current_waker());
    }
    assert_true(n_own < 1000);
    for (int i = 0; i < 100; i++) {
        OK(qdri_work_anywhere(compute, whoami_run, &where[0], sizeof where[0]));
        OK(qdri_work(compute, whoami_run, &where[1], sizeof where[1]));
        OK(qdri_stream_synchronize(compute));
        assert_true(pthread_equal(threads[1], own));
        OK(qdri_work_anywhere(comm, whoami_run, &where[0], sizeof where[0]));
        OK(qdri_stream_synchronize(comm));
        assert_false(pthread_equal(threads[0], pthread_self()));
    }
    qdri_stream_destroy(&comm);
    qdri_stream_destroy(&compute);
    qdri_dev_destroy(&dev);
}

static pthread_t of_item;
static void note_thread(void) { of_item = pthread_self(); }

/* Multiplies once; returns 1 if the calling thread ran the product. */
static int multiplies_itself(qdr_stream *stream, qdr_dtype dtype)
{
    static const double a[4] = {0}, b[4] = {0};
    double c[4];
    const qdri_gemm gemm = {.m = 2,
                            .n = 2,
                            .k = 2,
                            .a = a,
                            .b = b,
                            .c = c,
                            .lda = 2,
                            .ldb = 2,
                            .ldc = 2,
                            .alpha = 1,
                            .dtype = dtype,
                            .c_dtype = dtype};
    OK(qdri_gemm_run(stream, &gemm));
    OK(qdri_stream_synchronize(stream));
    return pthread_equal(of_item, pthread_self()) != 0;
}

TEST(products_are_run_by_who_waits)
{
    qdri_cpu_before_item = note_thread;
    for (int n_threads = 1; n_threads <= 2; n_threads++) {
        qdri_dev *dev = NULL;
        OK(qdri_dev_create_cpu(n_threads, &dev));
        qdr_stream *stream = make_stream(dev, QDRI_STREAM_COMPUTE);
        int n_itself = 0;
        for (int i = 0; i < 1000; i++) n_itself += multiplies_itself(stream, i % 2 ? QDR_F32 : QDR_F64);
        assert_true(n_itself > 0);
        qdri_stream_destroy(&stream);
        qdri_dev_destroy(&dev);
    }
    qdri_cpu_before_item = NULL;
}

static qdr_status flag_run(void *args)
{
    atomic_store(*(atomic_int **)args, 1);
    return QDR_OK;
}

/* Many prompt waits, after which the stream's thread is not woken for each item, delay no work for which nobody
 * waits. */
TEST(work_runs_although_nobody_waits)
{
    qdri_dev *dev = make_device();
    qdr_stream *stream = make_stream(dev, QDRI_STREAM_COMPUTE);
    atomic_int done = 0;
    atomic_int *flag = &done;
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < round; i++) {
            OK(qdri_work_anywhere(stream, flag_run, &flag, sizeof flag));
            OK(qdri_stream_synchronize(stream));
            assert_int_equal(atomic_exchange(&done, 0), 1);
        }
        OK((round % 2 ? qdri_work : qdri_work_anywhere)(stream, flag_run, &flag, sizeof flag));
        while (!atomic_exchange(&done, 0)) {}
    }
    qdri_stream_destroy(&stream);
    qdri_dev_destroy(&dev);
}

/* Counts steps that are taken in their order. */
typedef struct step {
    int *n;
    int number;
} step;

static qdr_status step_run(void *args)
{
    const step *self = args;
    *self->n = *self->n == self->number ? self->number + 1 : -1;
    return QDR_OK;
}

/* A thread that drives a stream whose work waits for another stream is woken by that stream. */
TEST(driver_waits_for_an_event)
{
    qdri_dev *dev = make_device();
    qdr_stream *first = make_stream(dev, QDRI_STREAM_COMM);
    qdr_stream *driven = make_stream(dev, QDRI_STREAM_COMPUTE);
    qdr_event *event = NULL;
    int n = 0;
    OK(qdri_event_create(dev, &event));
    for (int i = 0; i < 1000; i++) {
        const step steps[2] = {{&n, 2 * i}, {&n, 2 * i + 1}};
        OK(qdri_work(first, step_run, &steps[0], sizeof steps[0]));
        OK(qdri_event_record(event, first));
        OK(qdri_stream_wait(driven, event));
        OK(qdri_work_anywhere(driven, step_run, &steps[1], sizeof steps[1]));
        OK(qdri_stream_synchronize(driven));
        assert_int_equal(n, 2 * i + 2);
    }
    qdri_event_destroy(&event);
    qdri_stream_destroy(&driven);
    qdri_stream_destroy(&first);
    qdri_dev_destroy(&dev);
}

static qdr_status fail_run(void *args)
{
    (void)args;
    return QDR_FAIL(QDR_ERR_DEVICE, "planted failure");
}

static qdr_status wait_for_poison_run(void *args)
{
    return qdri_dev_status(*(qdri_dev **)args) == QDR_OK ? QDR_PENDING : QDR_OK;
}

/* Poison wakes a driver that sleeps; work that has not begun is dropped. */
TEST(driver_notices_poison)
{
    qdri_dev *dev = make_device();
    qdr_stream *failing = make_stream(dev, QDRI_STREAM_COMM);
    qdr_stream *driven = make_stream(dev, QDRI_STREAM_COMPUTE);
    atomic_int done = 0;
    atomic_int *flag = &done;
    OK(qdri_work_anywhere(driven, wait_for_poison_run, &dev, sizeof dev));
    OK(qdri_work_anywhere(driven, flag_run, &flag, sizeof flag));
    OK(qdri_work(failing, fail_run, NULL, 0));
    assert_int_equal(qdri_stream_synchronize(driven), QDR_ERR_DEVICE);
    assert_int_equal(atomic_load(&done), 0);
    qdri_stream_destroy(&driven);
    qdri_stream_destroy(&failing);
    qdri_dev_destroy(&dev);
}

static qdr_status disturb_run(void *args)
{
    **(int **)args = fegetround();
    feraiseexcept(FE_OVERFLOW);
    (void)QDR_FAIL(QDR_ERR_STATE, "a failure that the item overcomes");
    return QDR_OK;
}

/* Items do not depend on the state of the thread that waits, and do not change it. */
TEST(a_driver_keeps_its_state)
{
    qdri_dev *dev = make_device();
    qdr_stream *stream = make_stream(dev, QDRI_STREAM_COMPUTE);
    int rounding = 0;
    int *where = &rounding;
    (void)QDR_FAIL(QDR_ERR_SHAPE, "of the caller");
    fesetround(FE_UPWARD);
    feclearexcept(FE_ALL_EXCEPT);
    for (int i = 0; i < 100; i++) {
        OK(qdri_work_anywhere(stream, disturb_run, &where, sizeof where));
        OK(qdri_stream_synchronize(stream));
        assert_int_equal(rounding, FE_TONEAREST);
        assert_int_equal(fegetround(), FE_UPWARD);
        assert_int_equal(fetestexcept(FE_OVERFLOW), 0);
        assert_string_equal(qdr_last_error(), "of the caller");
    }
    fesetround(FE_TONEAREST);
    qdri_stream_destroy(&stream);
    qdri_dev_destroy(&dev);
}

static qdr_status synchronize_run(void *args) { return qdri_stream_synchronize(*(qdr_stream **)args); }

/* An item may wait for another stream; its own stream goes on: a later item sleeps until an event wakes it. */
TEST(an_item_waits_for_another_stream)
{
    qdri_dev *dev = make_device();
    qdr_stream *first = make_stream(dev, QDRI_STREAM_COMM);
    qdr_stream *outer = make_stream(dev, QDRI_STREAM_COMPUTE);
    qdr_stream *inner = make_stream(dev, QDRI_STREAM_COMPUTE);
    qdr_event *event = NULL;
    int n = 0;
    OK(qdri_event_create(dev, &event));
    for (int i = 0; i < 200; i++) {
        const step steps[3] = {{&n, 3 * i}, {&n, 3 * i + 1}, {&n, 3 * i + 2}};
        OK(qdri_work_anywhere(inner, step_run, &steps[0], sizeof steps[0]));
        OK(qdri_work(outer, synchronize_run, &inner, sizeof(qdr_stream *)));
        OK(qdri_event_record(event, outer));
        OK(qdri_stream_wait(first, event));
        OK(qdri_work(first, step_run, &steps[1], sizeof steps[1]));
        OK(qdri_event_record(event, first));
        OK(qdri_stream_wait(outer, event));
        OK(qdri_work(outer, step_run, &steps[2], sizeof steps[2]));
        OK(qdri_stream_synchronize(outer));
        assert_int_equal(n, 3 * i + 3);
    }
    qdri_event_destroy(&event);
    qdri_stream_destroy(&inner);
    qdri_stream_destroy(&outer);
    qdri_stream_destroy(&first);
    qdri_dev_destroy(&dev);
}

typedef struct waiting {
    qdr_stream *stream;
    qdr_event *event;
    atomic_int go, n_done;
} waiting;

static void *wait_main(void *argument)
{
    waiting *self = argument;
    for (int i = 0; i < 500; i++) {
        while (atomic_load(&self->go) <= i) sched_yield();
        OK(qdri_stream_synchronize(self->stream));
        atomic_fetch_add(&self->n_done, 1);
    }
    return NULL;
}

/* Two threads wait for one stream, the second for more items than the first: whoever drives, both waits end. */
TEST(two_threads_wait)
{
    qdri_dev *dev = make_device();
    waiting self = {.stream = make_stream(dev, QDRI_STREAM_COMPUTE)};
    qdr_stream *first = make_stream(dev, QDRI_STREAM_COMM);
    pthread_t thread;
    int n = 0;
    OK(qdri_event_create(dev, &self.event));
    assert_int_equal(pthread_create(&thread, NULL, wait_main, &self), 0);
    for (int i = 0; i < 500; i++) {
        const step steps[3] = {{&n, 3 * i}, {&n, 3 * i + 1}, {&n, 3 * i + 2}};
        OK(qdri_work(first, step_run, &steps[0], sizeof steps[0]));
        OK(qdri_event_record(self.event, first));
        OK(qdri_stream_wait(self.stream, self.event));
        OK(qdri_work_anywhere(self.stream, step_run, &steps[1], sizeof steps[1]));
        atomic_store(&self.go, i + 1);
        OK((i % 3 ? qdri_work_anywhere : qdri_work)(self.stream, step_run, &steps[2], sizeof steps[2]));
        OK(qdri_stream_synchronize(self.stream));
        assert_int_equal(n, 3 * i + 3);
        while (atomic_load(&self.n_done) <= i) sched_yield();
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    qdri_event_destroy(&self.event);
    qdri_stream_destroy(&first);
    qdri_stream_destroy(&self.stream);
    qdri_dev_destroy(&dev);
}
