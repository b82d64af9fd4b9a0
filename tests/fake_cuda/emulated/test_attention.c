/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's attention compared with the CPU's: forward, and the backward pass of the same forward pass. */
#include "kernels.h"

typedef struct heads {
    qdr_dtype dtype;
    int64_t n_sequences, context, n_heads, n_kv_heads, size;
    int64_t window; /* 0: the context */
    double scale, cap; /* scale 0: 1/sqrt(size) */
    int64_t rotary_columns;
    int interleaved, head_norm, one_plus, sinks, documents;
} heads;

#define EPSILON 0.5 /* of norms: rows are not much larger afterwards */

static heads heads_of(int64_t n_sequences, int64_t context, int64_t n_heads, int64_t n_kv_heads, int64_t size)
{
    return (heads){QDR_F32, n_sequences, context, n_heads, n_kv_heads, size, .window = 0};
}

static double scale_of(const heads *h) { return h->scale > 0 ? h->scale : 1 / sqrt((double)h->size); }

static int64_t width_of(const heads *h) { return (h->n_heads + 2 * h->n_kv_heads) * h->size; }

static kernel_test attention_of(qdri_kernel_kind kind, const heads *h)
{
    kernel_test test = test_of(kind, h->dtype);
    const int64_t n_rows = h->n_sequences * h->context;
    test.kernel.u.attention.n_rows = n_rows;
    test.kernel.u.attention.context = h->context;
    test.kernel.u.attention.n_heads = h->n_heads;
    test.kernel.u.attention.n_kv_heads = h->n_kv_heads;
    test.kernel.u.attention.head_size = h->size;
    test.kernel.u.attention.window = h->window ? h->window : h->context;
    test.kernel.u.attention.scale = scale_of(h);
    test.kernel.u.attention.cap = h->cap;
    test.kernel.u.attention.rotary_columns = h->rotary_columns;
    test.kernel.u.attention.interleaved = h->interleaved;
    test.kernel.u.attention.head_norm = h->head_norm;
    test.kernel.u.attention.one_plus = h->one_plus;
    test.kernel.u.attention.has_sinks = h->sinks;
    test.kernel.u.attention.epsilon = EPSILON;
    operand *work = add_operand(&test, AT(attention.work), QDR_U8, (int64_t)qdri_attention_work_bytes(&test.kernel));
    memset(work->data, 0xff, bytes_of(work));
    work->is_scratch = 1;
    return test;
}

static int is_mma(const heads *h)
{
    const int64_t size = h->size;
    return is_narrow(h->dtype) && !(h->cap > 0) &&
           (size == 32 || size == 64 || size == 80 || size == 96 || size == 128);
}

/* How far scores of turned heads, and so weights, may be off. A GPU rounds both q and k, up to 1.2, and a weight errs
 * by its own score and by those of its sum. */
static double turning_bound(const heads *h)
{
    return h->rotary_columns || h->head_norm ? 6 * roundoff(h->dtype) * (1 + (double)h->size * scale_of(h)) : 0;
}

/* How far a sum of weighted terms may be off, relatively. Scores of q and k up to 1 (turned: 1.2) are off by
 * u·(size + 2)·size·scale, and so are the weights; sums over a row or a column follow. Tensor cores take weights,
 * gradients of scores and y rounded. */
static double relative_bound(const heads *h)
{
    const int64_t terms = h->context * h->n_heads / h->n_kv_heads;
    const double size = (double)h->size;
    return turning_bound(h) + 6 * roundings(h->dtype, h->size + 4) * size * scale_of(h) +
           roundings(h->dtype, terms + 2 * h->size) + (is_mma(h) ? 2 * roundoff(h->dtype) : 0);
}

/* Everything that a kernel reads but qkv and dy; NULL: not there. */
typedef struct numbers {
    const operand *rotation, *gammas[2], *sinks, *first_keys; /* gammas: of queries, of keys */
} numbers;

/* Turns the pairs of a row of a head. */
static void turn_row(const heads *h, const operand *rotation, int64_t row, double *x)
{
    const int64_t n = h->rotary_columns / 2, at = row % h->context * h->rotary_columns;
    for (int64_t i = 0; i < n; i++) {
        double *a = x + (h->interleaved ? 2 * i : i), *b = a + (h->interleaved ? 1 : n);
        const double cosine = value_of(rotation->dtype, rotation->data, at + i), before = *a;
        const double sine = value_of(rotation->dtype, rotation->data, at + n + i);
        *a = cosine * before - sine * *b;
        *b = cosine * *b + sine * before;
    }
}

static double head_scale(const heads *h, const double *x)
{
    double squares = 0;
    for (int64_t c = 0; c < h->size; c++) squares += x[c] * x[c];
    return 1 / sqrt(squares / (double)h->size + EPSILON);
}

static double factor_of(const heads *h, const operand *gamma, int64_t c)
{
    return value_of(gamma->dtype, gamma->data, c) + h->one_plus;
}

/* What the sizes of a row's gradients become where they are turned back; adds to those of gamma's. */
static void turn_sizes_back(const heads *h, const operand *gamma, const double *x, double *sizes, double *of_gamma)
{
    const int64_t n = h->rotary_columns / 2;
    double dot = 0;
    for (int64_t i = 0; i < n; i++) {
        double *a = sizes + (h->interleaved ? 2 * i : i), *b = a + (h->interleaved ? 1 : n);
        *a = *b = 0.6 * (*a + *b);
    }
    if (!gamma) return;
    const double scale = head_scale(h, x);
    for (int64_t c = 0; c < h->size; c++) {
        of_gamma[c] += sizes[c] * fabs(x[c]) * scale;
        sizes[c] *= fabs(factor_of(h, gamma, c));
        dot += sizes[c] * fabs(x[c]) * scale / (double)h->size;
    }
    for (int64_t c = 0; c < h->size; c++) sizes[c] = scale * (sizes[c] + fabs(x[c]) * scale * dot);
}

static double *values_of(const operand *o)
{
    double *x = test_calloc((size_t)o->n + 1, sizeof *x);
    for (int64_t i = 0; i < o->n; i++) x[i] = value_of(o->dtype, o->data, i);
    return x;
}

/* q, k and v, of which q and k are normed and turned. */
static double *turned(const heads *h, const operand *qkv, const numbers *of)
{
    double *x = values_of(qkv);
    for (int64_t r = 0; r < h->n_sequences * h->context; r++)
        for (int64_t i = 0; i < h->n_heads + h->n_kv_heads; i++) {
            double *row = x + r * width_of(h) + i * h->size;
            const operand *gamma = of->gammas[i >= h->n_heads];
            const double scale = gamma ? head_scale(h, row) : 1;
            for (int64_t c = 0; gamma && c < h->size; c++) row[c] *= scale * factor_of(h, gamma, c);
            turn_row(h, of->rotation, r, row);
        }
    return x;
}

/* One query head of one sequence: its first row, and columns. */
typedef struct head {
    const heads *h;
    const double *qkv;
    const operand *dy, *sinks, *first_keys;
    int64_t index, row, q, k, v, o;
} head;

static head head_of(const heads *h, const double *qkv, const operand *dy, const numbers *of, int64_t sequence,
                    int64_t i)
{
    const int64_t kv = i / (h->n_heads / h->n_kv_heads);
    return (head){h,
                  qkv,
                  dy,
                  of->sinks,
                  of->first_keys,
                  i,
                  sequence * h->context,
                  i * h->size,
                  (h->n_heads + kv) * h->size,
                  (h->n_heads + h->n_kv_heads + kv) * h->size,
                  i * h->size};
}

static double in(const head *a, int64_t row, int64_t col) { return a->qkv[(a->row + row) * width_of(a->h) + col]; }

static double slope(const head *a, int64_t row, int64_t col)
{
    return value_of(a->dy->dtype, a->dy->data, (a->row + row) * a->h->n_heads * a->h->size + a->o + col);
}

/* Weights of row r, and that of its sink after them. */
static void weights_of(const head *a, int64_t r, double *p)
{
    const double cap = a->h->cap;
    const int64_t first = a->first_keys ? ((const int32_t *)a->first_keys->data)[a->row + r] : 0;
    double sum = 0;
    for (int64_t c = 0; c <= r; c++) {
        double score = 0;
        for (int64_t i = 0; i < a->h->size; i++) score += in(a, r, a->q + i) * in(a, c, a->k + i) * scale_of(a->h);
        if (cap > 0) score = cap * tanh(score / cap);
        p[c] = c < first || (a->h->window && r - c >= a->h->window) ? 0 : exp(score);
        sum += p[c];
    }
    p[r + 1] = a->sinks ? exp(value_of(a->sinks->dtype, a->sinks->data, a->index)) : 0;
    sum += p[r + 1];
    for (int64_t c = 0; c <= r + 1; c++) p[c] /= sum;
}

/* Adds the absolute terms of row r to those of y, or of dqkv. */
static void forward_sizes(const head *a, int64_t r, const double *p, double *y)
{
    for (int64_t i = 0; i < a->h->size; i++)
        for (int64_t c = 0; c <= r; c++)
            y[(a->row + r) * a->h->n_heads * a->h->size + a->o + i] += p[c] * fabs(in(a, c, a->v + i));
}

static void backward_sizes(const head *a, int64_t r, const double *p, double *dqkv, double *of_sinks)
{
    const int64_t size = a->h->size, width = width_of(a->h);
    double *dp = test_calloc((size_t)r + 1, sizeof *dp), dot = 0;
    for (int64_t c = 0; c <= r; c++) {
        for (int64_t i = 0; i < size; i++) dp[c] += fabs(slope(a, r, i) * in(a, c, a->v + i));
        dot += p[c] * dp[c];
    }
    of_sinks[a->index] += p[r + 1] * dot;
    for (int64_t c = 0; c <= r; c++) {
        const double ds = p[c] * (dp[c] + dot) * scale_of(a->h);
        double *row = dqkv + (a->row + r) * width, *column = dqkv + (a->row + c) * width;
        for (int64_t i = 0; i < size; i++) {
            row[a->q + i] += ds * fabs(in(a, c, a->k + i));
            column[a->k + i] += ds * fabs(in(a, r, a->q + i));
            column[a->v + i] += p[c] * fabs(slope(a, r, i));
        }
    }
    test_free(dp);
}

/* Of results, by element. */
typedef struct bounds {
    double *y, *dqkv, *gammas[2], *sinks;
} bounds;

static bounds bounds_of(const heads *h, const operand *qkv, const numbers *of, const operand *dy)
{
    const int64_t n_rows = h->n_sequences * h->context, n_heads = h->n_heads + h->n_kv_heads;
    const int64_t ns[] = {n_rows * h->n_heads * h->size, qkv->n, h->size, h->size, h->n_heads};
    double *x = turned(h, qkv, of), *before = values_of(qkv), *all[5];
    double *p = test_calloc((size_t)h->context + 1, sizeof *p);
    for (int i = 0; i < 5; i++) all[i] = test_calloc((size_t)ns[i] + 1, sizeof **all);
    const bounds b = {all[0], all[1], {all[2], all[3]}, all[4]};
    for (int64_t s = 0; s < h->n_sequences; s++)
        for (int64_t i = 0; i < h->n_heads; i++) {
            const head a = head_of(h, x, dy, of, s, i);
            for (int64_t r = 0; r < h->context; r++) {
                weights_of(&a, r, p);
                forward_sizes(&a, r, p, b.y);
                if (dy) backward_sizes(&a, r, p, b.dqkv, b.sinks);
            }
        }
    for (int64_t i = 0; i < n_rows * n_heads; i++) {
        const int64_t at = i / n_heads * width_of(h) + i % n_heads * h->size;
        const int keys = i % n_heads >= h->n_heads;
        turn_sizes_back(h, of->gammas[keys], before + at, b.dqkv + at, b.gammas[keys]);
    }
    for (int i = 0; i < 5; i++)
        for (int64_t k = 0; k < ns[i]; k++)
            all[i][k] *= relative_bound(h) + (i > 1 ? roundings(h->dtype, n_rows * n_heads) : 0);
    test_free(p);
    test_free(x);
    test_free(before);
    return b;
}

/* Gives a result its bounds. */
static void bound(operand *result, double **of_each)
{
    result->bounds = *of_each;
    *of_each = NULL;
}

static void bounds_free(bounds *b)
{
    double *const all[] = {b->y, b->dqkv, b->gammas[0], b->gammas[1], b->sinks};
    for (int i = 0; i < 5; i++)
        if (all[i]) test_free(all[i]);
}

static operand *add_first_keys(kernel_test *test, const heads *h)
{
    operand *made = add_operand(test, AT(attention.first_keys), QDR_I32, h->n_sequences * h->context);
    int32_t *first = made->data;
    for (int64_t i = 0; i < made->n; i++)
        first[i] = i % h->context && test_between(&seed, 0, 20) ? first[i - 1] : (int32_t)(i % h->context);
    return made;
}

static numbers add_numbers(kernel_test *test, const heads *h)
{
    numbers made = {.sinks = NULL};
    made.rotation = add_random(test, AT(attention.rotation), sum_type(h->dtype), h->context * h->rotary_columns, -0.6,
                               0.6);
    if (h->head_norm) {
        const double low = h->one_plus ? -1.5 : -0.7;
        made.gammas[0] = add_random(test, AT(attention.q_gamma), h->dtype, h->size, low, low + 1.2);
        made.gammas[1] = add_random(test, AT(attention.k_gamma), h->dtype, h->size, low, low + 1.2);
    }
    if (h->documents) made.first_keys = add_first_keys(test, h);
    if (h->sinks) made.sinks = add_random(test, AT(attention.sinks), h->dtype, h->n_heads, -1, 1);
    return made;
}

static void forward(const heads *h)
{
    kernel_test test = attention_of(QDRI_K_ATTENTION_FORWARD, h);
    const int64_t n_rows = h->n_sequences * h->context;
    const operand *qkv = add_random(&test, AT(attention.qkv), h->dtype, n_rows * width_of(h), -1, 1);
    operand *y = add_result(&test, AT(attention.out), h->dtype, n_rows * h->n_heads * h->size, 0, 0);
    const numbers of = add_numbers(&test, h);
    bounds b = bounds_of(h, qkv, &of, NULL);
    bound(y, &b.y);
    /* no larger than size·scale + log(context) */
    add_result(&test, AT(attention.saved), sum_type(h->dtype), n_rows * h->n_heads, 0,
               turning_bound(h) + roundings(h->dtype, h->size + h->context) * 4 * (1 + (double)h->size * scale_of(h)));
    check_kernel(&test);
    bounds_free(&b);
}

/* The saved log-sum-exp and y are the CPU's. */
static void backward(const heads *h)
{
    kernel_test test = attention_of(QDRI_K_ATTENTION_FORWARD, h);
    const int64_t n_rows = h->n_sequences * h->context, n_y = n_rows * h->n_heads * h->size;
    const qdr_dtype sums = sum_type(h->dtype);
    void *results[N_OPERANDS];
    const operand *qkv = add_random(&test, AT(attention.qkv), h->dtype, n_rows * width_of(h), -1, 1);
    operand *saved = add_result(&test, AT(attention.saved), sums, n_rows * h->n_heads, 0, 0);
    operand *y = add_result(&test, AT(attention.out), h->dtype, n_y, 0, 0);
    const numbers of = add_numbers(&test, h);
    run_on_cpu(&test, results);
    memcpy(saved->data, results[2], bytes_of(saved));
    memcpy(y->data, results[3], bytes_of(y));
    for (int i = 0; i < test.n; i++) test_free(results[i]);
    saved->is_result = y->is_result = 0;
    y->where = AT(attention.y);
    test.kernel.kind = QDRI_K_ATTENTION_BACKWARD;
    test.kernel.accumulate = (int)test_between(&seed, 0, 1);
    const int adds = test.kernel.accumulate;
    const operand *dy = add_random(&test, AT(attention.dy), h->dtype, n_y, -1, 1);
    bounds b = bounds_of(h, qkv, &of, dy);
    bound(add_result(&test, AT(attention.out), h->dtype, n_rows * width_of(h), 0, 0), &b.dqkv);
    if (h->head_norm) {
        bound(add_result(&test, AT(attention.d_q_gamma), sums, h->size, adds, 0), &b.gammas[0]);
        bound(add_result(&test, AT(attention.d_k_gamma), sums, h->size, adds, 0), &b.gammas[1]);
    }
    if (h->sinks) bound(add_result(&test, AT(attention.d_sinks), sums, h->n_heads, adds, 0), &b.sinks);
    check_kernel(&test);
    bounds_free(&b);
}

static void check_heads(heads h)
{
    for (int t = 0; t < N_TYPES; t++) {
        h.dtype = float_types[t];
        if (is_mine()) forward(&h);
        if (h.n_heads > 0 && is_mine()) backward(&h);
    }
}

TEST(shapes)
{
    check_heads(heads_of(1, 1, 1, 1, 1));
    check_heads(heads_of(2, 5, 2, 2, 3));
    check_heads(heads_of(2, 17, 4, 2, 8));
    check_heads(heads_of(1, 64, 1, 1, 64));
    check_heads(heads_of(1, 70, 3, 1, 72)); /* a whole chunk and a part */
    check_heads(heads_of(1, 33, 2, 1, 130)); /* two blocks of results */
    check_heads(heads_of(1, 34, 1, 1, 300));
    check_heads(heads_of(0, 7, 2, 2, 4)); /* no rows */
    check_heads(heads_of(1, 7, 0, 2, 4)); /* no queries */
    for (int round = 0; round < cases(12); round++) {
        const int64_t n_kv = test_between(&seed, 1, 3);
        check_heads(heads_of(test_between(&seed, 1, 2), test_between(&seed, 1, 100), n_kv * test_between(&seed, 1, 3),
                             n_kv, test_between(&seed, 1, 70)));
    }
}

static heads random_scores(heads h)
{
    h.window = test_between(&seed, 1, h.context);
    h.scale = uniform(0.05, 0.3);
    h.interleaved = (int)test_between(&seed, 0, 1);
    h.rotary_columns = 2 * test_between(&seed, 0, h.size / 2);
    h.head_norm = (int)test_between(&seed, 0, 1);
    h.one_plus = (int)test_between(&seed, 0, 1);
    h.sinks = (int)test_between(&seed, 0, 1);
    h.documents = (int)test_between(&seed, 0, 1);
    return h;
}

TEST(scores)
{
    check_heads((heads){0, 1, 40, 2, 1, 130, .rotary_columns = 128});
    check_heads((heads){0, 2, 9, 2, 2, 6, .rotary_columns = 4, .interleaved = 1});
    check_heads((heads){0, 2, 40, 2, 1, 70, .head_norm = 1});
    check_heads((heads){0, 2, 300, 2, 1, 4, .sinks = 1});
    check_heads((heads){0, 0, 7, 2, 2, 4, .head_norm = 1, .sinks = 1}); /* no rows */
    check_heads((heads){0, 2, 17, 4, 2, 8, .cap = 0.5});
    check_heads((heads){0, 2, 70, 2, 1, 8, .documents = 1});
    check_heads((heads){0, 1, 130, 2, 1, 4, .window = 70, .documents = 1});
    check_heads((heads){0, 1, 70, 2, 1, 130, .window = 33, .scale = 0.02, .cap = 2});
    for (int round = 0; round < cases(8); round++)
        check_heads(random_scores(heads_of(1, test_between(&seed, 1, 200), 2, 1, test_between(&seed, 1, 40))));
}

/* The first of several faults is found, whatever it is, and nothing outside the sequence is read. */
TEST(first_keys_that_are_refused)
{
    enum { CONTEXT = 70, N = 2 * CONTEXT };
    static const struct {
        int64_t row;
        int32_t key, least;
    } wrong[] = {{CONTEXT + 40, 41, 0}, {0, -1, 0}, {CONTEXT, INT32_MAX, 0}, {60, 4, 5}, {N - 1, INT32_MIN, 0}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const int64_t row = wrong[i].row;
        kernel_test test = attention_of(QDRI_K_ATTENTION_FORWARD, &(heads){QDR_F32, 2, CONTEXT, 2, 1, 8, .window = 0});
        int32_t *first = add_operand(&test, AT(attention.first_keys), QDR_I32, N)->data;
        for (int64_t r = row / CONTEXT * CONTEXT; r < row; r++) first[r] = wrong[i].least;
        for (int64_t r = row / CONTEXT * CONTEXT; r < row && r % CONTEXT < wrong[i].least; r++) first[r] = 0;
        for (int64_t r = row; r < N; r++) first[r] = wrong[i].key;
        add_random(&test, AT(attention.qkv), QDR_F32, N * 32, -1, 1);
        add_result(&test, AT(attention.out), QDR_F32, N * 16, 0, 0);
        add_result(&test, AT(attention.saved), QDR_F32, N * 2, 0, 0);
        test.no_cpu = 1;
        check_kernel(&test);
        assert_int_equal(target.fault->found, 1);
        assert_int_equal(target.fault->kind, QDRI_FAULT_FIRST_KEY);
        assert_int_equal(target.fault->row, row);
        assert_int_equal(target.fault->id, wrong[i].key);
        assert_int_equal(target.fault->least, wrong[i].least);
        assert_int_equal(target.fault->most, row % CONTEXT);
        *target.fault = (qdri_cuda_fault){0};
    }
}

/* Heads that go to tensor cores. */
TEST(tensor_cores)
{
    static const int64_t contexts[] = {1, 31, 64, 65, 128, 130, 200};
    static const int64_t sizes[] = {128, 64, 80, 96, 32};
    for (int i = 0; i < 20; i++) {
        const qdr_dtype dtype = i < 10 ? QDR_BF16 : QDR_F16;
        const int64_t n_kv = 1 + i % 2, size = sizes[i % 5];
        heads h = heads_of(1 + i % 2, contexts[i % 7], n_kv * (1 + i / 2 % 2), n_kv, size);
        h.dtype = dtype;
        if (i % 3 == 1) h = random_scores(h);
        if (is_mine()) forward(&h);
        if (is_mine()) backward(&h);
    }
}

int main(void) { return run_all_tests(open_devices, close_devices); }
