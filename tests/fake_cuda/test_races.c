/* SPDX-License-Identifier: Apache-2.0 */
/* Races are detected if two accesses are unordered, and only then, whenever the work runs. */
#include "internal.h"
#include "test_fake.h"

/* Two streams and an event; `data` has been written and the host knows it. */
typedef struct scene {
    cudaStream_t a, b;
    cudaEvent_t event;
    char *data;
} scene;

static scene open_scene(void)
{
    const scene s = {new_stream(), new_stream(), new_event(), new_memory(1000)};
    OK(cudaMemsetAsync(s.data, 0, 1000, s.a));
    OK(cudaStreamSynchronize(s.a));
    return s;
}

/* What a schedule does; without its wait it is wrong, however the threads run. */
static void produce_and_consume(const scene *s, int waits)
{
    OK(use(s->a, "producer", FAKE_WRITE, s->data, 100));
    OK(cudaEventRecord(s->event, s->a));
    if (waits) OK(cudaStreamWaitEvent(s->b, s->event, 0));
    OK(use(s->b, "consumer", FAKE_READ, s->data + 50, 100));
}

FAKE_TEST(test_removed_wait)
{
    for (int i = 0; i < 20; i++) {
        const scene s = open_scene();
        QUIET(produce_and_consume(&s, 1));
        OK(cudaDeviceSynchronize());
        fake_forget();
        produce_and_consume(&s, 0);
        assert_non_null(strstr(fake_last_report(), "\"producer\" on stream"));
        assert_non_null(strstr(fake_last_report(), "\"consumer\" on stream"));
        expect_only(FAKE_RACE, __FILE__, __LINE__);
    }
}

FAKE_TEST(test_kinds)
{
    const scene s = open_scene();
    QUIET(OK(use(s.a, "read", FAKE_READ, s.data, 100)));
    QUIET(OK(use(s.b, "read", FAKE_READ, s.data, 100)));
    REPORTS(FAKE_RACE, use(s.a, "write", FAKE_WRITE, s.data + 99, 1));
    OK(cudaDeviceSynchronize());
    QUIET(OK(use(s.a, "write", FAKE_WRITE, s.data, 100)));
    QUIET(OK(use(s.b, "write", FAKE_WRITE, s.data + 100, 100)));
    REPORTS(FAKE_RACE, use(s.b, "copy", FAKE_READ_COPY, s.data + 99, 100));
    OK(cudaDeviceSynchronize());
    QUIET(OK(use(s.a, "scratch", FAKE_SCRATCH, s.data, 100)));
    REPORTS(FAKE_RACE, use(s.b, "scratch", FAKE_SCRATCH, s.data, 100));
}

/* An old access is not forgotten because a later one, which is ordered, lies over it. */
FAKE_TEST(test_covered)
{
    const scene s = open_scene();
    OK(use(s.a, "write", FAKE_WRITE, s.data, 100));
    OK(use(s.a, "read", FAKE_READ, s.data, 100));
    REPORTS(FAKE_RACE, use(s.b, "read", FAKE_READ, s.data, 10));
    OK(cudaDeviceSynchronize());
    OK(use(s.a, "read", FAKE_READ, s.data, 100));
    OK(cudaEventRecord(s.event, s.a));
    OK(cudaStreamWaitEvent(s.b, s.event, 0));
    QUIET(OK(use(s.b, "write", FAKE_WRITE, s.data, 50)));
    QUIET(OK(use(s.b, "read", FAKE_READ, s.data, 100)));
    REPORTS(FAKE_RACE, use(s.a, "read", FAKE_READ, s.data, 10));
}

/* Waits order through a third stream, and an event's record does not order what follows it. */
FAKE_TEST(test_transitive)
{
    const scene s = open_scene();
    cudaStream_t c = new_stream();
    OK(use(s.a, "write", FAKE_WRITE, s.data, 100));
    OK(cudaEventRecord(s.event, s.a));
    OK(use(s.a, "late write", FAKE_WRITE, s.data + 200, 100));
    OK(cudaStreamWaitEvent(c, s.event, 0));
    OK(cudaEventRecord(s.event, c));
    OK(cudaStreamWaitEvent(s.b, s.event, 0));
    QUIET(OK(use(s.b, "read", FAKE_READ, s.data, 100)));
    REPORTS(FAKE_RACE, use(s.b, "read", FAKE_READ, s.data + 200, 100));
}

FAKE_TEST(test_host_orders)
{
    const scene s = open_scene();
    OK(use(s.a, "write", FAKE_WRITE, s.data, 100));
    OK(cudaEventRecord(s.event, s.a));
    OK(cudaEventSynchronize(s.event));
    QUIET(OK(use(s.b, "read", FAKE_READ, s.data, 100)));
    REPORTS(FAKE_RACE, cudaFree(s.data)); /* b reads */
}

/* A new stream in the place of one that was destroyed before it was done. */
FAKE_TEST(test_slots)
{
    const scene s = open_scene();
    cudaStream_t old = new_stream();
    OK(use(old, "write", FAKE_WRITE, s.data, 100));
    OK(cudaStreamDestroy(old));
    cudaStream_t next = new_stream();
    REPORTS(FAKE_RACE, use(next, "read", FAKE_READ, s.data, 100));
    OK(cudaDeviceSynchronize());
    OK(cudaStreamDestroy(next));
    next = new_stream();
    QUIET(OK(use(next, "read", FAKE_READ, s.data, 100)));
}

/* Panels of a matrix, side by side, do not meet; one column wider they do. */
FAKE_TEST(test_panels)
{
    const scene s = open_scene();
    const fake_access left = {FAKE_WRITE, s.data, 20, 50, 10};
    const fake_access right = {FAKE_WRITE, s.data + 20, 30, 50, 10};
    const fake_access wide = {FAKE_WRITE, s.data + 19, 31, 50, 10};
    const fake_access other_stride = {FAKE_WRITE, s.data + 20, 5, 100, 5};
    QUIET(OK(fake_use(s.a, "left", &left, 1)));
    QUIET(OK(fake_use(s.b, "right", &right, 1)));
    QUIET(OK(fake_use(s.b, "right", &other_stride, 1)));
    REPORTS(FAKE_RACE, fake_use(s.b, "wide", &wide, 1));
}

static int overlap_by_bytes(const fake_access *a, const fake_access *b)
{
    char touched[4096] = {0};
    const uintptr_t low = (uintptr_t)a->begin < (uintptr_t)b->begin ? (uintptr_t)a->begin : (uintptr_t)b->begin;
    for (int64_t r = 0; r < a->n_rows; r++)
        memset(touched + ((uintptr_t)a->begin - low) + (size_t)r * a->stride_bytes, 1, a->row_bytes);
    for (int64_t r = 0; r < b->n_rows; r++) {
        const char *row = touched + ((uintptr_t)b->begin - low) + (size_t)r * b->stride_bytes;
        if (memchr(row, 1, b->row_bytes)) return 1;
    }
    return 0;
}

static fake_access random_access(uint64_t *random, const char *base)
{
    fake_access a = {.begin = base + test_between(random, 0, 60),
                     .row_bytes = (size_t)test_between(random, 1, 12),
                     .n_rows = test_between(random, 1, 6)};
    a.stride_bytes = a.row_bytes + (size_t)test_between(random, 0, 20);
    return a;
}

FAKE_TEST(test_overlaps)
{
    static const char base[1];
    uint64_t random = test_seed();
    int n_overlaps = 0;
    for (int i = 0; i < 200000; i++) {
        const fake_access a = random_access(&random, base);
        fake_access b = random_access(&random, base);
        if (i % 2) { /* equal strides */
            b.stride_bytes = a.stride_bytes;
            if (b.row_bytes > b.stride_bytes) b.row_bytes = b.stride_bytes;
        }
        const int expected = overlap_by_bytes(&a, &b);
        assert_int_equal(fake_overlap(&a, &b), expected);
        assert_int_equal(fake_overlap(&b, &a), expected);
        n_overlaps += expected;
    }
    assert_in_range(n_overlaps, 20000, 180000);
}

/* The history stays short where the same is done again and again. */
FAKE_TEST(test_short_history)
{
    const scene s = open_scene();
    for (int i = 0; i < 1000; i++) {
        OK(use(s.a, "write", FAKE_WRITE, s.data, 100));
        OK(cudaEventRecord(s.event, s.a));
        OK(cudaStreamWaitEvent(s.b, s.event, 0));
        OK(use(s.b, "read", FAKE_READ, s.data, 100));
        OK(cudaEventRecord(s.event, s.b));
        OK(cudaStreamWaitEvent(s.a, s.event, 0));
    }
    fake_lock();
    assert_in_range(fake_find_block(s.data)->history.n, 1, 3);
    fake_unlock();
}
