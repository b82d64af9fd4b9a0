/* SPDX-License-Identifier: Apache-2.0 */
/* Times in traces: one clock for all ranks, and how much of each stream overlaps with computation. */
#include <math.h>
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

void trace_keep_last(trace_file *trace, int64_t n_runs)
{
    trace->begin = INFINITY;
    trace->end = -INFINITY;
    for (int stream = 0; stream < N_TRACE_STREAMS; stream++) trace->is_used[stream] = 0;
    for (int r = 0; r < trace->n_ranks; r++) {
        trace_rank *rank = &trace->ranks[r];
        if (n_runs) {
            int64_t n = 0, last = 0;
            for (int64_t i = 0; i < rank->n_events; i++)
                if (rank->events[i].run > last) last = rank->events[i].run;
            for (int64_t i = 0; i < rank->n_events; i++)
                if (rank->events[i].run > last - n_runs) rank->events[n++] = rank->events[i];
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
