/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the benchmarks of `quadrille bench`: options, the loop over grids, alternating measurements, statistics,
 * printing. */
#ifndef QUADRILLE_SRC_BENCH_BENCH_H
#define QUADRILLE_SRC_BENCH_BENCH_H

#include <quadrille/quadrille.h>

#include "common/command.h"

/* ---- options ---- */

typedef enum bench_format { FORMAT_TABLE, FORMAT_CSV, FORMAT_JSON } bench_format;

/* Each benchmark's own option struct begins with this one. */
typedef struct bench_options {
    int64_t n_local, n_iterations, n_warmup;
    grid_size grid; /* x = 0: all ranks along d; -1: every grid */
    qdr_dtype dtype;
    bench_format format;
    const char *device;
    /* for products */
    int64_t n_threads, n_panels;
    qdr_layout layout;
} bench_options;

/* The last entries of each benchmark's option table. */
#define BENCH_AT(kind, member) kind, .at = offsetof(bench_options, member)
#define BENCH_COUNT(member, min, max) BENCH_AT(OPTION_COUNT, member), min, max
#define BENCH_DTYPE BENCH_AT(OPTION_DTYPE, dtype), .words = DTYPE_WORDS
#define BENCH_GRID BENCH_AT(OPTION_GRID, grid), .max = 1024, .words = "all"
#define BENCH_LAYOUT BENCH_AT(OPTION_CHOICE, layout), .words = LAYOUT_WORDS
#define BENCH_SPECS                                                                                                    \
    {"dtype", 0, "TYPE", "f32 (default), f64, bf16 or f16", BENCH_DTYPE},                                              \
        {"grid", 0, "GRID", "GXxGYxGZxGD, or all (every grid of the ranks); default 1x1x1xP", BENCH_GRID},             \
        {"local", 0, "P", "run P ranks as threads of one process, without MPI", BENCH_COUNT(n_local, 1, 1024)},        \
        OPTIONS_DEVICE(bench_options, device), OPTIONS_TIMEOUT,                                                        \
        {"iterations", 0, "N", "measured iterations; default 10, for ckpt 7, for coll 20",                             \
         BENCH_COUNT(n_iterations, 1, 1000000)},                                                                       \
        {"warmup", 0, "N", "warm-up iterations; default 2, for ckpt 1, for coll 5",                                    \
         BENCH_COUNT(n_warmup, 0, 1000000)},                                                                           \
        {"csv", 0, NULL, "print comma-separated values", BENCH_AT(OPTION_VALUE, format), FORMAT_CSV},                  \
        {"json", 0, NULL, "print one JSON object", BENCH_AT(OPTION_VALUE, format), FORMAT_JSON}, OPTIONS_END

/* The same for benchmarks of products. */
#define BENCH_PRODUCT_SPECS                                                                                            \
    {"layout", 0, "LAYOUT", "replicated (default) or scattered", BENCH_LAYOUT},                                        \
        {"panels", 0, "N", "row panels of each product; default: chosen by cost", BENCH_COUNT(n_panels, 1, 1024)},     \
        {"threads", 0, "N", "threads per rank; default: cores / ranks", BENCH_COUNT(n_threads, 1, 1024)}, BENCH_SPECS

#define BENCH_LEVELS_HELP                                                                                              \
    "numbers of ranks that gradients (GP) and optimizer state (OP) are split over, each a number, module, cache, "     \
    "numa, package, node or all; or none (default), zero1, zero2"

/* ---- printing ---- */

typedef struct bench_value {
    const char *text; /* NULL: it is a number; number NAN: no value */
    double number;
    int is_whole, n_digits; /* digits in the table, after the decimal point */
    double scale; /* factor in the table */
    int is_left_out; /* in all rows: the column is not printed */
} bench_value;
#define BENCH_TEXT(words) ((bench_value){.text = (words)})
#define BENCH_WHOLE(value) ((bench_value){.number = (double)(value), .is_whole = 1, .scale = 1})
#define BENCH_REAL(value, factor, digits) ((bench_value){.number = (value), .scale = (factor), .n_digits = (digits)})
#define BENCH_IF(is_wanted, value) ((is_wanted) ? (value) : (bench_value){.is_left_out = 1})

/* A value of a row, with its column of the table and of the CSV, which is a member of each JSON row. */
typedef struct bench_cell {
    const char *name; /* in CSV and JSON */
    const char *title, *unit; /* in the table; no title: a setting, equal in all rows, printed in the table's heading
                               * and once in JSON */
    int width; /* in the table */
    bench_value value;
} bench_cell;
#define BENCH_SETTING(name, value)                                                                                     \
    {                                                                                                                  \
        name, NULL, NULL, 0, value                                                                                     \
    }
/* Median, minimum and 90th percentile of the times of one series. */
#define BENCH_TIMES(prefix, unit, scale, times)                                                                        \
    {prefix "median_secs", "median", unit, 10, BENCH_REAL((times).median, scale, 3)},                                  \
        {prefix "min_secs", "min", unit, 10, BENCH_REAL((times).min, scale, 3)},                                       \
    {                                                                                                                  \
        prefix "p90_secs", "p90", unit, 10, BENCH_REAL((times).p90, scale, 3)                                          \
    }

typedef struct bench_table {
    char title[512]; /* comment lines of the table, each with "# " and a newline */
    bench_format format;
    const char *device; /* "cpu" or "cuda": in each JSON, each row of CSV, and the heading of tables of GPUs */
    int n_rows; /* printed */
} bench_table;

/* ---- the loop over grids ---- */

/* A benchmark on one rank. */
typedef struct bench_run {
    qdr_context *ctx;
    bench_table table; /* printed by rank 0 */
    int n_left_out; /* grids that the options do not suit */
    int64_t n_wrong; /* incorrect results; equal on all ranks */
} bench_run;

typedef struct bench_kind {
    const command *command;
    /* Checks and completes the options before anything starts; may be NULL. */
    int (*check)(void *options, failure *why);
    void (*write_title)(const void *options, int n_ranks, char *title, size_t capacity);
    /* Measures one grid and passes rows to BENCH_ROW(). Collective, with the same result on all ranks. */
    int (*run_grid)(bench_run *run, const void *options, grid_size size, failure *why);
} bench_kind;

/* The whole command; argv[0] is its name. Returns the exit code. */
int bench_main(const bench_kind *kind, bench_options *options, int argc, char **argv);
/* A grid, with levels in words if they are not NULL; stays NULL, without a failure, where they do not suit one of all
 * grids, which is said. Collective, agrees. */
int bench_make_grid(bench_run *run, const bench_options *options, const char *levels, grid_size size, qdr_grid **grid,
                    failure *why);
/* Prints a row: an array of cells, with the same columns in each row of a run. */
#define BENCH_ROW(run, cells) bench_row(run, cells, (int)(sizeof(cells) / sizeof *(cells)))
void bench_row(bench_run *run, const bench_cell *cells, int n_cells);

/* ---- measuring ---- */

/* Times of one series of calls; the time of an iteration is that of its slowest rank. */
typedef struct bench_times {
    double median, min, p90;
} bench_times;

/* Times of several kinds of calls. */
typedef struct bench_samples {
    int64_t n; /* number of iterations */
    double *secs; /* [series][iteration] */
    double *work; /* scratch space for one series */
} bench_samples;

/* What is measured. `before` and `after` are called before and after each iteration, outside its time, and may be NULL;
 * warm-up iterations have negative numbers. */
typedef struct bench_subject {
    qdr_status (*before)(void *user, int series);
    qdr_status (*call)(void *user, int series); /* returns when its work is complete, unless there is a stream */
    void (*after)(void *user, int series, int64_t iteration);
    void *user;
    /* On a GPU: calls only enqueue, on this stream. An iteration is the mean of n_calls in a row, between two of the
     * stream's times, after one call by which ranks begin together. NULL: the host's clock tells the time of one. */
    qdr_stream *stream;
    int n_calls;
} bench_subject;

/* Each iteration calls all series once, one after the other, with all ranks starting together. Leaves room for n_more
 * series after them. Collective, with the same result on all ranks; free the samples in any case. */
int bench_measure(qdr_context *ctx, const bench_options *options, const bench_subject *subject, int n_series,
                  int n_more, bench_samples *samples, failure *why);
void bench_free(bench_samples *samples);
bench_times bench_times_of(const bench_samples *samples, int series);
/* Medians of a / b and of a - b over the iterations. */
double bench_ratio(const bench_samples *samples, int a, int b);
double bench_difference(const bench_samples *samples, int a, int b);
/* Sets series `sum` to a + b. */
void bench_add(const bench_samples *samples, int a, int b, int sum);
/* Replaces each of the n values by the maximum, or the sum, over all ranks. Collective, blocking; uses other calls than
 * those that are measured. */
typedef enum bench_fold { FOLD_MAX, FOLD_SUM } bench_fold;
qdr_status bench_all_ranks(qdr_context *ctx, bench_fold fold, double *values, int64_t n);

/* ---- the benchmarks ---- */

extern const command command_bench_ckpt, command_bench_codec, command_bench_coll, command_bench_layer,
    command_bench_linear;

#endif
