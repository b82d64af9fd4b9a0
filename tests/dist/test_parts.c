/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the batch: a stack whose gradients are shared, copied and added to gives, on every grid of the ranks, the
 * same results as in one part, up to rounding, with overlap and without; and losses of cells with fewer sequences than
 * parts, as plain loops. */
#include "dist.h"

enum { WIDTH = 12, UNIT = 2, MOST = 4096, VOCAB = 11 };

/* Two layers read x. Residuals share their gradient with the edges they read, of which e and r are read by a layer,
 * too, that adds to it. */
static void describe(qdr_stack *stack, qdr_edge *x, qdr_edge *y)
{
    qdr_linear_desc layer = {QDR_INIT(qdr_linear_desc), .name = "first", .in = {{WIDTH, 1}}, .out = {{WIDTH, 1}},
                             .bias = 1};
    qdr_edge a, b, c, e, f, r;
    *x = dist_input(stack, "x", (qdr_edge_desc){.cols = {{WIDTH, 1}}, .col_axis = QDR_X}, 1);
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
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = n_units * UNIT, .row_unit = UNIT,
                                 .dtype = QDR_F64,         .overlap = overlap,       .batch_parts = n_parts};
    qdr_stack *stack;
    qdr_edge x, y;
    DIST_OK(qdr_stack_create(grid, &opts, &stack));
    describe(stack, &x, &y);
    DIST_OK(qdr_stack_build(stack));
    DIST_OK(qdr_stack_init(stack, 11, 0.3));
    for (int pass = 0; pass < 2; pass++)
        dist_step(stack, x, 3 + (uint64_t)pass, y, 5 + (uint64_t)pass, pass ? QDR_ACCUMULATE : 0);
    int64_t n = dist_gather_gradients(stack, kept);
    const qdr_owned owned = dist_edge_owned(stack, x);
    void *memory = dist_edge_gradient(stack, x);
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

DIST_TEST(every_grid)
{
    double *memory = calloc(2 * MOST, sizeof *memory);
    DIST_CHECK(memory != NULL, "no memory");
    dist_every_grid(ctx, 0, all_parts, memory);
    free(memory);
}

/* ---- losses ---- */

typedef struct loss_case {
    qdr_axis axis; /* of the logits' columns */
    qdr_layout layout;
    int n_parts;
    int64_t n_rows;
} loss_case;

/* -1, no target, in about one row of VOCAB + 1. */
static int32_t target_of(uint64_t seed, int64_t row)
{
    uint64_t state = seed + 1000 * (uint64_t)row;
    return (int32_t)dist_below(&state, VOCAB + 1) - 1;
}

/* Of all rows, by plain loops. */
static double wanted_loss(int64_t n_rows, uint64_t seed, int64_t *n_valid)
{
    double loss = 0;
    *n_valid = 0;
    for (int64_t row = 0; row < n_rows; row++) {
        const int32_t target = target_of(seed, row);
        double sum = 0;
        if (target < 0) continue;
        for (int64_t col = 0; col < VOCAB; col++) sum += exp(dist_value(seed, row, col));
        loss += log(sum) - dist_value(seed, row, target);
        ++*n_valid;
    }
    return loss;
}

static void fill(const qdr_stack *stack, qdr_edge logits, qdr_edge targets, uint64_t seed)
{
    void *values = dist_edge_value(stack, logits);
    dist_fill_edge(stack, logits, values, seed);
    int32_t *ids = dist_edge_value(stack, targets);
    const qdr_owned owned = dist_edge_owned(stack, targets);
    for (int64_t i = 0; i < owned.n_rows; i++) ids[i] = target_of(seed, owned.rows.begin + i);
}

/* Two forwards of other numbers; each loss is asked for twice. */
static void check_losses(qdr_grid *grid, const loss_case *c, uint64_t seed)
{
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{VOCAB, 1}}, .col_axis = c->axis,
                                 .layout = c->layout};
    qdr_edge logits, targets;
    qdr_stack *stack = dist_stack(
        grid, (qdr_stack_opts){.n_rows = c->n_rows, .row_unit = UNIT, .dtype = QDR_F64, .batch_parts = c->n_parts});
    DIST_OK(qdr_stack_add_input(stack, "logits", &input, 0, &logits));
    DIST_OK(qdr_stack_add_cross_entropy(stack, "loss", logits, &targets));
    DIST_OK(qdr_stack_build(stack));
    for (int i = 0; i < 4; i++) {
        int64_t n_valid, n_wanted;
        double loss;
        const double wanted = wanted_loss(c->n_rows, seed + (uint64_t)(i / 2), &n_wanted);
        if (i % 2 == 0) {
            fill(stack, logits, targets, seed + (uint64_t)(i / 2));
            DIST_OK(qdr_stack_forward(stack));
        }
        DIST_OK(qdr_stack_loss(stack, &loss, &n_valid));
        DIST_CHECK(
            n_valid == n_wanted && fabs(loss - wanted) <= 1e-12 * (1 + wanted),
            "grid %dx%dx%dx%d, logits over axis %d, layout %d, %d parts of %lld rows, call %d: %.17g of %lld rows, "
            "not %.17g of %lld",
            qdr_grid_size(grid, QDR_X), qdr_grid_size(grid, QDR_Y), qdr_grid_size(grid, QDR_Z),
            qdr_grid_size(grid, QDR_D), (int)c->axis, (int)c->layout, c->n_parts, (long long)c->n_rows, i, loss,
            (long long)n_valid, wanted, (long long)n_wanted);
    }
    qdr_stack_destroy(&stack);
}

/* Some cells have a sequence more than others, some may have none. */
static void losses_on(qdr_grid *grid, void *seed)
{
    const int64_t n_cells = (int64_t)qdr_grid_size(grid, QDR_Z) * qdr_grid_size(grid, QDR_D);
    for (int i = 0; i < 10; i++) {
        const loss_case c = {.axis = i % 2 ? QDR_X : QDR_Y,
                             .layout = i < 2 ? QDR_SCATTERED : QDR_REPLICATED,
                             .n_parts = i / 2,
                             .n_rows = UNIT * (1 + dist_below(seed, 3 * n_cells))};
        check_losses(grid, &c, dist_random(seed));
    }
}

DIST_TEST(losses) { dist_every_grid(ctx, 0, losses_on, &seed); }
