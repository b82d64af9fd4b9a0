/* SPDX-License-Identifier: Apache-2.0 */
/* Times of calls as samples, and how far the measurements are. */
#include <math.h>
#include <stdio.h>

#include "calibrate/calibrate.h"

enum { LEAST_ROUNDS = 3, MOST_ROUNDS = 15 };
#define LONG_SECS 1.0 /* a single call is accurate enough */

/* The calls of a round, one after the other. */
typedef struct round_of_calls {
    const calibrate_work *work;
    int n;
} round_of_calls;

static qdr_status call_round(void *user, int series)
{
    const round_of_calls *calls = user;
    qdr_status status = QDR_OK;
    (void)series;
    for (int i = 0; status >= 0 && i < calls->n; i++) status = calls->work->call(calls->work->user);
    if (status < 0 || !calls->work->ctx) return status;
    return qdr_stream_synchronize(qdr_context_stream(calls->work->ctx));
}

static qdr_status call_once(void *user, int series)
{
    const round_of_calls *calls = user;
    (void)series;
    return calls->work->call(calls->work->user);
}

static int time_rounds(calibration *c, const calibrate_work *work, int n_calls, int n_rounds, int n_warmup,
                       double *secs, failure *why)
{
    round_of_calls calls = {work, n_calls};
    const int is_by_gpu = c->is_on_gpu && work->ctx;
    const bench_subject subject = {.call = is_by_gpu ? call_once : call_round,
                                   .user = &calls,
                                   .stream = is_by_gpu ? qdr_context_stream(work->ctx) : NULL,
                                   .n_calls = n_calls};
    const bench_options options = {.n_iterations = n_rounds, .n_warmup = n_warmup};
    bench_samples samples = {0};
    if (!bench_measure(c->ctx, &options, &subject, 1, 0, &samples, why))
        *secs = bench_times_of(&samples, 0).median / (is_by_gpu ? 1 : n_calls);
    bench_free(&samples);
    return why->code;
}

static int between(double value, int least, int most)
{
    return value < least ? least : value > most ? most : (int)value;
}

int calibrate_time(calibration *c, const calibrate_work *work, double *secs, failure *why)
{
    const double all_secs = c->is_quick ? 0.005 : 0.4;
    const double round_secs = c->is_quick ? 0.001 : work->round_secs > 0.02 ? work->round_secs : 0.02;
    double once = 0;
    if (time_rounds(c, work, 1, 1, 1, &once, why)) return why->code;
    *secs = once;
    if (once > LONG_SECS) return EXIT_OK;
    const int n_calls = between(ceil(round_secs / once), 1, work->n_most);
    const int n_rounds = between(all_secs / (n_calls * once), LEAST_ROUNDS, MOST_ROUNDS);
    return time_rounds(c, work, n_calls, n_rounds | 1, 0, secs, why);
}

void calibrate_add(calibration *c, const qdr_sample *sample)
{
    if (c->n_samples == MAX_SAMPLES || !(sample->secs > 0)) return;
    c->samples[c->n_samples] = *sample;
    c->samples[c->n_samples++].size = sizeof *sample;
    calibrate_show(c, c->stage);
}

void calibrate_show(calibration *c, const char *stage)
{
    c->stage = stage;
    if (!c->shows) return;
    fprintf(stderr, "\r\033[K%s, %d samples", stage, c->n_samples);
    fflush(stderr);
}
