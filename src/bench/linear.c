/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille bench linear`: one layer on grids, and where its time goes: products, bytes sent over each axis, exposed
 * communication. */
#include <stdio.h>

#include "bench/product.h"

typedef struct linear_options {
    bench_options shared;
    product_extents extents;
    int transposed, bias;
} linear_options;

static const option_spec specs[] = {
    PRODUCT_EXTENT_SPECS(linear_options),
    {"transposed", 0, NULL, "swap x and y", OPTION_FLAG, .at = offsetof(linear_options, transposed)},
    {"bias", 0, NULL, "add a bias", OPTION_FLAG, .at = offsetof(linear_options, bias)},
    BENCH_PRODUCT_SPECS,
};

#define TRAFFIC_COLUMNS(axis)                                                                                          \
    {axis "_bytes", axis " sends", "(MB)", VALUE_REAL, 9, 1e-6, 3},                                                    \
    {                                                                                                                  \
        axis "_secs", axis " takes", "(ms)", VALUE_REAL, 8, 1e3, 3                                                     \
    }

static const bench_column columns[] = {
    {"grid", "grid", "", VALUE_TEXT, 12, 0, 0},
    {"pass", "pass", "", VALUE_TEXT, 9, 0, 0},
    PRODUCT_EXTENT_COLUMNS,
    BENCH_SETTING("dtype", VALUE_TEXT),
    BENCH_SETTING("layout", VALUE_TEXT),
    BENCH_SETTING("transposed", VALUE_WHOLE),
    BENCH_SETTING("bias", VALUE_WHOLE),
    BENCH_SETTING("ranks", VALUE_WHOLE),
    {"local_m", "local m", "", VALUE_WHOLE, 7, 1, 0},
    {"local_n", "local n", "", VALUE_WHOLE, 7, 1, 0},
    {"local_k", "local k", "", VALUE_WHOLE, 7, 1, 0},
    BENCH_TIME_COLUMNS("", "(ms)", 1e3),
    {"gflops", "rate", "(GFLOP/s)", VALUE_REAL, 9, 1, 1},
    {"limit_median_secs", "limit", "(ms)", VALUE_REAL, 10, 1e3, 3},
    {"share", "share", "", VALUE_REAL, 6, 1, 3},
    {"exposed_secs", "exposed", "(ms)", VALUE_REAL, 8, 1e3, 3},
    TRAFFIC_COLUMNS("x"),
    TRAFFIC_COLUMNS("y"),
    TRAFFIC_COLUMNS("z"),
    TRAFFIC_COLUMNS("d"),
    {"samples", "samples", "", VALUE_WHOLE, 7, 1, 0},
    BENCH_LAST_COLUMN,
};

static void write_title(const void *user, int n_ranks, char *title, size_t capacity)
{
    const linear_options *options = user;
    snprintf(title, capacity,
             "# Y = X·Wᵀ%s with m=%lld n=%lld k=%lld, %s, %s%s, %d rank%s\n"
             "# times of the slowest rank; limit: each rank's products alone, alternating; share: "
             "median of limit / time; exposed: of time - limit\n"
             "# an axis sends: per pass, the rank that sends most; takes: its collectives, hidden "
             "or not\n",
             options->bias ? " + b" : "", (long long)options->extents.m, (long long)options->extents.n,
             (long long)options->extents.k, qdr_dtype_name(options->shared.dtype), layout_word(options->shared.layout),
             options->transposed ? ", transposed" : "", n_ranks, n_ranks == 1 ? "" : "s");
}

/* ---- what each axis sends ---- */

/* Bytes and seconds of each pass, over all measured iterations. */
typedef struct axis_traffic {
    double bytes, secs;
} axis_traffic;

typedef struct linear_bench {
    product_pair pair; /* must be first: product_pair_call() receives a pointer to it */
    axis_traffic traffic[N_PASSES][QDR_N_AXES];
} linear_bench;

/* The counters hold one call of the layer on the grid. */
static void count_traffic(void *user, int series, int64_t iteration)
{
    linear_bench *bench = user;
    qdr_grid *grid = bench->pair.on_grid.grid;
    for (int channel = 0; iteration >= 0 && channel < QDR_N_CHANNELS; channel++)
        for (int coll = 0; coll < QDR_N_COLL_KINDS; coll++) {
            const qdr_traffic sent = qdr_grid_traffic(grid, (qdr_channel)channel, (qdr_coll_kind)coll);
            axis_traffic *sum = &bench->traffic[series / 2][qdr_channel_axis((qdr_channel)channel)];
            sum->bytes += (double)sent.bytes_sent;
            sum->secs += sent.secs;
        }
    qdr_grid_reset_traffic(grid);
}

/* ---- one grid ---- */

typedef struct local_shape {
    int64_t m, n, k;
} local_shape;

static void print_pass(bench_run *run, const linear_options *options, const char *grid, const bench_samples *samples,
                       const local_shape *local, product_pass pass, const axis_traffic traffic[QDR_N_AXES])
{
    const int on_grid = 2 * (int)pass, limit = on_grid + 1;
    const bench_times times = bench_times_of(samples, on_grid);
    const double flops = product_flops(options->extents.m, options->extents.n, options->extents.k, pass);
    const double n = (double)samples->n;
#define AXIS(axis) BENCH_NUMBER(traffic[axis].bytes / n), BENCH_NUMBER(traffic[axis].secs / n)
    const bench_value values[] = {
        BENCH_TEXT(grid),
        BENCH_TEXT(product_pass_text(pass)),
        PRODUCT_EXTENT_VALUES(options->extents),
        BENCH_TEXT(qdr_dtype_name(options->shared.dtype)),
        BENCH_TEXT(layout_word(options->shared.layout)),
        BENCH_NUMBER(options->transposed),
        BENCH_NUMBER(options->bias),
        BENCH_NUMBER(qdr_context_size(run->ctx)),
        BENCH_NUMBER(local->m),
        BENCH_NUMBER(local->n),
        BENCH_NUMBER(local->k),
        BENCH_TIME_VALUES(times),
        BENCH_NUMBER(1e-9 * flops / times.median),
        BENCH_NUMBER(bench_times_of(samples, limit).median),
        BENCH_NUMBER(bench_ratio(samples, limit, on_grid)),
        BENCH_NUMBER(bench_difference(samples, on_grid, limit)),
        AXIS(QDR_X),
        AXIS(QDR_Y),
        AXIS(QDR_Z),
        AXIS(QDR_D),
        BENCH_NUMBER(samples->n),
    };
#undef AXIS
    BENCH_ROW(run, columns, values);
}

static int measure(bench_run *run, const linear_options *options, grid_size size, linear_bench *bench,
                   bench_samples *samples, failure *why)
{
    const bench_subject subject = {product_pair_call, count_traffic, bench};
    local_shape local = {0, 0, 0};
    char grid[64];
    bench_grid_text(size, grid);
    qdr_grid_reset_traffic(bench->pair.on_grid.grid);
    if (bench_measure(run->ctx, &options->shared, &subject, N_PAIR_SERIES, 0, samples, why)) return why->code;
    qdr_status status = product_own_shape(bench->pair.on_grid.grid, bench->pair.on_grid.layer, &local.m, &local.n,
                                          &local.k); /* rank 0's, which are the largest */
    if (status >= 0)
        status = bench_all_ranks(run->ctx, FOLD_MAX, &bench->traffic[0][0].bytes,
                                 sizeof bench->traffic / sizeof(double));
    if (fail_status(why, status)) return why->code;
    for (int pass = 0; pass < N_PASSES; pass++)
        print_pass(run, options, grid, samples, &local, (product_pass)pass, bench->traffic[pass]);
    return EXIT_OK;
}

static int run_grid(bench_run *run, const void *user, grid_size size, failure *why)
{
    const linear_options *options = user;
    const product_desc desc = {.m = options->extents.m,
                               .n = options->extents.n,
                               .k = options->extents.k,
                               .dtype = options->shared.dtype,
                               .layout = options->shared.layout,
                               .n_panels = (int)options->shared.n_panels,
                               .transposed = options->transposed,
                               .bias = options->bias};
    linear_bench bench = {0};
    bench_samples samples = {0};
    if (!fail_status(why, product_pair_create(run->ctx, size, &desc, &bench.pair)))
        measure(run, options, size, &bench, &samples, why);
    bench_free(&samples);
    product_pair_destroy(&bench.pair);
    return why->code;
}

static const bench_kind kind = {
    .command = &command_bench_linear,
    .columns = columns,
    .write_title = write_title,
    .run_grid = run_grid,
};

static int run(int argc, char **argv)
{
    linear_options options = {.shared = {.n_iterations = 10, .n_warmup = 2}, .extents = PRODUCT_DEFAULT_EXTENTS};
    return bench_main(&kind, &options.shared, argc, argv);
}

const command command_bench_linear = {
    .name = "bench linear",
    .summary = "one layer: products, bytes and time of each axis, exposed time",
    .usage = "quadrille bench linear [OPTION]...",
    .text = "Times forward and backward (dX and dW) of one linear layer on a grid, alternating with the same\n"
            "products of every rank alone. Prints how much each axis sends, how long its collectives take, and how\n"
            "much time the products do not hide (exposed: the median of the time minus that of the products).",
    .options = specs,
    .examples = "  quadrille bench linear --local 4 --grid all -m 2048 -n 2048 -k 2048\n"
                "  mpiexec.mpich -n 4 quadrille bench linear --grid 2x1x2x1 --layout scattered "
                "--json\n",
    .run = run,
};
