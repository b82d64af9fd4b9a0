/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-entropy of logits whose columns may be split over ranks. */

/* ---- what the softmax is of ---- */

typedef struct ce_shape {
    real factor, cap, steep; /* steep: 2·factor/cap */
} ce_shape;

static ce_shape ce_shape_of(const qdri_kernel *kernel)
{
    const double factor = qdri_factor_of(kernel), cap = kernel->u.ce.cap;
    return (ce_shape){(real)factor, (real)cap, cap > 0 ? (real)(2 * factor / cap) : 0};
}

static inline real ce_plain(ce_shape shape, real x) { return shape.factor * x; }
static inline real ce_plain_slope(ce_shape shape, real x)
{
    (void)shape;
    (void)x;
    return 1;
}

/* exp(2u), u = factor·x/cap; NaN stays NaN. */
static inline real ce_exp(ce_shape shape, real x)
{
    real twice = shape.steep * x;
    twice = twice < -EXP_LIMIT ? -EXP_LIMIT : twice;
    return real_exp_normal(twice > EXP_LIMIT ? EXP_LIMIT : twice);
}

/* cap·tanh(u), and tanh'(u) = 4·s·(1 - s), s the logistic function of 2u. */
static inline real ce_capped(ce_shape shape, real x) { return shape.cap - 2 * shape.cap / (1 + ce_exp(shape, x)); }
static inline real ce_capped_slope(ce_shape shape, real x)
{
    const real e = ce_exp(shape, x), s = 1 / (1 + e);
    return 4 * s * (s * e);
}

/* ---- loops, compiled with and without a cap ---- */

typedef real ce_function(ce_shape shape, real x);

ONE_FUNCTION void ce_max_of(const qdri_kernel *kernel, ce_function logit)
{
    const int64_t n = kernel->u.ce.n_cols;
    const ce_shape shape = ce_shape_of(kernel);
    const elem *logits = kernel->u.ce.logits;
    real *maxima = kernel->u.ce.work;
    for (int64_t r = 0; r < kernel->u.ce.n_rows; r++, logits += n) {
        real most = -(real)INFINITY;
        SIMD_MAX(most)
        for (int64_t c = 0; c < n; c++) {
            const real l = logit(shape, get(logits[c]));
            most = l > most ? l : most;
        }
        maxima[r] = most;
    }
}

static void ce_max(const qdri_kernel *kernel)
{
    if (kernel->u.ce.cap > 0)
        ce_max_of(kernel, ce_capped);
    else
        ce_max_of(kernel, ce_plain);
}

/* The target's local column, or -1 if it is on another rank or there is none. */
static inline int64_t ce_column(const qdri_kernel *kernel, int64_t r)
{
    const int64_t column = kernel->u.ce.targets[r] - kernel->u.ce.begin;
    const int is_here = kernel->u.ce.targets[r] >= 0 && column >= 0 && column < kernel->u.ce.n_cols;
    return is_here ? column : -1;
}

ONE_FUNCTION void ce_sums_of(const qdri_kernel *kernel, ce_function logit)
{
    const int64_t n = kernel->u.ce.n_cols;
    const ce_shape shape = ce_shape_of(kernel);
    const elem *logits = kernel->u.ce.logits;
    const real *maxima = kernel->u.ce.work;
    real *sums = kernel->u.ce.work2;
    for (int64_t r = 0; r < kernel->u.ce.n_rows; r++, logits += n) {
        const int64_t column = ce_column(kernel, r);
        const real most = maxima[r];
        real sum = 0;
        SIMD_SUM(sum)
        for (int64_t c = 0; c < n; c++) sum += real_exp(logit(shape, get(logits[c])) - most);
        sums[2 * r] = sum;
        sums[2 * r + 1] = column >= 0 ? logit(shape, get(logits[column])) - most : 0;
    }
}

static void ce_sums(const qdri_kernel *kernel)
{
    if (kernel->u.ce.cap > 0)
        ce_sums_of(kernel, ce_capped);
    else
        ce_sums_of(kernel, ce_plain);
}

static void ce_loss(const qdri_kernel *kernel)
{
    const real *maxima = kernel->u.ce.work;
    const real *sums = kernel->u.ce.work2;
    real *saved = kernel->u.ce.saved;
    double loss = 0;
    int64_t n_valid = 0;
    for (int64_t r = 0; r < kernel->u.ce.n_rows; r++) {
        const double log_sum = log((double)sums[2 * r]);
        saved[2 * r] = maxima[r];
        saved[2 * r + 1] = (real)log_sum;
        if (kernel->u.ce.targets[r] < 0) continue;
        const double whole = (double)maxima[r] + log_sum;
        loss += log_sum - (double)sums[2 * r + 1] + kernel->u.ce.z_loss * whole * whole;
        n_valid++;
    }
    kernel->u.ce.result[0] = loss;
    kernel->u.ce.result[1] = (double)n_valid;
}

ONE_FUNCTION void ce_backward_of(const qdri_kernel *kernel, ce_function logit, ce_function slope)
{
    const int64_t n = kernel->u.ce.n_cols;
    const ce_shape shape = ce_shape_of(kernel);
    const elem *logits = kernel->u.ce.logits;
    const real *saved = kernel->u.ce.saved;
    elem *dlogits = kernel->u.ce.dlogits;
    const real scale = (real)(kernel->u.ce.scale * qdri_factor_of(kernel)), z_loss = (real)kernel->u.ce.z_loss;
    if (n == 0) return;
    for (int64_t r = 0; r < kernel->u.ce.n_rows; r++, logits += n, dlogits += n, saved += 2) {
        if (kernel->u.ce.targets[r] < 0) {
            memset(dlogits, 0, (size_t)n * sizeof *dlogits);
            continue;
        }
        /* The target's element is computed first, because dlogits may be logits. */
        const int64_t column = ce_column(kernel, r);
        const real most = saved[0], log_sum = saved[1], target = column >= 0 ? get(logits[column]) : 0;
        const real times = 1 + 2 * z_loss * (most + log_sum), scale_of_exp = scale * times;
        SIMD for (int64_t c = 0; c < n; c++)
        {
            const real x = get(logits[c]);
            dlogits[c] = put(scale_of_exp * real_exp((logit(shape, x) - most) - log_sum) * slope(shape, x));
        }
        if (column >= 0)
            dlogits[column] = put(scale * (times * real_exp((logit(shape, target) - most) - log_sum) - 1) *
                                  slope(shape, target));
    }
}

static void ce_backward(const qdri_kernel *kernel)
{
    if (kernel->u.ce.cap > 0)
        ce_backward_of(kernel, ce_capped, ce_capped_slope);
    else
        ce_backward_of(kernel, ce_plain, ce_plain_slope);
}
