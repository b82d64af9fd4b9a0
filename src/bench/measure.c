/* SPDX-License-Identifier: Apache-2.0 */
/* Times of calls, of the slowest rank: taken in turn, and their statistics. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "common/process.h"
#include "common/statistics.h"

qdr_status bench_all_ranks(qdr_context *ctx, bench_fold fold, double *values, int64_t n)
{
    const size_t bytes = (size_t)n * sizeof *values;
    double *mine = malloc(2 * bytes), *theirs = mine ? mine + n : NULL;
    qdr_status status = qdr_agree(ctx, mine ? QDR_OK : QDR_ERR_MEMORY);
    if (mine && status >= 0) memcpy(mine, values, bytes);
    for (int rank = 0; mine && status >= 0 && rank < qdr_context_size(ctx); rank++) {
        memcpy(theirs, mine, bytes);
        status = qdr_broadcast(ctx, rank, theirs, bytes);
        for (int64_t i = 0; status >= 0 && i < n; i++) {
            const double with = fold == FOLD_SUM ? values[i] + theirs[i] : fmax(values[i], theirs[i]);
            values[i] = rank == 0 ? theirs[i] : with;
        }
    }
    free(mine);
    return status;
}

static qdr_status time_by_host(const bench_subject *subject, int series, double *secs)
{
    const double began = process_secs();
    const qdr_status status = subject->call(subject->user, series);
    *secs = process_secs() - began;
    return status;
}

static qdr_status time_by_stream(const bench_subject *subject, int series, double *secs)
{
    int64_t began_ns = 0, ended_ns = 0;
    qdr_status status = subject->call(subject->user, series);
    if (status >= 0) status = qdr_stream_stamp(subject->stream, &began_ns);
    for (int i = 0; i < subject->n_calls && status >= 0; i++) status = subject->call(subject->user, series);
    if (status >= 0) status = qdr_stream_stamp(subject->stream, &ended_ns);
    const qdr_status ended = qdr_stream_synchronize(subject->stream); /* the times are written until then */
    *secs = 1e-9 * (double)(ended_ns - began_ns) / subject->n_calls;
    return status >= 0 ? ended : status;
}

int bench_measure(qdr_context *ctx, const bench_options *options, const bench_subject *subject, int n_series,
                  int n_more, bench_samples *samples, failure *why)
{
    const int64_t n = options->n_iterations;
    *samples = (bench_samples){.n = n};
    samples->secs = calloc((size_t)(n * (n_series + n_more)), sizeof *samples->secs);
    samples->work = calloc((size_t)n, sizeof *samples->work);
    if (!samples->secs || !samples->work)
        fail_memory(why, "bench: out of memory for the times of %lld iterations", (long long)n);
    if (fail_together(why, ctx) || !samples->secs) return why->code;
    for (int64_t i = -options->n_warmup; i < n; i++)
        for (int series = 0; series < n_series; series++) {
            double secs = 0;
            qdr_status status = subject->before ? subject->before(subject->user, series) : QDR_OK;
            if (status >= 0) status = qdr_barrier(ctx);
            if (status >= 0) status = (subject->stream ? time_by_stream : time_by_host)(subject, series, &secs);
            if (status < 0) return fail_status(why, status);
            if (i >= 0) samples->secs[series * n + i] = secs;
            if (subject->after) subject->after(subject->user, series, i);
        }
    return fail_status(why, bench_all_ranks(ctx, FOLD_MAX, samples->secs, n * n_series));
}

void bench_free(bench_samples *samples)
{
    free(samples->secs);
    free(samples->work);
    *samples = (bench_samples){0};
}

/* Statistics of the times in `work`, which is sorted. */
static bench_times times_of_work(const bench_samples *samples)
{
    double *work = samples->work;
    const double median = statistics_median(work, (size_t)samples->n);
    return (bench_times){median, work[0], statistics_percentile(work, (size_t)samples->n, 0.9)};
}

static const double *series_of(const bench_samples *samples, int series) { return samples->secs + series * samples->n; }

bench_times bench_times_of(const bench_samples *samples, int series)
{
    memcpy(samples->work, series_of(samples, series), (size_t)samples->n * sizeof *samples->work);
    return times_of_work(samples);
}

double bench_ratio(const bench_samples *samples, int a, int b)
{
    const double *above = series_of(samples, a), *below = series_of(samples, b);
    for (int64_t i = 0; i < samples->n; i++) samples->work[i] = above[i] / below[i];
    return times_of_work(samples).median;
}

double bench_difference(const bench_samples *samples, int a, int b)
{
    const double *more = series_of(samples, a), *less = series_of(samples, b);
    for (int64_t i = 0; i < samples->n; i++) samples->work[i] = more[i] - less[i];
    return times_of_work(samples).median;
}

void bench_add(const bench_samples *samples, int a, int b, int sum)
{
    for (int64_t i = 0; i < samples->n; i++)
        samples->secs[sum * samples->n + i] = series_of(samples, a)[i] + series_of(samples, b)[i];
}
