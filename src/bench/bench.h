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

typedef enum bench_value_kind { VALUE_TEXT, VALUE_WHOLE, VALUE_REAL } bench_value_kind;

/* A column of the table and of the CSV, and a member of each JSON row. A list of columns ends with one that has no
 * name. */
typedef struct bench_column {
    const char *name; /* in CSV and JSON */
    const char *title, *unit; /* in the table; no title: a setting, equal in all rows, printed in the table's heading
                               * and once in JSON */
    bench_value_kind kind;
    int width; /* in the table */
    double scale; /* factor for real numbers in the table */
    int n_digits; /* after the decimal point */
} bench_column;
#define BENCH_SETTING(name, kind)                                                                                      \
    {                                                                                                                  \
        name, NULL, NULL, kind, 0, 0, 0                                                                                \
    }
#define BENCH_LAST_COLUMN BENCH_SETTING(NULL, VALUE_TEXT)

typedef struct bench_value {
    const char *text; /* NULL: it is a number; number NAN: no value */
    double number;
    int is_left_out; /* in all rows: the column is not printed */
} bench_value;
#define BENCH_TEXT(words) ((bench_value){.text = (words)})
#define BENCH_NUMBER(value) ((bench_value){.number = (double)(value)})
#define BENCH_IF(is_wanted, value) ((is_wanted) ? (value) : (bench_value){.is_left_out = 1})

/* Median, minimum and 90th percentile of the times of one series: the columns, and their values. */
#define BENCH_TIME_COLUMNS(prefix, unit, scale)                                                                        \
    {prefix "median_secs", "median", unit, VALUE_REAL, 10, scale, 3},                                                  \
        {prefix "min_secs", "min", unit, VALUE_REAL, 10, scale, 3},                                                    \
    {                                                                                                                  \
        prefix "p90_secs", "p90", unit, VALUE_REAL, 10, scale, 3                                                       \
    }
#define BENCH_TIME_VALUES(times) BENCH_NUMBER((times).median), BENCH_NUMBER((times).min), BENCH_NUMBER((times).p90)

typedef struct bench_table {
    const bench_column *columns;
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
    const bench_column *columns;
    /* Checks and completes the options before anything starts; may be NULL. */
    int (*check)(void *options, failure *why);
    void (*write_title)(const void *options, int n_ranks, char *title, size_t capacity);
    /* Measures one grid and passes rows to BENCH_ROW(). Collective, with the same result on all ranks. */
    int (*run_grid)(bench_run *run, const void *options, grid_size size, failure *why);
} bench_kind;

/* The whole command; argv[0] is its name. Returns the exit code. */
int bench_main(const bench_kind *kind, bench_options *options, int argc, char **argv);
/* A grid, with levels in words if they are not NULL. Collective, agrees. */
qdr_status bench_make_grid(qdr_context *ctx, const char *levels, grid_size size, qdr_grid **grid);
/* Says that the levels do not suit one of all grids. Returns EXIT_OK. */
int bench_leave_out(bench_run *run, grid_size size);
/* Prints a row. values: an array with one value for each entry of the array of columns, which are the table's. */
#define BENCH_ROW(run, columns, values)                                                                                \
    do {                                                                                                               \
        _Static_assert(sizeof(values) / sizeof *(values) + 1 == sizeof(columns) / sizeof *(columns),                   \
                       "a value for each column");                                                                     \
        bench_row(run, values);                                                                                        \
    } while (0)
void bench_row(bench_run *run, const bench_value *values);

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
