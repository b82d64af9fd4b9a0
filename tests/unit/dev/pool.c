/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of a CPU device: each piece runs once, by threads that share it, or by the caller alone. */
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "dev/cpu/pool.h"
#include "qdr_test.h"

enum { N_THREADS = 4, N_PIECES = 1000 };

typedef struct count {
    atomic_int n[N_PIECES], n_on[N_THREADS], is_on[N_THREADS];
    atomic_int bad;
    int n_threads;
} count;

static qdr_status count_piece(const void *user, int64_t piece, int thread)
{
    count *self = *(count *const *)user;
    if (thread < 0 || thread >= self->n_threads || atomic_fetch_add(&self->is_on[thread], 1) != 0) self->bad = 1;
    atomic_fetch_add(&self->n[piece], 1);
    atomic_fetch_add(&self->n_on[thread], 1);
    atomic_fetch_sub(&self->is_on[thread], 1);
    return QDR_OK;
}

static void check_once(qdri_pool *pool, int n_threads, int n_pieces)
{
    static count c;
    count *user = &c;
    memset(&c, 0, sizeof c);
    c.n_threads = n_threads;
    CHECK_OK(qdri_pool_run(pool, n_threads, n_pieces, count_piece, &user));
    assert_int_equal(c.bad, 0);
    for (int i = 0; i < N_PIECES; i++) assert_int_equal(c.n[i], i < n_pieces);
}

TEST(each_piece_runs_once)
{
    qdri_pool *pool = NULL;
    CHECK_OK(qdri_pool_create(N_THREADS, &pool));
    for (int round = 0; round < 2000; round++) check_once(pool, 1 + round % N_THREADS, round % 7);
    check_once(pool, N_THREADS, N_PIECES);
    check_once(NULL, 1, N_PIECES);
    qdri_pool_destroy(&pool);
    assert_null(pool);
}

/* Each piece waits until the other one has begun. */
static qdr_status meet(const void *user, int64_t piece, int thread)
{
    atomic_int *n_there = *(atomic_int *const *)user;
    (void)piece, (void)thread;
    atomic_fetch_add(n_there, 1);
    while (atomic_load(n_there) < 2) sched_yield();
    return QDR_OK;
}

TEST(pieces_run_at_the_same_time)
{
    qdri_pool *pool = NULL;
    CHECK_OK(qdri_pool_create(2, &pool));
    for (int round = 0; round < 20; round++) {
        atomic_int n_there = 0, *user = &n_there;
        CHECK_OK(qdri_pool_run(pool, 2, 2, meet, &user));
    }
    qdri_pool_destroy(&pool);
}

static qdr_status fail_from_second(const void *user, int64_t piece, int thread)
{
    (void)user, (void)thread;
    return piece >= 2 ? QDR_FAIL(QDR_ERR_DEVICE, "piece %d", (int)piece) : QDR_OK;
}

TEST(the_first_failure_is_the_callers)
{
    qdri_pool *pools[2] = {NULL, NULL};
    CHECK_OK(qdri_pool_create(N_THREADS, &pools[1]));
    for (int round = 0; round < 100; round++) {
        assert_int_equal(qdri_pool_run(pools[round % 2], N_THREADS, 20, fail_from_second, NULL), QDR_ERR_DEVICE);
        assert_non_null(strstr(qdr_last_error(), "piece 2"));
    }
    check_once(pools[1], N_THREADS, N_PIECES);
    qdri_pool_destroy(&pools[1]);
}

typedef struct busy {
    qdri_pool *pool;
    atomic_int has_begun, may_end;
} busy;

static qdr_status keep_busy(const void *user, int64_t piece, int thread)
{
    busy *self = *(busy *const *)user;
    (void)piece, (void)thread;
    atomic_store(&self->has_begun, 1);
    while (!atomic_load(&self->may_end)) sched_yield();
    return QDR_OK;
}

static void *run_busy(void *argument)
{
    busy *self = argument;
    CHECK_OK(qdri_pool_run(self->pool, 2, 2, keep_busy, &argument));
    return NULL;
}

/* A second stream's kernels do not wait for those of the first. */
TEST(who_finds_it_busy_runs_alone)
{
    static count c;
    count *user = &c;
    busy b = {.pool = NULL};
    pthread_t thread;
    CHECK_OK(qdri_pool_create(2, &b.pool));
    assert_int_equal(pthread_create(&thread, NULL, run_busy, &b), 0);
    while (!atomic_load(&b.has_begun)) sched_yield();
    c.n_threads = 2;
    CHECK_OK(qdri_pool_run(b.pool, 2, N_PIECES, count_piece, &user));
    assert_int_equal(c.n_on[0], N_PIECES);
    atomic_store(&b.may_end, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    check_once(b.pool, 2, N_PIECES);
    qdri_pool_destroy(&b.pool);
}

static qdr_status check_rounding(const void *user, int64_t piece, int thread)
{
    (void)user, (void)piece, (void)thread;
    return fegetround() == FE_UPWARD ? QDR_OK : QDR_FAIL(QDR_ERR_DEVICE, "thread %d rounds otherwise", thread);
}

TEST(pieces_round_as_the_caller)
{
    qdri_pool *pool = NULL;
    CHECK_OK(qdri_pool_create(N_THREADS, &pool));
    const int before = fegetround();
    fesetround(FE_UPWARD);
    const qdr_status status = qdri_pool_run(pool, N_THREADS, N_PIECES, check_rounding, NULL);
    fesetround(before);
    CHECK_OK(status);
    qdri_pool_destroy(&pool);
}

static double process_secs(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

TEST(idle_threads_sleep)
{
    qdri_pool *pool = NULL;
    CHECK_OK(qdri_pool_create(N_THREADS, &pool));
    check_once(pool, N_THREADS, N_PIECES);
    const struct timespec pause = {.tv_nsec = 100000000};
    nanosleep(&pause, NULL);
    const double before = process_secs();
    nanosleep(&pause, NULL);
    assert_true(process_secs() - before < 0.02);
    qdri_pool_destroy(&pool);
}
