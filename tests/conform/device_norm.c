/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of layer norm, one by one and together: moments of parts, their merge, apply, and the gradient, which
 * must agree with finite differences. */
#include "device.h"

enum { N_PARTS = 3 };

static qdri_kernel norm_of(qdri_kernel_kind kind, qdr_dtype dtype, int64_t n_rows, int64_t n_cols)
{
    qdri_kernel k = {.kind = kind, .dtype = dtype};
    k.u.norm.n_rows = n_rows;
    k.u.norm.n_cols = n_cols;
    k.u.norm.n_features = n_cols;
    k.u.norm.n_parts = 1;
    k.u.norm.epsilon = 1e-5;
    return k;
}

/* |mean error| ≤ γ(n)·Σ|x|/n =: δ; the sum of squares about a mean that is off by δ grows by n·δ². */
static void check_moments(const array *x, int64_t row, int64_t n, const array *moments)
{
    ref sum = 0;
    ref size = 0;
    ref m2 = 0;
    for (int64_t c = 0; c < n; c++) sum += get(x, row * n + c);
    for (int64_t c = 0; c < n; c++) size += fabsl(get(x, row * n + c));
    const ref mean = n ? sum / (ref)n : 0;
    const ref off = n ? gamma_of(x->dtype, n + 1) * size / (ref)n : 0;
    for (int64_t c = 0; c < n; c++) {
        m2 += (get(x, row * n + c) - mean) * (get(x, row * n + c) - mean);
    }
    const ref more = (ref)n * off * off;
    assert_true(get(moments, 3 * row) == (ref)n);
    check_near(moments, 3 * row + 1, mean, off, "mean");
    check_near(moments, 3 * row + 2, m2, gamma_of(x->dtype, n + 3) * (m2 + more) + more, "M2");
}

TEST(moments_of_rows)
{
    for (int t = 0; t < N_TYPES * N_SIZES; t++) {
        const int64_t n_rows = 5;
        const int64_t n_cols = odd_sizes[t / N_TYPES];
        qdri_kernel k = norm_of(QDRI_K_NORM_MOMENTS, float_types[t % N_TYPES], n_rows, n_cols);
        array x = make_random(k.dtype, n_rows * n_cols, 2);
        array moments = make(sum_type(k.dtype), 3 * n_rows);
        for (int64_t i = 0; i < x.n; i++) set(&x, i, (double)get(&x, i) + 100); /* far from zero */
        k.u.norm.x = x.data;
        k.u.norm.work = moments.data;
        run(&k);
        for (int64_t r = 0; r < n_rows; r++) check_moments(&x, r, n_cols, &moments);
        drop(&x);
        drop(&moments);
    }
}

/* Three parts of a row, the second empty in odd rows: their merge is the whole's mean and variance. Each step of the
 * merge adds a few roundings of numbers no larger than those checked here. */
TEST(merge_is_the_whole)
{
    for (int t = 0; t < 2; t++) {
        const qdr_dtype dtype = float_types[t];
        const int64_t n_rows = 9;
        qdri_kernel k = norm_of(QDRI_K_NORM_MERGE, dtype, n_rows, 0);
        array parts = make(dtype, N_PARTS * n_rows * 3);
        array stats = make(dtype, 2 * n_rows);
        for (int64_t i = 0; i < N_PARTS * n_rows; i++) {
            const int is_empty = i / n_rows == 1 && i % 2;
            set(&parts, 3 * i, is_empty ? 0 : (double)test_between(&seed, 1, 50));
            set(&parts, 3 * i + 1, is_empty ? 0 : uniform(-1, 1));
            set(&parts, 3 * i + 2, is_empty ? 0 : uniform(0, 20));
        }
        k.u.norm.n_parts = N_PARTS;
        k.u.norm.work = parts.data;
        k.u.norm.stats = stats.data;
        run(&k);
        for (int64_t r = 0; r < n_rows; r++) {
            ref n = 0;
            ref sum = 0;
            ref squares = 0;
            for (int64_t i = r; i < N_PARTS * n_rows; i += n_rows) {
                n += get(&parts, 3 * i);
                sum += get(&parts, 3 * i) * get(&parts, 3 * i + 1);
                squares += get(&parts, 3 * i + 2) +
                           get(&parts, 3 * i) * get(&parts, 3 * i + 1) * get(&parts, 3 * i + 1);
            }
            const ref mean = sum / n;
            const ref variance = squares / n - mean * mean;
            const ref relative = gamma_of(dtype, 10 * N_PARTS) * (1 + 1 / (variance + 1e-5L));
            const ref rstd = 1 / sqrtl(variance + (ref)k.u.norm.epsilon);
            check_near(&stats, 2 * r, mean, gamma_of(dtype, 10 * N_PARTS), "merged mean");
            check_near(&stats, 2 * r + 1, rstd, rstd * relative, "merged 1/sigma");
        }
        drop(&parts);
        drop(&stats);
    }
}

/* All arrays of one layer norm; sums in work. */
typedef struct norm_arrays {
    array x, gamma, beta, dy, y, stats, work, dx, dgamma, dbeta;
} norm_arrays;

static norm_arrays norm_make(qdr_dtype dtype, int64_t n_rows, int64_t n_cols)
{
    const qdr_dtype sums = sum_type(dtype);
    norm_arrays a = {
        .x = make_random(dtype, n_rows * n_cols, 2),
        .gamma = make_random(dtype, n_cols, 1),
        .beta = make_random(dtype, n_cols, 1),
        .dy = make_random(dtype, n_rows * n_cols, 1),
        .y = make(dtype, n_rows * n_cols),
        .stats = make(sums, 2 * n_rows),
        .work = make(sums, 3 * n_rows),
        .dx = make(dtype, n_rows * n_cols),
        .dgamma = make(sums, n_cols),
        .dbeta = make(sums, n_cols),
    };
    for (int64_t r = 0; r < n_rows; r++) {
        set(&a.stats, 2 * r, uniform(-1, 1));
        set(&a.stats, 2 * r + 1, uniform(0.2, 3));
    }
    return a;
}

static void norm_drop(norm_arrays *a)
{
    array *all[] = {&a->x, &a->gamma, &a->beta, &a->dy, &a->y, &a->stats, &a->work, &a->dx, &a->dgamma, &a->dbeta};
    for (int i = 0; i < 10; i++) drop(all[i]);
}

static void norm_bind(qdri_kernel *k, const norm_arrays *a)
{
    k->u.norm.x = a->x.data;
    k->u.norm.gamma = a->gamma.data;
    k->u.norm.beta = a->beta.data;
    k->u.norm.dy = a->dy.data;
    k->u.norm.y = a->y.data;
    k->u.norm.stats = a->stats.data;
    k->u.norm.work = a->work.data;
    k->u.norm.dx = a->dx.data;
    k->u.norm.dgamma = a->dgamma.data;
    k->u.norm.dbeta = a->dbeta.data;
}

static ref xhat(const norm_arrays *a, int64_t n_cols, int64_t i)
{
    return (get(&a->x, i) - get(&a->stats, i / n_cols * 2)) * get(&a->stats, i / n_cols * 2 + 1);
}

/* What x̂ would be if nothing cancelled: its error is at most a few u times this. */
static ref xhat_size(const norm_arrays *a, int64_t n_cols, int64_t i)
{
    return (fabsl(get(&a->x, i)) + fabsl(get(&a->stats, i / n_cols * 2))) * get(&a->stats, i / n_cols * 2 + 1);
}

static void check_apply(const norm_arrays *a, int64_t n_cols)
{
    for (int64_t i = 0; i < a->x.n; i++) {
        const ref gamma = get(&a->gamma, i % n_cols);
        const ref beta = get(&a->beta, i % n_cols);
        const ref size = xhat_size(a, n_cols, i) * fabsl(gamma) + fabsl(beta);
        check_near(&a->y, i, xhat(a, n_cols, i) * gamma + beta, gamma_of(a->x.dtype, 5) * size, "norm");
    }
}

static void check_row_sums(const norm_arrays *a, int64_t n_rows, int64_t n_cols)
{
    for (int64_t r = 0; r < n_rows; r++) {
        ref sum = 0, sum_size = 0, dot = 0, dot_size = 0;
        for (int64_t i = r * n_cols; i < (r + 1) * n_cols; i++) {
            const ref d = get(&a->dy, i) * get(&a->gamma, i % n_cols);
            sum += d;
            sum_size += fabsl(d);
            dot += d * xhat(a, n_cols, i);
            dot_size += fabsl(d) * xhat_size(a, n_cols, i);
        }
        check_near(&a->work, 2 * r, sum, gamma_of(a->x.dtype, n_cols + 2) * sum_size, "sum of dy");
        check_near(&a->work, 2 * r + 1, dot, gamma_of(a->x.dtype, n_cols + 6) * dot_size, "sum of dy x");
    }
}

static void check_parameter_sums(const norm_arrays *a, int64_t n_rows, int64_t n_cols, ref before)
{
    for (int64_t c = 0; c < n_cols; c++) {
        ref dgamma = before, gamma_size = before, dbeta = before, beta_size = before;
        for (int64_t i = c; i < n_rows * n_cols; i += n_cols) {
            dgamma += get(&a->dy, i) * xhat(a, n_cols, i);
            gamma_size += fabsl(get(&a->dy, i)) * xhat_size(a, n_cols, i);
            dbeta += get(&a->dy, i);
            beta_size += fabsl(get(&a->dy, i));
        }
        check_near(&a->dgamma, c, dgamma, gamma_of(a->x.dtype, n_rows + 6) * gamma_size, "dgamma");
        check_near(&a->dbeta, c, dbeta, gamma_of(a->x.dtype, n_rows + 1) * beta_size, "dbeta");
    }
}

static void check_dx(const norm_arrays *a, int64_t n_cols, int64_t n_features, const array *before)
{
    for (int64_t i = 0; i < a->x.n; i++) {
        const ref rstd = get(&a->stats, i / n_cols * 2 + 1);
        const ref d = get(&a->dy, i) * get(&a->gamma, i % n_cols);
        const ref level = get(&a->work, i / n_cols * 2) / (ref)n_features;
        const ref slope = get(&a->work, i / n_cols * 2 + 1) / (ref)n_features;
        const ref old = before ? get(before, i) : 0;
        const ref size = rstd * (fabsl(d) + fabsl(level) + xhat_size(a, n_cols, i) * fabsl(slope));
        check_near(&a->dx, i, old + rstd * (d - level - xhat(a, n_cols, i) * slope),
                   gamma_of(a->x.dtype, 10) * (size + fabsl(old)), "norm dx");
    }
}

TEST(apply_and_gradients)
{
    for (int t = 0; t < N_TYPES * N_SIZES; t++) {
        const int64_t n_rows = odd_sizes[test_between(&seed, 0, N_SIZES - 1)];
        const int64_t n_cols = odd_sizes[t / N_TYPES];
        qdri_kernel k = norm_of(QDRI_K_NORM_APPLY, float_types[t % N_TYPES], n_rows, n_cols);
        norm_arrays a = norm_make(k.dtype, n_rows, n_cols);
        norm_bind(&k, &a);
        k.u.norm.n_features = 3 * n_cols + 1;
        run(&k);
        check_apply(&a, n_cols);
        k.kind = QDRI_K_NORM_SUMS;
        run(&k);
        check_row_sums(&a, n_rows, n_cols);
        check_parameter_sums(&a, n_rows, n_cols, 0);
        for (int64_t c = 0; c < n_cols; c++) set(&a.dgamma, c, 2);
        for (int64_t c = 0; c < n_cols; c++) set(&a.dbeta, c, 2);
        k.accumulate = 1;
        run(&k);
        check_parameter_sums(&a, n_rows, n_cols, 2);
        k.kind = QDRI_K_NORM_BACKWARD;
        k.accumulate = 0;
        run(&k);
        check_dx(&a, n_cols, k.u.norm.n_features, NULL);
        array before = copy_of(&a.dx);
        k.accumulate = 1;
        run(&k);
        check_dx(&a, n_cols, k.u.norm.n_features, &before);
        k.kind = QDRI_K_NORM_SUMS;
        k.u.norm.dgamma = k.u.norm.dbeta = NULL; /* not wanted */
        run(&k);
        drop(&before);
        norm_drop(&a);
    }
}

/* Forward in f64 as ops does it: moments, merge of one part, apply. Returns Σ y·dy. */
static ref norm_forward(qdri_kernel *k, const norm_arrays *a)
{
    ref sum = 0;
    k->kind = QDRI_K_NORM_MOMENTS;
    run(k);
    k->kind = QDRI_K_NORM_MERGE;
    run(k);
    k->kind = QDRI_K_NORM_APPLY;
    run(k);
    for (int64_t i = 0; i < a->y.n; i++) sum += get(&a->y, i) * get(&a->dy, i);
    return sum;
}

/* Central differences: error about h²·|f'''|/6 + u·|f|/h, with h = 1e-5 below 1e-8 for these sizes. */
static ref difference(qdri_kernel *k, const norm_arrays *a, array *of, int64_t i)
{
    const ref h = 1e-5L;
    const double x = (double)get(of, i);
    set(of, i, x + (double)h);
    const ref above = norm_forward(k, a);
    set(of, i, x - (double)h);
    const ref below = norm_forward(k, a);
    set(of, i, x);
    return (above - below) / (2 * h);
}

TEST(gradients_are_differences)
{
    const int64_t n_rows = 3;
    const int64_t n_cols = 11;
    qdri_kernel k = norm_of(QDRI_K_NORM_SUMS, QDR_F64, n_rows, n_cols);
    norm_arrays a = norm_make(QDR_F64, n_rows, n_cols);
    norm_bind(&k, &a);
    (void)norm_forward(&k, &a);
    k.kind = QDRI_K_NORM_SUMS;
    run(&k);
    k.kind = QDRI_K_NORM_BACKWARD;
    run(&k);
    for (int64_t i = 0; i < n_rows * n_cols; i++) {
        check_near(&a.dx, i, difference(&k, &a, &a.x, i), 1e-7L, "dx by differences");
    }
    for (int64_t c = 0; c < n_cols; c++) {
        check_near(&a.dgamma, c, difference(&k, &a, &a.gamma, c), 1e-7L, "dgamma by differences");
        check_near(&a.dbeta, c, difference(&k, &a, &a.beta, c), 1e-7L, "dbeta by differences");
    }
    norm_drop(&a);
}

int main(void) { return run_each_set(); }
