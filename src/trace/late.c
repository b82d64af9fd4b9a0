/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks waited for others: the ranks of a group begin a collective at different times, and none can end it before
 * the last one has begun. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace/trace.h"

/* One rank's part in a collective; the other members of its group have the same numbers. */
typedef struct share {
    int stream, group, run, number; /* number: of the collective on its stream in that schedule */
    trace_event *event;
} share;

/* Kinds in which each member needs data from each other member. */
static int meets(const trace_event *event)
{
    static const qdr_coll_kind kinds[] = {QDR_ALL_GATHER, QDR_REDUCE_SCATTER, QDR_ALL_REDUCE};
    for (size_t i = 0; event->stream > 0 && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(event->kind, qdr_coll_kind_name(kinds[i])) == 0) return 1;
    return 0;
}

/* Appends the shares of a rank to the list of n. */
static void add_shares(trace_rank *rank, share *list, size_t *n)
{
    int run[N_TRACE_STREAMS], number[N_TRACE_STREAMS] = {0};
    for (int stream = 0; stream < N_TRACE_STREAMS; stream++) run[stream] = -1;
    for (int64_t i = 0; i < rank->n_events; i++) {
        trace_event *event = &rank->events[i];
        const int s = event->stream;
        if (!meets(event)) continue;
        number[s] = event->run == run[s] ? number[s] + 1 : 0;
        run[s] = event->run;
        int group = 0; /* a number shared by the ranks that differ in this axis only */
        for (int axis = 0; axis < QDR_N_AXES; axis++)
            if (axis != trace_stream_axis(s)) group = group * rank->grid[axis] + rank->place[axis];
        list[(*n)++] = (share){s, group, run[s], number[s], event};
    }
}

static int by_collective(const void *a, const void *b)
{
    const share *x = a, *y = b;
    if (x->stream != y->stream) return x->stream < y->stream ? -1 : 1;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    if (x->run != y->run) return x->run < y->run ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

int trace_find_late(trace_file *trace, failure *why)
{
    size_t n = 0, most = 1;
    for (int r = 0; r < trace->n_ranks; r++) {
        const trace_rank *rank = &trace->ranks[r];
        /* Times must be comparable, and all ranks in the same grid. */
        if (!rank->n_clocks || memcmp(rank->grid, trace->ranks[0].grid, sizeof rank->grid) != 0) return EXIT_OK;
        most += (size_t)rank->n_events;
    }
    share *list = malloc(most * sizeof *list);
    if (!list) return fail(why, EXIT_NOTHING_FITS, "trace: out of memory for %zu events", most);
    for (int r = 0; r < trace->n_ranks; r++) add_shares(&trace->ranks[r], list, &n);
    qsort(list, n, sizeof *list, by_collective);
    for (size_t begin = 0, end; begin < n; begin = end) {
        const share *first = &list[begin];
        for (end = begin + 1; end < n && by_collective(first, &list[end]) == 0;) end++;
        if ((int)(end - begin) == trace->ranks[0].grid[trace_stream_axis(first->stream)]) {
            double last = -INFINITY;
            for (size_t i = 0; i < end - begin; i++) last = fmax(last, first[i].event->begin);
            for (size_t i = 0; i < end - begin; i++) {
                trace_event *event = first[i].event;
                event->late = fmin(last, event->end) - event->begin;
            }
        }
    }
    free(list);
    return EXIT_OK;
}
