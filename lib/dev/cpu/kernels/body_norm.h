/* SPDX-License-Identifier: Apache-2.0 */
/* Norms over columns that may be split over ranks. x̂ = (x - mean)·rstd, dŷ = dy·gamma; of an RMS norm the mean is 0. */

/* A row's mean and 1/sigma. */
typedef struct norm_row {
    real mean, rstd;
} norm_row;

static inline norm_row norm_row_of(const qdri_kernel *kernel, int64_t r)
{
    const real *stats = kernel->u.norm.stats;
    if (kernel->u.norm.is_rms) return (norm_row){0, stats[r]};
    return (norm_row){stats[2 * r], stats[2 * r + 1]};
}

/* What is added to a stored gamma: -0 changes no number. */
static inline real norm_shift(const qdri_kernel *kernel) { return kernel->u.norm.one_plus ? (real)1 : -(real)0; }

/* Σ x². In several sums at once: each alone would wait for its last addition. */
static real row_squares(int64_t n, const elem *x)
{
    enum { N_SUMS = 64 };
    real sums[N_SUMS] = {0}, sum = 0;
    const int64_t whole = n / N_SUMS * N_SUMS;
    for (int64_t c = 0; c < whole; c += N_SUMS) {
        SIMD for (int64_t k = 0; k < N_SUMS; k++) sums[k] += get(x[c + k]) * get(x[c + k]);
    }
    SIMD_SUM(sum)
    for (int64_t c = whole; c < n; c++) sum += get(x[c]) * get(x[c]);
    SIMD_SUM(sum)
    for (int64_t k = 0; k < N_SUMS; k++) sum += sums[k];
    return sum;
}

static void norm_moments(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.norm.n_cols;
    const elem *x = kernel->u.norm.x;
    real *moments = kernel->u.norm.work;
    for (int64_t r = 0; r < kernel->u.norm.n_rows; r++, x += kernel->u.norm.stride) {
        real sum = 0, m2 = 0;
        if (kernel->u.norm.is_rms) {
            *moments++ = row_squares(n, x) / (real)kernel->u.norm.n_features;
            continue;
        }
        SIMD_SUM(sum)
        for (int64_t c = 0; c < n; c++) sum += get(x[c]);
        const real mean = n > 0 ? sum / (real)n : 0;
        SIMD_SUM(m2)
        for (int64_t c = 0; c < n; c++) {
            const real d = get(x[c]) - mean;
            m2 += d * d;
        }
        *moments++ = (real)n;
        *moments++ = mean;
        *moments++ = m2;
    }
}

static inline real norm_inverse(double variance, double epsilon) { return (real)(1 / sqrt(variance + epsilon)); }

/* Merges the moments of each row, in the order of the parts. */
static void norm_merge(const qdri_kernel *kernel)
{
    const int64_t n_rows = kernel->u.norm.n_rows;
    const double epsilon = kernel->u.norm.epsilon;
    const real *work = kernel->u.norm.work;
    real *stats = kernel->u.norm.stats;
    if (kernel->u.norm.is_rms) {
        for (int64_t r = 0; r < n_rows; r++) stats[r] = norm_inverse((double)work[r], epsilon);
        return;
    }
    for (int64_t r = 0; r < n_rows; r++, stats += 2) {
        const real *part = work + 3 * r;
        qdri_moments all = {0, 0, 0};
        for (int i = 0; i < kernel->u.norm.n_parts; i++, part += 3 * n_rows)
            qdri_moments_add(&all, (qdri_moments){(double)part[0], (double)part[1], (double)part[2]});
        stats[0] = (real)all.mean;
        stats[1] = norm_inverse(all.n > 0 ? all.m2 / all.n : 0, epsilon);
    }
}

static void norm_apply(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.norm.n_cols, stride = kernel->u.norm.stride;
    const real shift = norm_shift(kernel);
    const elem *x = kernel->u.norm.x;
    const elem *gamma = kernel->u.norm.gamma;
    const elem *beta = kernel->u.norm.beta;
    elem *y = kernel->u.norm.y;
    for (int64_t r = 0; r < kernel->u.norm.n_rows; r++, x += stride, y += stride) {
        const norm_row row = norm_row_of(kernel, r);
        if (beta) {
            SIMD for (int64_t c = 0; c < n; c++)
            {
                y[c] = put((get(x[c]) - row.mean) * row.rstd * (get(gamma[c]) + shift) + get(beta[c]));
            }
        } else {
            SIMD for (int64_t c = 0; c < n; c++)
            {
                y[c] = put((get(x[c]) - row.mean) * row.rstd * (get(gamma[c]) + shift));
            }
        }
    }
}

typedef struct norm_row_sums {
    real sum, dot;
} norm_row_sums;

/* A row's Σ dŷ and Σ dŷ·x̂; its gradients of gamma and beta, where they are wanted, in the same pass. */
ONE_FUNCTION norm_row_sums sum_norm_row(int64_t n, const elem *x, const elem *dy, const elem *gamma, real shift,
                                        norm_row row, real *dgamma, real *dbeta)
{
    real sum = 0, dot = 0;
    SIMD_SUM(sum, dot)
    for (int64_t c = 0; c < n; c++) {
        const real slope = get(dy[c]), d = slope * (get(gamma[c]) + shift), xhat = (get(x[c]) - row.mean) * row.rstd;
        sum += d;
        dot += d * xhat;
        if (dgamma) dgamma[c] += slope * xhat;
        if (dbeta) dbeta[c] += slope;
    }
    return (norm_row_sums){sum, dot};
}

static void norm_sums(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.norm.n_cols, stride = kernel->u.norm.stride;
    const real shift = norm_shift(kernel);
    const elem *x = kernel->u.norm.x, *dy = kernel->u.norm.dy, *gamma = kernel->u.norm.gamma;
    real *dgamma = kernel->u.norm.dgamma, *dbeta = kernel->u.norm.dbeta, *sums = kernel->u.norm.work;
    if (dgamma && !kernel->accumulate) memset(dgamma, 0, (size_t)n * sizeof(real));
    if (dbeta && !kernel->accumulate) memset(dbeta, 0, (size_t)n * sizeof(real));
    for (int64_t r = 0; r < kernel->u.norm.n_rows; r++, x += stride, dy += stride) {
        const norm_row row = norm_row_of(kernel, r);
        const norm_row_sums both = dgamma && dbeta ? sum_norm_row(n, x, dy, gamma, shift, row, dgamma, dbeta)
                                   : dgamma        ? sum_norm_row(n, x, dy, gamma, shift, row, dgamma, NULL)
                                                   : sum_norm_row(n, x, dy, gamma, shift, row, NULL, dbeta);
        if (!kernel->u.norm.is_rms) *sums++ = both.sum;
        *sums++ = both.dot;
    }
}

/* dx = rstd·(dŷ - Σdŷ/N - x̂·Σ(dŷ·x̂)/N), of an RMS norm without Σdŷ */
static void norm_backward(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.norm.n_cols, stride = kernel->u.norm.stride;
    const int is_rms = kernel->u.norm.is_rms;
    const real n_features = (real)kernel->u.norm.n_features, shift = norm_shift(kernel);
    const elem *x = kernel->u.norm.x, *dy = kernel->u.norm.dy, *gamma = kernel->u.norm.gamma;
    const real *sums = kernel->u.norm.work;
    elem *dx = kernel->u.norm.dx;
    for (int64_t r = 0; r < kernel->u.norm.n_rows; r++, x += stride, dy += stride, dx += stride) {
        const norm_row row = norm_row_of(kernel, r);
        const real offset = is_rms ? 0 : *sums++ / n_features, slope = *sums++ / n_features;
        if (kernel->accumulate) {
            SIMD for (int64_t c = 0; c < n; c++)
            {
                const real xhat = (get(x[c]) - row.mean) * row.rstd, d = get(dy[c]) * (get(gamma[c]) + shift);
                dx[c] = put(get(dx[c]) + row.rstd * (d - offset - xhat * slope));
            }
        } else {
            SIMD for (int64_t c = 0; c < n; c++)
            {
                const real xhat = (get(x[c]) - row.mean) * row.rstd, d = get(dy[c]) * (get(gamma[c]) + shift);
                dx[c] = put(row.rstd * (d - offset - xhat * slope));
            }
        }
    }
}
