/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille bench`: what grids cost on this machine. */
#include "bench.h"

#include <jansson.h>
#include <quadrille/launch.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "layer_case.h"

enum {
    OPTION_M,
    OPTION_N,
    OPTION_K,
    OPTION_DTYPE,
    OPTION_GRID,
    OPTION_LOCAL,
    OPTION_LAYOUT,
    OPTION_PANELS,
    OPTION_BACKWARD,
    OPTION_ITERATIONS,
    OPTION_WARMUP,
    OPTION_THREADS,
    OPTION_CSV,
    OPTION_JSON,
    OPTION_HELP
};

static const option_spec specs[] = {
    {"rows", 'm', "M", "rows of X and Y, over all ranks; default 4096"},
    {"outputs", 'n', "N", "columns of Y; default 4096"},
    {"inputs", 'k', "K", "columns of X; default 4096"},
    {"dtype", 0, "TYPE", "f32 (default), f64 or bf16"},
    {"grid", 0, "GRID", "GXxGYxGZxGD, or all: every grid of the ranks; default 1x1x1xP"},
    {"local", 0, "P", "start P ranks as threads of this process, without MPI"},
    {"layout", 0, "LAYOUT", "replicated (default) or scattered"},
    {"panels", 0, "N", "row panels of each product; default: chosen by cost"},
    {"backward", 0, NULL, "also dX and dW"},
    {"iterations", 0, "N", "measured ones; default 10"},
    {"warmup", 0, "N", "iterations before; default 2"},
    {"threads", 0, "N", "BLAS threads of each rank; default: cores over ranks"},
    {"csv", 0, NULL, "print comma-separated values"},
    {"json", 0, NULL, "print one JSON object"},
    {"help", 'h', NULL, "print this"},
    {NULL, 0, NULL, NULL},
};

#define MAX_GRIDS 4096
#define MAX_EXTENT ((int64_t)1 << 40)

static int take_dtype(const char *value, qdr_dtype *dtype, failure *why)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16};
    for (int i = 0; i < 3; i++)
        if (strcmp(value, qdr_dtype_name(dtypes[i])) == 0) {
            *dtype = dtypes[i];
            return EXIT_OK;
        }
    return fail(why, EXIT_USAGE, "--dtype '%s': a type is f32, f64 or bf16", value);
}

static int take_grid(const char *value, bench_options *options, failure *why)
{
    options->all_grids = strcmp(value, "all") == 0;
    return options->all_grids ? EXIT_OK : option_grid("grid", value, &options->grid, why);
}

static int take_option(int index, const char *value, void *user, failure *why)
{
    bench_options *options = user;
    switch (index) {
    case OPTION_M: return option_integer("rows", value, 0, MAX_EXTENT, &options->m, why);
    case OPTION_N: return option_integer("outputs", value, 1, MAX_EXTENT, &options->n, why);
    case OPTION_K: return option_integer("inputs", value, 1, MAX_EXTENT, &options->k, why);
    case OPTION_DTYPE: return take_dtype(value, &options->dtype, why);
    case OPTION_GRID: return take_grid(value, options, why);
    case OPTION_LOCAL: return option_integer("local", value, 1, 1024, &options->n_local, why);
    case OPTION_LAYOUT: return option_layout("layout", value, &options->layout, why);
    case OPTION_PANELS: return option_integer("panels", value, 1, 1024, &options->n_panels, why);
    case OPTION_ITERATIONS:
        return option_integer("iterations", value, 1, 1000000, &options->n_iterations, why);
    case OPTION_WARMUP: return option_integer("warmup", value, 0, 1000000, &options->n_warmup, why);
    case OPTION_THREADS: return option_integer("threads", value, 1, 1024, &options->n_threads, why);
    case OPTION_BACKWARD: options->backward = 1; break;
    case OPTION_CSV: options->format = FORMAT_CSV; break;
    case OPTION_JSON: options->format = FORMAT_JSON; break;
    default: break;
    }
    return EXIT_OK;
}

/* ---- what is printed ---- */

static void grid_text(grid_size size, char text[64])
{
    snprintf(text, 64, "%dx%dx%dx%d", size.x, size.y, size.z, size.d);
}

static const char *layout_text(const bench_options *options)
{
    return options->layout == QDR_SCATTERED ? "scattered" : "replicated";
}

static void print_head(const bench_options *options, int n_ranks)
{
    if (options->format == FORMAT_CSV)
        puts("grid,pass,m,n,k,dtype,layout,ranks,median_secs,min_secs,p90_secs,gflops,"
             "limit_median_secs,share,samples");
    if (options->format == FORMAT_JSON) puts("{\"rows\": [");
    if (options->format != FORMAT_TABLE) return;
    printf("# Y = X·Wᵀ with m=%lld n=%lld k=%lld, %s, %s, %d rank%s\n"
           "# times of the slowest rank; limit: each rank's products alone, in turn with the "
           "others; share: median of limit / time\n"
           "%-12s %-9s %10s %10s %10s %10s %11s %7s %8s\n"
           "%-12s %-9s %10s %10s %10s %10s %11s %7s %8s\n",
           (long long)options->m, (long long)options->n, (long long)options->k,
           qdr_dtype_name(options->dtype), layout_text(options), n_ranks, n_ranks == 1 ? "" : "s",
           "grid", "pass", "median", "min", "p90", "rate", "limit", "share", "samples", "", "",
           "(ms)", "(ms)", "(ms)", "(GFLOP/s)", "(ms)", "", "");
}

static double gflops(const bench_row *row)
{
    return row->layer.median > 0 ? 1e-9 * row->flops / row->layer.median : 0;
}

static void print_json(const bench_row *row, const char *grid, int is_first)
{
    json_t *object = json_pack("{s:s,s:s,s:f,s:f,s:f,s:f,s:f,s:f,s:I}", "grid", grid, "pass",
                               row->pass, "median_secs", row->layer.median, "min_secs",
                               row->layer.min, "p90_secs", row->layer.p90, "gflops", gflops(row),
                               "limit_median_secs", row->limit.median, "share", row->share,
                               "samples", (json_int_t)row->n_samples);
    if (!is_first) puts(",");
    if (object) json_dumpf(object, stdout, JSON_PRESERVE_ORDER);
    json_decref(object);
}

static void print_row(const bench_options *options, const bench_row *row, int is_first)
{
    char grid[64];
    grid_text(row->grid, grid);
    if (options->format == FORMAT_JSON)
        print_json(row, grid, is_first);
    else if (options->format == FORMAT_CSV)
        printf("%s,%s,%lld,%lld,%lld,%s,%s,%d,%.9g,%.9g,%.9g,%.6g,%.9g,%.4f,%lld\n", grid,
               row->pass, (long long)options->m, (long long)options->n, (long long)options->k,
               qdr_dtype_name(options->dtype), layout_text(options), grid_ranks(row->grid),
               row->layer.median, row->layer.min, row->layer.p90, gflops(row), row->limit.median,
               row->share, (long long)row->n_samples);
    else
        printf("%-12s %-9s %10.3f %10.3f %10.3f %10.1f %11.3f %7.3f %8lld\n", grid, row->pass,
               1e3 * row->layer.median, 1e3 * row->layer.min, 1e3 * row->layer.p90, gflops(row),
               1e3 * row->limit.median, row->share, (long long)row->n_samples);
    fflush(stdout);
}

static void print_foot(const bench_options *options)
{
    if (options->format == FORMAT_JSON)
        printf(
            "\n], \"m\": %lld, \"n\": %lld, \"k\": %lld, \"dtype\": \"%s\", \"layout\": \"%s\"}\n",
            (long long)options->m, (long long)options->n, (long long)options->k,
            qdr_dtype_name(options->dtype), layout_text(options));
}

/* ---- on each rank ---- */

static int run_grids(qdr_context *ctx, const bench_options *options, failure *why)
{
    static _Thread_local grid_size sizes[MAX_GRIDS];
    const int n_ranks = qdr_context_size(ctx), is_root = qdr_context_rank(ctx) == 0;
    int n_sizes = 1;
    sizes[0] = options->grid.x ? options->grid : (grid_size){1, 1, 1, n_ranks};
    if (options->all_grids) n_sizes = list_grids(n_ranks, sizes, MAX_GRIDS);
    if (is_root) print_head(options, n_ranks);
    for (int i = 0; i < n_sizes; i++) {
        bench_row rows[MAX_BENCH_ROWS];
        if (bench_gemm_grid(ctx, options, sizes[i], rows, why)) return why->code;
        for (int pass = 0; is_root && pass < 1 + options->backward; pass++)
            print_row(options, &rows[pass], i + pass == 0);
    }
    if (is_root) print_foot(options);
    return EXIT_OK;
}

static int run_rank(qdr_context *ctx, void *user)
{
    const bench_options *options = user;
    failure why = {0};
    if (!options->grid.x || !grid_check_ranks("bench", options->grid, qdr_context_size(ctx), &why))
        run_grids(ctx, options, &why);
    if (why.code && qdr_context_rank(ctx) == 0) fail_print(&why);
    return why.code;
}

static int run(int argc, char **argv)
{
    bench_options options = {.m = 4096, .n = 4096, .k = 4096, .n_iterations = 10, .n_warmup = 2};
    failure why = {0};
    int code = EXIT_FAILED;
    if (argc < 2 || strcmp(argv[1], "gemm") != 0) {
        fail(&why, EXIT_USAGE, "bench: '%s' is no benchmark; use gemm (see quadrille bench --help)",
             argc < 2 ? "" : argv[1]);
        return fail_print_once(&why);
    }
    argv[1] = argv[0];
    if (options_read(argc - 1, argv + 1, specs, take_option, &options, &why))
        return fail_print_once(&why);
    const qdr_context_opts opts = {QDR_OPTS_INIT, .n_threads = (int)options.n_threads};
    const qdr_status status = qdr_launch((int)options.n_local, &opts, run_rank, &options, &code);
    if (fail_status(&why, status))
        return why.code == EXIT_USAGE ? fail_print_once(&why) : fail_print(&why);
    return code;
}

const command command_bench = {
    .name = "bench",
    .summary = "measure a layer's products on grids against the same products alone",
    .usage = "quadrille bench gemm [OPTION]...",
    .text = "Times Y = X·Wᵀ on a grid of ranks, forward and (with --backward) dX and dW, each in "
            "turn with the\n"
            "same products of every rank without communication, which no grid can beat. Ranks are "
            "those of\n"
            "mpiexec, or threads with --local.",
    .options = specs,
    .examples = "  quadrille bench gemm --local 2 --grid all -m 4096 -n 4096 -k 1024 --backward\n"
                "  mpiexec.mpich -n 4 quadrille bench gemm --grid 2x2x1x1 --threads 1 --csv\n",
    .run = run,
};
