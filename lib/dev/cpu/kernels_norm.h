/* SPDX-License-Identifier: Apache-2.0 */
/* No guard, see kernels_types.h. Layer norm, one row after the other. */

static A N(row_sum)(const T *restrict x, int64_t n)
{
    A lanes[N_LANES] = {0};
    int64_t i = 0;
    for (; i + N_LANES <= n; i += N_LANES)
        for (int l = 0; l < N_LANES; l++) lanes[l] += LOAD(x, i + l);
    for (int l = 0; i < n; i++, l++) lanes[l] += LOAD(x, i);
    return N(add_lanes)(lanes);
}

static A N(row_squares)(const T *restrict x, int64_t n, A mean)
{
    A lanes[N_LANES] = {0};
    int64_t i = 0;
    for (; i + N_LANES <= n; i += N_LANES)
        for (int l = 0; l < N_LANES; l++)
            lanes[l] += (LOAD(x, i + l) - mean) * (LOAD(x, i + l) - mean);
    for (int l = 0; i < n; i++, l++) lanes[l] += (LOAD(x, i) - mean) * (LOAD(x, i) - mean);
    return N(add_lanes)(lanes);
}

static void N(norm_moments)(const qdri_kernel *kernel)
{
    const int64_t n_cols = kernel->u.norm.n_cols;
    A *work = kernel->u.norm.work;
    for (int64_t r = 0; r < kernel->u.norm.n_rows; r++) {
        const T *x = (const T *)kernel->u.norm.x + r * n_cols;
        const A mean = n_cols ? N(row_sum)(x, n_cols) / (A)n_cols : 0;
        work[3 * r] = (A)n_cols;
        work[3 * r + 1] = mean;
        work[3 * r + 2] = N(row_squares)(x, n_cols, mean);
    }
}

/* Chan, Golub, LeVeque: two groups' counts, means and sums of squared deviations become one
 * group's. */
static void N(norm_merge)(const qdri_kernel *kernel)
{
    const int64_t n_rows = kernel->u.norm.n_rows;
    const A *work = kernel->u.norm.work;
    A *stats = kernel->u.norm.stats;
    for (int64_t r = 0; r < n_rows; r++) {
        A n = 0, mean = 0, squares = 0;
        for (int part = 0; part < kernel->u.norm.n_parts; part++) {
            const A *other = work + 3 * (part * n_rows + r);
            if (other[0] <= 0) continue;
            const A delta = other[1] - mean, total = n + other[0];
            squares += other[2] + delta * delta * (n * (other[0] / total));
            mean += delta * (other[0] / total);
            n = total;
        }
        stats[2 * r] = mean;
        stats[2 * r + 1] = n > 0 ? 1 / SQRT(squares / n + (A)kernel->u.norm.epsilon) : 0;
    }
}

static void N(norm_apply)(const qdri_kernel *kernel)
{
    const int64_t n_cols = kernel->u.norm.n_cols;
    const A *stats = kernel->u.norm.stats;
    const T *restrict gamma = kernel->u.norm.gamma;
    const T *restrict beta = kernel->u.norm.beta;
    for (int64_t r = 0; r < kernel->u.norm.n_rows; r++) {
        const T *restrict x = (const T *)kernel->u.norm.x + r * n_cols;
        T *restrict y = (T *)kernel->u.norm.y + r * n_cols;
        const A mean = stats[2 * r], scale = stats[2 * r + 1];
        for (int64_t c = 0; c < n_cols; c++)
            STORE(y, c, (LOAD(x, c) - mean) * scale * LOAD(gamma, c) + LOAD(beta, c));
    }
}

static void N(norm_row_sums)(int64_t n, const T *restrict x, const T *restrict dy,
                             const T *restrict gamma, const A stats[2], A sums[2])
{
    A d_lanes[N_LANES] = {0}, dx_lanes[N_LANES] = {0};
    int64_t i = 0;
    for (; i + N_LANES <= n; i += N_LANES)
        for (int l = 0; l < N_LANES; l++) {
            const A d = LOAD(dy, i + l) * LOAD(gamma, i + l);
            d_lanes[l] += d;
            dx_lanes[l] += d * ((LOAD(x, i + l) - stats[0]) * stats[1]);
        }
    for (int l = 0; i < n; i++, l++) {
        const A d = LOAD(dy, i) * LOAD(gamma, i);
        d_lanes[l] += d;
        dx_lanes[l] += d * ((LOAD(x, i) - stats[0]) * stats[1]);
    }
    sums[0] = N(add_lanes)(d_lanes);
    sums[1] = N(add_lanes)(dx_lanes);
}

static void N(norm_row_parameters)(int64_t n, const T *restrict x, const T *restrict dy,
                                   const A stats[2], A *restrict dgamma, A *restrict dbeta)
{
    const A mean = stats[0], scale = stats[1];
    for (int64_t c = 0; c < n; c++) {
        dgamma[c] += LOAD(dy, c) * ((LOAD(x, c) - mean) * scale);
        dbeta[c] += LOAD(dy, c);
    }
}

static void N(norm_sums)(const qdri_kernel *kernel)
{
    const int64_t n_cols = kernel->u.norm.n_cols;
    const A *stats = kernel->u.norm.stats;
    A *work = kernel->u.norm.work, *dgamma = kernel->u.norm.dgamma, *dbeta = kernel->u.norm.dbeta;
    if (dgamma && !kernel->u.norm.accumulate_params) {
        memset(dgamma, 0, (size_t)n_cols * sizeof *dgamma);
        memset(dbeta, 0, (size_t)n_cols * sizeof *dbeta);
    }
    for (int64_t r = 0; r < kernel->u.norm.n_rows; r++) {
        const T *x = (const T *)kernel->u.norm.x + r * n_cols,
                *dy = (const T *)kernel->u.norm.dy + r * n_cols;
        N(norm_row_sums)(n_cols, x, dy, kernel->u.norm.gamma, stats + 2 * r, work + 2 * r);
        if (dgamma) N(norm_row_parameters)(n_cols, x, dy, stats + 2 * r, dgamma, dbeta);
    }
}

static void N(norm_backward)(const qdri_kernel *kernel)
{
    const int64_t n_cols = kernel->u.norm.n_cols;
    const A *stats = kernel->u.norm.stats, *work = kernel->u.norm.work;
    const T *restrict gamma = kernel->u.norm.gamma;
    const A share = 1 / (A)kernel->u.norm.n_features;
    for (int64_t r = 0; r < kernel->u.norm.n_rows; r++) {
        const T *restrict x = (const T *)kernel->u.norm.x + r * n_cols;
        const T *restrict dy = (const T *)kernel->u.norm.dy + r * n_cols;
        T *restrict dx = (T *)kernel->u.norm.dx + r * n_cols;
        const A mean = stats[2 * r], scale = stats[2 * r + 1], d = work[2 * r] * share,
                d_x = work[2 * r + 1] * share;
        if (kernel->u.norm.accumulate_dx)
            for (int64_t c = 0; c < n_cols; c++)
                STORE(dx, c,
                      LOAD(dx, c) + scale * (LOAD(dy, c) * LOAD(gamma, c) - d -
                                             (LOAD(x, c) - mean) * scale * d_x));
        else
            for (int64_t c = 0; c < n_cols; c++)
                STORE(dx, c,
                      scale *
                          (LOAD(dy, c) * LOAD(gamma, c) - d - (LOAD(x, c) - mean) * scale * d_x));
    }
}
