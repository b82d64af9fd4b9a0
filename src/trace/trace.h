/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of all ranks in memory, on one clock, and their evaluation, for `quadrille trace`. */
#ifndef QUADRILLE_SRC_TRACE_TRACE_H
#define QUADRILLE_SRC_TRACE_TRACE_H

#include <quadrille/grid.h>
#include <stdio.h>

#include "common/failure.h"

/* 0 is the compute stream; from 1 on channels; the last one is that of files. */
enum { TRACE_FILES = 1 + QDR_N_CHANNELS, N_TRACE_STREAMS };
const char *trace_stream_name(int stream);
/* The qdr_axis of a channel; -1: it is none. */
int trace_stream_axis(int stream);
static inline int trace_is_channel(int stream) { return stream > 0 && stream < TRACE_FILES; }
/* What happens to files, copying first; NULL at the end. */
extern const char *const trace_file_kinds[];

typedef struct trace_event {
    int stream, run, task; /* run: number of the schedule, from 0 */
    char kind[24], name[40]; /* UTF-8 */
    double begin, end; /* seconds on rank 0's clock */
    double late; /* seconds from its begin until the last rank of its group had begun, or until it ended */
    double last_by; /* seconds that it began after all others of its group; 0: it was not the last, or nobody knows */
    double bytes, flops;
    double plain_bytes, codec_secs; /* bytes without a codec; encoding and decoding */
} trace_event;

/* Offset of a rank's clock from rank 0's, in seconds. */
typedef struct trace_clock {
    double at, ahead, bound; /* at: on the rank's clock; bound: of the error of `ahead` */
} trace_clock;

/* An interval in which the compute stream was never idle, and the total busy time before it. */
typedef struct trace_work {
    double begin, end, before;
} trace_work;

typedef struct trace_rank {
    trace_event *events; /* sorted by begin */
    int64_t n_events, n_lost;
    int grid[QDR_N_AXES], position[QDR_N_AXES]; /* grid: 0x0x0x0 if no schedule ran */
    int near, far; /* ranks that d's levels have, 1: none; 0: no schedule ran */
    trace_clock clocks[2]; /* when its context was created, and destroyed */
    int n_clocks;
    trace_work *work; /* sorted by begin, disjoint */
    int64_t n_work;
} trace_rank;

typedef struct trace_file {
    int n_ranks, n_runs; /* runs: before any but the last were dropped */
    trace_rank *ranks;
    char id[24]; /* of the program's run */
    int is_used[N_TRACE_STREAMS];
    double begin, end; /* of all events */
} trace_file;

/* Reads PATH.0, PATH.1, …; PATH.0 states the number of ranks. */
int trace_read(const char *path, trace_file *trace, failure *why);
void trace_free(trace_file *trace);
/* Writes "x0 y1 z0 d0" to `text`, or nothing if no schedule ran. */
void trace_position(const trace_rank *rank, char *text, size_t capacity);
/* Writes ", grid 1x1x2x4, levels 4,8: near 2, far 2, copies 1" to `text`, without levels where it has none, or nothing
 * if no schedule ran. */
void trace_grid(const trace_rank *rank, char *text, size_t capacity);

/* ---- times: time.c ---- */

/* The time on rank 0's clock when this rank's clock shows `secs`: between two comparisons, and beyond them, clocks
 * drift linearly. Without a comparison it is `secs`. */
double trace_align(const trace_clock *clocks, int n_clocks, double secs);
/* The largest possible error when times of two ranks are compared. */
double trace_clock_bound(const trace_file *trace);
/* Drops all but the last n_runs schedules of each rank (0: keeps all), and what follows an optimizer's last, and
 * computes the sums of the rest. */
void trace_keep_last(trace_file *trace, int64_t n_runs);
/* Index of the first work interval that ends after `time`. */
int64_t trace_find_work(const trace_rank *rank, double time);

/* Totals of some streams, averaged over the ranks. */
typedef struct trace_sum {
    int64_t n_events; /* over all ranks */
    double secs, hidden_secs, late_secs, bytes; /* hidden: while the rank computed */
    double plain_bytes, codec_secs;
} trace_sum;
/* kind: NULL: all. */
void trace_add_stream(const trace_file *trace, int stream, const char *kind, trace_sum *sum);

/* The rank that began most collectives as the last of its group. */
typedef struct trace_last {
    int rank; /* -1: none */
    int64_t n, n_all; /* collectives in which this rank was the last; those in which the last rank is known */
    double secs; /* by how much, altogether */
} trace_last;
trace_last trace_find_last(const trace_file *trace);

/* What the ranks did while they did not compute, averaged over them; the earlier kind counts where two apply. */
typedef enum trace_idle_kind {
    TRACE_IDLE_COLLECTIVES, /* collectives ran */
    TRACE_IDLE_FILES, /* files were written or read */
    TRACE_IDLE_TASKS, /* between two tasks of a pass */
    TRACE_IDLE_PASSES, /* before, between and after passes */
    TRACE_N_IDLE
} trace_idle_kind;
typedef struct trace_wait {
    const char *kind; /* of the task that ended it; belongs to the trace */
    double secs;
} trace_wait;
typedef struct trace_idle {
    double secs[TRACE_N_IDLE];
    trace_wait before[64]; /* the longest first; further kinds are left out */
    int n_before;
} trace_idle;
trace_idle trace_find_idle(const trace_file *trace);

/* ---- pictures: draw.c ---- */

/* The first ranks' streams over time, as SVG. */
void trace_draw(FILE *file, const void *trace, failure *why);

#endif
