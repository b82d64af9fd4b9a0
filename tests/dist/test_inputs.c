/* SPDX-License-Identifier: Apache-2.0 */
/* Each operation directly after an input of the stack: whether the input's gradient is wanted changes no bit of later
 * results, forward and backward. */
#include "dist.h"
#include "nodes.h"

enum { CONTEXT = 4, HEAD = 4, N_ROWS = 6 * CONTEXT, WIDTH = 6 * HEAD };

typedef enum operation { GELU, NORM, RESIDUAL, ATTENTION, GROUPED, N_OPERATIONS } operation;

static qdr_edge add_operation(qdr_stack *stack, operation kind, qdr_edge x)
{
    qdr_edge y = -1;
    if (kind == GELU) DIST_OK(qdr_stack_add_gelu(stack, "gelu", x, &y));
    if (kind == NORM) DIST_OK(test_add_norm(stack, "norm", 0, x, &y));
    if (kind == RESIDUAL) DIST_OK(qdr_stack_add_residual(stack, "sum", x, x, &y));
    if (kind >= ATTENTION) DIST_OK(test_add_attention(stack, "attention", HEAD, CONTEXT, x, &y));
    return y;
}

/* All gradients of parameters after one step, as on one process. Returns how many numbers. */
static int64_t step(qdr_grid *grid, operation kind, qdr_layout layout, int with_gradient, double *gradients)
{
    const int64_t keys = kind == GROUPED ? HEAD : WIDTH; /* one key head */
    qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{WIDTH, HEAD}}, .col_axis = QDR_X, .layout = layout,
                           .scatter_unit = CONTEXT};
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc), .name = "layer", .in = {{WIDTH, HEAD}},
                                  .out = {{WIDTH, HEAD}},    .bias = 1,       .out_layout = layout};
    qdr_edge x = -1, y = -1;
    int64_t n = 0;
    if (kind >= ATTENTION) input.cols[1] = input.cols[2] = (qdr_block){keys, HEAD};
    qdr_stack *stack = dist_stack(grid, (qdr_stack_opts){.n_rows = N_ROWS, .row_unit = CONTEXT, .dtype = QDR_F64});
    DIST_OK(qdr_stack_add_input(stack, "x", &input, with_gradient, &x));
    DIST_OK(qdr_stack_add_linear(stack, &desc, add_operation(stack, kind, x), &y, NULL));
    DIST_OK(qdr_stack_build(stack));
    DIST_OK(qdr_stack_init(stack, 3, 0.2));
    void *memory = dist_edge_value(stack, x);
    dist_fill_edge(stack, x, memory, 1);
    DIST_OK(qdr_stack_forward(stack));
    memory = dist_edge_gradient(stack, y);
    dist_fill_edge(stack, y, memory, 2);
    DIST_OK(qdr_stack_backward(stack, 0, 1));
    n += dist_gather_gradients(stack, gradients);
    qdr_stack_destroy(&stack);
    return n;
}

DIST_TEST(inputs_without_gradients)
{
    enum { ROOM = WIDTH * WIDTH + 3 * WIDTH };
    double *wanted = malloc(2 * ROOM * sizeof *wanted), *got = wanted + ROOM;
    DIST_CHECK(wanted, "no memory");
    for (int i = 0; i < 2 * N_OPERATIONS; i++) {
        qdr_grid *grid = dist_random_grid(ctx, &seed);
        const operation kind = (operation)(i / 2);
        const qdr_layout layout = i % 2 ? QDR_SCATTERED : QDR_REPLICATED;
        const int64_t n = step(grid, kind, layout, 1, wanted);
        double largest = 0;
        DIST_CHECK(step(grid, kind, layout, 0, got) == n, "operation %d", i / 2);
        DIST_CHECK(memcmp(got, wanted, (size_t)n * sizeof *got) == 0, "operation %d", i / 2);
        for (int64_t j = 0; j < n; j++) largest = got[j] > largest ? got[j] : largest;
        DIST_CHECK(largest > 0.1, "operation %d: the largest gradient is %g", i / 2, largest);
        qdr_grid_destroy(&grid);
    }
    free(wanted);
}
