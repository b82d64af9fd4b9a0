/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that are destroyed while their work is in progress: the fake reports memory that is freed before the work
 * that uses it has been waited for, and memory shared by two streams that must not share it. And a stack whose values
 * have not been set computes with zeros.
 *
 *   lifetimes workspaces|stream|staging|grid|stack|zeros */
#include <stdio.h>
#include <string.h>

#include "dev/dev.h"
#include "dev/plugin.h"
#include "small_gpt.h"

enum { SIZE = 16, UNEVEN = 3, N_IN_FLIGHT = 200 };

/* ---- products ---- */

typedef struct products {
    qdri_dev *dev;
    qdr_stream *streams[2];
    void *x, *results[2];
} products;

static qdr_status open_products(products *p)
{
    const size_t bytes = sizeof(float) * SIZE * SIZE;
    TRY(qdri_dev_create_cuda(-1, 0, &p->dev));
    for (int i = 0; i < 2; i++) {
        TRY(qdri_stream_create(p->dev, QDRI_STREAM_COMPUTE, &p->streams[i]));
        TRY(qdri_mem_alloc(p->dev, bytes, &p->results[i]));
    }
    TRY(qdri_mem_alloc(p->dev, bytes, &p->x));
    TRY(qdri_fill_zero(p->streams[0], p->x, bytes));
    return qdri_stream_synchronize(p->streams[0]);
}

static void close_products(products *p)
{
    for (int i = 0; i < 2; i++) {
        qdri_stream_destroy(&p->streams[i]);
        qdri_mem_free(p->dev, &p->results[i]);
    }
    qdri_mem_free(p->dev, &p->x);
    qdri_dev_destroy(&p->dev);
}

/* The fake's first algorithm takes a workspace. */
static qdr_status multiply(const products *p, int i)
{
    const qdri_gemm gemm = {.m = SIZE,
                            .n = SIZE,
                            .k = SIZE,
                            .a = p->x,
                            .b = p->x,
                            .c = p->results[i],
                            .lda = SIZE,
                            .ldb = SIZE,
                            .ldc = SIZE,
                            .alpha = 1,
                            .dtype = QDR_F32,
                            .c_dtype = QDR_F32};
    return qdri_gemm_run(p->streams[i], &gemm);
}

/* Two streams multiply at once, and end before their work has. */
static qdr_status run_products(int n_streams)
{
    products p = {0};
    qdr_status status = open_products(&p);
    for (int i = 0; i < n_streams && status == QDR_OK; i++) status = multiply(&p, i);
    for (int i = 0; i < n_streams && status == QDR_OK && n_streams == 2; i++)
        status = qdri_stream_synchronize(p.streams[i]);
    close_products(&p);
    return status;
}

/* ---- grids and stacks ---- */

/* Uneven, so that they meet in staging. */
static qdr_status launch_collectives(qdr_context *ctx, int n, qdr_grid **grid, void **x, void **y)
{
    const int64_t counts[] = {1, UNEVEN - 1};
    const float values[UNEVEN] = {1, 2, 3};
    const qdr_grid_opts shape = {QDR_INIT(qdr_grid_opts), .x = 2, .y = 1, .z = 1, .d = 1};
    TRY(qdr_grid_create(ctx, &shape, grid));
    TRY(qdr_mem_alloc(ctx, sizeof values, x));
    TRY(qdr_mem_alloc(ctx, sizeof values, y));
    TRY(qdr_copy(ctx, *x, values, sizeof values, NULL));
    TRY(qdr_stream_synchronize(qdr_context_stream(ctx)));
    for (int i = 0; i < n; i++)
        TRY(qdr_reduce_scatter(*grid, QDR_X, QDR_SUM, *x, *y, counts[qdr_grid_coordinate(*grid, QDR_X)], counts,
                               QDR_F32, NULL));
    return QDR_OK;
}

/* Each of many collectives in flight frees the staging of those that are done, wherever the next one is just then. */
static int end_grid(qdr_context *ctx, void *user)
{
    qdr_grid *grid = NULL;
    void *x = NULL, *y = NULL;
    const qdr_status status = launch_collectives(ctx, *(const int *)user ? N_IN_FLIGHT : 1, &grid, &x, &y);
    if (status < 0) fprintf(stderr, "%s\n", qdr_last_error());
    qdr_grid_destroy(&grid);
    const qdr_status ended = qdr_stream_synchronize(qdr_context_stream(ctx));
    qdr_mem_free(ctx, &x);
    qdr_mem_free(ctx, &y);
    return status < 0 || ended < 0;
}

static qdr_status launch_step(qdr_context *ctx, small_gpt *m, int is_zero)
{
    TRY(small_gpt_create(ctx, m));
    if (!is_zero) TRY(gpt_init(&m->gpt, 1, 0.1));
    TRY(small_gpt_fill(m, 0));
    TRY(qdr_stack_forward(m->gpt.stack));
    return small_gpt_backward(m, is_zero ? QDR_ACCUMULATE : 0);
}

static int end_stack(qdr_context *ctx, void *user)
{
    small_gpt m = {.shape = {2, 1, 1, 1},
                   .config = {.network.hidden = SIZE, .n_sequences = 4, .layout = QDR_SCATTERED}};
    const int exit_code = small_gpt_leave(ctx, launch_step(ctx, &m, *(const int *)user));
    qdr_stack_destroy(&m.gpt.stack);
    small_gpt_destroy(&m);
    return exit_code;
}

int main(int argc, char **argv)
{
    const char *which = argc == 2 ? argv[1] : "";
    int no = 0, yes = 1;
    if (strcmp(which, "staging") == 0) return small_gpt_launch(2, end_grid, &yes);
    if (strcmp(which, "grid") == 0) return small_gpt_launch(2, end_grid, &no);
    if (strcmp(which, "stack") == 0) return small_gpt_launch(2, end_stack, &no);
    if (strcmp(which, "zeros") == 0) return small_gpt_launch(2, end_stack, &yes);
    const int n_streams = strcmp(which, "workspaces") == 0 ? 2 : strcmp(which, "stream") == 0 ? 1 : 0;
    const qdr_status status = n_streams ? run_products(n_streams) : QDR_ERR_ARGUMENT;
    if (status < 0) fprintf(stderr, "lifetimes %s: %s\n", which, qdr_last_error());
    return status < 0;
}
