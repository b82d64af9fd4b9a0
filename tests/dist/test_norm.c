/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm with its features split at random over any axis, in all types, compared with plain loops in f64, within
 * bounds that follow from the order of the operations; and its gradient compared with differences of the distributed
 * forward pass.
 *
 * Bounds: u is the roundoff of the sums' type, t that of the stored type, n the number of features, g that of the
 * parts, X = max|x|. The error of a mean of n terms is at most e = (n + 4g + 8)·u·X. The relative error of a sum of
 * squared deviations is at most (2n + 8g + 16)·u, plus the effect of an inexact mean: 2·g·e/s + (e/s)², s² = var +
 * epsilon. Half of that is the relative error of 1/s, v. So the error of x̂ is h = e/s + |x̂|·(v + 4u). */
#include <math.h>
#include <stdlib.h>

#include "dist.h"

enum { MAX_RANKS = 64 };
static const qdr_dtype types[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};

/* One random case: this rank has columns [begin, end) of n features, and the same rows as the others of its group. */
typedef struct norm_case {
    qdr_grid *grid;
    qdr_layer_norm norm;
    uint64_t data_seed;
    int64_t begin;
    int n_parts;
    void *x, *gamma, *beta, *y, *dy, *dx, *dgamma, *dbeta, *stats, *work;
} norm_case;

/* Global data, as every rank knows it. Rows get an offset, or means would be near zero. */
static double x_at(const norm_case *c, int64_t row, int64_t col)
{
    return dist_value(c->data_seed, row, col) + dist_value(c->data_seed + 1, row, 0);
}

static double gamma_at(const norm_case *c, int64_t col) { return dist_value(c->data_seed + 2, 0, col); }

static double beta_at(const norm_case *c, int64_t col) { return dist_value(c->data_seed + 3, 0, col); }

static double dy_at(const norm_case *c, int64_t row, int64_t col) { return dist_value(c->data_seed + 4, row, col); }

/* What was in dx before, where it accumulates. */
static double old_at(const norm_case *c, int64_t row, int64_t col) { return dist_value(c->data_seed + 5, row, col); }

/* Outputs keep their NaN unless they are added to: overwriting does not read. */
static void case_fill(norm_case *c, int accumulate)
{
    const int64_t n_cols = c->norm.n_cols;
    const qdr_dtype dtype = c->norm.dtype, sum_type = dist_sum_type(dtype);
    for (int64_t col = 0; col < n_cols; col++) {
        dist_set(c->gamma, dtype, col, gamma_at(c, c->begin + col));
        dist_set(c->beta, dtype, col, beta_at(c, c->begin + col));
        if (accumulate) dist_set(c->dgamma, sum_type, col, old_at(c, -1, c->begin + col));
        if (accumulate) dist_set(c->dbeta, sum_type, col, old_at(c, -2, c->begin + col));
        for (int64_t row = 0; row < c->norm.n_rows; row++) {
            dist_set(c->x, dtype, row * n_cols + col, x_at(c, row, c->begin + col));
            dist_set(c->dy, dtype, row * n_cols + col, dy_at(c, row, c->begin + col));
            if (accumulate) dist_set(c->dx, dtype, row * n_cols + col, old_at(c, row, c->begin + col));
        }
    }
}

static norm_case case_make(qdr_context *ctx, uint64_t *seed, qdr_dtype dtype, int64_t n_features, int accumulate)
{
    int64_t cuts[MAX_RANKS + 1];
    norm_case c = {.grid = dist_random_grid(ctx, seed)};
    const qdr_axis axis = (qdr_axis)dist_below(seed, QDR_N_AXES);
    const int place = qdr_grid_coordinate(c.grid, axis);
    size_t stats_bytes = 0, work_bytes = 0;
    c.n_parts = qdr_grid_size(c.grid, axis);
    dist_random_cuts(seed, n_features, c.n_parts, cuts);
    c.begin = cuts[place];
    c.norm = (qdr_layer_norm){QDR_OPTS_INIT,
                              .n_rows = dist_below(seed, 6),
                              .n_cols = cuts[place + 1] - cuts[place],
                              .n_features = n_features,
                              .axis = axis,
                              .dtype = dtype};
    c.data_seed = dist_random(seed) + (uint64_t)dist_group(c.grid, axis) * 64;
    const int64_t n_cols = c.norm.n_cols, n_elems = n_cols * c.norm.n_rows;
    c.x = dist_memory(ctx, n_elems, dtype);
    c.y = dist_memory(ctx, n_elems, dtype);
    c.dy = dist_memory(ctx, n_elems, dtype);
    c.dx = dist_memory(ctx, n_elems, dtype);
    c.gamma = dist_memory(ctx, n_cols, dtype);
    c.beta = dist_memory(ctx, n_cols, dtype);
    c.dgamma = dist_memory(ctx, n_cols, dist_sum_type(dtype));
    c.dbeta = dist_memory(ctx, n_cols, dist_sum_type(dtype));
    DIST_OK(qdr_layer_norm_sizes(c.grid, &c.norm, &stats_bytes, &work_bytes));
    c.stats = dist_memory(ctx, (int64_t)stats_bytes, QDR_U8);
    c.work = dist_memory(ctx, (int64_t)work_bytes, QDR_U8);
    case_fill(&c, accumulate);
    return c;
}

static void case_free(qdr_context *ctx, norm_case *c)
{
    void **all[] = {&c->x, &c->gamma, &c->beta, &c->y, &c->dy, &c->dx, &c->dgamma, &c->dbeta, &c->stats, &c->work};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) qdr_mem_free(ctx, all[i]);
    qdr_grid_destroy(&c->grid);
}

/* A row in f64, and how far the computed one may be from it. */
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
    return r->mean_error * r->scale + fabs(value) * (r->scale_error + 4 * dist_roundoff(dist_sum_type(c->norm.dtype)));
}

static row_reference reference_of(const norm_case *c, int64_t row)
{
    const double u = dist_roundoff(dist_sum_type(c->norm.dtype)), g = c->n_parts;
    const int64_t n = c->norm.n_features;
    const double terms = (double)n;
    double largest = 0, squares = 0, d_sum = 0, d_x_sum = 0, d_x_moved = 0;
    row_reference r = {0};
    for (int64_t col = 0; col < n; col++) {
        r.mean += x_at(c, row, col) / terms;
        largest = fmax(largest, fabs(x_at(c, row, col)));
    }
    for (int64_t col = 0; col < n; col++) squares += pow(x_at(c, row, col) - r.mean, 2);
    r.scale = 1 / sqrt(squares / terms + 1e-5);
    r.mean_error = (terms + 4 * g + 8) * u * largest;
    const double e = r.mean_error * r.scale;
    r.scale_error = ((2 * terms + 8 * g + 16) * u + 2 * g * e + e * e) / 2;
    for (int64_t col = 0; col < n; col++) {
        const double d = dy_at(c, row, col) * gamma_at(c, col), h = x_hat(c, &r, row, col);
        r.d += d / terms;
        r.d_x += d * h / terms;
        d_sum += fabs(d);
        d_x_sum += fabs(d * h);
        d_x_moved += fabs(d) * x_hat_error(c, &r, h);
    }
    r.d_error = (terms + g + 4) * u * d_sum / terms;
    r.d_x_error = ((terms + g + 6) * u * d_x_sum + d_x_moved) / terms;
    return r;
}

static void check_near(double got, double want, double bound, const char *what, int64_t row, int64_t col)
{
    DIST_CHECK(fabs(got - want) <= bound, "%s[%lld,%lld] is %.17g, not %.17g ± %g", what, (long long)row,
               (long long)col, got, want, bound);
}

static void check_y(const norm_case *c, const row_reference *r, int64_t row, int64_t col)
{
    const qdr_dtype dtype = c->norm.dtype;
    const double u = dist_roundoff(dist_sum_type(dtype)), t = dist_roundoff(dtype);
    const int64_t global = c->begin + col;
    const double h = x_hat(c, r, row, global), gamma = gamma_at(c, global);
    const double want = h * gamma + beta_at(c, global);
    const double inner = fabs(gamma) * x_hat_error(c, r, h) + 4 * u * (fabs(h * gamma) + 1);
    check_near(dist_get(c->y, dtype, row * c->norm.n_cols + col), want,
               inner + t * (fabs(want) + inner) + dist_least(dtype), "y", row, global);
}

static void check_dx(const norm_case *c, const row_reference *r, int64_t row, int64_t col, int accumulate)
{
    const qdr_dtype dtype = c->norm.dtype;
    const double u = dist_roundoff(dist_sum_type(dtype)), t = dist_roundoff(dtype);
    const int64_t global = c->begin + col;
    const double h = x_hat(c, r, row, global), d = dy_at(c, row, global) * gamma_at(c, global);
    const double size = fabs(d) + fabs(r->d) + fabs(h * r->d_x);
    const double old = accumulate ? old_at(c, row, global) : 0;
    const double want = old + r->scale * (d - r->d - h * r->d_x);
    const double inner = r->scale *
                         (r->d_error + fabs(h) * r->d_x_error + x_hat_error(c, r, h) * (fabs(r->d_x) + r->d_x_error) +
                          size * (8 * u + r->scale_error));
    check_near(dist_get(c->dx, dtype, row * c->norm.n_cols + col), want,
               inner + 2 * u * fabs(old) + t * (fabs(want) + inner) + dist_least(dtype), "dx", row, global);
}

static void check_parameters(const norm_case *c, const row_reference *rows, int64_t col, int accumulate)
{
    const qdr_dtype sum_type = dist_sum_type(c->norm.dtype);
    const double u = dist_roundoff(sum_type), terms = (double)c->norm.n_rows + 4;
    const int64_t global = c->begin + col;
    double dgamma = accumulate ? old_at(c, -1, global) : 0;
    double dbeta = accumulate ? old_at(c, -2, global) : 0;
    double gamma_size = fabs(dgamma), beta_size = fabs(dbeta), moved = 0;
    for (int64_t row = 0; row < c->norm.n_rows; row++) {
        const double h = x_hat(c, &rows[row], row, global), dy = dy_at(c, row, global);
        dgamma += dy * h;
        dbeta += dy;
        gamma_size += fabs(dy * h);
        beta_size += fabs(dy);
        moved += fabs(dy) * x_hat_error(c, &rows[row], h);
    }
    check_near(dist_get(c->dgamma, sum_type, col), dgamma, moved + terms * u * gamma_size, "dgamma", 0, global);
    check_near(dist_get(c->dbeta, sum_type, col), dbeta, terms * u * beta_size, "dbeta", 0, global);
}

static void run_and_check(qdr_context *ctx, norm_case *c, int accumulate)
{
    DIST_OK(qdr_layer_norm_forward(c->grid, &c->norm, c->x, c->gamma, c->beta, c->y, c->stats, c->work, NULL));
    DIST_OK(qdr_layer_norm_backward(c->grid, &c->norm, c->x, c->gamma, c->dy, c->stats, c->dx, accumulate, c->dgamma,
                                    c->dbeta, accumulate, c->work, NULL));
    dist_synchronize(ctx);
    row_reference *rows = calloc((size_t)c->norm.n_rows + 1, sizeof *rows);
    DIST_CHECK(rows, "no memory");
    for (int64_t row = 0; row < c->norm.n_rows; row++) {
        rows[row] = reference_of(c, row);
        for (int64_t col = 0; col < c->norm.n_cols; col++) {
            check_y(c, &rows[row], row, col);
            check_dx(c, &rows[row], row, col, accumulate);
        }
    }
    for (int64_t col = 0; col < c->norm.n_cols; col++) check_parameters(c, rows, col, accumulate);
    free(rows);
}

static void against_reference(qdr_context *ctx, uint64_t seed)
{
    for (int round = 0, n = dist_rounds(30); round < n; round++) {
        const int64_t n_features = 2 + dist_below(&seed, round % 3 ? 20 : 300);
        const int accumulate = round / 4 % 2;
        norm_case c = case_make(ctx, &seed, types[round % 4], n_features, accumulate);
        run_and_check(ctx, &c, accumulate);
        case_free(ctx, &c);
    }
}

/* Σ y·dy over the group's rows and all features. */
static double loss_of(qdr_context *ctx, norm_case *c, double *sum)
{
    DIST_OK(qdr_layer_norm_forward(c->grid, &c->norm, c->x, c->gamma, c->beta, c->y, c->stats, c->work, NULL));
    dist_synchronize(ctx);
    *sum = 0;
    for (int64_t i = 0; i < c->norm.n_rows * c->norm.n_cols; i++)
        *sum += dist_get(c->y, QDR_F64, i) * dist_get(c->dy, QDR_F64, i);
    DIST_OK(qdr_all_reduce(c->grid, c->norm.axis, QDR_SUM, sum, 1, QDR_F64, NULL));
    dist_synchronize(ctx);
    return *sum;
}

/* (L(x+h) - L(x-h)) / 2h errs by h²·|L'''|/6 and, from roundoff, by n·2^-53·|L|/h. The deviation of 16 values is above
 * 1/8 and L has 16 terms in one row, so |L'''| < 16·6·8³ < 2^16; with h = 2^-16 the first is below 2^-18, the second
 * below 2^-30. */
static void by_differences(qdr_context *ctx, uint64_t seed)
{
    const double h = 0x1p-16;
    for (int round = 0; round < 4; round++) {
        norm_case c = case_make(ctx, &seed, QDR_F64, 16, 0);
        double *sum = dist_memory(ctx, 1, QDR_F64);
        const int64_t row = c.norm.n_rows / 2, col = dist_below(&seed, 16);
        const int mine = col >= c.begin && col < c.begin + c.norm.n_cols && c.norm.n_rows > 0;
        double *x = mine ? (double *)c.x + row * c.norm.n_cols + col - c.begin : NULL, slope = 0;
        loss_of(ctx, &c, sum);
        DIST_OK(qdr_layer_norm_backward(c.grid, &c.norm, c.x, c.gamma, c.dy, c.stats, c.dx, 0, NULL, NULL, 0, c.work,
                                        NULL));
        dist_synchronize(ctx);
        if (x) *x += h;
        slope = loss_of(ctx, &c, sum);
        if (x) *x -= 2 * h;
        slope = (slope - loss_of(ctx, &c, sum)) / (2 * h);
        if (x) check_near(((double *)c.dx)[x - (double *)c.x], slope, 0x1p-17, "dx", row, col);
        void *memory = sum;
        qdr_mem_free(ctx, &memory);
        case_free(ctx, &c);
    }
}

static void refusals(qdr_context *ctx, uint64_t seed)
{
    norm_case c = case_make(ctx, &seed, QDR_F32, 12, 0);
    qdr_layer_norm bad = c.norm;
    size_t a = 0, b = 0;
    c.norm.n_rows = bad.n_rows = 2;
    DIST_FAILS(qdr_layer_norm_sizes(NULL, &bad, &a, &b), QDR_ERR_ARGUMENT, "grid");
    DIST_FAILS(qdr_layer_norm_sizes(c.grid, NULL, &a, &b), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_layer_norm_sizes(c.grid, &bad, NULL, &b), QDR_ERR_ARGUMENT, "stats_bytes");
    bad.n_rows = -1;
    DIST_FAILS(qdr_layer_norm_sizes(c.grid, &bad, &a, &b), QDR_ERR_SHAPE, "-1");
    bad = c.norm, bad.n_cols = INT64_MAX, bad.n_features = INT64_MAX;
    DIST_FAILS(qdr_layer_norm_sizes(c.grid, &bad, &a, &b), QDR_ERR_SHAPE, "");
    bad = c.norm, bad.n_features = -1;
    DIST_FAILS(qdr_layer_norm_sizes(c.grid, &bad, &a, &b), QDR_ERR_SHAPE, "n_features");
    bad = c.norm, bad.dtype = QDR_U8;
    DIST_FAILS(qdr_layer_norm_sizes(c.grid, &bad, &a, &b), QDR_ERR_DTYPE, "u8");
    bad = c.norm, bad.axis = (qdr_axis)4;
    DIST_FAILS(qdr_layer_norm_sizes(c.grid, &bad, &a, &b), QDR_ERR_ARGUMENT, "axis 4");
    bad = c.norm, bad.epsilon = NAN;
    DIST_FAILS(qdr_layer_norm_sizes(c.grid, &bad, &a, &b), QDR_ERR_ARGUMENT, "epsilon");
    bad = c.norm, bad.version = 0;
    DIST_FAILS(qdr_layer_norm_sizes(c.grid, &bad, &a, &b), QDR_ERR_ARGUMENT, "version");
    DIST_CHECK(a == 0 && b == 0, "sizes are 0 after an error");
    DIST_FAILS(qdr_layer_norm_forward(c.grid, &c.norm, c.x, c.gamma, c.beta, c.y, NULL, c.work, NULL), QDR_ERR_ARGUMENT,
               "stats is NULL");
    DIST_FAILS(
        qdr_layer_norm_backward(c.grid, &c.norm, c.x, c.gamma, c.dy, c.stats, c.dx, 0, NULL, NULL, 0, NULL, NULL),
        QDR_ERR_ARGUMENT, "work is NULL");
    case_free(ctx, &c);
}

int main(int argc, char **argv)
{
    static const dist_test tests[] = {
        {"layer norm against a reference", against_reference},
        {"layer norm by differences", by_differences},
        {"layer norm, refused", refusals},
    };
    return dist_main(argc, argv, tests, 3);
}
