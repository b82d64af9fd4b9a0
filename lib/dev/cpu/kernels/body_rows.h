/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that add a vector to rows, or rows to a vector: bias, positions, embedding. */

static inline void row_add(int64_t n, elem *y, const elem *p)
{
    SIMD for (int64_t c = 0; c < n; c++) y[c] = put(get(y[c]) + get(p[c]));
}

/* Rows of n of `width` columns. */
static void clear(real *p, int64_t n_rows, int64_t n, int64_t width)
{
    for (int64_t r = 0; n > 0 && r < n_rows; r++) memset(p + r * width, 0, (size_t)n * sizeof *p);
}

static void bias_add(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.rows.n_cols;
    elem *y = kernel->u.rows.y;
    for (int64_t r = 0; r < kernel->u.rows.n_rows; r++) row_add(n, y + r * n, kernel->u.rows.p);
}

/* Four rows at a time: less traffic on p, and smaller partial sums. */
static void column_sum(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.rows.n_cols;
    const int64_t n_rows = kernel->u.rows.n_rows;
    const span cols = span_of(kernel, n);
    const elem *x = (const elem *)kernel->u.rows.x + cols.first;
    real *p = (real *)kernel->u.rows.p + cols.first;
    int64_t r = 0;
    if (!kernel->accumulate) clear(p, 1, cols.n, n);
    for (; r + 4 <= n_rows; r += 4, x += 4 * n) {
        SIMD for (int64_t c = 0; c < cols.n; c++)
        {
            p[c] += (get(x[c]) + get(x[n + c])) + (get(x[2 * n + c]) + get(x[3 * n + c]));
        }
    }
    for (; r < n_rows; r++, x += n) row_sum(cols.n, p, x);
}

static void position_add(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.rows.n_cols;
    const elem *p = kernel->u.rows.p;
    elem *y = kernel->u.rows.y;
    for (int64_t r = 0; r < kernel->u.rows.n_rows; r++)
        row_add(n, y + r * n, p + (r + kernel->u.rows.row0) % kernel->u.rows.context * n);
}

static void position_sum(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.rows.n_cols;
    const span cols = span_of(kernel, n);
    const elem *x = (const elem *)kernel->u.rows.x + cols.first;
    real *p = (real *)kernel->u.rows.p + cols.first;
    if (!kernel->accumulate) clear(p, kernel->u.rows.context, cols.n, n);
    for (int64_t r = 0; r < kernel->u.rows.n_rows; r++)
        row_sum(cols.n, p + (r + kernel->u.rows.row0) % kernel->u.rows.context * n, x + r * n);
}

static void embed_forward(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.embed.n_cols;
    const real factor = (real)qdri_factor_of(kernel);
    const elem *e = kernel->u.embed.e;
    elem *y = kernel->u.embed.y;
    if (n == 0) return;
    for (int64_t r = 0; r < kernel->u.embed.n_rows; r++) {
        const int64_t token = kernel->u.embed.tokens[r];
        if (token >= 0 && token >= kernel->u.embed.begin && token < kernel->u.embed.end)
            row_scale(n, y + r * n, e + (token - kernel->u.embed.begin) * n, factor);
        else
            memset(y + r * n, 0, (size_t)n * sizeof *y);
    }
}

static void embed_backward(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.embed.n_cols;
    const real factor = (real)qdri_factor_of(kernel);
    const span cols = span_of(kernel, n);
    const elem *dy = (const elem *)kernel->u.embed.dy + cols.first;
    real *de = (real *)kernel->u.embed.de + cols.first;
    if (!kernel->accumulate) clear(de, kernel->u.embed.end - kernel->u.embed.begin, cols.n, n);
    for (int64_t r = 0; r < kernel->u.embed.n_rows; r++) {
        const int64_t token = kernel->u.embed.tokens[r];
        if (token < 0 || token < kernel->u.embed.begin || token >= kernel->u.embed.end) continue;
        real *sum = de + (token - kernel->u.embed.begin) * n;
        SIMD for (int64_t c = 0; c < cols.n; c++) sum[c] += factor * get(dy[r * n + c]);
    }
}
