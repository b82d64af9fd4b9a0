/* SPDX-License-Identifier: Apache-2.0 */
/* Stochastic rounding draws other numbers on each member, for each message and in each call: all elements lie half-way
 * between two integers of the codec, so each error is ±1/2, whatever the values. Of n independent errors, the mean
 * square of the sum is n/4, not n²/4, and two messages are not correlated. Bounds: 7 standard deviations. */
#include "dist.h"

enum { PART = 1 << 17, BLOCK = 128, PIECE = 1 << 13, N_PER_PIECE = PIECE / BLOCK * (BLOCK - 1), SCALE = 127 };
static const double half_way = 10.5;
static const qdr_codec int8 = {QDR_CODEC_INT8, BLOCK, 0, QDR_CODEC_STOCHASTIC};

/* The first of each block is its largest element, so that the scale is 1; it is rounded to itself. */
static double value(int64_t i) { return i % BLOCK ? half_way : SCALE; }

static float *make_values(qdr_context *ctx, int64_t n)
{
    float *x = dist_memory(ctx, n, QDR_F32);
    for (int64_t i = 0; i < n; i++) x[i] = (float)value(i);
    return x;
}

/* Replaces sums of n versions by their errors, ±1/2 each. Their mean is 0. */
static void take_errors(float *sums, int64_t n_elems, int n, const char *what)
{
    double sum = 0;
    for (int64_t i = 0; i < n_elems; i++) {
        sums[i] = (float)((double)sums[i] - n * value(i));
        sum += (double)sums[i];
        DIST_CHECK(fabs((double)sums[i]) <= n / 2.0, "%s: element %lld is off by %g", what, (long long)i,
                   (double)sums[i]);
    }
    DIST_CHECK(fabs(sum) < 7 * sqrt(n / 4.0 * (double)n_elems), "%s: the mean of the errors is %g", what,
               sum / (double)n_elems);
}

/* The variance of the square of a sum of n errors is n(n - 1)/8. */
static void check_squares(const float *errors, int64_t n_elems, int n, const char *what)
{
    const double n_rounded = (double)(n_elems / BLOCK * (BLOCK - 1));
    double sum = 0;
    for (int64_t i = 0; i < n_elems; i++) sum += (double)errors[i] * (double)errors[i];
    DIST_CHECK(fabs(sum / n_rounded - n / 4.0) <= 7 * sqrt(n * (n - 1) / 8.0 / n_rounded) + 1e-6,
               "%s: the mean square of %d errors is %g, not %g", what, n, sum / n_rounded, n / 4.0);
}

/* Pieces of messages, each compared with all others: of other members, of other chunks, of other calls. */
static void check_pieces(const float *errors, int64_t n_elems, double variance, const char *what)
{
    for (int64_t a = 0; a < n_elems; a += PIECE)
        for (int64_t b = a + PIECE; b < n_elems; b += PIECE) {
            double sum = 0;
            for (int64_t i = 0; i < PIECE; i++) sum += (double)errors[a + i] * (double)errors[b + i];
            DIST_CHECK(fabs(sum / (variance * N_PER_PIECE)) < 7 / sqrt(N_PER_PIECE),
                       "%s: errors from elements %lld and %lld on have a correlation of %g", what, (long long)a,
                       (long long)b, sum / (variance * N_PER_PIECE));
        }
}

/* Each part of a sum has the errors of the others' versions. */
DIST_TEST(sums)
{
    static const char what[] = "reduce-scatter";
    const int p = qdr_context_size(ctx);
    const int64_t n = (int64_t)p * PART;
    qdr_grid *grid = dist_grid(ctx, (qdr_grid_opts){.x = p, .y = 1, .z = 1, .d = 1});
    float *x = make_values(ctx, n), *own = dist_memory(ctx, PART, QDR_F32), *all = dist_memory(ctx, 2 * n, QDR_F32);
    for (int call = 0; call < 2; call++) {
        DIST_OK(qdr_reduce_scatter_coded(grid, QDR_X, QDR_SUM, x, own, PART, NULL, QDR_F32, NULL, &int8, NULL));
        DIST_OK(qdr_all_gather(grid, QDR_X, own, all + call * n, PART, NULL, QDR_F32, NULL));
        dist_synchronize(ctx);
        take_errors(all + call * n, n, p, what);
        for (int j = 0; p > 1 && j < p; j++) check_squares(all + call * n + (int64_t)j * PART, PART, p - 1, what);
    }
    if (p > 1 && qdr_context_rank(ctx) == 0) check_pieces(all, 2 * n, (p - 1) / 4.0, what);
    qdr_mem_free(ctx, (void **)&x);
    qdr_mem_free(ctx, (void **)&own);
    qdr_mem_free(ctx, (void **)&all);
    qdr_grid_destroy(&grid);
}

/* Each part has the errors of its own member. */
DIST_TEST(gathers)
{
    static const char what[] = "all-gather";
    const int p = qdr_context_size(ctx);
    const int64_t n = (int64_t)p * PART;
    qdr_grid *grid = dist_grid(ctx, (qdr_grid_opts){.x = p, .y = 1, .z = 1, .d = 1});
    float *x = make_values(ctx, PART), *all = dist_memory(ctx, 2 * n, QDR_F32);
    for (int call = 0; call < 2; call++) {
        DIST_OK(qdr_all_gather_coded(grid, QDR_X, x, all + call * n, PART, NULL, QDR_F32, NULL, &int8, NULL));
        dist_synchronize(ctx);
        take_errors(all + call * n, n, 1, what);
    }
    if (p > 1 && qdr_context_rank(ctx) == 0) check_pieces(all, 2 * n, 1 / 4.0, what);
    qdr_mem_free(ctx, (void **)&x);
    qdr_mem_free(ctx, (void **)&all);
    qdr_grid_destroy(&grid);
}

/* Two members send each other everything, and both add the same two versions. */
DIST_TEST(exchanges)
{
    static const char what[] = "all-reduce of two";
    const int p = qdr_context_size(ctx);
    qdr_grid *grid = NULL;
    float *x = make_values(ctx, PART);
    if (p % 2 == 0) {
        grid = dist_grid(ctx, (qdr_grid_opts){.x = 2, .y = p / 2, .z = 1, .d = 1});
        DIST_OK(qdr_all_reduce_coded(grid, QDR_X, QDR_SUM, x, PART, QDR_F32, NULL, &int8, NULL));
        dist_synchronize(ctx);
        take_errors(x, PART, 2, what);
        check_squares(x, PART, 2, what);
        check_pieces(x, PART, 2 / 4.0, what);
    }
    qdr_mem_free(ctx, (void **)&x);
    qdr_grid_destroy(&grid);
}

/* Of more members each sums a part, of p versions, whose scale is p, and rounds the sum once more: that lies about
 * half-way, too, and is off by ±p/2, or by p at the most. It draws other numbers than the versions that the member
 * sends. */
DIST_TEST(sums_of_all)
{
    static const char what[] = "all-reduce of all";
    const int p = qdr_context_size(ctx);
    const int64_t n = (int64_t)p * PART;
    qdr_grid *grid = dist_grid(ctx, (qdr_grid_opts){.x = p, .y = 1, .z = 1, .d = 1});
    float *x = make_values(ctx, n);
    if (p > 2) {
        DIST_OK(qdr_all_reduce_coded(grid, QDR_X, QDR_SUM, x, n, QDR_F32, NULL, &int8, NULL));
        dist_synchronize(ctx);
        for (int64_t i = 0; i < n; i++) {
            x[i] = (float)((double)x[i] - p * value(i));
            DIST_CHECK(fabs((double)x[i]) <= p, "%s: element %lld is off by %g", what, (long long)i, (double)x[i]);
        }
        if (qdr_context_rank(ctx) == 0) check_pieces(x, n, p * p / 4.0, what);
    }
    qdr_mem_free(ctx, (void **)&x);
    qdr_grid_destroy(&grid);
}
