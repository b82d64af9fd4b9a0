/* SPDX-License-Identifier: Apache-2.0 */
/* Initial values of parameters: their distribution, that they do not depend on the grid, which of them decay; and what
 * is refused. */
#include "dist.h"
#include "nodes.h"

enum { CONTEXT = 4, HIDDEN = 24, VOCABULARY = 40, MOST = 2 * HIDDEN * HIDDEN };

/* Tokens, embedding with positions, norms, layer with bias. */
static qdr_stack *make_stack(qdr_grid *grid)
{
    const qdr_embedding_desc embedding = {QDR_INIT(qdr_embedding_desc), .name = "embedding", .vocab = {VOCABULARY, 1},
                                          .features = {HIDDEN, 1}, .context = CONTEXT};
    const qdr_norm_desc plus = {QDR_INIT(qdr_norm_desc), .name = "plus", .one_plus = 1};
    qdr_linear *table, *linear;
    qdr_edge tokens, x, y;
    qdr_stack *stack = dist_stack(grid, (qdr_stack_opts){.n_rows = CONTEXT, .row_unit = CONTEXT, .dtype = QDR_F64});
    DIST_OK(qdr_stack_add_tokens(stack, "tokens", &tokens));
    DIST_OK(qdr_stack_add_embedding(stack, &embedding, tokens, &x, &table));
    DIST_OK(test_add_norm(stack, "norm", 1e-5, x, &y));
    DIST_OK(qdr_stack_add_norm(stack, &plus, y, &y));
    x = dist_linear(stack, (qdr_linear_desc){.name = "layer", .in = {{HIDDEN, 1}}, .out = {{2 * HIDDEN, 2}}, .bias = 1},
                    y, &linear);
    DIST_OK(qdr_stack_build(stack));
    return stack;
}

/* The mean of n numbers of deviation s is within 5·s/√n, their mean square within 5·s²·√(2/n) of s², but once in a
 * million; the seed is fixed. */
static void check_normal(const char *name, const double *values, int64_t n, double stddev)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += values[i];
        squares += values[i] * values[i];
    }
    const double mean = sum / (double)n, square = squares / (double)n, s2 = stddev * stddev;
    DIST_CHECK(fabs(mean) <= 5 * stddev / sqrt((double)n), "%s: mean %g", name, mean);
    DIST_CHECK(fabs(square - s2) <= 5 * s2 * sqrt(2 / (double)n), "%s: mean square %g, not %g", name, square, s2);
}

static int ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name), n_end = strlen(end);
    return n >= n_end && strcmp(name + n - n_end, end) == 0;
}

/* Matrices are normal and decay, positions are normal; gammas are 1, but those that 1 is added to, like biases
 * and betas, 0. */
static void check_parameter(qdr_stack *stack, int index, double stddev)
{
    double values[MOST];
    const qdr_parameter parameter = dist_parameter(stack, index);
    DIST_OK(qdr_stack_gather_parameter(stack, index, 0, values));
    const int is_matrix = ends_in(parameter.name, ".weight");
    DIST_CHECK(parameter.decay == is_matrix, "%s: decay %d", parameter.name, parameter.decay);
    if (is_matrix || ends_in(parameter.name, ".positions")) {
        check_normal(parameter.name, values, parameter.n_global, stddev);
        return;
    }
    const double constant = strcmp(parameter.name, "norm.gamma") == 0;
    for (int64_t i = 0; i < parameter.n_global; i++)
        DIST_CHECK(values[i] == constant, "%s[%d] is %g", parameter.name, (int)i, values[i]);
}

DIST_TEST(first_values_are_as_asked)
{
    static const double deviations[] = {0.02, 1, 0};
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    qdr_stack *stack = make_stack(grid);
    DIST_CHECK(qdr_stack_n_parameters(stack) == 8, "%d parameters", qdr_stack_n_parameters(stack));
    for (int i = 0; i < 3; i++) {
        DIST_OK(qdr_stack_init(stack, 5 + (uint64_t)i, deviations[i]));
        for (int j = 0; j < 6; j++) check_parameter(stack, j, deviations[i]);
    }
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
}

/* As on one rank, bit for bit; another seed gives others. */
DIST_TEST(the_grid_does_not_matter)
{
    qdr_context *self = NULL;
    qdr_grid *grid = dist_random_grid(ctx, &seed), *one = NULL;
    DIST_OK(qdr_context_create_self(NULL, &self));
    one = dist_grid(self, (qdr_grid_opts){.x = 1, .y = 1, .z = 1, .d = 1});
    qdr_stack *many = make_stack(grid), *alone = make_stack(one);
    DIST_OK(qdr_stack_init(many, 9, 0.5));
    DIST_OK(qdr_stack_init(alone, 9, 0.5));
    for (int round = 0; round < 2; round++) {
        int n_other = 0;
        for (int i = 0; i < qdr_stack_n_parameters(many); i++) {
            double values[MOST], expected[MOST];
            const qdr_parameter parameter = dist_parameter(many, i);
            DIST_OK(qdr_stack_gather_parameter(many, i, 0, values));
            DIST_OK(qdr_stack_gather_parameter(alone, i, 0, expected));
            n_other += memcmp(values, expected, (size_t)parameter.n_global * sizeof *values) != 0;
        }
        DIST_CHECK(n_other == (round ? 3 : 0), "%d parameters differ", n_other);
        DIST_OK(qdr_stack_init(many, 10, 0.5));
    }
    qdr_stack_destroy(&many);
    qdr_stack_destroy(&alone);
    qdr_grid_destroy(&grid);
    qdr_grid_destroy(&one);
    qdr_context_destroy(&self);
}

DIST_TEST(wrong_numbers_are_named)
{
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    qdr_stack *stack = make_stack(grid);
    DIST_FAILS(qdr_stack_init(stack, 1, (double)NAN), QDR_ERR_ARGUMENT, "deviation of nan");
    DIST_FAILS(qdr_stack_init(stack, 1, -1), QDR_ERR_ARGUMENT, "deviation of -1");
    DIST_FAILS(qdr_stack_backward(stack, 0, (double)NAN), QDR_ERR_ARGUMENT, "scale is nan");
    DIST_FAILS(qdr_stack_gather_parameter(stack, 0, 7, NULL), QDR_ERR_ARGUMENT, "which = 7");
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
}
