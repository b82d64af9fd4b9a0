/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks of one operation on words, an embedding or a cross-entropy, split in random blocks, in all types: embedding
 * bit by bit, cross-entropy within bounds of f64, its gradient compared with differences.
 *
 * Bounds for cross-entropy: u is the roundoff of the sums' type, t that of the logits', V the size of the vocabulary, g
 * the number of parts, R the largest |logit - max|. The error of exp is 4u, that of its argument u·R, so the relative
 * error of a sum of V is (V + g + R + 5)·u. With the log (4u) and the two differences, the error of a row's loss is w =
 * u·(V + g + R + 5 + 5·|log Σ| + 2·R). */
#include "dist.h"

static const qdr_dtype types[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};

typedef struct words_case {
    qdr_context *ctx;
    qdr_grid *grid;
    qdr_stack *stack;
    qdr_dtype dtype;
    int64_t n_rows, vocab, n_cols; /* whole ones; n_cols: of an embedding */
    uint64_t data_seed;
    qdr_edge words, numbers; /* tokens and what an embedding makes of them, or targets and logits */
    qdr_owned owned; /* of numbers */
    int n_parts; /* of logits */
    double stretch;
    double factor; /* of an embedding, as it multiplies */
    void *memory;
} words_case;

static words_case case_open(qdr_context *ctx, uint64_t *seed, qdr_dtype dtype)
{
    words_case c = {.ctx = ctx, .grid = dist_random_grid(ctx, seed), .dtype = dtype};
    c.n_rows = dist_below(seed, 12);
    c.data_seed = dist_random(seed);
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = c.n_rows, .dtype = dtype, .caller_memory = 1,
                                 .batch_parts = 1 + (int)dist_below(seed, 3)};
    DIST_OK(qdr_stack_create(c.grid, &opts, &c.stack));
    return c;
}

/* -1: none. */
static int32_t word_at(const words_case *c, int64_t row)
{
    uint64_t seed = c->data_seed + 1000 + (uint64_t)row;
    return (int32_t)dist_below(&seed, c->vocab + 1) - 1;
}

static void *value_of(const words_case *c, qdr_edge edge) { return dist_edge_value(c->stack, edge); }

static void *gradient_of(const words_case *c) { return dist_edge_gradient(c->stack, c->numbers); }

static void case_build(words_case *c)
{
    c->memory = dist_build_in_nan(c->stack);
    c->owned = dist_edge_owned(c->stack, c->numbers);
    const qdr_owned rows = dist_edge_owned(c->stack, c->words);
    int32_t *words = value_of(c, c->words);
    for (int64_t row = rows.rows.begin; row < rows.rows.end; row++) *words++ = word_at(c, row);
}

static void case_close(words_case *c)
{
    qdr_stack_destroy(&c->stack);
    qdr_mem_free(c->ctx, &c->memory);
    qdr_grid_destroy(&c->grid);
}

static void backward(const words_case *c, int flags, double scale)
{
    DIST_OK(qdr_stack_backward(c->stack, flags, scale));
    dist_synchronize(c->ctx);
}

/* ---- embedding ---- */

/* 6161/512, whose 13 bits no narrow type holds; products with what e_at() gives are exact in f32. */
static const double long_factor = 12.033203125;

/* With 8 bits of significand, or 11. */
static double rounded_factor(qdr_dtype dtype)
{
    return dtype == QDR_BF16 ? 12.0625 : dtype == QDR_F16 ? 12.03125 : long_factor;
}

static double e_at(const words_case *c, int64_t token, int64_t col)
{
    return token < 0 ? 0 : dist_value(c->data_seed, token, col);
}

static double dy_at(const words_case *c, int64_t row, int64_t col) { return dist_value(c->data_seed + 1, row, col); }

static qdr_block random_block(uint64_t *seed, int64_t most_units)
{
    qdr_block blocks[QDR_MAX_BLOCKS];
    dist_random_blocks(seed, most_units, blocks);
    return blocks[0];
}

static words_case embedding_make(qdr_context *ctx, uint64_t *seed, qdr_dtype dtype, qdr_layout layout)
{
    words_case c = case_open(ctx, seed, dtype);
    const int has_factor = (int)dist_below(seed, 2), rounds = (int)dist_below(seed, 2);
    const qdr_embedding_desc desc = {QDR_INIT(qdr_embedding_desc),
                                     .name = "embedding",
                                     .vocab = random_block(seed, 12),
                                     .features = random_block(seed, 4),
                                     .layout = layout,
                                     .factor = has_factor ? long_factor : 0,
                                     .round_factor = rounds};
    c.factor = !has_factor ? 1 : rounds ? rounded_factor(dtype) : long_factor;
    c.vocab = desc.vocab.width;
    c.n_cols = desc.features.width;
    DIST_OK(qdr_stack_add_tokens(c.stack, "tokens", &c.words));
    DIST_OK(qdr_stack_add_embedding(c.stack, &desc, c.words, &c.numbers, NULL));
    case_build(&c);
    void *e = dist_memory(ctx, c.vocab * c.n_cols, dtype);
    for (int64_t i = 0; i < c.vocab * c.n_cols; i++) dist_set(e, dtype, i, e_at(&c, i / c.n_cols, i % c.n_cols));
    DIST_OK(qdr_stack_load_parameter(c.stack, 0, e));
    qdr_mem_free(ctx, &e);
    return c;
}

/* The values are multiples of 2^-6 below 24, so their sums are exact in every type that is summed in. Multiplied, each
 * of 24 addends and the sums are rounded. */
static void embedding_check(const words_case *c, int n_times)
{
    const qdr_dtype sum_type = dist_sum_type(c->dtype);
    const double slack = c->factor == 1 ? 0 : 48 * (sum_type == QDR_F64 ? 0x1p-53 : 0x1p-24);
    const void *y = value_of(c, c->numbers);
    void *product = dist_memory(c->ctx, 1, c->dtype), *de = dist_memory(c->ctx, c->vocab * c->n_cols, sum_type);
    int64_t at = 0;
    for (int64_t row = c->owned.rows.begin; row < c->owned.rows.end; row++)
        for (int64_t i = 0; i < c->owned.n_cols; i++) {
            const int64_t col = dist_column(&c->owned, i);
            const double got = dist_get(y, c->dtype, at++);
            dist_set(product, c->dtype, 0, c->factor * e_at(c, word_at(c, row), col));
            DIST_CHECK(got == dist_get(product, c->dtype, 0), "y[%lld,%lld] is %g, times %g", (long long)row,
                       (long long)col, got, c->factor);
        }
    DIST_OK(qdr_stack_gather_parameter(c->stack, 0, 1, de));
    for (int64_t token = 0; token < c->vocab; token++)
        for (int64_t col = 0; col < c->n_cols; col++) {
            double want = 0, size = 0;
            for (int64_t row = 0; row < c->n_rows; row++) {
                if (word_at(c, row) != token) continue;
                want += n_times * c->factor * dy_at(c, row, col);
                size += n_times * c->factor * fabs(dy_at(c, row, col));
            }
            const double got = dist_get(de, sum_type, token * c->n_cols + col);
            DIST_CHECK(fabs(got - want) <= slack * size, "dE[%lld,%lld] is %g, not %g", (long long)token,
                       (long long)col, got, want);
        }
    qdr_mem_free(c->ctx, &de);
    qdr_mem_free(c->ctx, &product);
}

DIST_TEST(embedding)
{
    for (int round = 0, n = dist_rounds(36); round < n; round++) {
        const int n_times = 1 + round / 8 % 2;
        words_case c = embedding_make(ctx, &seed, types[round % 4], round / 4 % 2 ? QDR_SCATTERED : QDR_REPLICATED);
        DIST_OK(qdr_stack_forward(c.stack));
        dist_synchronize(ctx);
        for (int i = 0; i < n_times; i++) {
            dist_fill_edge(c.stack, c.numbers, gradient_of(&c), c.data_seed + 1);
            backward(&c, i ? QDR_ACCUMULATE : 0, 1);
        }
        embedding_check(&c, n_times);
        case_close(&c);
    }
}

/* ---- cross-entropy ---- */

static double logit_at(const words_case *c, int64_t row, int64_t col)
{
    return c->stretch * dist_value(c->data_seed, row, col);
}

static words_case ce_make(qdr_context *ctx, uint64_t *seed, qdr_dtype dtype, qdr_block vocab)
{
    words_case c = case_open(ctx, seed, dtype);
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {vocab}, .col_axis = (qdr_axis)dist_below(seed, 2),
                                 .layout = (qdr_layout)dist_below(seed, 2)};
    int64_t at = 0;
    c.vocab = vocab.width;
    c.n_parts = qdr_grid_size(c.grid, input.col_axis);
    c.stretch = dist_below(seed, 2) ? 64 : 1; /* large logits would overflow without the maximum */
    DIST_OK(qdr_stack_add_input(c.stack, "logits", &input, 1, &c.numbers));
    DIST_OK(qdr_stack_add_cross_entropy(c.stack, "loss", c.numbers, &c.words));
    case_build(&c);
    void *logits = value_of(&c, c.numbers);
    for (int64_t row = c.owned.rows.begin; row < c.owned.rows.end; row++)
        for (int64_t i = 0; i < c.owned.n_cols; i++)
            dist_set(logits, dtype, at++, logit_at(&c, row, dist_column(&c.owned, i)));
    return c;
}

/* One row in f64. */
typedef struct ce_row {
    double max, log_sum, range;
} ce_row;

static ce_row ce_row_of(const words_case *c, int64_t row)
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

static double ce_row_error(const words_case *c, const ce_row *r)
{
    const double u = dist_roundoff(dist_sum_type(c->dtype));
    return u * ((double)c->vocab + c->n_parts + 3 * r->range + 5 + 5 * r->log_sum);
}

/* Below it, results lose bits or become zero. */
static double least_normal(qdr_dtype dtype)
{
    return dtype == QDR_F64 ? 0x1p-1022 : dtype == QDR_F16 ? dist_least(dtype) : 0x1p-126;
}

static void ce_check_gradients(const words_case *c, double scale)
{
    const double u = dist_roundoff(dist_sum_type(c->dtype)), t = dist_roundoff(c->dtype);
    const void *dlogits = gradient_of(c);
    int64_t at = 0;
    for (int64_t row = c->owned.rows.begin; row < c->owned.rows.end; row++) {
        const ce_row r = ce_row_of(c, row);
        /* The exponent: log Σ's error, and the roundoff of max + log Σ and of the difference. */
        const double exponent = ce_row_error(c, &r) + u * (2 * fabs(r.max) + 2 * r.log_sum + r.range);
        for (int64_t i = 0; i < c->owned.n_cols; i++) {
            const int64_t col = dist_column(&c->owned, i);
            const double p = exp(logit_at(c, row, col) - r.max - r.log_sum);
            const int hit = word_at(c, row) == col;
            const double want = word_at(c, row) < 0 ? 0 : scale * (p - hit);
            const double inner = fabs(scale) * (p * (exponent + 8 * u) + 2 * u * hit);
            const double bound = inner + t * (fabs(want) + inner) + least_normal(c->dtype);
            const double got = dist_get(dlogits, c->dtype, at++);
            DIST_CHECK(fabs(got - want) <= bound, "dlogits[%lld,%lld] is %.17g, not %.17g ± %g", (long long)row,
                       (long long)col, got, want, bound);
        }
    }
}

static double forward(const words_case *c, int64_t *n_valid)
{
    double loss;
    DIST_OK(qdr_stack_forward(c->stack));
    DIST_OK(qdr_stack_loss(c->stack, &loss, n_valid));
    return loss;
}

/* All ranks got the same bits. */
static void check_equal(const words_case *c, double loss)
{
    double *both = dist_memory(c->ctx, 2, QDR_F64);
    both[0] = loss;
    both[1] = -loss;
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        DIST_OK(qdr_all_reduce(c->grid, (qdr_axis)axis, QDR_MAX, both, 2, QDR_F64, NULL));
    dist_synchronize(c->ctx);
    DIST_CHECK(both[0] == -both[1], "%.17g and %.17g on different ranks", both[0], -both[1]);
    qdr_mem_free(c->ctx, (void **)&both);
}

static void ce_check_loss(const words_case *c)
{
    double loss = 0, bound = 0;
    int64_t n_wanted = 0, n_valid = 0;
    for (int64_t row = 0; row < c->n_rows; row++) {
        const ce_row r = ce_row_of(c, row);
        if (word_at(c, row) < 0) continue;
        loss += r.max + r.log_sum - logit_at(c, row, word_at(c, row));
        bound += ce_row_error(c, &r);
        n_wanted++;
    }
    bound += (double)(c->n_rows + qdr_context_size(c->ctx)) * 0x1p-52 * loss;
    const double got = forward(c, &n_valid);
    DIST_CHECK(fabs(got - loss) <= bound, "loss is %.17g, not %.17g ± %g", got, loss, bound);
    DIST_CHECK(n_valid == n_wanted, "%lld rows, not %lld", (long long)n_valid, (long long)n_wanted);
    check_equal(c, got);
}

DIST_TEST(cross_entropy)
{
    const double scale = 0.125;
    for (int round = 0, n = dist_rounds(30); round < n; round++) {
        words_case c = ce_make(ctx, &seed, types[round % 4], random_block(&seed, 15));
        ce_check_loss(&c);
        backward(&c, 0, scale);
        ce_check_gradients(&c, scale);
        case_close(&c);
    }
}

/* A row's loss has |L'''| ≤ 1 in each logit; h = 2^-14 gives h²/6 < 2^-30, and roundoff of losses below 2^11 less than
 * 2^-27. */
DIST_TEST(by_differences)
{
    const double h = 0x1p-14;
    for (int round = 0; round < 4; round++) {
        words_case c = ce_make(ctx, &seed, QDR_F64, (qdr_block){11, 1});
        const int64_t at = dist_place(&c.owned, c.n_rows / 2, dist_below(&seed, 11));
        double *logit = at < 0 ? NULL : (double *)value_of(&c, c.numbers) + at;
        int64_t n_valid;
        forward(&c, &n_valid);
        backward(&c, 0, 1);
        const double got = logit ? ((double *)gradient_of(&c))[at] : 0;
        if (logit) *logit += h;
        double slope = forward(&c, &n_valid);
        if (logit) *logit -= 2 * h;
        slope = (slope - forward(&c, &n_valid)) / (2 * h);
        if (logit) DIST_CHECK(fabs(got - slope) <= 0x1p-26, "%.17g, by differences %.17g", got, slope);
        case_close(&c);
    }
}

/* A NaN in one rank's logits is seen in every rank's loss. */
DIST_TEST(nan_is_not_hidden)
{
    words_case c = ce_make(ctx, &seed, QDR_F32, (qdr_block){24, 1});
    int64_t n_valid;
    if (dist_place(&c.owned, 0, 0) == 0) dist_set(value_of(&c, c.numbers), QDR_F32, 0, NAN);
    if (c.owned.rows.begin == 0 && c.owned.n_rows > 0) *(int32_t *)value_of(&c, c.words) = 3;
    const double loss = forward(&c, &n_valid);
    DIST_CHECK(c.n_rows == 0 || isnan(loss), "the loss is %g", loss);
    case_close(&c);
}
