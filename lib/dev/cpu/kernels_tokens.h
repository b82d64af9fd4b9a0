/* SPDX-License-Identifier: Apache-2.0 */
/* No guard, see kernels_types.h. Embedding, positions, cross-entropy. */

static void N(embed_forward)(const qdri_kernel *kernel)
{
    const int64_t n_cols = kernel->u.embed.n_cols, begin = kernel->u.embed.begin,
                  end = kernel->u.embed.end;
    for (int64_t r = 0; r < kernel->u.embed.n_rows; r++) {
        const int64_t token = kernel->u.embed.tokens[r];
        T *y = (T *)kernel->u.embed.y + r * n_cols;
        if (token >= begin && token < end)
            memcpy(y, (const T *)kernel->u.embed.e + (token - begin) * n_cols,
                   (size_t)n_cols * sizeof *y);
        else
            memset(y, 0, (size_t)n_cols * sizeof *y);
    }
}

static void N(embed_backward)(const qdri_kernel *kernel)
{
    const int64_t n_cols = kernel->u.embed.n_cols, begin = kernel->u.embed.begin,
                  end = kernel->u.embed.end;
    A *de = kernel->u.embed.de;
    if (!kernel->u.embed.accumulate) memset(de, 0, (size_t)((end - begin) * n_cols) * sizeof *de);
    for (int64_t r = 0; r < kernel->u.embed.n_rows; r++) {
        const int64_t token = kernel->u.embed.tokens[r];
        if (token >= begin && token < end)
            N(add_row)
            (n_cols, (const T *)kernel->u.embed.dy + r * n_cols, de + (token - begin) * n_cols);
    }
}

static void N(position_add)(const qdri_kernel *kernel)
{
    const int64_t n_cols = kernel->u.rows.n_cols;
    for (int64_t r = 0; r < kernel->u.rows.n_rows; r++) {
        const int64_t position = (r + kernel->u.rows.row0) % kernel->u.rows.context;
        N(add_to)
        (n_cols, (const T *)kernel->u.rows.p + position * n_cols,
         (T *)kernel->u.rows.y + r * n_cols);
    }
}

static void N(position_sum)(const qdri_kernel *kernel)
{
    const int64_t n_cols = kernel->u.rows.n_cols, context = kernel->u.rows.context;
    A *p = kernel->u.rows.p;
    if (!kernel->u.rows.accumulate) memset(p, 0, (size_t)(context * n_cols) * sizeof *p);
    for (int64_t r = 0; r < kernel->u.rows.n_rows; r++) {
        const int64_t position = (r + kernel->u.rows.row0) % context;
        N(add_row)(n_cols, (const T *)kernel->u.rows.x + r * n_cols, p + position * n_cols);
    }
}

/* The larger; a NaN wins. */
static inline A N(larger)(A a, A b) { return a > b || a != a ? a : b; }

static void N(ce_max)(const qdri_kernel *kernel)
{
    const int64_t n_cols = kernel->u.ce.n_cols;
    A *work = kernel->u.ce.work;
    for (int64_t r = 0; r < kernel->u.ce.n_rows; r++) {
        const T *logits = (const T *)kernel->u.ce.logits + r * n_cols;
        A lanes[N_LANES];
        for (int l = 0; l < N_LANES; l++) lanes[l] = (A)-INFINITY;
        int64_t i = 0;
        for (; i + N_LANES <= n_cols; i += N_LANES)
            for (int l = 0; l < N_LANES; l++) lanes[l] = N(larger)(LOAD(logits, i + l), lanes[l]);
        for (int l = 0; i < n_cols; i++, l++) lanes[l] = N(larger)(LOAD(logits, i), lanes[l]);
        for (int l = 1; l < N_LANES; l++) lanes[0] = N(larger)(lanes[l], lanes[0]);
        work[r] = lanes[0];
    }
}

static A N(row_exp_sum)(const T *restrict x, int64_t n, A max)
{
    A lanes[N_LANES] = {0}, e[N_LANES];
    int64_t i = 0;
    for (; i + N_LANES <= n; i += N_LANES) {
        for (int l = 0; l < N_LANES; l++) e[l] = EXP(LOAD(x, i + l) - max);
        for (int l = 0; l < N_LANES; l++) lanes[l] += e[l];
    }
    for (int l = 0; i < n; i++, l++) lanes[l] += EXP(LOAD(x, i) - max);
    return N(add_lanes)(lanes);
}

static void N(ce_sums)(const qdri_kernel *kernel)
{
    const int64_t n_cols = kernel->u.ce.n_cols, begin = kernel->u.ce.begin;
    const A *work = kernel->u.ce.work;
    A *work2 = kernel->u.ce.work2;
    for (int64_t r = 0; r < kernel->u.ce.n_rows; r++) {
        const T *logits = (const T *)kernel->u.ce.logits + r * n_cols;
        const int64_t target = (int64_t)kernel->u.ce.targets[r] - begin;
        work2[2 * r] = N(row_exp_sum)(logits, n_cols, work[r]);
        work2[2 * r + 1] = target >= 0 && target < n_cols && kernel->u.ce.targets[r] >= 0
                               ? LOAD(logits, target) - work[r]
                               : 0;
    }
}

static void N(ce_loss)(const qdri_kernel *kernel)
{
    const A *work = kernel->u.ce.work, *work2 = kernel->u.ce.work2;
    A *saved = kernel->u.ce.saved;
    double loss = 0, n_valid = 0;
    for (int64_t r = 0; r < kernel->u.ce.n_rows; r++) {
        saved[2 * r] = work[r];
        saved[2 * r + 1] = LOG(work2[2 * r]);
        if (kernel->u.ce.targets[r] < 0) continue;
        loss += (double)saved[2 * r + 1] - (double)work2[2 * r + 1];
        n_valid += 1;
    }
    kernel->u.ce.result[0] = loss;
    kernel->u.ce.result[1] = n_valid;
}

static void N(ce_backward)(const qdri_kernel *kernel)
{
    const int64_t n_cols = kernel->u.ce.n_cols, begin = kernel->u.ce.begin;
    const A *saved = kernel->u.ce.saved;
    for (int64_t r = 0; r < kernel->u.ce.n_rows; r++) {
        const T *logits = (const T *)kernel->u.ce.logits + r * n_cols;
        T *d = (T *)kernel->u.ce.dlogits + r * n_cols;
        const int valid = kernel->u.ce.targets[r] >= 0;
        const int64_t target = (int64_t)kernel->u.ce.targets[r] - begin;
        const A scale = (A)kernel->u.ce.scale, shift = saved[2 * r] + saved[2 * r + 1];
        if (!valid) {
            memset(d, 0, (size_t)n_cols * sizeof *d);
            continue;
        }
        /* The target's logit is read before dlogits may overwrite it. */
        const int here = target >= 0 && target < n_cols;
        const A at_target = here ? scale * (EXP(LOAD(logits, target) - shift) - 1) : 0;
        for (int64_t c = 0; c < n_cols; c++) STORE(d, c, scale * EXP(LOAD(logits, c) - shift));
        if (here) STORE(d, target, at_target);
    }
}
