/* SPDX-License-Identifier: Apache-2.0 */
/* Traces: converting the clocks of different ranks, and how much of an interval was computation. */
#include "trace/trace.h"

#include <math.h>

#include "core/clock_offset.h"
#include "qdr_test.h"
#include "schedule/trace.h"

/* ---- two clocks ---- */

TEST(a_question_and_its_answer)
{
    qdri_clock_offset found = qdri_clock_compare(1000, 5040, 1080);
    assert_int_equal(found.at_ns, 1040);
    assert_int_equal(found.ahead_ns, -4000);
    assert_int_equal(found.bound_ns, 40);
    found = qdri_clock_compare(7, 7, 7);
    assert_true(found.at_ns == 7 && found.ahead_ns == 0 && found.bound_ns == 0);
    found = qdri_clock_compare(0, 0, 1); /* an odd way: rounded up, or 1 would be too far */
    assert_int_equal(found.bound_ns, 1);
}

/* However long either way takes, the truth lies within the bound. */
TEST(the_bound_holds)
{
    uint64_t seed = test_seed();
    for (int i = 0; i < 10000; i++) {
        const int64_t ahead = test_between(&seed, -1000000000000, 1000000000000);
        const int64_t asked = test_between(&seed, 0, 1000000000000);
        const int64_t there = test_between(&seed, 0, 1000), back = test_between(&seed, 0, 1000);
        const qdri_clock_offset found = qdri_clock_compare(asked, asked + there - ahead, asked + there + back);
        assert_true(llabs(found.ahead_ns - ahead) <= found.bound_ns);
        assert_true(found.bound_ns <= (there + back + 1) / 2);
    }
}

static void assert_near(double got, double want, double most)
{
    if (!(fabs(got - want) <= most)) fail_msg("%.12g is not %.12g", got, want);
}

TEST(clocks_are_aligned)
{
    const trace_clock drifting[] = {{.at = 100, .ahead = 40}, {.at = 200, .ahead = 41}};
    const trace_clock twice[] = {{.at = 100, .ahead = 40}, {.at = 100, .ahead = 41}};
    assert_near(trace_align(NULL, 0, 5), 5, 0);
    assert_near(trace_align(drifting, 1, 100), 60, 0);
    assert_near(trace_align(drifting, 1, 1e3), 960, 0);
    assert_near(trace_align(drifting, 2, 100), 60, 1e-12);
    assert_near(trace_align(drifting, 2, 150), 109.5, 1e-12);
    assert_near(trace_align(drifting, 2, 200), 159, 1e-12);
    assert_near(trace_align(drifting, 2, 300), 258, 1e-12); /* it drifts on */
    assert_near(trace_align(twice, 2, 300), 260, 1e-12);
}

TEST(bounds_of_two_ranks_add_up)
{
    trace_rank ranks[] = {
        {.n_clocks = 0},
        {.n_clocks = 2, .clocks = {{.bound = 3}, {.bound = 1}}},
        {.n_clocks = 2, .clocks = {{.bound = 1}, {.bound = 5}}},
        {.n_clocks = 1, .clocks = {{.bound = 4}}},
    };
    for (int n = 1; n <= 4; n++) {
        static const double bounds[] = {0, 3, 8, 9};
        const trace_file trace = {.n_ranks = n, .ranks = ranks};
        assert_near(trace_clock_bound(&trace), bounds[n - 1], 0);
    }
}

/* ---- hidden and exposed ---- */

enum { N_EVENTS = 200, N_RUNS = 4 };

typedef struct rank_of_events {
    trace_event events[N_EVENTS];
    trace_work work[N_EVENTS];
    trace_rank rank;
} rank_of_events;

static int by_begin(const void *a, const void *b)
{
    const double x = ((const trace_event *)a)->begin, y = ((const trace_event *)b)->begin;
    return (x > y) - (x < y);
}

/* Times are whole numbers, so sums are exact; work may touch, overlap or take no time. */
static void make_events(rank_of_events *made, uint64_t *seed)
{
    for (int i = 0; i < N_EVENTS; i++) {
        trace_event *event = &made->events[i];
        event->stream = (int)test_between(seed, 0, 2);
        event->begin = (double)test_between(seed, 0, 2000);
        event->end = event->begin + (double)test_between(seed, 0, 20);
        event->run = (int)(event->begin * N_RUNS / 2001);
        event->bytes = 8;
    }
    qsort(made->events, N_EVENTS, sizeof made->events[0], by_begin);
    made->rank = (trace_rank){.events = made->events, .n_events = N_EVENTS, .work = made->work};
}

/* By counting the units of time one by one. */
static double worked_slowly(const trace_rank *rank, double begin, double end)
{
    double n = 0;
    for (double t = begin; t < end; t++) {
        int works = 0;
        for (int64_t i = 0; i < rank->n_events; i++) {
            const trace_event *event = &rank->events[i];
            works |= event->stream == 0 && event->begin <= t && t < event->end;
        }
        n += works;
    }
    return n;
}

TEST(sums_are_those_of_counting)
{
    uint64_t seed = test_seed();
    for (int round = 0; round < 20; round++) {
        rank_of_events made[2];
        for (int r = 0; r < 2; r++) make_events(&made[r], &seed);
        trace_rank ranks[] = {made[0].rank, made[1].rank};
        trace_file trace = {.n_ranks = 2, .n_runs = N_RUNS, .ranks = ranks};
        const int n_last = (int)test_between(&seed, 0, N_RUNS);
        trace_keep_last(&trace, n_last);
        trace_sum sum = {0};
        trace_add_stream(&trace, 1, NULL, &sum);
        double n = 0, secs = 0, hidden = 0;
        for (int r = 0; r < 2; r++)
            for (int64_t i = 0; i < ranks[r].n_events; i++) {
                const trace_event *event = &ranks[r].events[i];
                assert_true(n_last == 0 || event->run >= N_RUNS - n_last);
                if (event->stream != 1) continue;
                n++;
                secs += event->end - event->begin;
                hidden += worked_slowly(&ranks[r], event->begin, event->end);
            }
        assert_true(n > 0 && secs > hidden && hidden > 0);
        assert_true((double)sum.n_events == n);
        assert_near(sum.bytes, 8 * n / 2, 1e-9);
        assert_near(sum.secs, secs / 2, 1e-9);
        assert_near(sum.hidden_secs, hidden / 2, 1e-9);
    }
}

/* ---- the file of a rank ---- */

static void write_trace(const qdri_trace *trace, char *text, size_t capacity)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_true(qdri_trace_write(trace, file));
    rewind(file);
    text[fread(text, 1, capacity - 1, file)] = '\0';
    fclose(file);
}

static void add_event(qdri_trace *trace, const char *name, qdr_channel channel, int stream, int64_t begin_ns,
                      int64_t end_ns)
{
    const qdri_task task = {.kind = QDRI_TASK_COLLECTIVE,
                            .coll = QDR_ALL_REDUCE,
                            .name = name,
                            .channel = channel,
                            .stream = stream,
                            .bytes_sent = 64};
    qdri_trace_event *event = qdri_trace_add(trace, &task, 7);
    assert_non_null(event);
    event->begin_ns = begin_ns;
    event->end_ns = end_ns;
}

static void expect(const char *text, const char *words)
{
    if (!strstr(text, words)) fail_msg("\"%s\" is not in %s", words, text);
}

TEST(a_file_says_it_all)
{
    static char text[16384];
    qdri_trace *trace = NULL;
    CHECK_OK(qdri_trace_create(1, 4, 0xabc, &trace));
    write_trace(trace, text, sizeof text);
    expect(text, "\"rank 1\"");
    expect(text, "\"grid\":[0,0,0,0],\"levels\":[0,0],\"place\":[0,0,0,0],\"clock\":[]");
    for (int i = 0; i < 3; i++) /* the third is one too many */
        qdri_trace_add_clock(trace, &(qdri_clock_offset){.at_ns = i, .ahead_ns = -5, .bound_ns = 2});
    qdri_trace_next_run(trace, &(qdri_position){.size = {2, 2, 1, 1}, .coordinate = {1, 0, 0, 0}, .near = 1, .far = 1});
    const qdr_channel sums = QDR_CHANNEL_Y_REDUCE;
    const int stream = QDRI_STREAM_OF_CHANNEL(sums);
    add_event(trace, "a \"quoted\" layer", sums, stream, 1000, 2500);
    add_event(trace, "latin \xfc", sums, stream, 3000, 4000);
    add_event(trace, "one that is cut within its last letter\xc3\xbc", sums, stream, 5000, 6000);
    add_event(trace, "one that never ended", sums, stream, 7000, 0);
    add_event(trace, "norm", QDR_CHANNEL_X_STAT, QDRI_STREAM_OF_COMPUTE, 8000, 9000);
    write_trace(trace, text, sizeof text);
    expect(text, "\"rank 1 (x1 y0 z0 d0)\"");
    expect(text, "\"name\":\"a \\\"quoted\\\" layer\",\"cat\":\"all-reduce\",\"pid\":1,\"tid\":3,");
    expect(text, "\"ts\":1.0,\"dur\":1.5,\"args\":{\"stream\":\"y reduce\",\"axis\":\"y\",\"task\":7,");
    expect(text, "\"latin ?\"");
    expect(text, "\"one that is cut within its last letter?\"");
    assert_null(strstr(text, "never ended"));
    expect(text, "\"pid\":1,\"tid\":11,\"args\":{\"name\":\"x stat\"}");
    expect(text, "\"name\":\"norm\",\"cat\":\"all-reduce\",\"pid\":1,\"tid\":11,"); /* wherever it ran */
    expect(text, "\"ts\":8.0,\"dur\":1.0,\"args\":{\"stream\":\"x stat\",\"axis\":\"x\",");
    expect(text, "\"id\":\"0000000000000abc\",\"rank\":1,\"ranks\":4,\"grid\":[2,2,1,1]");
    expect(text, "\"clock\":[{\"at\":0,\"ahead\":-5,\"bound\":2},{\"at\":1,\"ahead\":-5,\"bound\":2}]");
    qdri_trace_free(&trace);
    assert_null(trace);
}

TEST(levels_have_rows_of_their_own)
{
    static char text[16384];
    qdri_trace *trace = NULL;
    CHECK_OK(qdri_trace_create(5, 8, 0xabc, &trace));
    qdri_trace_next_run(trace, &(qdri_position){.size = {1, 1, 1, 8}, .coordinate = {0, 0, 0, 5}, .near = 4, .far = 2});
    const qdr_channel levels[] = {QDR_CHANNEL_D_NEAR, QDR_CHANNEL_D_FAR, QDR_CHANNEL_D_COPIES};
    for (int i = 0; i < 3; i++)
        add_event(trace, "layer", levels[i], QDRI_STREAM_OF_CHANNEL(levels[i]), 1000 * (i + 1), 1000 * (i + 1) + 500);
    write_trace(trace, text, sizeof text);
    expect(text, "\"grid\":[1,1,1,8],\"levels\":[4,2],\"place\":[0,0,0,5]");
    expect(text, "\"tid\":8,\"args\":{\"name\":\"d near\"}");
    expect(text, "\"tid\":9,\"args\":{\"name\":\"d far\"}");
    expect(text, "\"tid\":10,\"args\":{\"name\":\"d copies\"}");
    expect(text, "\"tid\":9,\"ts\":2.0,\"dur\":0.5,\"args\":{\"stream\":\"d far\",\"axis\":\"d\",");
    qdri_trace_free(&trace);
}

TEST(files_are_no_tasks)
{
    static char text[16384];
    qdri_trace *trace = NULL;
    CHECK_OK(qdri_trace_create(0, 1, 0xabc, &trace));
    assert_int_equal(qdri_trace_run(trace), 0); /* none yet: its events go to the first */
    qdri_trace_add_file(trace, "old.ckpt", "read", qdri_trace_run(trace), 12, 500, 1500);
    for (int i = 0; i < 3; i++) qdri_trace_next_run(trace, &(qdri_position){.size = {1, 1, 1, 1}, .near = 1, .far = 1});
    assert_int_equal(qdri_trace_run(trace), 2);
    qdri_trace_add_file(trace, "new.ckpt", "copy to host", 1, 34, 2000, 3000);
    write_trace(trace, text, sizeof text);
    expect(text, "\"args\":{\"name\":\"file\"}");
    expect(text, "{\"ph\":\"X\",\"name\":\"old.ckpt\",\"cat\":\"read\",\"pid\":0,");
    expect(text, "\"ts\":0.5,\"dur\":1.0,"
                 "\"args\":{\"stream\":\"file\",\"axis\":\"\",\"task\":0,\"run\":0,\"bytes\":12,\"flops\":0.0}}");
    expect(text, "\"name\":\"new.ckpt\",\"cat\":\"copy to host\",\"pid\":0,");
    expect(text, "\"ts\":2.0,\"dur\":1.0,\"args\":{"
                 "\"stream\":\"file\",\"axis\":\"\",\"task\":0,\"run\":1,\"bytes\":34,");
    qdri_trace_free(&trace);
}
