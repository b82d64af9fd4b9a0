/* SPDX-License-Identifier: Apache-2.0 */
/* Embedding and cross-entropy with their vocabulary split at random, in all types: embedding bit by bit, cross-entropy
 * within bounds of f64, its gradient compared with differences.
 *
 * Bounds for cross-entropy: u is the roundoff of the sums' type, t that of the logits', V the size of the vocabulary, g
 * the number of parts, R the largest |logit - max|. The error of exp is 4u, that of its argument u·R, so the relative
 * error of a sum of V is (V + g + R + 5)·u. With the log (4u) and the two differences, the error of a row's loss is w =
 * u·(V + g + R + 5 + 5·|log Σ| + 2·R). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dist.h"

enum { MAX_RANKS = 64 };
static const qdr_dtype types[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};

static qdr_grid *grid_of(qdr_context *ctx, uint64_t *seed) { return dist_random_grid(ctx, seed); }

static void free_all(qdr_context *ctx, void ***memory, int n)
{
    for (int i = 0; i < n; i++) qdr_mem_free(ctx, memory[i]);
}

/* ---- embedding ---- */

typedef struct embedding_case {
    qdr_grid *grid;
    qdr_embedding desc;
    uint64_t data_seed;
    qdr_range rows; /* of y on this rank */
    int32_t *tokens;
    void *e, *y, *dy, *de, *work;
} embedding_case;

static double e_at(const embedding_case *c, int64_t token, int64_t col)
{
    return token < 0 ? 0 : dist_value(c->data_seed, token, col);
}

static double dy_at(const embedding_case *c, int64_t row, int64_t col)
{
    return dist_value(c->data_seed + 1, row, col);
}

static double old_at(const embedding_case *c, int64_t token, int64_t col)
{
    return dist_value(c->data_seed + 2, token, col);
}

static void embedding_fill(embedding_case *c, uint64_t tokens_seed, int64_t vocab, int accumulate)
{
    const qdr_embedding *d = &c->desc;
    const int64_t n_cols = d->n_cols;
    for (int64_t row = 0; row < d->n_rows; row++)
        c->tokens[row] = (int32_t)dist_below(&tokens_seed, vocab + 1) - 1; /* -1: none */
    for (int64_t col = 0; col < n_cols; col++) {
        for (int64_t token = d->vocab_begin; token < d->vocab_end; token++) {
            const int64_t at = (token - d->vocab_begin) * n_cols + col;
            dist_set(c->e, d->dtype, at, e_at(c, token, col));
            if (accumulate) dist_set(c->de, dist_sum_type(d->dtype), at, old_at(c, token, col));
        }
        for (int64_t row = c->rows.begin; row < c->rows.end; row++)
            dist_set(c->dy, d->dtype, (row - c->rows.begin) * n_cols + col, dy_at(c, row, col));
    }
}

static embedding_case embedding_make(qdr_context *ctx, uint64_t *seed, qdr_dtype dtype, qdr_layout layout,
                                     int accumulate)
{
    embedding_case c = {.grid = grid_of(ctx, seed)};
    const int g = qdr_grid_size(c.grid, QDR_Y), place = qdr_grid_coordinate(c.grid, QDR_Y);
    const int64_t vocab = 1 + dist_below(seed, 20), n_rows = dist_below(seed, 12);
    const int64_t n_cols = dist_below(seed, 7);
    int64_t cuts[MAX_RANKS + 1];
    size_t work_bytes = 0;
    dist_random_cuts(seed, vocab, g, cuts);
    c.data_seed = dist_random(seed) + (uint64_t)dist_group(c.grid, QDR_Y) * 64;
    c.desc = (qdr_embedding){QDR_OPTS_INIT, n_rows, n_cols, cuts[place], cuts[place + 1], layout, dtype, vocab};
    c.rows = (qdr_range){0, n_rows};
    if (layout == QDR_SCATTERED) { /* the first n_rows mod g ranks have one more */
        const int64_t each = n_rows / g, more = n_rows % g;
        c.rows.begin = each * place + (place < more ? place : more);
        c.rows.end = c.rows.begin + each + (place < more);
    }
    const int64_t n_local = (c.rows.end - c.rows.begin) * n_cols;
    const int64_t n_table = (c.desc.vocab_end - c.desc.vocab_begin) * n_cols;
    DIST_OK(qdr_embedding_sizes(c.grid, &c.desc, &work_bytes));
    c.tokens = dist_memory(ctx, n_rows, QDR_I32);
    c.e = dist_memory(ctx, n_table, dtype);
    c.de = dist_memory(ctx, n_table, dist_sum_type(dtype));
    c.y = dist_memory(ctx, n_local, dtype);
    c.dy = dist_memory(ctx, n_local, dtype);
    c.work = dist_memory(ctx, (int64_t)work_bytes, QDR_U8);
    embedding_fill(&c, c.data_seed + 3, vocab, accumulate);
    return c;
}

static void embedding_free(qdr_context *ctx, embedding_case *c)
{
    void *tokens = c->tokens;
    void **all[] = {&tokens, &c->e, &c->de, &c->y, &c->dy, &c->work};
    free_all(ctx, all, 6);
    qdr_grid_destroy(&c->grid);
}

/* The values are multiples of 2^-6 below 12, so their sums are exact in every type. */
static void embedding_check(const embedding_case *c, int accumulate)
{
    const qdr_embedding *d = &c->desc;
    for (int64_t col = 0; col < d->n_cols; col++) {
        for (int64_t row = c->rows.begin; row < c->rows.end; row++) {
            const double got = dist_get(c->y, d->dtype, (row - c->rows.begin) * d->n_cols + col);
            DIST_CHECK(got == e_at(c, c->tokens[row], col), "y[%lld,%lld] is %g", (long long)row, (long long)col, got);
        }
        for (int64_t token = d->vocab_begin; token < d->vocab_end; token++) {
            double want = accumulate ? old_at(c, token, col) : 0;
            for (int64_t row = 0; row < d->n_rows; row++)
                if (c->tokens[row] == token) want += dy_at(c, row, col);
            const double got = dist_get(c->de, dist_sum_type(d->dtype), (token - d->vocab_begin) * d->n_cols + col);
            DIST_CHECK(got == want, "dE[%lld,%lld] is %g, not %g", (long long)token, (long long)col, got, want);
        }
    }
}

static void embedding(qdr_context *ctx, uint64_t seed)
{
    for (int round = 0, n = dist_rounds(36); round < n; round++) {
        const int accumulate = round / 8 % 2;
        embedding_case c = embedding_make(ctx, &seed, types[round % 4], round / 4 % 2 ? QDR_SCATTERED : QDR_REPLICATED,
                                          accumulate);
        DIST_OK(qdr_embedding_forward(c.grid, &c.desc, c.tokens, c.e, c.y, c.work, NULL));
        DIST_OK(qdr_embedding_backward(c.grid, &c.desc, c.tokens, c.dy, c.de, accumulate, c.work, NULL));
        dist_synchronize(ctx);
        embedding_check(&c, accumulate);
        embedding_free(ctx, &c);
    }
}

/* ---- cross-entropy ---- */

typedef struct ce_case {
    qdr_grid *grid;
    qdr_cross_entropy desc;
    uint64_t data_seed;
    int64_t vocab;
    int n_parts;
    double stretch, *result;
    int32_t *targets;
    void *logits, *dlogits, *saved, *work;
} ce_case;

static double logit_at(const ce_case *c, int64_t row, int64_t col)
{
    return c->stretch * dist_value(c->data_seed, row, col);
}

static ce_case ce_make(qdr_context *ctx, uint64_t *seed, qdr_dtype dtype, int64_t vocab)
{
    ce_case c = {.grid = grid_of(ctx, seed), .vocab = vocab};
    const qdr_axis axis = (qdr_axis)dist_below(seed, QDR_N_AXES);
    const int place = qdr_grid_coordinate(c.grid, axis);
    int64_t cuts[MAX_RANKS + 1];
    size_t saved_bytes = 0, work_bytes = 0;
    c.n_parts = qdr_grid_size(c.grid, axis);
    c.stretch = dist_below(seed, 2) ? 64 : 1; /* large logits would overflow without the maximum */
    dist_random_cuts(seed, vocab, c.n_parts, cuts);
    c.desc = (qdr_cross_entropy){
        QDR_OPTS_INIT, dist_below(seed, 8), cuts[place + 1] - cuts[place], cuts[place], axis, dtype, vocab};
    c.data_seed = dist_random(seed) + (uint64_t)dist_group(c.grid, axis) * 64;
    const int64_t n_elems = c.desc.n_rows * c.desc.n_cols;
    uint64_t targets_seed = c.data_seed + 1;
    DIST_OK(qdr_cross_entropy_sizes(c.grid, &c.desc, &saved_bytes, &work_bytes));
    c.targets = dist_memory(ctx, c.desc.n_rows, QDR_I32);
    c.logits = dist_memory(ctx, n_elems, dtype);
    c.dlogits = dist_memory(ctx, n_elems, dtype);
    c.result = dist_memory(ctx, 2, QDR_F64);
    c.saved = dist_memory(ctx, (int64_t)saved_bytes, QDR_U8);
    c.work = dist_memory(ctx, (int64_t)work_bytes, QDR_U8);
    for (int64_t row = 0; row < c.desc.n_rows; row++) {
        c.targets[row] = (int32_t)dist_below(&targets_seed, vocab + 1) - 1;
        for (int64_t col = 0; col < c.desc.n_cols; col++)
            dist_set(c.logits, dtype, row * c.desc.n_cols + col, logit_at(&c, row, c.desc.vocab_begin + col));
    }
    return c;
}

static void ce_free(qdr_context *ctx, ce_case *c)
{
    void *targets = c->targets, *result = c->result;
    void **all[] = {&targets, &result, &c->logits, &c->dlogits, &c->saved, &c->work};
    free_all(ctx, all, 6);
    qdr_grid_destroy(&c->grid);
}

/* One row in f64. */
typedef struct ce_row {
    double max, log_sum, range;
} ce_row;

static ce_row ce_row_of(const ce_case *c, int64_t row)
{
    ce_row r = {.max = -INFINITY};
    double sum = 0, least = INFINITY;
    for (int64_t col = 0; col < c->vocab; col++) {
        r.max = fmax(r.max, logit_at(c, row, col));
        least = fmin(least, logit_at(c, row, col));
    }
    for (int64_t col = 0; col < c->vocab; col++) sum += exp(logit_at(c, row, col) - r.max);
    r.log_sum = log(sum);
    r.range = r.max - least;
    return r;
}

static double ce_row_error(const ce_case *c, const ce_row *r)
{
    const double u = dist_roundoff(dist_sum_type(c->desc.dtype));
    return u * ((double)c->vocab + c->n_parts + 3 * r->range + 5 + 5 * r->log_sum);
}

/* Below it, results lose bits or become zero. */
static double least_normal(qdr_dtype dtype)
{
    return dtype == QDR_F64 ? 0x1p-1022 : dtype == QDR_F16 ? dist_least(dtype) : 0x1p-126;
}

static void ce_check_gradient(const ce_case *c, int64_t row, const ce_row *r, double scale)
{
    const qdr_cross_entropy *d = &c->desc;
    const double u = dist_roundoff(dist_sum_type(d->dtype)), t = dist_roundoff(d->dtype);
    for (int64_t col = 0; col < d->n_cols; col++) {
        const int64_t global = d->vocab_begin + col;
        const double p = exp(logit_at(c, row, global) - r->max - r->log_sum);
        const int hit = c->targets[row] == global;
        const double want = c->targets[row] < 0 ? 0 : scale * (p - hit);
        /* The exponent: log Σ's error, and the roundoff of max + log Σ and of the difference. */
        const double exponent = ce_row_error(c, r) + u * (2 * fabs(r->max) + 2 * r->log_sum + r->range);
        const double inner = fabs(scale) * (p * (exponent + 8 * u) + 2 * u * hit);
        const double bound = inner + t * (fabs(want) + inner) + least_normal(d->dtype);
        const double got = dist_get(c->dlogits, d->dtype, row * d->n_cols + col);
        DIST_CHECK(fabs(got - want) <= bound, "dlogits[%lld,%lld] is %.17g, not %.17g ± %g", (long long)row,
                   (long long)global, got, want, bound);
    }
}

static void ce_check(const ce_case *c, double scale)
{
    double loss = 0, bound = 0, n_valid = 0;
    for (int64_t row = 0; row < c->desc.n_rows; row++) {
        const ce_row r = ce_row_of(c, row);
        ce_check_gradient(c, row, &r, scale);
        if (c->targets[row] < 0) continue;
        loss += r.max + r.log_sum - logit_at(c, row, c->targets[row]);
        bound += ce_row_error(c, &r);
        n_valid++;
    }
    bound += (double)c->desc.n_rows * 0x1p-52 * loss;
    DIST_CHECK(fabs(c->result[0] - loss) <= bound, "loss is %.17g, not %.17g ± %g", c->result[0], loss, bound);
    DIST_CHECK(c->result[1] == n_valid, "%g rows, not %g", c->result[1], n_valid);
}

static void forward(qdr_context *ctx, ce_case *c)
{
    DIST_OK(qdr_cross_entropy_forward(c->grid, &c->desc, c->logits, c->targets, c->result, c->saved, c->work, NULL));
    dist_synchronize(ctx);
}

/* All members of the axis got the same bits. */
static void check_equal(qdr_context *ctx, const ce_case *c)
{
    double *both = dist_memory(ctx, 2, QDR_F64);
    both[0] = c->result[0];
    both[1] = -c->result[0];
    DIST_OK(qdr_all_reduce(c->grid, c->desc.axis, QDR_MAX, both, 2, QDR_F64, NULL));
    dist_synchronize(ctx);
    DIST_CHECK(both[0] == -both[1], "%.17g and %.17g on ranks of one axis", both[0], -both[1]);
    void *memory = both;
    qdr_mem_free(ctx, &memory);
}

static void cross_entropy(qdr_context *ctx, uint64_t seed)
{
    const double scale = 0.125;
    for (int round = 0, n = dist_rounds(30); round < n; round++) {
        ce_case c = ce_make(ctx, &seed, types[round % 4], 1 + dist_below(&seed, 40));
        const int in_place = round / 4 % 2;
        forward(ctx, &c);
        if (in_place) {
            qdr_mem_free(ctx, &c.dlogits);
            c.dlogits = c.logits;
        }
        DIST_OK(qdr_cross_entropy_backward(c.grid, &c.desc, c.logits, c.targets, c.saved, scale, c.dlogits, NULL));
        dist_synchronize(ctx);
        ce_check(&c, scale);
        check_equal(ctx, &c);
        if (in_place) c.logits = NULL;
        ce_free(ctx, &c);
    }
}

/* A row's loss has |L'''| ≤ 1 in each logit; h = 2^-14 gives h²/6 < 2^-30, and roundoff below 64·8·2^-53/h < 2^-29. */
static void by_differences(qdr_context *ctx, uint64_t seed)
{
    const double h = 0x1p-14;
    for (int round = 0; round < 4; round++) {
        ce_case c = ce_make(ctx, &seed, QDR_F64, 11);
        const int64_t row = c.desc.n_rows / 2, col = dist_below(&seed, 11);
        const int64_t local = col - c.desc.vocab_begin;
        const int mine = c.desc.n_rows > 0 && local >= 0 && local < c.desc.n_cols;
        double *logit = mine ? (double *)c.logits + row * c.desc.n_cols + local : NULL;
        forward(ctx, &c);
        DIST_OK(qdr_cross_entropy_backward(c.grid, &c.desc, c.logits, c.targets, c.saved, 1, c.dlogits, NULL));
        dist_synchronize(ctx);
        if (logit) *logit += h;
        forward(ctx, &c);
        double slope = c.result[0];
        if (logit) *logit -= 2 * h;
        forward(ctx, &c);
        slope = (slope - c.result[0]) / (2 * h);
        const double got = mine ? ((double *)c.dlogits)[row * c.desc.n_cols + local] : slope;
        DIST_CHECK(fabs(got - slope) <= 0x1p-26, "%.17g, by differences %.17g", got, slope);
        ce_free(ctx, &c);
    }
}

/* A NaN in one rank's logits is seen in every rank's loss. */
static void nan_is_not_hidden(qdr_context *ctx, uint64_t seed)
{
    ce_case c = ce_make(ctx, &seed, QDR_F32, 24);
    if (c.desc.n_rows > 0 && c.desc.n_cols > 0) {
        if (c.desc.vocab_begin == 0) dist_set(c.logits, QDR_F32, 0, NAN);
    }
    if (c.desc.n_rows > 0) c.targets[0] = 3;
    forward(ctx, &c);
    DIST_CHECK(c.desc.n_rows == 0 || isnan(c.result[0]), "the loss is %g", c.result[0]);
    ce_free(ctx, &c);
}

static void refusals(qdr_context *ctx, uint64_t seed)
{
    embedding_case e = embedding_make(ctx, &seed, QDR_F32, QDR_SCATTERED, 0);
    ce_case c = ce_make(ctx, &seed, QDR_F32, 9);
    qdr_embedding bad = e.desc;
    qdr_cross_entropy wrong = c.desc;
    size_t a = 0, b = 0;
    DIST_FAILS(qdr_embedding_sizes(NULL, &bad, &a), QDR_ERR_ARGUMENT, "grid");
    bad.vocab_end = bad.vocab_begin - 1;
    DIST_FAILS(qdr_embedding_sizes(e.grid, &bad, &a), QDR_ERR_SHAPE, "vocab_end");
    bad = e.desc, bad.layout = (qdr_layout)5;
    DIST_FAILS(qdr_embedding_sizes(e.grid, &bad, &a), QDR_ERR_ARGUMENT, "5 is not a layout");
    bad = e.desc, bad.dtype = QDR_I32;
    DIST_FAILS(qdr_embedding_sizes(e.grid, &bad, &a), QDR_ERR_DTYPE, "i32");
    bad = e.desc, bad.vocab = -3;
    DIST_FAILS(qdr_embedding_forward(e.grid, &bad, e.tokens, e.e, e.y, e.work, NULL), QDR_ERR_SHAPE,
               "vocabulary of -3");
    bad = e.desc, bad.n_rows = 3, bad.n_cols = 2;
    DIST_FAILS(qdr_embedding_forward(e.grid, &bad, NULL, e.e, e.y, e.work, NULL), QDR_ERR_ARGUMENT, "tokens");
    wrong.n_cols = -2;
    DIST_FAILS(qdr_cross_entropy_sizes(c.grid, &wrong, &a, &b), QDR_ERR_SHAPE, "-2");
    wrong = c.desc, wrong.vocab = -3;
    DIST_FAILS(qdr_cross_entropy_forward(c.grid, &wrong, c.logits, c.targets, c.result, c.saved, c.work, NULL),
               QDR_ERR_SHAPE, "vocabulary of -3");
    wrong = c.desc, wrong.axis = (qdr_axis)-1;
    DIST_FAILS(qdr_cross_entropy_sizes(c.grid, &wrong, &a, &b), QDR_ERR_ARGUMENT, "axis -1");
    DIST_FAILS(qdr_cross_entropy_forward(c.grid, &c.desc, c.logits, c.targets, NULL, c.saved, c.work, NULL),
               QDR_ERR_ARGUMENT, "result");
    DIST_CHECK(a == 0 && b == 0, "sizes are 0 after an error");
    embedding_free(ctx, &e);
    ce_free(ctx, &c);
}

int main(int argc, char **argv)
{
    static const dist_test tests[] = {
        {"embedding", embedding},
        {"cross-entropy against a reference", cross_entropy},
        {"cross-entropy by differences", by_differences},
        {"NaN is not hidden", nan_is_not_hidden},
        {"refused", refusals},
    };
    return dist_main(argc, argv, tests, 5);
}
