/* SPDX-License-Identifier: Apache-2.0 */
/* Times in traces: one clock for all ranks, and how much of each stream overlaps with computation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace/trace.h"

/* ---- clocks ---- */

double trace_align(const trace_clock *clocks, int n_clocks, double secs)
{
    if (n_clocks == 0) return secs;
    const trace_clock *first = &clocks[0], *last = &clocks[n_clocks - 1];
    const double apart = last->at - first->at;
    const double share = apart > 0 ? (secs - first->at) / apart : 0;
    return secs - first->ahead - share * (last->ahead - first->ahead);
}

/* Each rank may be off by its own bound, in opposite directions. */
double trace_clock_bound(const trace_file *trace)
{
    double most = 0, second = 0;
    for (int r = 0; r < trace->n_ranks; r++) {
        const trace_rank *rank = &trace->ranks[r];
        double bound = 0;
        for (int i = 0; i < rank->n_clocks; i++) bound = fmax(bound, rank->clocks[i].bound);
        second = fmax(second, fmin(most, bound));
        most = fmax(most, bound);
    }
    return most + second;
}

/* ---- computation ---- */

int64_t trace_find_work(const trace_rank *rank, double time)
{
    int64_t low = 0, high = rank->n_work;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (rank->work[middle].end > time)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* How long the rank had computed before `time`. */
static double worked_before(const trace_rank *rank, double time)
{
    const int64_t i = trace_find_work(rank, time);
    if (i < rank->n_work) {
        const trace_work *work = &rank->work[i];
        return work->before + fmax(0, time - work->begin);
    }
    if (i == 0) return 0;
    return rank->work[i - 1].before + rank->work[i - 1].end - rank->work[i - 1].begin;
}

/* ---- schedules ---- */

/* The last that an optimizer ended, since validations of its run may follow; without an optimizer the last of all. */
static int last_run(const trace_file *trace)
{
    int of_steps = -1, of_all = 0;
    for (int r = 0; r < trace->n_ranks; r++)
        for (int64_t i = 0; i < trace->ranks[r].n_events; i++) {
            const trace_event *event = &trace->ranks[r].events[i];
            if (event->run > of_all) of_all = event->run;
            if (event->run > of_steps && strncmp(event->kind, "adamw", 5) == 0) of_steps = event->run;
        }
    return of_steps < 0 ? of_all : of_steps;
}

void trace_keep_last(trace_file *trace, int64_t n_runs)
{
    const int until = last_run(trace);
    if (n_runs) trace->n_runs = until + 1;
    trace->begin = INFINITY;
    trace->end = -INFINITY;
    for (int stream = 0; stream < N_TRACE_STREAMS; stream++) trace->is_used[stream] = 0;
    for (int r = 0; r < trace->n_ranks; r++) {
        trace_rank *rank = &trace->ranks[r];
        if (n_runs) {
            int64_t n = 0;
            for (int64_t i = 0; i < rank->n_events; i++) {
                const trace_event event = rank->events[i];
                if (event.run <= until && event.run > until - n_runs) rank->events[n++] = event;
            }
            rank->n_events = n;
        }
        rank->n_work = 0;
        for (int64_t i = 0; i < rank->n_events; i++) {
            const trace_event *event = &rank->events[i];
            trace_work *last = rank->n_work ? &rank->work[rank->n_work - 1] : NULL;
            trace->begin = fmin(trace->begin, event->begin);
            trace->end = fmax(trace->end, event->end);
            trace->is_used[event->stream] = 1;
            /* Tasks of one stream follow each other; several streams of the caller may overlap. */
            if (event->stream != 0) continue;
            if (last && event->begin <= last->end)
                last->end = fmax(last->end, event->end);
            else
                rank->work[rank->n_work++] = (trace_work){event->begin, event->end,
                                                          last ? last->before + last->end - last->begin : 0};
        }
    }
}

void trace_add_stream(const trace_file *trace, int stream, const char *kind, trace_sum *sum)
{
    for (int r = 0; r < trace->n_ranks; r++) {
        const trace_rank *rank = &trace->ranks[r];
        for (int64_t i = 0; i < rank->n_events; i++) {
            const trace_event *event = &rank->events[i];
            if (event->stream != stream || (kind && strcmp(event->kind, kind) != 0)) continue;
            sum->n_events++;
            sum->bytes += event->bytes / trace->n_ranks;
            sum->plain_bytes += event->plain_bytes / trace->n_ranks;
            sum->codec_secs += event->codec_secs / trace->n_ranks;
            sum->secs += (event->end - event->begin) / trace->n_ranks;
            sum->late_secs += event->late / trace->n_ranks;
            sum->hidden_secs += (worked_before(rank, event->end) - worked_before(rank, event->begin)) / trace->n_ranks;
        }
    }
}

trace_last trace_find_last(const trace_file *trace)
{
    trace_last most = {.rank = -1};
    int64_t n_all = 0;
    const double bound = trace_clock_bound(trace);
    for (int r = 0; r < trace->n_ranks; r++) {
        trace_last one = {.rank = r};
        for (int64_t i = 0; i < trace->ranks[r].n_events; i++) {
            const double secs = trace->ranks[r].events[i].last_by;
            if (secs <= bound) continue; /* the clocks do not tell */
            one.n++;
            one.secs += secs;
        }
        n_all += one.n;
        if (one.n > most.n) most = one;
    }
    most.n_all = n_all;
    return most;
}

/* ---- idle time ---- */

static void add_wait(trace_idle *idle, const char *kind, double secs)
{
    const int most = (int)(sizeof idle->before / sizeof *idle->before);
    int i = 0;
    while (i < idle->n_before && strcmp(idle->before[i].kind, kind) != 0) i++;
    if (i == most) return;
    if (i == idle->n_before) idle->before[idle->n_before++] = (trace_wait){kind, 0};
    idle->before[i].secs += secs;
}

/* Between the begins of two events nothing changes but that work ends: the latest end of each kind says when. */
static void add_idle(const trace_file *trace, const trace_rank *rank, trace_idle *idle)
{
    const double share = 1.0 / trace->n_ranks;
    double at = trace->begin, computing = at, sending = at, writing = at;
    double wait = 0, rest = 0; /* since the last task that computed; since the last task of any kind */
    int run = -1;
    for (int64_t i = 0; i <= rank->n_events; i++) {
        const trace_event *event = i < rank->n_events ? &rank->events[i] : NULL;
        const double next = event ? event->begin : trace->end;
        const double idle_from = fmin(fmax(at, computing), next), silent_from = fmin(fmax(idle_from, sending), next);
        const double rest_from = fmin(fmax(silent_from, writing), next);
        idle->secs[TRACE_IDLE_COLLECTIVES] += share * (silent_from - idle_from);
        idle->secs[TRACE_IDLE_FILES] += share * (rest_from - silent_from);
        wait += share * (next - idle_from);
        rest += share * (next - rest_from);
        at = next;
        if (event && event->stream == TRACE_FILES) {
            writing = fmax(writing, event->end);
            continue;
        }
        idle->secs[event && event->run == run ? TRACE_IDLE_TASKS : TRACE_IDLE_PASSES] += rest;
        rest = 0;
        if (!event) return;
        run = event->run;
        if (event->stream > 0) {
            sending = fmax(sending, event->end);
            continue;
        }
        computing = fmax(computing, event->end);
        if (wait > 0) add_wait(idle, event->kind, wait);
        wait = 0;
    }
}

static int longest_first(const void *a, const void *b)
{
    const double x = ((const trace_wait *)a)->secs, y = ((const trace_wait *)b)->secs;
    return (x < y) - (x > y);
}

trace_idle trace_find_idle(const trace_file *trace)
{
    trace_idle idle = {0};
    for (int r = 0; r < trace->n_ranks; r++) add_idle(trace, &trace->ranks[r], &idle);
    qsort(idle.before, (size_t)idle.n_before, sizeof *idle.before, longest_first);
    return idle;
}
