/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille bench linear`: a layer's products on grids, compared with the same products alone; the difference is the
 * cost of communication. Also where the time goes: bytes sent over each axis, exposed communication. */
#include <math.h>
#include <stdio.h>

#include "bench/product.h"
#include "common/planning.h"
#include "common/ranks.h"

typedef struct linear_options {
    bench_options shared;
    product_desc desc; /* without what is in `shared` */
    codec_choice codec;
} linear_options;

#define MAX_EXTENT ((int64_t)1 << 40)
#define AT(kind, member) kind, .at = offsetof(linear_options, member)

static const option_spec specs[] = {
    {"rows", 'm', "M", "rows of X and Y, over all ranks; default 4096", AT(OPTION_COUNT, desc.m), 0, MAX_EXTENT},
    {"outputs", 'n', "N", "columns of Y; default 4096", AT(OPTION_COUNT, desc.n), 1, MAX_EXTENT},
    {"inputs", 'k', "K", "columns of X; default 4096", AT(OPTION_COUNT, desc.k), 1, MAX_EXTENT},
    {"transposed", 0, NULL, "swap x and y", AT(OPTION_FLAG, desc.transposed)},
    {"bias", 0, NULL, "add a bias", AT(OPTION_FLAG, desc.bias)},
    {"codec", 0, "CODECS", CODEC_HELP "; default: QDR_CODEC, else none", AT(OPTION_OTHER, codec), .take = take_codecs},
    BENCH_PRODUCT_SPECS,
};

static void write_title(const void *user, int n_ranks, char *title, size_t capacity)
{
    const linear_options *options = user;
    const product_desc *desc = &options->desc;
    snprintf(
        title, capacity,
        "# Y = X·Wᵀ%s with m=%lld n=%lld k=%lld, %s, %s%s, %d rank%s\n# times of the slowest rank; limit: each rank's "
        "products alone, alternating; share: median of limit / time; exposed: of time - limit\n"
        "# an axis sends: per pass, the rank that sends most; takes: its collectives, hidden or not\n",
        desc->bias ? " + b" : "", (long long)desc->m, (long long)desc->n, (long long)desc->k,
        qdr_dtype_name(options->shared.dtype), layout_word(options->shared.layout),
        desc->transposed ? ", transposed" : "", n_ranks, PLURAL(n_ranks));
}

/* ---- what is measured ---- */

/* Bytes and seconds of each pass, over all measured iterations. */
typedef struct axis_traffic {
    double bytes, secs;
} axis_traffic;

/* A layer on a grid, and its limit: the same products of every rank without communication. In the samples, pass p of
 * the layer is series 2p and pass p of the limit is series 2p + 1. */
typedef struct linear_bench {
    qdr_context *alone;
    product on_grid, limit;
    axis_traffic traffic[N_PASSES][QDR_N_AXES];
} linear_bench;

static qdr_status create(qdr_context *ctx, grid_size size, const product_desc *desc, linear_bench *bench)
{
    const product_desc own = {.dtype = desc->dtype, .n_panels = desc->n_panels, .bias = desc->bias};
    TRY(product_create(ctx, size, desc, &bench->on_grid));
    TRY(context_alone(ctx, &bench->alone));
    return qdr_agree(ctx,
                     product_create_own(bench->alone, bench->on_grid.grid, bench->on_grid.layer, &own, &bench->limit));
}

static qdr_status call(void *user, int series)
{
    const linear_bench *bench = user;
    return product_run(series % 2 ? &bench->limit : &bench->on_grid, (product_pass)(series / 2));
}

/* The counters hold one call of the layer on the grid. */
static void count_traffic(void *user, int series, int64_t iteration)
{
    linear_bench *bench = user;
    qdr_grid *grid = bench->on_grid.grid;
    for (int channel = 0; iteration >= 0 && channel < QDR_N_CHANNELS; channel++)
        for (int coll = 0; coll < QDR_N_COLL_KINDS; coll++) {
            qdr_traffic sent = {QDR_INIT(qdr_traffic)};
            if (qdr_grid_traffic(grid, (qdr_channel)channel, (qdr_coll_kind)coll, &sent) != QDR_OK) continue;
            axis_traffic *sum = &bench->traffic[series / 2][qdr_channel_axis((qdr_channel)channel)];
            sum->bytes += (double)sent.bytes_sent;
            sum->secs += sent.secs;
        }
    qdr_grid_reset_traffic(grid);
}

/* ---- one grid ---- */

static void print_pass(bench_run *run, const linear_options *options, const char *grid, const bench_samples *samples,
                       const product_desc *local, product_pass pass, const axis_traffic traffic[QDR_N_AXES])
{
    const int on_grid = 2 * (int)pass, limit = on_grid + 1;
    const product_desc *desc = &options->desc;
    const bench_times times = bench_times_of(samples, on_grid);
    const double n = (double)samples->n;
    char codecs[CODECS_BYTES];
    qdr_codecs_text(&options->codec.codecs, codecs, sizeof codecs);
    const double flops = (pass == PASS_BACKWARD ? 4.0 : 2.0) * (double)desc->m * (double)desc->n * (double)desc->k;
    /* On GPUs nobody takes the times of single collectives. */
    const double n_timed = is_on_gpu(run->ctx) ? NAN : n;
#define AXIS(name, axis)                                                                                               \
    {name "_bytes", name " sends", "(MB)", 9, BENCH_REAL(traffic[axis].bytes / n, 1e-6, 3)},                           \
    {                                                                                                                  \
        name "_secs", name " takes", "(ms)", 8, BENCH_REAL(traffic[axis].secs / n_timed, 1e3, 3)                       \
    }
    const bench_cell cells[] = {
        {"grid", "grid", "", 12, BENCH_TEXT(grid)},
        {"codec", "codec", "", 12, BENCH_IF(options->codec.is_given, BENCH_TEXT(codecs))},
        {"pass", "pass", "", 9, BENCH_TEXT(product_pass_text(pass))},
        BENCH_SETTING("m", BENCH_WHOLE(desc->m)),
        BENCH_SETTING("n", BENCH_WHOLE(desc->n)),
        BENCH_SETTING("k", BENCH_WHOLE(desc->k)),
        BENCH_SETTING("dtype", BENCH_TEXT(qdr_dtype_name(options->shared.dtype))),
        BENCH_SETTING("layout", BENCH_TEXT(layout_word(options->shared.layout))),
        BENCH_SETTING("transposed", BENCH_WHOLE(desc->transposed)),
        BENCH_SETTING("bias", BENCH_WHOLE(desc->bias)),
        BENCH_SETTING("ranks", BENCH_WHOLE(qdr_context_size(run->ctx))),
        {"local_m", "local m", "", 7, BENCH_WHOLE(local->m)},
        {"local_n", "local n", "", 7, BENCH_WHOLE(local->n)},
        {"local_k", "local k", "", 7, BENCH_WHOLE(local->k)},
        BENCH_TIMES("", "(ms)", 1e3, times),
        {"gflops", "rate", "(GFLOP/s)", 9, BENCH_REAL(1e-9 * flops / times.median, 1, 1)},
        {"limit_median_secs", "limit", "(ms)", 10, BENCH_REAL(bench_times_of(samples, limit).median, 1e3, 3)},
        {"share", "share", "", 6, BENCH_REAL(bench_ratio(samples, limit, on_grid), 1, 3)},
        {"exposed_secs", "exposed", "(ms)", 8, BENCH_REAL(bench_difference(samples, on_grid, limit), 1e3, 3)},
        AXIS("x", QDR_X),
        AXIS("y", QDR_Y),
        AXIS("z", QDR_Z),
        AXIS("d", QDR_D),
        {"samples", "samples", "", 7, BENCH_WHOLE(samples->n)},
    };
#undef AXIS
    BENCH_ROW(run, cells);
}

static int run_grid(bench_run *run, const void *user, grid_size size, failure *why)
{
    const linear_options *options = user;
    product_desc desc = options->desc, local = {0};
    linear_bench bench = {0};
    bench_samples samples = {0};
    const bench_subject passes = {.call = call, .after = count_traffic, .user = &bench};
    desc.dtype = options->shared.dtype;
    desc.layout = options->shared.layout;
    desc.n_panels = (int)options->shared.n_panels;
    desc.codecs = options->codec.is_given ? &options->codec.codecs : NULL;
    if (!fail_status(why, create(run->ctx, size, &desc, &bench))) {
        qdr_grid_reset_traffic(bench.on_grid.grid);
        bench_measure(run->ctx, &options->shared, &passes, 2 * N_PASSES, 0, &samples, why);
    }
    if (!why->code) /* rank 0's, which are the largest */
        fail_status(why, product_own_shape(bench.on_grid.grid, bench.on_grid.layer, &local.m, &local.n, &local.k));
    if (!why->code)
        fail_status(why, bench_all_ranks(run->ctx, FOLD_MAX, &bench.traffic[0][0].bytes,
                                         sizeof bench.traffic / sizeof(double)));
    for (int pass = 0; pass < N_PASSES && !why->code; pass++)
        print_pass(run, options, grid_words(size).text, &samples, &local, (product_pass)pass, bench.traffic[pass]);
    bench_free(&samples);
    product_destroy(&bench.limit);
    qdr_context_destroy(&bench.alone);
    product_destroy(&bench.on_grid);
    return why->code;
}

/* ---- the command ---- */

static const bench_kind kind = {
    .command = &command_bench_linear,
    .write_title = write_title,
    .run_grid = run_grid,
};

static int run(int argc, char **argv)
{
    linear_options options = {.shared = {.n_iterations = 10, .n_warmup = 2}, .desc = {.m = 4096, .n = 4096, .k = 4096}};
    return bench_main(&kind, &options.shared, argc, argv);
}

const command command_bench_linear = {
    .name = "bench linear",
    .summary = "one layer: products, bytes and time of each axis, exposed time",
    .text = "Times forward and backward (dX and dW) of one linear layer on a grid, alternating with the same\n"
            "products of every rank alone. Prints how much each axis sends, how long its collectives take, and\n"
            "how much time the products do not hide (exposed: the median time minus the products' time).",
    .options = specs,
    .examples = "  quadrille bench linear --local 4 --grid all -m 2048 -n 2048 -k 2048\n"
                "  mpiexec.mpich -n 4 quadrille bench linear --grid 2x1x2x1 --layout scattered --json\n"
                "  mpiexec.mpich -n 4 quadrille bench linear --grid 1x1x2x2 --codec int8\n",
    .run = run,
};
