/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks of one norm of any kind whose features are split over x or y in random blocks, which are normed together or
 * each by itself, in all types, compared with plain loops in f64, within bounds that follow from the order of the
 * operations; and its gradient compared with differences of the distributed forward pass.
 *
 * Bounds: u is the roundoff of the sums' type, t that of the stored type, n the number of features, g that of the
 * parts, X = max|x|. The error of a mean of n terms is at most e = (n + 4g + 8)·u·X. The relative error of a sum of
 * squared deviations is at most (2n + 8g + 16)·u, plus the effect of an inexact mean: 2·g·e/s + (e/s)², s² = var +
 * epsilon. Half of that is the relative error of 1/s, v. So the error of x̂ is h = e/s + |x̂|·(v + 4u).
 * The mean of an RMS norm is 0, without error. */
#include "dist.h"
#include "nodes.h"

static const qdr_dtype types[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};

/* adds: the last edge is x + norm(x), so that x's gradient is added to that edge's; and the gradients of parameters are
 * those of two backward passes. */
typedef struct norm_case {
    qdr_grid *grid;
    qdr_stack *stack;
    qdr_dtype dtype;
    qdr_edge x, y, last;
    qdr_axis axis;
    qdr_owned owned; /* of x, y and their gradients */
    qdr_norm_desc norm;
    int64_t n_rows, n_features;
    int n_groups; /* of columns that are normed together */
    int64_t ends[QDR_MAX_BLOCKS]; /* of the groups */
    int adds;
    uint64_t data_seed;
    void *memory;
} norm_case;

/* Global data, as every rank knows it. Rows get an offset, or means would be near zero. */
static double x_at(const norm_case *c, int64_t row, int64_t col)
{
    return dist_value(c->data_seed, row, col) + dist_value(c->data_seed + 1, row, 0);
}

static double gamma_at(const norm_case *c, int64_t col) { return dist_value(c->data_seed + 2, 0, col); }

static double factor_at(const norm_case *c, int64_t col) { return gamma_at(c, col) + c->norm.one_plus; }

static int has_beta(const norm_case *c) { return c->norm.kind == QDR_NORM_LAYER && !c->norm.no_beta; }

static double beta_at(const norm_case *c, int64_t col)
{
    return has_beta(c) ? dist_value(c->data_seed + 3, 0, col) : 0;
}

static double dy_at(const norm_case *c, int64_t row, int64_t col) { return dist_value(c->data_seed + 4, row, col); }

static void *value_of(const norm_case *c, qdr_edge edge) { return dist_edge_value(c->stack, edge); }

static void *gradient_of(const norm_case *c, qdr_edge edge) { return dist_edge_gradient(c->stack, edge); }

static void case_fill(const norm_case *c)
{
    double (*const parameters[])(const norm_case *c, int64_t col) = {gamma_at, beta_at};
    const int64_t n_normed = c->ends[c->n_groups - 1];
    qdr_context *ctx = qdr_grid_context(c->grid);
    void *full = dist_memory(ctx, c->n_features, c->dtype), *x = value_of(c, c->x);
    DIST_CHECK(qdr_stack_n_parameters(c->stack) == 1 + has_beta(c), "other parameters");
    for (int i = 0; i < qdr_stack_n_parameters(c->stack); i++) {
        for (int64_t col = 0; col < n_normed; col++) dist_set(full, c->dtype, col, parameters[i](c, col));
        DIST_OK(qdr_stack_load_parameter(c->stack, i, full));
    }
    int64_t at = 0;
    for (int64_t row = c->owned.rows.begin; row < c->owned.rows.end; row++)
        for (int64_t i = 0; i < c->owned.n_cols; i++)
            dist_set(x, c->dtype, at++, x_at(c, row, dist_column(&c->owned, i)));
    qdr_mem_free(ctx, &full);
}

/* Three of four norm all columns together. */
static void choose_norm(uint64_t *seed, const qdr_block *blocks, int may_part, norm_case *c)
{
    int n = 0;
    for (; n < QDR_MAX_BLOCKS && blocks[n].width > 0; n++) c->ends[n] = c->n_features += blocks[n].width;
    c->norm = (qdr_norm_desc){QDR_INIT(qdr_norm_desc), .name = "norm", .kind = (qdr_norm_kind)dist_below(seed, 2),
                              .no_beta = (int)dist_below(seed, 2), .one_plus = (int)dist_below(seed, 2)};
    if (may_part && dist_below(seed, 4) == 0) c->norm.n_blocks = 1 + (int)dist_below(seed, n);
    c->n_groups = c->norm.n_blocks ? c->norm.n_blocks : 1;
    if (!c->norm.n_blocks) c->ends[0] = c->n_features;
}

/* The group of a column; n_groups: none. */
static int group_of(const norm_case *c, int64_t col)
{
    int group = 0;
    while (group < c->n_groups && col >= c->ends[group]) group++;
    return group;
}

static int64_t begin_of(const norm_case *c, int group) { return group ? c->ends[group - 1] : 0; }

static norm_case case_make(qdr_context *ctx, uint64_t *seed, qdr_dtype dtype, const qdr_block *blocks, int adds,
                           int may_part)
{
    norm_case c = {.grid = dist_random_grid(ctx, seed), .dtype = dtype, .adds = adds};
    c.axis = (qdr_axis)dist_below(seed, 2);
    c.n_rows = dist_below(seed, 20);
    c.data_seed = dist_random(seed);
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = c.n_rows, .dtype = dtype, .caller_memory = 1,
                                 .batch_parts = 1 + (int)dist_below(seed, 3)};
    qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .col_axis = c.axis, .layout = (qdr_layout)dist_below(seed, 2)};
    for (int i = 0; i < QDR_MAX_BLOCKS; i++) input.cols[i] = blocks[i];
    choose_norm(seed, blocks, may_part, &c);
    DIST_OK(qdr_stack_create(c.grid, &opts, &c.stack));
    DIST_OK(qdr_stack_add_input(c.stack, "x", &input, 1, &c.x));
    DIST_OK(qdr_stack_add_norm(c.stack, &c.norm, c.x, &c.y));
    DIST_OK(qdr_stack_keep_value(c.stack, c.y));
    c.last = c.y;
    if (adds) DIST_OK(qdr_stack_add_residual(c.stack, "sum", c.x, c.y, &c.last));
    c.memory = dist_build_in_nan(c.stack);
    c.owned = dist_edge_owned(c.stack, c.x);
    case_fill(&c);
    return c;
}

static void case_free(qdr_context *ctx, norm_case *c)
{
    qdr_stack_destroy(&c->stack);
    qdr_mem_free(ctx, &c->memory);
    qdr_grid_destroy(&c->grid);
}

/* A row's columns of one group in f64, and how far the computed one may be from it. */
typedef struct row_reference {
    double mean, scale; /* scale = 1 / s */
    double mean_error, scale_error; /* of scale: relative */
    double d, d_x; /* Σ dŷ and Σ dŷ·x̂, over n */
    double d_error, d_x_error;
} row_reference;

static double x_hat(const norm_case *c, const row_reference *r, int64_t row, int64_t col)
{
    return (x_at(c, row, col) - r->mean) * r->scale;
}

static double x_hat_error(const norm_case *c, const row_reference *r, double value)
{
    return r->mean_error * r->scale + fabs(value) * (r->scale_error + 4 * dist_roundoff(dist_sum_type(c->dtype)));
}

static row_reference reference_of(const norm_case *c, int64_t row, int group)
{
    const double u = dist_roundoff(dist_sum_type(c->dtype)), g = qdr_grid_size(c->grid, c->axis);
    const int64_t begin = begin_of(c, group), end = c->ends[group];
    const double terms = (double)(end - begin);
    double largest = 0, squares = 0, d_sum = 0, d_x_sum = 0, d_x_moved = 0;
    row_reference r = {0};
    for (int64_t col = begin; col < end && c->norm.kind != QDR_NORM_RMS; col++) {
        r.mean += x_at(c, row, col) / terms;
        largest = fmax(largest, fabs(x_at(c, row, col)));
    }
    for (int64_t col = begin; col < end; col++) squares += pow(x_at(c, row, col) - r.mean, 2);
    r.scale = 1 / sqrt(squares / terms + 1e-5);
    r.mean_error = (terms + 4 * g + 8) * u * largest;
    const double e = r.mean_error * r.scale;
    r.scale_error = ((2 * terms + 8 * g + 16) * u + 2 * g * e + e * e) / 2;
    for (int64_t col = begin; col < end; col++) {
        const double d = dy_at(c, row, col) * factor_at(c, col), h = x_hat(c, &r, row, col);
        r.d += d / terms;
        r.d_x += d * h / terms;
        d_sum += fabs(d);
        d_x_sum += fabs(d * h);
        d_x_moved += fabs(d) * x_hat_error(c, &r, h);
    }
    r.d_error = (terms + g + 6) * u * d_sum / terms;
    r.d_x_error = ((terms + g + 8) * u * d_x_sum + d_x_moved) / terms;
    if (c->norm.kind == QDR_NORM_RMS) r.d = r.d_error = 0;
    return r;
}

static void check_near(double got, double want, double bound, const char *what, int64_t row, int64_t col)
{
    DIST_CHECK(fabs(got - want) <= bound, "%s[%lld,%lld] is %.17g, not %.17g ± %g", what, (long long)row,
               (long long)col, got, want, bound);
}

static void check_y(const norm_case *c, const row_reference *r, double got, int64_t row, int64_t col)
{
    const double u = dist_roundoff(dist_sum_type(c->dtype)), t = dist_roundoff(c->dtype);
    const double h = x_hat(c, r, row, col), gamma = factor_at(c, col), want = h * gamma + beta_at(c, col);
    const double inner = fabs(gamma) * x_hat_error(c, r, h) + 4 * u * (fabs(h * gamma) + 1);
    check_near(got, want, inner + t * (fabs(want) + inner) + dist_least(c->dtype), "y", row, col);
}

static void check_dx(const norm_case *c, const row_reference *r, double got, int64_t row, int64_t col)
{
    const double u = dist_roundoff(dist_sum_type(c->dtype)), t = dist_roundoff(c->dtype);
    const double h = x_hat(c, r, row, col), d = dy_at(c, row, col) * factor_at(c, col);
    const double size = fabs(d) + fabs(r->d) + fabs(h * r->d_x);
    const double old = c->adds ? dy_at(c, row, col) : 0;
    const double want = old + r->scale * (d - r->d - h * r->d_x);
    /* Beside columns that are passed on it is rounded before it is added. */
    const double twice = c->adds && c->ends[c->n_groups - 1] < c->n_features ? t : 0;
    const double exact = r->scale *
                         (r->d_error + fabs(h) * r->d_x_error + x_hat_error(c, r, h) * (fabs(r->d_x) + r->d_x_error) +
                          size * (9 * u + r->scale_error));
    const double inner = exact + twice * (fabs(want - old) + exact);
    check_near(got, want, inner + 2 * u * fabs(old) + t * (fabs(want) + inner) + dist_least(c->dtype), "dx", row, col);
}

/* A column that is passed on; the sum of its gradients is rounded once. */
static void check_passed(const norm_case *c, double y, double dx, int64_t row, int64_t col)
{
    const double want = (1 + c->adds) * dy_at(c, row, col);
    check_near(y, x_at(c, row, col), 0, "passed y", row, col);
    check_near(dx, want, dist_roundoff(c->dtype) * fabs(want), "passed dx", row, col);
}

/* Sums over all rows, on every rank that has a copy. */
static void check_parameters(const norm_case *c, const row_reference *rows)
{
    const qdr_dtype sum_type = dist_sum_type(c->dtype);
    const double u = dist_roundoff(sum_type), n_times = c->adds ? 2 : 1;
    const double terms = n_times * (double)(c->n_rows + qdr_context_size(qdr_grid_context(c->grid))) + 4;
    qdr_parameter gamma = {QDR_INIT(qdr_parameter)}, beta = {QDR_INIT(qdr_parameter)};
    DIST_OK(qdr_stack_parameter(c->stack, 0, &gamma));
    if (has_beta(c)) DIST_OK(qdr_stack_parameter(c->stack, 1, &beta));
    for (int64_t i = 0; i < c->owned.n_cols; i++) {
        const int64_t col = dist_column(&c->owned, i);
        const int group = group_of(c, col);
        if (group == c->n_groups) continue;
        double dgamma = 0, dbeta = 0, gamma_size = 0, beta_size = 0, moved = 0;
        for (int64_t row = 0; row < c->n_rows; row++) {
            const row_reference *r = &rows[row * c->n_groups + group];
            const double h = x_hat(c, r, row, col), dy = n_times * dy_at(c, row, col);
            dgamma += dy * h;
            dbeta += dy;
            gamma_size += fabs(dy * h);
            beta_size += fabs(dy);
            moved += fabs(dy) * x_hat_error(c, r, h);
        }
        check_near(dist_get(gamma.gradient, sum_type, i), dgamma, moved + terms * u * gamma_size, "dgamma", 0, col);
        if (beta.gradient)
            check_near(dist_get(beta.gradient, sum_type, i), dbeta, terms * u * beta_size, "dbeta", 0, col);
    }
}

static void backward(const norm_case *c, int flags)
{
    dist_fill_edge(c->stack, c->last, gradient_of(c, c->last), c->data_seed + 4);
    DIST_OK(qdr_stack_backward(c->stack, flags, 1));
    dist_synchronize(qdr_grid_context(c->grid));
}

static void run_and_check(const norm_case *c)
{
    row_reference *rows = calloc((size_t)(c->n_rows * c->n_groups) + 1, sizeof *rows);
    int64_t at = 0;
    DIST_CHECK(rows, "no memory");
    DIST_OK(qdr_stack_forward(c->stack));
    dist_synchronize(qdr_grid_context(c->grid));
    backward(c, 0);
    if (c->adds) backward(c, QDR_ACCUMULATE);
    const void *y = value_of(c, c->y), *dx = gradient_of(c, c->x);
    for (int64_t i = 0; i < c->n_rows * c->n_groups; i++)
        rows[i] = reference_of(c, i / c->n_groups, (int)(i % c->n_groups));
    for (int64_t row = c->owned.rows.begin; row < c->owned.rows.end; row++)
        for (int64_t i = 0; i < c->owned.n_cols; i++, at++) {
            const int64_t col = dist_column(&c->owned, i);
            const int group = group_of(c, col);
            const row_reference *r = &rows[row * c->n_groups + group];
            if (group == c->n_groups) {
                check_passed(c, dist_get(y, c->dtype, at), dist_get(dx, c->dtype, at), row, col);
                continue;
            }
            check_y(c, r, dist_get(y, c->dtype, at), row, col);
            check_dx(c, r, dist_get(dx, c->dtype, at), row, col);
        }
    check_parameters(c, rows);
    free(rows);
}

DIST_TEST(against_reference)
{
    for (int round = 0, n = dist_rounds(60); round < n; round++) {
        qdr_block blocks[QDR_MAX_BLOCKS];
        dist_random_blocks(&seed, round % 3 ? 3 : 30, blocks);
        norm_case c = case_make(ctx, &seed, types[round % 4], blocks, round / 4 % 2, 1);
        run_and_check(&c);
        case_free(ctx, &c);
    }
}

/* Σ y·dy over one row and all features. */
static double loss_of(const norm_case *c, int64_t row)
{
    qdr_context *ctx = qdr_grid_context(c->grid);
    double *sum = dist_memory(ctx, 1, QDR_F64), loss;
    DIST_OK(qdr_stack_forward(c->stack));
    dist_synchronize(ctx);
    const double *y = value_of(c, c->y);
    const int is_mine = row >= c->owned.rows.begin && row < c->owned.rows.end;
    *sum = 0;
    for (int64_t i = 0; is_mine && i < c->owned.n_cols; i++)
        *sum += y[(row - c->owned.rows.begin) * c->owned.n_cols + i] * dy_at(c, row, dist_column(&c->owned, i));
    DIST_OK(qdr_all_reduce(c->grid, c->axis, QDR_SUM, sum, 1, QDR_F64, NULL));
    dist_synchronize(ctx);
    loss = *sum;
    qdr_mem_free(ctx, (void **)&sum);
    return loss;
}

/* (L(x+h) - L(x-h)) / 2h errs by h²·|L'''|/6 and, from roundoff, by n·2^-53·|L|/h. The deviation of 16 values is above
 * 1/8 and L has 16 terms in one row, with factors below 2, so |L'''| < 16·2·6·8³ < 2^17; with h = 2^-16 the first is
 * below 2^-17, the second below 2^-25. */
DIST_TEST(by_differences)
{
    static const qdr_block blocks[QDR_MAX_BLOCKS] = {{6, 2}, {10, 1}};
    const double h = 0x1p-16;
    for (int round = 0; round < 8; round++) {
        norm_case c = case_make(ctx, &seed, QDR_F64, blocks, 0, 0);
        const int64_t row = c.n_rows / 2, col = dist_below(&seed, 16);
        const int64_t at = dist_place(&c.owned, row, col);
        double *x = at < 0 ? NULL : (double *)value_of(&c, c.x) + at;
        loss_of(&c, row);
        backward(&c, 0);
        const double got = x ? ((double *)gradient_of(&c, c.x))[at] : 0;
        if (x) *x += h;
        double slope = loss_of(&c, row);
        if (x) *x -= 2 * h;
        slope = (slope - loss_of(&c, row)) / (2 * h);
        if (x) check_near(got, slope, 0x1p-16, "dx", row, col);
        case_free(ctx, &c);
    }
}

DIST_TEST(refusals)
{
    static const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{12, 1}}};
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    qdr_edge x, tokens, y;
    qdr_stack *stack = dist_stack(grid, (qdr_stack_opts){.n_rows = 4});
    DIST_OK(qdr_stack_add_input(stack, "x", &input, 0, &x));
    DIST_OK(qdr_stack_add_tokens(stack, "words", &tokens));
    DIST_FAILS(test_add_norm(stack, "norm", (double)NAN, x, &y), QDR_ERR_ARGUMENT, "norm: epsilon nan");
    DIST_FAILS(test_add_norm(stack, "norm", -1e-5, x, &y), QDR_ERR_ARGUMENT, "norm: epsilon -1e-05");
    DIST_FAILS(test_add_norm(stack, "norm", 0, tokens, &y), QDR_ERR_DTYPE, "'words' holds tokens");
    DIST_FAILS(test_add_norm(stack, "norm", 0, 7, &y), QDR_ERR_ARGUMENT, "7");
    qdr_norm_desc desc = {QDR_INIT(qdr_norm_desc), .name = "norm", .kind = (qdr_norm_kind)2};
    DIST_FAILS(qdr_stack_add_norm(stack, &desc, x, &y), QDR_ERR_ARGUMENT, "no kind of norm 2");
    desc.kind = QDR_NORM_RMS;
    desc.one_plus = 2;
    DIST_FAILS(qdr_stack_add_norm(stack, &desc, x, &y), QDR_ERR_ARGUMENT, "one_plus");
    desc.one_plus = 1;
    desc.no_beta = -1;
    DIST_FAILS(qdr_stack_add_norm(stack, &desc, x, &y), QDR_ERR_ARGUMENT, "no_beta");
    desc.no_beta = 0;
    for (desc.n_blocks = -1; desc.n_blocks <= 2; desc.n_blocks += 3)
        DIST_FAILS(qdr_stack_add_norm(stack, &desc, x, &y), QDR_ERR_SHAPE, "but the input has 1");
    desc.n_blocks = 1;
    DIST_OK(qdr_stack_add_norm(stack, &desc, x, &y));
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
}
