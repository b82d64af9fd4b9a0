/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of cross-entropy on the parts of a vocabulary, in every type; the gradient also by finite differences. */
#include "device.h"

/* One part [begin, begin + n_cols) of the vocabulary, with all arrays of its rows. */
typedef struct part {
    qdri_kernel k;
    array logits, maxima, sums, saved, dlogits, result;
    int32_t *targets;
} part;

static part part_make(qdr_dtype dtype, int64_t n_rows, int64_t n_cols, int64_t begin, double scale)
{
    const qdr_dtype sums = sum_type(dtype);
    part p = {
        .k = {.dtype = dtype},
        .logits = make_random(dtype, n_rows * n_cols, scale),
        .maxima = make(sums, n_rows),
        .sums = make(sums, 2 * n_rows),
        .saved = make(sums, 2 * n_rows),
        .dlogits = make(dtype, n_rows * n_cols),
        .result = make(QDR_F64, 2),
        .targets = make_tokens(n_rows, -1, begin + n_cols + 2),
    };
    p.k.u.ce.n_rows = n_rows;
    p.k.u.ce.n_cols = n_cols;
    p.k.u.ce.begin = begin;
    p.k.u.ce.targets = p.targets;
    p.k.u.ce.logits = p.logits.data;
    p.k.u.ce.work = p.maxima.data;
    p.k.u.ce.work2 = p.sums.data;
    p.k.u.ce.saved = p.saved.data;
    p.k.u.ce.dlogits = p.dlogits.data;
    p.k.u.ce.result = p.result.data;
    p.k.u.ce.scale = 0.125;
    return p;
}

/* What the softmax is of, with a bound of its error, its slope, and the roundings of that. */
typedef struct shaped {
    ref value, error, slope;
    int64_t n_slope;
} shaped;

/* tanh by exp(2u), whose argument is off by 3u, on GPUs in narrow types 5u, and which is off by 4u itself. */
static shaped shaped_of(const part *p, const array *logits, int64_t i)
{
    const ref factor = p->k.factor == 0 ? 1 : (ref)p->k.factor, cap = (ref)p->k.u.ce.cap, x = get(logits, i);
    const ref value = factor * x, twice = cap > 0 ? 2 * value / cap : 0, tanh = tanhl(twice / 2);
    const ref exact = 1 - tanh * tanh;
    const int64_t n_exp = (int64_t)(5 * fabsl(twice)) + 8;
    if (cap == 0) return (shaped){value, factor == 1 ? 0 : gamma_of(p->k.dtype, 1) * fabsl(value), factor, 2};
    return (shaped){cap * tanh, cap * (gamma_of(p->k.dtype, 10) + gamma_of(p->k.dtype, n_exp) * exact), factor * exact,
                    2 * n_exp + 10};
}

static void part_drop(part *p)
{
    array *all[] = {&p->logits, &p->maxima, &p->sums, &p->saved, &p->dlogits, &p->result};
    for (int i = 0; i < 6; i++) drop(all[i]);
    memory_drop(p->targets);
}

static void part_run(part *p, qdri_kernel_kind kind)
{
    p->k.kind = kind;
    run(&p->k);
}

/* The target's column in this part; -1 if it is not here. */
static int64_t target_column(const part *p, int64_t row)
{
    const int64_t column = p->targets[row] - p->k.u.ce.begin;
    return p->targets[row] >= 0 && column >= 0 && column < p->k.u.ce.n_cols ? column : -1;
}

static void check_maxima(const part *p)
{
    for (int64_t r = 0; r < p->k.u.ce.n_rows; r++) {
        shaped most = {.value = -INFINITY};
        for (int64_t c = 0; c < p->k.u.ce.n_cols; c++) {
            const shaped l = shaped_of(p, &p->logits, r * p->k.u.ce.n_cols + c);
            if (l.value > most.value) most = l;
        }
        assert_true(get(&p->maxima, r) == most.value || fabsl(get(&p->maxima, r) - most.value) <= most.error);
    }
}

/* l - max is rounded once, which moves its exp by u·|l - max|; exp is within 4u; then a sum. */
static void check_sums(const part *p)
{
    const int64_t n = p->k.u.ce.n_cols;
    for (int64_t r = 0; r < p->k.u.ce.n_rows; r++) {
        const ref most = get(&p->maxima, r);
        const int64_t column = target_column(p, r);
        ref sum = 0;
        ref bound = 0;
        for (int64_t c = 0; c < n; c++) {
            const shaped l = shaped_of(p, &p->logits, r * n + c);
            const ref d = l.value - most;
            sum += expl(d);
            bound += expl(d) * (gamma_of(p->k.dtype, n + 6 + (int64_t)fabsl(d)) + l.error);
        }
        const shaped target = column < 0 ? (shaped){.value = most} : shaped_of(p, &p->logits, r * n + column);
        const ref at_target = target.value - most;
        check_near(&p->sums, 2 * r, sum, bound, "sum of exp");
        check_near(&p->sums, 2 * r + 1, at_target, gamma_of(p->k.dtype, 1) * fabsl(at_target) + target.error, "target");
    }
}

/* The loss is the sum of what it is made from, in f64. */
static void check_loss(const part *p)
{
    ref loss = 0;
    ref size = 0;
    int64_t n_valid = 0;
    for (int64_t r = 0; r < p->k.u.ce.n_rows; r++) {
        const ref log_sum = logl(get(&p->sums, 2 * r));
        assert_true(get(&p->saved, 2 * r) == get(&p->maxima, r));
        check_near(&p->saved, 2 * r + 1, log_sum, gamma_of(p->k.dtype, 2) * fabsl(log_sum), "log");
        if (p->targets[r] < 0) continue;
        const ref whole = get(&p->maxima, r) + log_sum, z_loss = (ref)p->k.u.ce.z_loss * whole * whole;
        loss += log_sum - get(&p->sums, 2 * r + 1) + z_loss;
        size += fabsl(log_sum) + fabsl(get(&p->sums, 2 * r + 1)) + 4 * z_loss;
        n_valid++;
    }
    check_near(&p->result, 0, loss, gamma_of(QDR_F64, p->k.u.ce.n_rows + 3) * size, "loss");
    assert_true(get(&p->result, 1) == (ref)n_valid);
}

static void check_dlogits(const part *p, const array *logits)
{
    const int64_t n = p->k.u.ce.n_cols;
    for (int64_t r = 0; r < p->k.u.ce.n_rows; r++) {
        for (int64_t c = 0; c < n; c++) {
            const shaped l = shaped_of(p, logits, r * n + c);
            const ref d = l.value - get(&p->saved, 2 * r);
            const ref log_sum = get(&p->saved, 2 * r + 1);
            const ref z_loss = (ref)p->k.u.ce.z_loss, whole = get(&p->saved, 2 * r) + log_sum;
            const ref probability = p->targets[r] < 0 ? 0 : expl(d - log_sum),
                      share = probability * (1 + 2 * z_loss * whole);
            const ref want = p->targets[r] < 0 ? 0 : 0.125L * l.slope * (share - (target_column(p, r) == c));
            const int64_t n_roundings = 8 + (int64_t)(2 * (fabsl(d) + fabsl(log_sum)));
            const ref sizes = probability * (1 + 4 * z_loss * (fabsl(get(&p->saved, 2 * r)) + fabsl(log_sum)));
            const ref size = fabsl(l.slope) * sizes + fabsl(want), of_share = fabsl(l.slope) * sizes * l.error;
            const ref bound = gamma_of(p->k.dtype, n_roundings) * size + gamma_of(p->k.dtype, l.n_slope) * fabsl(want);
            check_near(&p->dlogits, r * n + c, want, bound + of_share + 1e-34L, "dlogits");
        }
    }
}

TEST(parts_of_odd_sizes)
{
    for (int t = 0; t < N_TYPES * N_SIZES; t++) {
        const int64_t n_cols = odd_sizes[t / N_TYPES];
        const int64_t n_rows = odd_sizes[test_between(&seed, 0, N_SIZES - 1)];
        part p = part_make(float_types[t % N_TYPES], n_rows, n_cols, test_between(&seed, 0, 9), t % 2 ? 3 : 30);
        p.k.factor = (double)test_between(&seed, -2, 4) / 4; /* 0: 1 */
        p.k.u.ce.cap = (double)test_between(&seed, 0, 2) * 5;
        p.k.u.ce.z_loss = (double)test_between(&seed, 0, 2) / 8;
        part_run(&p, QDRI_K_CE_MAX);
        check_maxima(&p);
        if (n_cols == 0) { /* another part has the maximum */
            for (int64_t r = 0; r < n_rows; r++) set(&p.maxima, r, 1.5);
        }
        part_run(&p, QDRI_K_CE_SUMS);
        check_sums(&p);
        if (n_cols == 0) {
            for (int64_t r = 0; r < n_rows; r++) set(&p.sums, 2 * r, 2.5);
        }
        part_run(&p, QDRI_K_CE_LOSS);
        check_loss(&p);
        part_run(&p, QDRI_K_CE_BACKWARD);
        check_dlogits(&p, &p.logits);
        array logits = copy_of(&p.logits); /* and in place */
        p.k.u.ce.dlogits = p.logits.data;
        part_run(&p, QDRI_K_CE_BACKWARD);
        assert_memory_equal(p.logits.data, p.dlogits.data, (size_t)logits.n * qdr_dtype_bytes(logits.dtype));
        drop(&logits);
        part_drop(&p);
    }
}

/* Logits that would overflow an exp without the maximum; -Inf is a probability of 0; NaN shows in the loss. */
TEST(extreme_logits)
{
    for (int t = 0; t < N_TYPES; t++) {
        const double far = float_types[t] == QDR_F16 ? 65504 : 1e30;
        part p = part_make(float_types[t], 1, 3, 0, 1);
        p.targets[0] = 0;
        set(&p.logits, 0, far);
        set(&p.logits, 1, -far);
        set(&p.logits, 2, -INFINITY);
        for (int kind = QDRI_K_CE_MAX; kind <= QDRI_K_CE_BACKWARD; kind++) {
            part_run(&p, (qdri_kernel_kind)kind);
        }
        assert_true(get(&p.result, 0) == 0);
        for (int c = 0; c < 3; c++) assert_true(get(&p.dlogits, c) == 0);
        set(&p.logits, 1, (double)NAN);
        for (int kind = QDRI_K_CE_MAX; kind <= QDRI_K_CE_LOSS; kind++) {
            part_run(&p, (qdri_kernel_kind)kind);
        }
        assert_true(isnan(get(&p.result, 0)));
        part_drop(&p);
    }
}

static ref loss_of(part *p)
{
    for (int kind = QDRI_K_CE_MAX; kind <= QDRI_K_CE_LOSS; kind++) {
        part_run(p, (qdri_kernel_kind)kind);
    }
    return get(&p->result, 0);
}

TEST(gradient_is_the_difference)
{
    const ref h = 1e-5L;
    part p = part_make(QDR_F64, 4, 9, 0, 2);
    for (int64_t r = 0; r < 4; r++) p.targets[r] = (int32_t)(2 * r) - 1;
    p.k.factor = 1.5;
    p.k.u.ce.cap = 3;
    p.k.u.ce.z_loss = 0.25;
    (void)loss_of(&p);
    part_run(&p, QDRI_K_CE_BACKWARD);
    for (int64_t i = 0; i < p.logits.n; i++) {
        const double x = (double)get(&p.logits, i);
        set(&p.logits, i, x + (double)h);
        const ref above = loss_of(&p);
        set(&p.logits, i, x - (double)h);
        const ref slope = (above - loss_of(&p)) / (2 * h);
        set(&p.logits, i, x);
        check_near(&p.dlogits, i, 0.125L * slope, 1e-8L, "dlogits by differences");
    }
    part_drop(&p);
}

int main(void) { return run_each_set(); }
