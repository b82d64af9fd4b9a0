/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of norms, one by one and together: moments of parts, their merge, apply, and the gradient, which
 * must agree with finite differences. */
#include "device.h"

enum { N_PARTS = 3 };

static qdri_kernel norm_of(qdri_kernel_kind kind, qdr_dtype dtype, int64_t n_rows, int64_t n_cols)
{
    qdri_kernel k = {.kind = kind, .dtype = dtype};
    k.u.norm.n_rows = n_rows;
    k.u.norm.n_cols = k.u.norm.stride = n_cols;
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

/* Of an RMS norm: n + 3 roundings of a sum of positive terms. */
TEST(mean_squares_of_rows)
{
    for (int t = 0; t < N_TYPES * N_SIZES; t++) {
        const int64_t n_rows = 5, n_cols = odd_sizes[t / N_TYPES], n_features = n_cols + 3;
        qdri_kernel k = norm_of(QDRI_K_NORM_MOMENTS, float_types[t % N_TYPES], n_rows, n_cols);
        array x = make_random(k.dtype, n_rows * n_cols, 2);
        array work = make(sum_type(k.dtype), n_rows), stats = make(sum_type(k.dtype), n_rows);
        k.u.norm.is_rms = 1;
        k.u.norm.n_features = n_features;
        k.u.norm.x = x.data;
        k.u.norm.work = work.data;
        k.u.norm.stats = stats.data;
        run(&k);
        k.kind = QDRI_K_NORM_MERGE;
        run(&k);
        for (int64_t r = 0; r < n_rows; r++) {
            ref squares = 0;
            for (int64_t c = 0; c < n_cols; c++) squares += get(&x, r * n_cols + c) * get(&x, r * n_cols + c);
            squares /= (ref)n_features;
            const ref rrms = 1 / sqrtl(squares + 1e-5L);
            check_near(&work, r, squares, gamma_of(k.dtype, n_cols + 3) * squares, "mean of squares");
            check_near(&stats, r, rrms, gamma_of(k.dtype, n_cols + 4) * rrms, "1/rms");
        }
        drop(&x);
        drop(&work);
        drop(&stats);
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

/* All arrays of one norm; sums in work. */
typedef struct norm_arrays {
    array x, gamma, beta, dy, y, stats, work, dx, dgamma, dbeta;
} norm_arrays;

static norm_arrays norm_make(qdri_kernel *k)
{
    const int64_t n_rows = k->u.norm.n_rows, n_cols = k->u.norm.n_cols, n = n_rows * k->u.norm.stride;
    const qdr_dtype dtype = k->dtype, sums = sum_type(dtype);
    norm_arrays a = {
        .x = make_random(dtype, n, 2),
        .gamma = make_random(dtype, n_cols, 1),
        .beta = make_random(dtype, n_cols, 1),
        .dy = make_random(dtype, n, 1),
        .y = make(dtype, n),
        .stats = make(sums, 2 * n_rows),
        .work = make(sums, 3 * n_rows),
        .dx = make(dtype, n),
        .dgamma = make(sums, n_cols),
        .dbeta = make(sums, n_cols),
    };
    for (int64_t r = 0; r < 2 * n_rows; r++)
        set(&a.stats, r, r % 2 || k->u.norm.is_rms ? uniform(0.2, 3) : uniform(-1, 1));
    k->u.norm.x = a.x.data;
    k->u.norm.gamma = a.gamma.data;
    k->u.norm.beta = a.beta.data;
    k->u.norm.dy = a.dy.data;
    k->u.norm.y = a.y.data;
    k->u.norm.stats = a.stats.data;
    k->u.norm.work = a.work.data;
    k->u.norm.dx = a.dx.data;
    k->u.norm.dgamma = a.dgamma.data;
    k->u.norm.dbeta = a.dbeta.data;
    return a;
}

static void norm_drop(norm_arrays *a)
{
    array *all[] = {&a->x, &a->gamma, &a->beta, &a->dy, &a->y, &a->stats, &a->work, &a->dx, &a->dgamma, &a->dbeta};
    for (int i = 0; i < 10; i++) drop(all[i]);
}

/* An element, and what is known of its row and column; an RMS norm stores 1/rms alone. */
typedef struct place {
    int64_t at, row, col;
    ref mean, rstd, gamma, dy;
} place;

static place place_of(const qdri_kernel *k, const norm_arrays *a, int64_t row, int64_t col)
{
    const int is_rms = k->u.norm.is_rms;
    const int64_t at = row * k->u.norm.stride + col;
    return (place){at,
                   row,
                   col,
                   is_rms ? 0 : get(&a->stats, 2 * row),
                   get(&a->stats, is_rms ? row : 2 * row + 1),
                   get(&a->gamma, col) + (k->u.norm.one_plus ? 1 : 0),
                   get(&a->dy, at)};
}

static ref xhat(const norm_arrays *a, const place *p) { return (get(&a->x, p->at) - p->mean) * p->rstd; }

/* What x̂ would be if nothing cancelled: its error is at most a few u times this. */
static ref xhat_size(const norm_arrays *a, const place *p)
{
    return (fabsl(get(&a->x, p->at)) + fabsl(p->mean)) * p->rstd;
}

/* Of gamma, as far as it is rounded: less 1 it is stored. */
static ref gamma_size(const qdri_kernel *k, const place *p) { return fabsl(p->gamma) + (k->u.norm.one_plus ? 2 : 0); }

static void check_apply(const qdri_kernel *k, const norm_arrays *a)
{
    for (int64_t r = 0; r < k->u.norm.n_rows; r++)
        for (int64_t c = 0; c < k->u.norm.n_cols; c++) {
            const place p = place_of(k, a, r, c);
            const ref beta = k->u.norm.beta ? get(&a->beta, c) : 0;
            const ref size = xhat_size(a, &p) * gamma_size(k, &p) + fabsl(beta);
            check_near(&a->y, p.at, xhat(a, &p) * p.gamma + beta, gamma_of(a->x.dtype, 6) * size, "norm");
        }
}

static void check_row_sums(const qdri_kernel *k, const norm_arrays *a)
{
    const int64_t n_cols = k->u.norm.n_cols;
    for (int64_t r = 0; r < k->u.norm.n_rows; r++) {
        ref sum = 0, sum_size = 0, dot = 0, dot_size = 0;
        for (int64_t c = 0; c < n_cols; c++) {
            const place p = place_of(k, a, r, c);
            sum += p.dy * p.gamma;
            sum_size += fabsl(p.dy) * gamma_size(k, &p);
            dot += p.dy * p.gamma * xhat(a, &p);
            dot_size += fabsl(p.dy) * gamma_size(k, &p) * xhat_size(a, &p);
        }
        if (!k->u.norm.is_rms)
            check_near(&a->work, 2 * r, sum, gamma_of(a->x.dtype, n_cols + 3) * sum_size, "sum of dy");
        check_near(&a->work, k->u.norm.is_rms ? r : 2 * r + 1, dot, gamma_of(a->x.dtype, n_cols + 7) * dot_size,
                   "sum of dy x");
    }
}

static void check_parameter_sums(const qdri_kernel *k, const norm_arrays *a, ref before)
{
    const int64_t n_rows = k->u.norm.n_rows;
    for (int64_t c = 0; c < k->u.norm.n_cols; c++) {
        ref dgamma = before, dgamma_size = before, dbeta = before, dbeta_size = before;
        for (int64_t r = 0; r < n_rows; r++) {
            const place p = place_of(k, a, r, c);
            dgamma += p.dy * xhat(a, &p);
            dgamma_size += fabsl(p.dy) * xhat_size(a, &p);
            dbeta += p.dy;
            dbeta_size += fabsl(p.dy);
        }
        check_near(&a->dgamma, c, dgamma, gamma_of(a->x.dtype, n_rows + 6) * dgamma_size, "dgamma");
        check_near(&a->dbeta, c, dbeta, gamma_of(a->x.dtype, n_rows + 1) * dbeta_size, "dbeta");
    }
}

static void check_dx(const qdri_kernel *k, const norm_arrays *a, const array *before)
{
    const int is_rms = k->u.norm.is_rms;
    const ref n_features = (ref)k->u.norm.n_features;
    for (int64_t r = 0; r < k->u.norm.n_rows; r++)
        for (int64_t c = 0; c < k->u.norm.n_cols; c++) {
            const place p = place_of(k, a, r, c);
            const ref level = is_rms ? 0 : get(&a->work, 2 * r) / n_features;
            const ref slope = get(&a->work, is_rms ? r : 2 * r + 1) / n_features;
            const ref old = before ? get(before, p.at) : 0;
            const ref size = p.rstd *
                             (fabsl(p.dy) * gamma_size(k, &p) + fabsl(level) + xhat_size(a, &p) * fabsl(slope));
            check_near(&a->dx, p.at, old + p.rstd * (p.dy * p.gamma - level - xhat(a, &p) * slope),
                       gamma_of(a->x.dtype, 11) * (size + fabsl(old)), "norm dx");
        }
}

/* What is between the rows stays as it was. */
static void check_gaps(const qdri_kernel *k, const array *of)
{
    for (int64_t i = 0; i < of->n; i++)
        if (i % k->u.norm.stride >= k->u.norm.n_cols) assert_true(isnan((double)get(of, i)));
}

TEST(apply_and_gradients)
{
    for (int t = 0; t < 4 * N_TYPES * N_SIZES; t++) {
        const int64_t n_rows = odd_sizes[test_between(&seed, 0, N_SIZES - 1)];
        const int64_t n_cols = odd_sizes[t / N_TYPES % N_SIZES];
        qdri_kernel k = norm_of(QDRI_K_NORM_APPLY, float_types[t % N_TYPES], n_rows, n_cols);
        k.u.norm.is_rms = t / (N_TYPES * N_SIZES) % 2;
        k.u.norm.one_plus = (int)test_between(&seed, 0, 1);
        k.u.norm.stride = n_cols + (t < 2 * N_TYPES * N_SIZES ? 0 : 3);
        k.u.norm.n_features = 3 * n_cols + 1;
        norm_arrays a = norm_make(&k);
        if (k.u.norm.is_rms) k.u.norm.beta = NULL;
        run(&k);
        check_apply(&k, &a);
        check_gaps(&k, &a.y);
        k.kind = QDRI_K_NORM_SUMS;
        run(&k);
        check_row_sums(&k, &a);
        check_parameter_sums(&k, &a, 0);
        for (int64_t c = 0; c < n_cols; c++) set(&a.dgamma, c, 2);
        for (int64_t c = 0; c < n_cols; c++) set(&a.dbeta, c, 2);
        k.accumulate = 1;
        run(&k);
        check_parameter_sums(&k, &a, 2);
        k.kind = QDRI_K_NORM_BACKWARD;
        k.accumulate = 0;
        run(&k);
        check_dx(&k, &a, NULL);
        array before = copy_of(&a.dx);
        k.accumulate = 1;
        run(&k);
        check_dx(&k, &a, &before);
        check_gaps(&k, &a.dx);
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
    for (int is_rms = 0; is_rms < 2; is_rms++) {
        const int64_t n_rows = 3, n_cols = 11;
        qdri_kernel k = norm_of(QDRI_K_NORM_SUMS, QDR_F64, n_rows, n_cols);
        k.u.norm.is_rms = k.u.norm.one_plus = is_rms;
        norm_arrays a = norm_make(&k);
        (void)norm_forward(&k, &a);
        k.kind = QDRI_K_NORM_SUMS;
        run(&k);
        k.kind = QDRI_K_NORM_BACKWARD;
        run(&k);
        for (int64_t i = 0; i < n_rows * n_cols; i++)
            check_near(&a.dx, i, difference(&k, &a, &a.x, i), 1e-7L, "dx by differences");
        for (int64_t c = 0; c < n_cols; c++) {
            check_near(&a.dgamma, c, difference(&k, &a, &a.gamma, c), 1e-7L, "dgamma by differences");
            check_near(&a.dbeta, c, difference(&k, &a, &a.beta, c), 1e-7L, "dbeta by differences");
        }
        norm_drop(&a);
    }
}

int main(void) { return run_each_set(); }
