/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille bench gemm`: a layer's products on grids, compared with the same products alone; the difference is the
 * cost of communication. */
#include <stdio.h>

#include "bench/product.h"

typedef struct gemm_options {
    bench_options shared;
    product_extents extents;
    int backward;
} gemm_options;

static const option_spec specs[] = {
    PRODUCT_EXTENT_SPECS(gemm_options),
    {"backward", 0, NULL, "also time dX and dW", OPTION_FLAG, .at = offsetof(gemm_options, backward)},
    BENCH_PRODUCT_SPECS,
};

static const bench_column columns[] = {
    {"grid", "grid", "", VALUE_TEXT, 12, 0, 0},
    {"pass", "pass", "", VALUE_TEXT, 9, 0, 0},
    PRODUCT_EXTENT_COLUMNS,
    BENCH_SETTING("dtype", VALUE_TEXT),
    BENCH_SETTING("layout", VALUE_TEXT),
    BENCH_SETTING("ranks", VALUE_WHOLE),
    BENCH_TIME_COLUMNS("", "(ms)", 1e3),
    {"gflops", "rate", "(GFLOP/s)", VALUE_REAL, 10, 1, 1},
    {"limit_median_secs", "limit", "(ms)", VALUE_REAL, 11, 1e3, 3},
    {"share", "share", "", VALUE_REAL, 7, 1, 3},
    {"samples", "samples", "", VALUE_WHOLE, 8, 1, 0},
    BENCH_LAST_COLUMN,
};

static void write_title(const void *user, int n_ranks, char *title, size_t capacity)
{
    const gemm_options *options = user;
    snprintf(title, capacity,
             "# Y = X·Wᵀ with m=%lld n=%lld k=%lld, %s, %s, %d rank%s\n"
             "# times of the slowest rank; limit: each rank's products alone, alternating with the "
             "others; share: median of limit / time\n",
             (long long)options->extents.m, (long long)options->extents.n, (long long)options->extents.k,
             qdr_dtype_name(options->shared.dtype), layout_word(options->shared.layout), n_ranks,
             n_ranks == 1 ? "" : "s");
}

static void print_pass(bench_run *run, const gemm_options *options, const char *grid, const bench_samples *samples,
                       product_pass pass)
{
    const int on_grid = 2 * (int)pass, limit = on_grid + 1;
    const bench_times times = bench_times_of(samples, on_grid);
    const double flops = product_flops(options->extents.m, options->extents.n, options->extents.k, pass);
    const bench_value values[] = {
        BENCH_TEXT(grid),
        BENCH_TEXT(product_pass_text(pass)),
        PRODUCT_EXTENT_VALUES(options->extents),
        BENCH_TEXT(qdr_dtype_name(options->shared.dtype)),
        BENCH_TEXT(layout_word(options->shared.layout)),
        BENCH_NUMBER(qdr_context_size(run->ctx)),
        BENCH_TIME_VALUES(times),
        BENCH_NUMBER(1e-9 * flops / times.median),
        BENCH_NUMBER(bench_times_of(samples, limit).median),
        BENCH_NUMBER(bench_ratio(samples, limit, on_grid)),
        BENCH_NUMBER(samples->n),
    };
    BENCH_ROW(run, columns, values);
}

static int run_grid(bench_run *run, const void *user, grid_size size, failure *why)
{
    const gemm_options *options = user;
    const bench_options *shared = &options->shared;
    const product_desc desc = {.m = options->extents.m,
                               .n = options->extents.n,
                               .k = options->extents.k,
                               .dtype = shared->dtype,
                               .layout = shared->layout,
                               .n_panels = (int)shared->n_panels};
    const int n_passes = 1 + options->backward;
    product_pair pair = {0};
    bench_samples samples = {0};
    char grid[64];
    const bench_subject subject = {product_pair_call, NULL, &pair};
    bench_grid_text(size, grid);
    if (!fail_status(why, product_pair_create(run->ctx, size, &desc, &pair)))
        bench_measure(run->ctx, shared, &subject, 2 * n_passes, 0, &samples, why);
    for (int pass = 0; !why->code && pass < n_passes; pass++)
        print_pass(run, options, grid, &samples, (product_pass)pass);
    bench_free(&samples);
    product_pair_destroy(&pair);
    return why->code;
}

static const bench_kind kind = {
    .command = &command_bench_gemm,
    .columns = columns,
    .write_title = write_title,
    .run_grid = run_grid,
};

static int run(int argc, char **argv)
{
    gemm_options options = {.shared = {.n_iterations = 10, .n_warmup = 2}, .extents = PRODUCT_DEFAULT_EXTENTS};
    return bench_main(&kind, &options.shared, argc, argv);
}

const command command_bench_gemm = {
    .name = "bench gemm",
    .summary = "a layer's products on grids, compared with the products alone",
    .usage = "quadrille bench gemm [OPTION]...",
    .text = "Times Y = X·Wᵀ on a grid of ranks, forward and (with --backward) dX and dW, alternating with the\n"
            "same products of every rank without communication, a lower bound on the time.",
    .options = specs,
    .examples = "  quadrille bench gemm --local 2 --grid all -m 4096 -n 4096 -k 1024 --backward\n"
                "  mpiexec.mpich -n 4 quadrille bench gemm --grid 2x2x1x1 --threads 1 --csv\n",
    .run = run,
};
