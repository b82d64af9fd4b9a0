/* SPDX-License-Identifier: Apache-2.0 */
/* No guard, see kernels_types.h. Element by element, bias, GELU, sums of squares, AdamW. */

static void N(add_same)(int64_t n, const T *restrict a, const T *restrict b, T *restrict y)
{
    for (int64_t i = 0; i < n; i++) STORE(y, i, LOAD(a, i) + LOAD(b, i));
}

/* y is a: the usual case, apart so that the compiler may assume the rest does not overlap. */
static void N(add_to)(int64_t n, const T *restrict b, T *restrict y)
{
    for (int64_t i = 0; i < n; i++) STORE(y, i, LOAD(y, i) + LOAD(b, i));
}

static void N(add_f64)(int64_t n, const T *a, const double *b, T *y)
{
    for (int64_t i = 0; i < n; i++) STORE(y, i, (A)(LOAD(a, i) + (A)b[i]));
}

static void N(add_f32)(int64_t n, const T *a, const float *b, T *y)
{
    for (int64_t i = 0; i < n; i++) STORE(y, i, (A)(LOAD(a, i) + (A)b[i]));
}

static void N(add_bf16)(int64_t n, const T *a, const uint16_t *b, T *y)
{
    for (int64_t i = 0; i < n; i++) STORE(y, i, (A)(LOAD(a, i) + (A)f32_of_bf16(b[i])));
}

static void N(add)(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.binary.n;
    const T *a = kernel->u.binary.a;
    const void *b = kernel->u.binary.b;
    T *y = kernel->u.binary.y;
    if (kernel->u.binary.dtype2 == kernel->dtype && (const T *)y == a && b != a)
        N(add_to)(n, b, y);
    else if (kernel->u.binary.dtype2 == kernel->dtype && (const T *)y != a && (const void *)y != b)
        N(add_same)(n, a, b, y);
    else if (kernel->u.binary.dtype2 == QDR_F64)
        N(add_f64)(n, a, b, y);
    else if (kernel->u.binary.dtype2 == QDR_F32)
        N(add_f32)(n, a, b, y);
    else
        N(add_bf16)(n, a, b, y);
}

static void N(cast)(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.binary.n;
    const T *restrict a = kernel->u.binary.a;
    if (kernel->u.binary.dtype2 == QDR_F64) {
        double *restrict y = kernel->u.binary.y;
        for (int64_t i = 0; i < n; i++) y[i] = (double)LOAD(a, i);
    } else if (kernel->u.binary.dtype2 == QDR_F32) {
        float *restrict y = kernel->u.binary.y;
        for (int64_t i = 0; i < n; i++) y[i] = (float)LOAD(a, i);
    } else {
        uint16_t *restrict y = kernel->u.binary.y;
        for (int64_t i = 0; i < n; i++) y[i] = bf16_of_f32((float)LOAD(a, i));
    }
}

static void N(bias_add)(const qdri_kernel *kernel)
{
    const int64_t n_cols = kernel->u.rows.n_cols;
    const T *restrict p = kernel->u.rows.p;
    for (int64_t r = 0; r < kernel->u.rows.n_rows; r++) {
        T *restrict y = (T *)kernel->u.rows.y + r * n_cols;
        for (int64_t c = 0; c < n_cols; c++) STORE(y, c, LOAD(y, c) + LOAD(p, c));
    }
}

static void N(add_row)(int64_t n, const T *restrict x, A *restrict p)
{
    for (int64_t c = 0; c < n; c++) p[c] += LOAD(x, c);
}

static void N(column_sum)(const qdri_kernel *kernel)
{
    const int64_t n_cols = kernel->u.rows.n_cols;
    A *p = kernel->u.rows.p;
    if (!kernel->u.rows.accumulate) memset(p, 0, (size_t)n_cols * sizeof *p);
    for (int64_t r = 0; r < kernel->u.rows.n_rows; r++)
        N(add_row)(n_cols, (const T *)kernel->u.rows.x + r * n_cols, p);
}

static void N(gelu_forward)(const qdri_kernel *kernel)
{
    const T *restrict x = kernel->u.binary.a;
    T *restrict y = kernel->u.binary.y;
    const A a = (A)0.79788456080286535588, b = (A)0.044715;
    for (int64_t i = 0; i < kernel->u.binary.n; i++) {
        const A v = LOAD(x, i), low = v < -20 ? -20 : v; /* -Inf·0 would be NaN */
        STORE(y, i, (A)0.5 * low * (1 + TANH(a * (low + b * low * low * low))));
    }
}

/* gelu'(x); beyond 20 it is 0 or 1 in every type, and x² need not be formed. */
static inline A N(gelu_slope)(A x)
{
    const A a = (A)0.79788456080286535588, b = (A)0.044715;
    const A v = x < -20 ? -20 : x > 20 ? 20 : x;
    const A t = TANH(a * (v + b * v * v * v));
    return (A)0.5 * (1 + t) + (A)0.5 * v * (1 - t * t) * a * (1 + 3 * b * v * v);
}

static void N(gelu_backward)(const qdri_kernel *kernel)
{
    const T *restrict x = kernel->u.binary.a;
    const T *restrict dy = kernel->u.binary.b;
    T *restrict dx = kernel->u.binary.y;
    if (kernel->u.binary.accumulate)
        for (int64_t i = 0; i < kernel->u.binary.n; i++)
            STORE(dx, i, LOAD(dx, i) + LOAD(dy, i) * N(gelu_slope)(LOAD(x, i)));
    else
        for (int64_t i = 0; i < kernel->u.binary.n; i++)
            STORE(dx, i, LOAD(dy, i) * N(gelu_slope)(LOAD(x, i)));
}

static void N(sum_squares)(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.reduce.n;
    const T *restrict a = kernel->u.reduce.a;
    double lanes[N_LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + N_LANES <= n; i += N_LANES)
        for (int l = 0; l < N_LANES; l++)
            lanes[l] += (double)LOAD(a, i + l) * (double)LOAD(a, i + l);
    for (int l = 0; i < n; i++, l++) lanes[l] += (double)LOAD(a, i) * (double)LOAD(a, i);
    for (int l = 0; l < N_LANES; l++) sum += lanes[l];
    *kernel->u.reduce.result = (kernel->u.reduce.accumulate ? *kernel->u.reduce.result : 0) + sum;
}

/* What AdamW does to one element; m and v are changed. */
typedef struct N(adamw_factors) {
    A clip, beta1, beta2, lr, epsilon, decay, correction1, correction2;
} N(adamw_factors);

static inline A N(adamw_element)(const N(adamw_factors) * f, A p, A g, A *m, A *v)
{
    const A clipped = g * f->clip;
    *m = f->beta1 * *m + (1 - f->beta1) * clipped;
    *v = f->beta2 * *v + (1 - f->beta2) * clipped * clipped;
    return p -
           f->lr * (*m * f->correction1 / (SQRT(*v * f->correction2) + f->epsilon) + f->decay * p);
}

static void N(adamw)(const qdri_kernel *kernel)
{
    const double norm = kernel->u.adamw.norm_squared ? sqrt(*kernel->u.adamw.norm_squared) : 0;
    const double limit = kernel->u.adamw.clip_norm;
    const N(adamw_factors) f = {(A)(limit > 0 && norm > limit ? limit / norm : 1),
                                (A)kernel->u.adamw.beta1,
                                (A)kernel->u.adamw.beta2,
                                (A)kernel->u.adamw.lr,
                                (A)kernel->u.adamw.epsilon,
                                (A)kernel->u.adamw.weight_decay,
                                (A)kernel->u.adamw.correction1,
                                (A)kernel->u.adamw.correction2};
    T *restrict p = kernel->u.adamw.p;
    A *restrict master = kernel->u.adamw.master;
    const A *restrict g = kernel->u.adamw.g;
    A *restrict m = kernel->u.adamw.m;
    A *restrict v = kernel->u.adamw.v;
    if (master) {
        for (int64_t i = 0; i < kernel->u.adamw.n; i++) {
            master[i] = N(adamw_element)(&f, master[i], g[i], &m[i], &v[i]);
            STORE(p, i, master[i]);
        }
        return;
    }
    for (int64_t i = 0; i < kernel->u.adamw.n; i++)
        STORE(p, i, N(adamw_element)(&f, LOAD(p, i), g[i], &m[i], &v[i]));
}
