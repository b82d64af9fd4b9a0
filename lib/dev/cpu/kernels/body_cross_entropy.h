/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-entropy of logits whose columns may be split over ranks. */

static void ce_max(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.ce.n_cols;
    const elem *logits = kernel->u.ce.logits;
    real *maxima = kernel->u.ce.work;
    for (int64_t r = 0; r < kernel->u.ce.n_rows; r++, logits += n) {
        real most = -(real)INFINITY;
        SIMD_MAX(most)
        for (int64_t c = 0; c < n; c++) most = get(logits[c]) > most ? get(logits[c]) : most;
        maxima[r] = most;
    }
}

/* The target's local column, or -1 if it is on another rank or there is none. */
static inline int64_t ce_column(const qdri_kernel *kernel, int64_t r)
{
    const int64_t column = kernel->u.ce.targets[r] - kernel->u.ce.begin;
    const int is_here = kernel->u.ce.targets[r] >= 0 && column >= 0 && column < kernel->u.ce.n_cols;
    return is_here ? column : -1;
}

static void ce_sums(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.ce.n_cols;
    const elem *logits = kernel->u.ce.logits;
    const real *maxima = kernel->u.ce.work;
    real *sums = kernel->u.ce.work2;
    for (int64_t r = 0; r < kernel->u.ce.n_rows; r++, logits += n) {
        const int64_t column = ce_column(kernel, r);
        const real most = maxima[r];
        real sum = 0;
        SIMD_SUM(sum)
        for (int64_t c = 0; c < n; c++) sum += real_exp(get(logits[c]) - most);
        sums[2 * r] = sum;
        sums[2 * r + 1] = column >= 0 ? get(logits[column]) - most : 0;
    }
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
        loss += log_sum - (double)sums[2 * r + 1];
        n_valid++;
    }
    kernel->u.ce.result[0] = loss;
    kernel->u.ce.result[1] = (double)n_valid;
}

static void ce_backward(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.ce.n_cols;
    const elem *logits = kernel->u.ce.logits;
    const real *saved = kernel->u.ce.saved;
    elem *dlogits = kernel->u.ce.dlogits;
    const real scale = (real)kernel->u.ce.scale;
    if (n == 0) return;
    for (int64_t r = 0; r < kernel->u.ce.n_rows; r++, logits += n, dlogits += n, saved += 2) {
        if (kernel->u.ce.targets[r] < 0) {
            memset(dlogits, 0, (size_t)n * sizeof *dlogits);
            continue;
        }
        /* The target's element is computed first, because dlogits may be logits. */
        const int64_t column = ce_column(kernel, r);
        const real most = saved[0], log_sum = saved[1], target = column >= 0 ? get(logits[column]) : 0;
        SIMD for (int64_t c = 0; c < n; c++) { dlogits[c] = put(scale * real_exp((get(logits[c]) - most) - log_sum)); }
        if (column >= 0) dlogits[column] = put(scale * (real_exp((target - most) - log_sum) - 1));
    }
}
