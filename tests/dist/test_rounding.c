/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of bf16 activations over P ranks are rounded once, and not at each rank on the way: docs/numerics.md has r = 2,
 * for any P. In each tested row one rank has 1 and the others have the largest number that bf16 drops when it is added
 * to 1: a sum that is rounded hop by hop, beginning at that rank, loses all of them, (P - 1)·v compared with a bound of
 * about 2·v. Each rank has the 1 in some row of each part. Y forward and dX backward, over x and over y, both layouts.
 * The test can fail from four ranks on. */

#include "common/reference.h"
#include "dist.h"

#define HALF_UNIT 0x1p-8
static const double small = HALF_UNIT * (1 - HALF_UNIT);

typedef struct rounding_case {
    int is_forward, transposed;
    qdr_layout layout;
} rounding_case;

/* A layer with P features where it sums and one feature elsewhere. */
static qdr_linear *make_layer(qdr_stack *stack, const rounding_case *c, int p)
{
    const int64_t k = c->is_forward ? p : 1, n = c->is_forward ? 1 : p;
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{k, 1}}, .col_axis = c->transposed ? QDR_Y : QDR_X,
                                 .layout = c->layout};
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc),   .name = "layer",        .in = {{k, 1}}, .out = {{n, 1}},
                                  .transposed = c->transposed, .out_layout = c->layout};
    qdr_edge edge;
    qdr_linear *layer;
    DIST_OK(qdr_stack_add_input(stack, "x", &input, 1, &edge));
    DIST_OK(qdr_stack_add_linear(stack, &desc, edge, &edge, &layer));
    DIST_OK(qdr_stack_build(stack));
    uint16_t ones[64];
    for (int i = 0; i < p; i++) dist_set(ones, QDR_BF16, i, 1);
    DIST_OK(qdr_stack_load_parameter(stack, qdr_linear_weight_index(layer), ones));
    return layer;
}

/* This rank's part of an activation: rows as said above where it has P columns, else room. */
static void *make_part(qdr_grid *grid, const qdr_matrix *matrix, qdr_owned *owned)
{
    qdr_context *ctx = qdr_grid_context(grid);
    const int p = qdr_context_size(ctx);
    DIST_OK(qdr_matrix_owned(grid, matrix, qdr_context_rank(ctx), owned));
    void *part = dist_memory(ctx, owned->n_rows * owned->n_cols + 1, QDR_BF16);
    for (int64_t row = 0; row < owned->n_rows; row++)
        for (int64_t col = 0; col < owned->n_cols; col++) {
            const int is_one = (owned->rows.begin + row) % p == owned->cols[0].begin + col;
            dist_set(part, QDR_BF16, row * owned->n_cols + col, is_one ? 1 : small);
        }
    return part;
}

static void check_sums(const void *part, const qdr_owned *owned, int p)
{
    const double sum = 1 + (p - 1) * small;
    const double bound = sum * error_bound_of((error_shape){QDR_BF16, p, p, (p > 1) + 1}).factor;
    for (int64_t i = 0; i < owned->n_rows * owned->n_cols; i++) {
        const double got = dist_get(part, QDR_BF16, i);
        DIST_CHECK(fabs(got - sum) <= bound, "row %d is %.9g, not %.9g; the bound is %.3g",
                   (int)(owned->rows.begin + i), got, sum, bound);
    }
}

static void run_case(qdr_grid *grid, const rounding_case *c)
{
    qdr_context *ctx = qdr_grid_context(grid);
    const int p = qdr_context_size(ctx);
    qdr_matrix in = {QDR_INIT(qdr_matrix)}, out = {QDR_INIT(qdr_matrix)};
    qdr_owned in_part = {QDR_INIT(qdr_owned)}, out_part = {QDR_INIT(qdr_owned)};
    qdr_stack *stack = dist_stack(grid, (qdr_stack_opts){.n_rows = (int64_t)p * p, .dtype = QDR_BF16});
    qdr_linear *layer = make_layer(stack, c, p);
    DIST_OK(qdr_linear_in_matrix(layer, &in));
    DIST_OK(qdr_linear_out_matrix(layer, &out));
    void *x = make_part(grid, &in, &in_part), *y = make_part(grid, &out, &out_part);
    void *dx = make_part(grid, &in, &in_part);
    if (c->is_forward) DIST_OK(qdr_linear_forward(layer, x, y, 0, NULL));
    if (!c->is_forward && c->layout == QDR_SCATTERED) { /* backward reads what forward gathered */
        void *unused = make_part(grid, &out, &out_part);
        DIST_OK(qdr_linear_forward(layer, x, unused, 0, NULL));
        dist_synchronize(ctx);
        qdr_mem_free(ctx, &unused);
    }
    if (!c->is_forward) DIST_OK(qdr_linear_backward(layer, y, x, dx, 0, NULL));
    dist_synchronize(ctx);
    if (c->is_forward) check_sums(y, &out_part, p);
    if (!c->is_forward) check_sums(dx, &in_part, p);
    qdr_stack_destroy(&stack);
    qdr_mem_free(ctx, &x);
    qdr_mem_free(ctx, &y);
    qdr_mem_free(ctx, &dx);
}

DIST_TEST(sums_round_once)
{
    const int p = qdr_context_size(ctx);
    for (int over_y = 0; over_y < 2; over_y++) {
        qdr_grid *grid = dist_grid(ctx, (qdr_grid_opts){.x = over_y ? 1 : p, .y = over_y ? p : 1, .z = 1, .d = 1});
        for (int i = 0; i < 4; i++) {
            rounding_case c = {.is_forward = i % 2, .layout = (qdr_layout)(i / 2)};
            c.transposed = c.is_forward == over_y; /* the sum is over x, or over y */
            run_case(grid, &c);
        }
        qdr_grid_destroy(&grid);
    }
}
