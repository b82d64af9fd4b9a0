/* SPDX-License-Identifier: Apache-2.0 */
/* How a data-parallel training code replaces one matmul: every rank has its own rows and wants its
 * own rows back. The library moves them into the grid, multiplies there with a weight that no rank
 * holds whole, and moves the result back. What a plain loop gives is computed beside it.
 * docs/tutorial.md walks through this file. */
#include <math.h>
#include <quadrille/quadrille.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BT = 64, C = 48, OC = 80 }; /* rows in all, in-features, out-features, as llm.c names them */

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if ((status = (call)) < 0) goto out;                                                       \
    } while (0)

/* What was there before: out[n,OC] = inp[n,C] · weight[OC,C]ᵀ + bias. */
static void plain_forward(float *out, const float *inp, const float *weight, const float *bias,
                          int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int o = 0; o < OC; o++) {
            float sum = bias[o];
            for (int c = 0; c < C; c++) sum += inp[i * C + c] * weight[o * C + c];
            out[i * OC + o] = sum;
        }
}

static void plain_backward(float *dinp, const float *dout, const float *weight, int64_t n)
{
    memset(dinp, 0, (size_t)n * C * sizeof *dinp);
    for (int64_t i = 0; i < n; i++)
        for (int o = 0; o < OC; o++)
            for (int c = 0; c < C; c++) dinp[i * C + c] += dout[i * OC + o] * weight[o * C + c];
}

/* One matmul that lives in the grid, and the layouts on both sides of it. */
typedef struct matmul {
    qdr_grid *grid;
    qdr_stack *stack;
    qdr_linear *layer;
    qdr_matrix rows_in, rows_out; /* as the caller has them: rows over all ranks, all columns */
    qdr_matrix grid_in, grid_out;
    void *x, *y, *dx, *dy; /* this rank's parts in the grid */
} matmul;

static qdr_status matmul_create(qdr_grid *grid, matmul *mm)
{
    qdr_status status;
    qdr_edge in, out;
    const qdr_edge_desc input = {QDR_OPTS_INIT, .cols = {{C, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc desc = {QDR_OPTS_INIT, .name = "matmul", .in = {{C, 1}}, .out = {{OC, 1}},
                                  .bias = 1};
    mm->grid = grid;
    CHECK(qdr_stack_create(grid, &(qdr_stack_opts){QDR_OPTS_INIT, .n_rows = BT, .dtype = QDR_F32},
                           &mm->stack));
    CHECK(qdr_stack_add_input(mm->stack, "inp", &input, 1, &in));
    CHECK(qdr_stack_add_linear(mm->stack, &desc, in, &out, &mm->layer));
    CHECK(qdr_stack_build(mm->stack));
    CHECK(qdr_linear_in_matrix(mm->layer, &mm->grid_in));
    CHECK(qdr_linear_out_matrix(mm->layer, &mm->grid_out));
    mm->rows_in = (qdr_matrix){QDR_OPTS_INIT, .n_rows = BT, .cols = {{C, 1}},
                               .spread = QDR_SPREAD_RANKS};
    mm->rows_out = (qdr_matrix){QDR_OPTS_INIT, .n_rows = BT, .cols = {{OC, 1}},
                                .spread = QDR_SPREAD_RANKS};
    CHECK(qdr_stack_edge_value(mm->stack, in, &mm->x));
    CHECK(qdr_stack_edge_gradient(mm->stack, in, &mm->dx));
    CHECK(qdr_stack_edge_value(mm->stack, out, &mm->y));
    CHECK(qdr_stack_edge_gradient(mm->stack, out, &mm->dy));
out:
    return status;
}

/* Replaces matmul_forward(out, inp, weight, bias, …): this rank's rows in, this rank's rows out. */
static qdr_status matmul_forward(matmul *mm, float *out, const float *inp)
{
    qdr_status status = qdr_redistribute(mm->grid, &mm->rows_in, inp, &mm->grid_in, mm->x, QDR_F32,
                                         NULL);
    if (status == QDR_OK) status = qdr_linear_forward(mm->layer, mm->x, mm->y, 0, NULL);
    if (status == QDR_OK)
        status = qdr_redistribute(mm->grid, &mm->grid_out, mm->y, &mm->rows_out, out, QDR_F32,
                                  NULL);
    return status;
}

/* Replaces matmul_backward(dinp, dweight, dbias, dout, …). The gradients of weight and bias come
 * out summed over all ranks: the code's own all-reduce of them goes away. */
static qdr_status matmul_backward(matmul *mm, float *dinp, const float *dout)
{
    qdr_status status = qdr_redistribute(mm->grid, &mm->rows_out, dout, &mm->grid_out, mm->dy,
                                         QDR_F32, NULL);
    if (status == QDR_OK) status = qdr_linear_backward(mm->layer, mm->dy, mm->x, mm->dx, 0, NULL);
    if (status == QDR_OK)
        status = qdr_redistribute(mm->grid, &mm->grid_in, mm->dx, &mm->rows_in, dinp, QDR_F32,
                                  NULL);
    return status;
}

static double largest_difference(const float *a, const float *b, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const double difference = fabs((double)a[i] - (double)b[i]);
        if (!(difference <= largest)) largest = difference;
    }
    return largest;
}

/* A number in [-1, 1) that depends on where it stands. */
static float value_at(int64_t i) { return (float)((i * 2654435761u) % 2000u) / 1000.0f - 1.0f; }

/* This rank's rows, a weight that all ranks know only for the comparison, and room for results. */
typedef struct buffers {
    float inp[BT * C], dout[BT * OC], out[BT * OC], dinp[BT * C], weight[OC * C], bias[OC];
    float plain_out[BT * OC], plain_dinp[BT * C];
} buffers;

static void fill(buffers *b, const qdr_owned *rows)
{
    for (int64_t i = 0; i < rows->n_rows * C; i++) b->inp[i] = value_at(rows->rows.begin * C + i);
    for (int64_t i = 0; i < rows->n_rows * OC; i++)
        b->dout[i] = value_at(7 + rows->rows.begin * OC + i);
    for (int64_t i = 0; i < (int64_t)OC * C; i++) b->weight[i] = value_at(13 + i);
    for (int64_t i = 0; i < OC; i++) b->bias[i] = value_at(17 + i);
}

static int run_rank(qdr_context *ctx, void *user)
{
    qdr_status status;
    qdr_grid *grid = NULL;
    matmul mm = {0};
    buffers *b = calloc(1, sizeof *b);
    int wrong = b == NULL;
    (void)user;
    CHECK(qdr_grid_create(ctx, &(qdr_grid_opts){QDR_OPTS_INIT, .x = 2, .y = 2, .z = 1, .d = 1},
                          &grid));
    CHECK(matmul_create(grid, &mm));
    qdr_owned rows;
    CHECK(qdr_matrix_owned(grid, &mm.rows_in, qdr_context_rank(ctx), &rows));
    if (!wrong) {
        fill(b, &rows);
        CHECK(qdr_stack_load_parameter(mm.stack, qdr_linear_weight_index(mm.layer), b->weight));
        CHECK(qdr_stack_load_parameter(mm.stack, qdr_linear_weight_index(mm.layer) + 1, b->bias));
        CHECK(matmul_forward(&mm, b->out, b->inp));
        CHECK(matmul_backward(&mm, b->dinp, b->dout));
        CHECK(qdr_stream_synchronize(qdr_context_stream(ctx)));
        plain_forward(b->plain_out, b->inp, b->weight, b->bias, rows.n_rows);
        plain_backward(b->plain_dinp, b->dout, b->weight, rows.n_rows);
        const double out_error = largest_difference(b->out, b->plain_out, rows.n_rows * OC);
        const double dinp_error = largest_difference(b->dinp, b->plain_dinp, rows.n_rows * C);
        printf("rank %d: rows %d to %d; out differs from the plain loop by at most %.1e, dinp by "
               "%.1e\n",
               qdr_context_rank(ctx), (int)rows.rows.begin, (int)rows.rows.end, out_error,
               dinp_error);
        /* Sums of at most 80 products below 1 in fp32: both sides are within 80²·2⁻²⁴ of the exact
         * value. */
        wrong = !(out_error < 1e-3 && dinp_error < 1e-3);
    }
out:
    if (status < 0 && qdr_context_rank(ctx) == 0)
        fprintf(stderr, "replace_matmul: %s\n", qdr_last_error());
    qdr_stack_destroy(&mm.stack);
    qdr_grid_destroy(&grid);
    free(b);
    return status < 0 || wrong;
}

int main(int argc, char **argv)
{
    int exit_code = 1;
    const int n_local = argc == 2 && strcmp(argv[1], "--mpi") == 0 ? 0 : 4;
    if (qdr_launch(n_local, NULL, run_rank, NULL, &exit_code) < 0)
        fprintf(stderr, "replace_matmul: %s\n", qdr_last_error());
    return exit_code;
}
