/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm over columns that may be split over ranks. x̂ = (x - mean)·rstd, dŷ = dy·gamma. */

static void norm_moments(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.norm.n_cols;
    const elem *x = kernel->u.norm.x;
    real *moments = kernel->u.norm.work;
    for (int64_t r = 0; r < kernel->u.norm.n_rows; r++, x += n, moments += 3) {
        real sum = 0, m2 = 0;
        SIMD_SUM(sum)
        for (int64_t c = 0; c < n; c++) sum += get(x[c]);
        const real mean = n > 0 ? sum / (real)n : 0;
        SIMD_SUM(m2)
        for (int64_t c = 0; c < n; c++) {
            const real d = get(x[c]) - mean;
            m2 += d * d;
        }
        moments[0] = (real)n;
        moments[1] = mean;
        moments[2] = m2;
    }
}

/* Merges the moments of each row, in the order of the parts. */
static void norm_merge(const qdri_kernel *kernel)
{
    const int64_t n_rows = kernel->u.norm.n_rows;
    real *stats = kernel->u.norm.stats;
    for (int64_t r = 0; r < n_rows; r++, stats += 2) {
        const real *part = (const real *)kernel->u.norm.work + 3 * r;
        qdri_moments all = {0, 0, 0};
        for (int i = 0; i < kernel->u.norm.n_parts; i++, part += 3 * n_rows)
            qdri_moments_add(&all, (qdri_moments){(double)part[0], (double)part[1], (double)part[2]});
        stats[0] = (real)all.mean;
        stats[1] = (real)(1 / sqrt((all.n > 0 ? all.m2 / all.n : 0) + kernel->u.norm.epsilon));
    }
}

static void norm_apply(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.norm.n_cols;
    const elem *x = kernel->u.norm.x;
    const elem *gamma = kernel->u.norm.gamma;
    const elem *beta = kernel->u.norm.beta;
    const real *stats = kernel->u.norm.stats;
    elem *y = kernel->u.norm.y;
    for (int64_t r = 0; r < kernel->u.norm.n_rows; r++, x += n, y += n, stats += 2) {
        const real mean = stats[0];
        const real rstd = stats[1];
        SIMD for (int64_t c = 0; c < n; c++) { y[c] = put((get(x[c]) - mean) * rstd * get(gamma[c]) + get(beta[c])); }
    }
}

static void norm_sums(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.norm.n_cols;
    const elem *x = kernel->u.norm.x;
    const elem *dy = kernel->u.norm.dy;
    const elem *gamma = kernel->u.norm.gamma;
    const real *stats = kernel->u.norm.stats;
    real *dgamma = kernel->u.norm.dgamma;
    real *dbeta = kernel->u.norm.dbeta;
    real *sums = kernel->u.norm.work;
    if (dgamma && !kernel->accumulate) memset(dgamma, 0, (size_t)n * sizeof(real));
    if (dbeta && !kernel->accumulate) memset(dbeta, 0, (size_t)n * sizeof(real));
    for (int64_t r = 0; r < kernel->u.norm.n_rows; r++, x += n, dy += n, stats += 2, sums += 2) {
        const real mean = stats[0];
        const real rstd = stats[1];
        real sum = 0, dot = 0;
        SIMD_SUM(sum, dot)
        for (int64_t c = 0; c < n; c++) {
            const real d = get(dy[c]) * get(gamma[c]);
            sum += d;
            dot += d * ((get(x[c]) - mean) * rstd);
        }
        sums[0] = sum;
        sums[1] = dot;
        if (dgamma) {
            SIMD for (int64_t c = 0; c < n; c++) dgamma[c] += get(dy[c]) * ((get(x[c]) - mean) * rstd);
        }
        if (dbeta) row_sum(n, dbeta, dy);
    }
}

/* dx = rstd·(dŷ - Σdŷ/N - x̂·Σ(dŷ·x̂)/N) */
static void norm_backward(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.norm.n_cols;
    const real n_features = (real)kernel->u.norm.n_features;
    const elem *x = kernel->u.norm.x, *dy = kernel->u.norm.dy, *gamma = kernel->u.norm.gamma;
    const real *stats = kernel->u.norm.stats, *sums = kernel->u.norm.work;
    elem *dx = kernel->u.norm.dx;
    for (int64_t r = 0; r < kernel->u.norm.n_rows; r++, x += n, dy += n, dx += n, stats += 2, sums += 2) {
        const real mean = stats[0], rstd = stats[1], offset = sums[0] / n_features, slope = sums[1] / n_features;
        if (kernel->accumulate) {
            SIMD for (int64_t c = 0; c < n; c++)
            {
                const real xhat = (get(x[c]) - mean) * rstd;
                dx[c] = put(get(dx[c]) + rstd * (get(dy[c]) * get(gamma[c]) - offset - xhat * slope));
            }
        } else {
            SIMD for (int64_t c = 0; c < n; c++)
            {
                const real xhat = (get(x[c]) - mean) * rstd;
                dx[c] = put(rstd * (get(dy[c]) * get(gamma[c]) - offset - xhat * slope));
            }
        }
    }
}
