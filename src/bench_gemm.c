/* SPDX-License-Identifier: Apache-2.0 */
/* A linear layer on a grid against its own products on each rank: what communication costs. */
#include <math.h>
#include <quadrille/quadrille.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"

/* A layer with the memory of its edges, on a grid or on one rank alone. */
typedef struct bench_layer {
    qdr_context *ctx;
    qdr_grid *grid;
    qdr_stack *stack;
    qdr_linear *layer;
    qdr_edge in, out;
    void *x, *y, *dx, *dy;
} bench_layer;

static double now_secs(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static qdr_status describe(bench_layer *bench, const bench_options *options, int64_t m, int64_t k,
                           int64_t n)
{
    const qdr_stack_opts opts = {QDR_OPTS_INIT, .n_rows = m, .dtype = options->dtype,
                                 .panels = (int)options->n_panels};
    const qdr_edge_desc input = {QDR_OPTS_INIT, .cols = {{k, 1}}, .col_axis = QDR_X,
                                 .layout = options->layout};
    const qdr_linear_desc desc = {QDR_OPTS_INIT, .name = "product", .in = {{k, 1}}, .out = {{n, 1}},
                                  .out_layout = options->layout};
    qdr_status status = qdr_stack_create(bench->grid, &opts, &bench->stack);
    if (status < 0) return status;
    status = qdr_stack_add_input(bench->stack, "x", &input, 1, &bench->in);
    if (status >= 0)
        status = qdr_stack_add_linear(bench->stack, &desc, bench->in, &bench->out, &bench->layer);
    status = qdr_agree(bench->ctx, status); /* adding is local */
    return status < 0 ? status : qdr_stack_build(bench->stack);
}

/* Numbers of a size, so that no product meets a subnormal one. */
static void fill(void *data, int64_t n_elems, qdr_dtype dtype)
{
    for (int64_t i = 0; i < n_elems; i++) {
        const float value = (float)(i % 7 + 1) * 0.125f;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (dtype == QDR_F64) ((double *)data)[i] = (double)value;
        if (dtype == QDR_F32) ((float *)data)[i] = value;
        if (dtype == QDR_BF16) ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
    }
}

static qdr_status prepare(bench_layer *bench, const bench_options *options, int64_t m, int64_t k,
                          int64_t n)
{
    qdr_owned in, out;
    qdr_status status = describe(bench, options, m, k, n);
    if (status >= 0) status = qdr_linear_init(bench->layer, 1, 0.5);
    if (status >= 0) status = qdr_stack_edge_owned(bench->stack, bench->in, &in);
    if (status >= 0) status = qdr_stack_edge_owned(bench->stack, bench->out, &out);
    if (status >= 0) status = qdr_stack_edge_value(bench->stack, bench->in, &bench->x);
    if (status >= 0) status = qdr_stack_edge_value(bench->stack, bench->out, &bench->y);
    if (status >= 0) status = qdr_stack_edge_gradient(bench->stack, bench->in, &bench->dx);
    if (status >= 0) status = qdr_stack_edge_gradient(bench->stack, bench->out, &bench->dy);
    if (status < 0) return status;
    fill(bench->x, in.n_rows * in.n_cols, options->dtype);
    fill(bench->dy, out.n_rows * out.n_cols, options->dtype);
    return QDR_OK;
}

static void release(bench_layer *bench)
{
    qdr_stack_destroy(&bench->stack);
    qdr_grid_destroy(&bench->grid);
}

/* Rows and columns of this rank's own product. */
static qdr_status own_shape(const bench_layer *bench, const bench_options *options,
                            int64_t shape[3])
{
    const qdr_matrix rows = {QDR_OPTS_INIT, .n_rows = options->m, .cols = {{1, 1}}, .row_unit = 1,
                             .split_cells = 1};
    qdr_owned part;
    qdr_status status = qdr_matrix_owned(bench->grid, &rows, qdr_context_rank(bench->ctx), &part);
    shape[0] = part.n_rows;
    if (status >= 0) status = qdr_stack_edge_owned(bench->stack, bench->in, &part);
    shape[1] = part.n_cols;
    if (status >= 0) status = qdr_stack_edge_owned(bench->stack, bench->out, &part);
    shape[2] = part.n_cols;
    return status;
}

/* Two layers and the seconds of each of their passes: forward and backward of the layer, of the
 * limit, one after the other for each iteration. */
typedef struct bench_pair {
    bench_layer layer, limit;
    qdr_context *alone;
    double *secs; /* [pass][of layer, of limit][iteration] */
    void *shared; /* as many on the device */
    int64_t n_numbers;
} bench_pair;

static qdr_status run_pass(const bench_layer *bench, int backward, double *secs)
{
    const double began = now_secs();
    qdr_status status = backward ? qdr_linear_backward(bench->layer, bench->dy, bench->x, bench->dx,
                                                       0, NULL)
                                 : qdr_linear_forward(bench->layer, bench->x, bench->y, 0, NULL);
    if (status >= 0) status = qdr_stream_synchronize(qdr_context_stream(bench->ctx));
    *secs = now_secs() - began;
    return status;
}

static qdr_status run_all(bench_pair *pair, const bench_options *options)
{
    const int64_t n = options->n_iterations;
    for (int64_t i = -options->n_warmup; i < n; i++)
        for (int which = 0; which < 2 * (1 + options->backward); which++) {
            const bench_layer *bench = which % 2 ? &pair->limit : &pair->layer;
            double secs;
            qdr_status status = qdr_barrier(pair->layer.ctx);
            if (status >= 0) status = run_pass(bench, which / 2, &secs);
            if (status < 0) return status;
            if (i >= 0) pair->secs[which * n + i] = secs;
        }
    return QDR_OK;
}

/* Every number becomes that of the slowest rank. */
static qdr_status slowest(bench_pair *pair)
{
    const size_t bytes = (size_t)pair->n_numbers * sizeof *pair->secs;
    qdr_context *ctx = pair->layer.ctx;
    qdr_status status = qdr_copy(ctx, pair->shared, pair->secs, bytes, NULL);
    for (int axis = 0; status >= 0 && axis < QDR_N_AXES; axis++)
        status = qdr_all_reduce(pair->layer.grid, (qdr_axis)axis, QDR_MAX, pair->shared,
                                pair->n_numbers, QDR_F64, NULL);
    if (status >= 0) status = qdr_copy(ctx, pair->secs, pair->shared, bytes, NULL);
    return status < 0 ? status : qdr_stream_synchronize(qdr_context_stream(ctx));
}

static qdr_status make_pair(bench_pair *pair, const bench_options *options, grid_size size)
{
    const qdr_grid_opts opts = {QDR_OPTS_INIT, .x = size.x, .y = size.y, .z = size.z, .d = size.d};
    qdr_context *ctx = pair->layer.ctx;
    const qdr_context_opts threads = {QDR_OPTS_INIT, .n_threads = qdr_context_threads(ctx)};
    int64_t shape[3];
    qdr_status status = qdr_grid_create(ctx, &opts, &pair->layer.grid);
    if (status >= 0) status = prepare(&pair->layer, options, options->m, options->k, options->n);
    if (status >= 0) status = own_shape(&pair->layer, options, shape);
    if (status >= 0) status = qdr_agree(ctx, qdr_context_create_self(&threads, &pair->alone));
    pair->limit.ctx = pair->alone;
    if (status >= 0)
        status = qdr_grid_create(pair->alone,
                                 &(qdr_grid_opts){QDR_OPTS_INIT, .x = 1, .y = 1, .z = 1, .d = 1},
                                 &pair->limit.grid);
    if (status >= 0) status = prepare(&pair->limit, options, shape[0], shape[1], shape[2]);
    pair->n_numbers = options->n_iterations * (options->backward ? 4 : 2);
    pair->secs = calloc((size_t)pair->n_numbers, sizeof *pair->secs);
    if (status >= 0 && !pair->secs) status = QDR_ERR_MEMORY;
    if (status >= 0)
        status = qdr_mem_alloc(ctx, (size_t)pair->n_numbers * sizeof *pair->secs, &pair->shared);
    return qdr_agree(ctx, status);
}

static void release_pair(bench_pair *pair)
{
    if (pair->shared) qdr_mem_free(pair->layer.ctx, &pair->shared);
    free(pair->secs);
    release(&pair->limit);
    qdr_context_destroy(&pair->alone);
    release(&pair->layer);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double at_share(const double *sorted, int64_t n, double share)
{
    const double place = share * (double)(n - 1);
    const int64_t below = (int64_t)place;
    return sorted[below] +
           (below + 1 < n ? (place - (double)below) * (sorted[below + 1] - sorted[below]) : 0);
}

bench_times bench_times_of(double *secs, int64_t n)
{
    qsort(secs, (size_t)n, sizeof *secs, by_value);
    return (bench_times){at_share(secs, n, 0.5), secs[0], at_share(secs, n, 0.9)};
}

static void summarise(const bench_options *options, double *layer, double *limit, bench_row *row)
{
    const int64_t n = options->n_iterations;
    double *shares = malloc((size_t)n * sizeof *shares);
    row->share = NAN;
    for (int64_t i = 0; shares && i < n; i++) shares[i] = limit[i] / layer[i];
    if (shares) row->share = bench_times_of(shares, n).median;
    free(shares);
    row->layer = bench_times_of(layer, n);
    row->limit = bench_times_of(limit, n);
    row->n_samples = n;
}

int bench_gemm_grid(qdr_context *ctx, const bench_options *options, grid_size size,
                    bench_row rows[MAX_BENCH_ROWS], failure *why)
{
    bench_pair pair = {.layer.ctx = ctx};
    qdr_status status = make_pair(&pair, options, size);
    if (status >= 0) status = run_all(&pair, options);
    if (status >= 0) status = slowest(&pair);
    const double flops = 2.0 * (double)options->m * (double)options->n * (double)options->k;
    for (int pass = 0; status >= 0 && pass < 1 + options->backward; pass++) {
        double *secs = pair.secs + options->n_iterations * 2 * pass;
        rows[pass] = (bench_row){
            .grid = size, .pass = pass ? "backward" : "forward", .flops = pass ? 2 * flops : flops};
        summarise(options, secs, secs + options->n_iterations, &rows[pass]);
    }
    fail_status(why, status);
    release_pair(&pair);
    return why->code;
}
