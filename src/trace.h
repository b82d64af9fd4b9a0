/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of all ranks in memory, and what they say: for `quadrille trace`. */
#ifndef QUADRILLE_SRC_TRACE_H
#define QUADRILLE_SRC_TRACE_H

#include <quadrille/grid.h>

#include "failure.h"

#define MAX_STREAM_NAME 24

typedef struct trace_event {
    int stream; /* 0 computes; the others are channels */
    int run;
    char kind[24], name[40];
    double begin, end; /* seconds */
    double bytes;
} trace_event;

typedef struct trace_rank {
    trace_event *events; /* by begin */
    int64_t n_events, n_lost;
} trace_rank;

#define MAX_TRACE_STREAMS 16
typedef struct trace_file {
    int n_ranks;
    trace_rank *ranks;
    char streams[MAX_TRACE_STREAMS][MAX_STREAM_NAME]; /* empty: never used */
    double begin, end; /* of all events */
} trace_file;

/* Reads PATH.0, PATH.1, …, as many as PATH.0 says there are ranks; of each, the last `n_runs`
 * schedules (0: all). */
int trace_read(const char *path, int64_t n_runs, trace_file *trace, failure *why);
void trace_free(trace_file *trace);

/* Of one stream, the mean over the ranks. */
typedef struct trace_sum {
    int64_t n_events; /* of all ranks */
    double secs, hidden_secs, bytes; /* hidden: while the rank computed */
} trace_sum;
trace_sum trace_sum_of(const trace_file *trace, int stream);
/* How long [begin, end) of `rank` lay beside work of its compute stream. */
double trace_hidden(const trace_rank *rank, double begin, double end);

/* Draws the first ranks' streams over time. */
int trace_draw(const trace_file *trace, const char *path, failure *why);

#endif
