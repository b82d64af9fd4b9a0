/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the batch: a stack whose gradients are shared, copied and added to, on every grid of the ranks, gives what
 * it gives in one part, up to rounding, with overlap and without. */
#include <math.h>
#include <stdlib.h>

#include "dist.h"

enum { WIDTH = 12, UNIT = 2, MOST = 4096 };

/* Two layers read x. Residuals share their gradient with the edges they read, of which e and r are read by a layer,
 * too, that adds to it. */
static void describe(qdr_stack *stack, qdr_edge *x, qdr_edge *y)
{
    const qdr_edge_desc input = {QDR_OPTS_INIT, .cols = {{WIDTH, 1}}, .col_axis = QDR_X};
    qdr_linear_desc layer = {QDR_OPTS_INIT, .name = "first", .in = {{WIDTH, 1}}, .out = {{WIDTH, 1}}, .bias = 1};
    qdr_edge a, b, c, e, f, r;
    DIST_OK(qdr_stack_add_input(stack, "x", &input, 1, x));
    DIST_OK(qdr_stack_add_linear(stack, &layer, *x, &a, NULL));
    DIST_OK(qdr_stack_add_linear(stack, &layer, *x, &b, NULL));
    DIST_OK(qdr_stack_add_residual(stack, "both", a, b, &c));
    layer.name = "back";
    layer.transposed = 1;
    DIST_OK(qdr_stack_add_linear(stack, &layer, c, &e, NULL));
    layer.name = "up";
    layer.transposed = 0;
    DIST_OK(qdr_stack_add_linear(stack, &layer, e, &a, NULL));
    layer.name = "down";
    layer.transposed = 1;
    DIST_OK(qdr_stack_add_linear(stack, &layer, a, &f, NULL));
    DIST_OK(qdr_stack_add_residual(stack, "around", e, f, &r));
    layer.name = "last";
    layer.transposed = 0;
    DIST_OK(qdr_stack_add_linear(stack, &layer, r, &b, NULL));
    layer.transposed = 1;
    DIST_OK(qdr_stack_add_linear(stack, &layer, b, &f, NULL));
    DIST_OK(qdr_stack_add_residual(stack, "bare", r, f, &c));
    DIST_OK(qdr_stack_add_gelu(stack, "gelu", c, y));
}

/* All gradients of two backward passes, the second adding, the input's last. */
static int64_t gradients(qdr_grid *grid, int n_parts, int overlap, double *kept)
{
    const int64_t n_units = 3 * qdr_grid_size(grid, QDR_Z) * qdr_grid_size(grid, QDR_D) + 1;
    const qdr_stack_opts opts = {QDR_OPTS_INIT,    .n_rows = n_units * UNIT, .row_unit = UNIT,
                                 .dtype = QDR_F64, .overlap = overlap,       .batch_parts = n_parts};
    qdr_stack *stack;
    qdr_edge x, y;
    qdr_owned owned;
    void *memory;
    DIST_OK(qdr_stack_create(grid, &opts, &stack));
    describe(stack, &x, &y);
    DIST_OK(qdr_stack_build(stack));
    DIST_OK(qdr_stack_init(stack, 11, 0.3));
    for (int pass = 0; pass < 2; pass++)
        dist_step(stack, x, 3 + (uint64_t)pass, y, 5 + (uint64_t)pass, pass ? QDR_ACCUMULATE : 0);
    int64_t n = dist_gather_gradients(stack, kept);
    DIST_OK(qdr_stack_edge_owned(stack, x, &owned));
    DIST_OK(qdr_stack_edge_gradient(stack, x, &memory));
    for (int64_t i = 0; i < owned.n_rows * owned.n_cols; i++) kept[n++] = ((const double *)memory)[i];
    DIST_CHECK(n <= MOST, "%lld numbers", (long long)n);
    qdr_stack_destroy(&stack);
    return n;
}

/* Sums of some hundred numbers below 100 in another order. */
static void compare(qdr_grid *grid, const double *one, double *other, int n_parts, int overlap)
{
    const int64_t n = gradients(grid, n_parts, overlap, other);
    for (int64_t i = 0; i < n; i++)
        DIST_CHECK(fabs(other[i] - one[i]) <= 1e-11 * (1 + fabs(one[i])),
                   "grid %dx%dx%dx%d, %d parts, overlap %d: number %lld is %.17g, not %.17g",
                   qdr_grid_size(grid, QDR_X), qdr_grid_size(grid, QDR_Y), qdr_grid_size(grid, QDR_Z),
                   qdr_grid_size(grid, QDR_D), n_parts, overlap, (long long)i, other[i], one[i]);
}

/* memory: for the gradients of one part, and of several. */
static void all_parts(qdr_grid *grid, void *memory)
{
    double *one = memory, *other = one + MOST;
    (void)gradients(grid, 1, QDR_OVERLAP_ALL, one);
    for (int n_parts = 2; n_parts <= 4; n_parts++) {
        compare(grid, one, other, n_parts, QDR_OVERLAP_ALL);
        compare(grid, one, other, n_parts, QDR_OVERLAP_NONE);
    }
}

static void every_grid(qdr_context *ctx, uint64_t seed)
{
    double *memory = calloc(2 * MOST, sizeof *memory);
    (void)seed;
    DIST_CHECK(memory != NULL, "no memory");
    dist_every_grid(ctx, all_parts, memory);
    free(memory);
}

int main(int argc, char **argv)
{
    static const dist_test tests[] = {{"every grid, in parts", every_grid}};
    return dist_main(argc, argv, tests, 1);
}
