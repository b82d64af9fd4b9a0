/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmarks of `quadrille bench` share: their options and one measurement. */
#ifndef QUADRILLE_SRC_BENCH_H
#define QUADRILLE_SRC_BENCH_H

#include <quadrille/linear.h>

#include "options.h"

typedef enum bench_format { FORMAT_TABLE, FORMAT_CSV, FORMAT_JSON } bench_format;

typedef struct bench_options {
    int64_t m, n, k; /* of the global product */
    int64_t n_local, n_threads, n_panels, n_iterations, n_warmup;
    grid_size grid; /* x = 0: one of data parallel ranks */
    int all_grids, backward;
    qdr_dtype dtype;
    qdr_layout layout;
    bench_format format;
} bench_options;

/* Seconds of one kind of call: of each iteration those of the slowest rank. */
typedef struct bench_times {
    double median, min, p90;
} bench_times;
/* Sorts the n values. */
bench_times bench_times_of(double *secs, int64_t n);

/* A pass of the layer on a grid, and the same products of every rank without communication, each
 * iteration of one right after one of the other. */
typedef struct bench_row {
    grid_size grid;
    const char *pass; /* "forward", "backward" */
    double flops; /* of all ranks */
    bench_times layer, limit;
    double share; /* median over the iterations of limit / layer: 1 where nothing is lost */
    int64_t n_samples;
} bench_row;

/* Measures one grid: one row, or two with options->backward. Collective; rows are equal on all
 * ranks. */
enum { MAX_BENCH_ROWS = 2 };
int bench_gemm_grid(qdr_context *ctx, const bench_options *options, grid_size size,
                    bench_row rows[MAX_BENCH_ROWS], failure *why);

#endif
