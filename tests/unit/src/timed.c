/* SPDX-License-Identifier: Apache-2.0 */
/* How benchmarks take times by a stream: what an iteration is, and which calls it leaves out. */
#include "bench/bench.h"
#include "qdr_test.h"

enum { ITERATIONS = 3, WARMUP = 1, IN_A_ROW = 4, FIRST = 20 }; /* FIRST: as long as so many others */
#define WORK_SECS 0.005

typedef struct counted {
    qdr_context *ctx;
    int n_calls, n_done;
} counted;

static void work(void *user)
{
    counted *self = user;
    /* The first call of each iteration takes longest: it waits for other ranks. */
    const int is_first = self->n_done++ % (1 + IN_A_ROW) == 0;
    const struct timespec pause = {.tv_nsec = (is_first ? FIRST : 1) * (long)(1e9 * WORK_SECS)};
    nanosleep(&pause, NULL);
}

static qdr_status call(void *user, int series)
{
    counted *self = user;
    assert_int_equal(series, 0);
    self->n_calls++;
    return qdr_stream_call(qdr_context_stream(self->ctx), work, self);
}

TEST(means_of_calls_in_a_row)
{
    counted self = {.n_calls = 0};
    const qdr_context_opts cpu = {QDR_INIT(qdr_context_opts), .n_threads = 1, .device = "cpu"};
    const bench_options options = {.n_iterations = ITERATIONS, .n_warmup = WARMUP};
    bench_samples samples = {0};
    failure why = {0};
    assert_int_equal(qdr_context_create_self(&cpu, &self.ctx), QDR_OK);
    const bench_subject subject = {
        .call = call, .user = &self, .stream = qdr_context_stream(self.ctx), .n_calls = IN_A_ROW};
    assert_int_equal(bench_measure(self.ctx, &options, &subject, 1, 0, &samples, &why), EXIT_OK);
    assert_int_equal(self.n_calls, (ITERATIONS + WARMUP) * (1 + IN_A_ROW));
    assert_int_equal(self.n_done, self.n_calls); /* the work is complete, too */
    assert_int_equal(samples.n, ITERATIONS);
    /* With the first call it would be six times as long; threads may be late. */
    const bench_times times = bench_times_of(&samples, 0);
    if (!(times.min >= WORK_SECS && times.min < 4 * WORK_SECS))
        fail_msg("%g s is not about %g s", times.min, WORK_SECS);
    bench_free(&samples);
    qdr_context_destroy(&self.ctx);
}

TEST(a_stream_tells_the_time)
{
    counted self = {.n_calls = 0};
    const qdr_context_opts cpu = {QDR_INIT(qdr_context_opts), .n_threads = 1, .device = "cpu"};
    int64_t ns[2] = {0};
    assert_int_equal(qdr_context_create_self(&cpu, &self.ctx), QDR_OK);
    qdr_stream *stream = qdr_context_stream(self.ctx);
    assert_int_equal(qdr_stream_stamp(stream, NULL), QDR_ERR_ARGUMENT);
    assert_int_equal(qdr_stream_stamp(NULL, &ns[0]), QDR_ERR_ARGUMENT);
    assert_int_equal(qdr_stream_stamp(stream, &ns[0]), QDR_OK);
    assert_int_equal(call(&self, 0), QDR_OK);
    assert_int_equal(qdr_stream_stamp(stream, &ns[1]), QDR_OK);
    assert_int_equal(qdr_stream_synchronize(stream), QDR_OK);
    assert_true(1e-9 * (double)(ns[1] - ns[0]) >= FIRST * WORK_SECS);
    qdr_context_destroy(&self.ctx);
}
