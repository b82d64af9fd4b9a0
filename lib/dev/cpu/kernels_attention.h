/* SPDX-License-Identifier: Apache-2.0 */
/* No guard, see kernels_types.h. Causal attention: blocks of rows against the keys up to their end.
 */

/* A head's matrix [context, head_size]: in place where stored and computed types are one, else a
 * converted copy. */
typedef struct N(panel) {
    A *data;
    int64_t stride;
} N(panel);

static UNUSED void N(load_panel)(const T *x, int64_t stride, int64_t rows, int64_t cols, A *to)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) to[r * cols + c] = LOAD(x, r * stride + c);
}

static UNUSED void N(store_panel)(const A *from, int64_t rows, int64_t cols, T *y, int64_t stride)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) STORE(y, r * stride + c, from[r * cols + c]);
}

/* The matrix at x, readable as A; scratch holds the copy where one is needed. */
static N(panel) N(panel_of)(const T *x, int64_t stride, int64_t rows, int64_t cols, A *scratch)
{
#ifdef CONVERTS
    N(load_panel)(x, stride, rows, cols, scratch);
    return (N(panel)){scratch, cols};
#else
    (void)rows;
    (void)cols;
    (void)scratch;
    return (N(panel)){(A *)(uintptr_t)x, stride};
#endif
}

/* Where to compute the matrix at y; close_panel() brings it there. */
static N(panel) N(open_panel)(T *y, int64_t stride, int64_t cols, A *scratch)
{
#ifdef CONVERTS
    (void)y;
    (void)stride;
    return (N(panel)){scratch, cols};
#else
    (void)cols;
    (void)scratch;
    return (N(panel)){y, stride};
#endif
}

static void N(close_panel)(N(panel) panel, T *y, int64_t stride, int64_t rows, int64_t cols)
{
#ifdef CONVERTS
    N(store_panel)(panel.data, rows, cols, y, stride);
#else
    (void)panel;
    (void)y;
    (void)stride;
    (void)rows;
    (void)cols;
#endif
}

/* C[m,n] = alpha·op(A)·op(B) + beta·C */
static void N(multiply)(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, A alpha,
                        const A *a, int64_t lda, const A *b, int64_t ldb, A beta, A *c, int64_t ldc)
{
    GEMM(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans, trans_b ? CblasTrans : CblasNoTrans,
         (int)m, (int)n, (int)k, alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
}

/* Turns a row of scores into probabilities; returns log Σexp. */
static A N(softmax_row)(A *restrict s, int64_t n)
{
    A max = (A)-INFINITY, sum = 0, lanes[N_LANES] = {0};
    for (int64_t i = 0; i < n; i++) max = N(larger)(s[i], max);
    for (int64_t i = 0; i < n; i++) s[i] = EXP(s[i] - max);
    int64_t i = 0;
    for (; i + N_LANES <= n; i += N_LANES)
        for (int l = 0; l < N_LANES; l++) lanes[l] += s[i + l];
    for (int l = 0; i < n; i++, l++) lanes[l] += s[i];
    sum = N(add_lanes)(lanes);
    const A share = 1 / sum;
    for (int64_t j = 0; j < n; j++) s[j] *= share;
    return max + LOG(sum);
}

/* One head of one sequence. */
typedef struct N(head) {
    int64_t context, size;
    A scale;
    N(panel) q, k, v;
} N(head);

/* Scores of rows [begin, end) against keys [0, end), into s. */
static void N(scores)(const N(head) * h, int64_t begin, int64_t end, A *s)
{
    N(multiply)
    (0, 1, end - begin, end, h->size, h->scale, h->q.data + begin * h->q.stride, h->q.stride,
     h->k.data, h->k.stride, 0, s, end);
}

static void N(head_forward)(const N(head) * h, N(panel) y, A *log_sums, A *s)
{
    for (int64_t begin = 0; begin < h->context; begin += QDRI_ATTENTION_ROWS) {
        const int64_t end = begin + least(h->context - begin, QDRI_ATTENTION_ROWS);
        N(scores)(h, begin, end, s);
        for (int64_t r = begin; r < end; r++) {
            A *row = s + (r - begin) * end;
            log_sums[r] = N(softmax_row)(row, r + 1);
            memset(row + r + 1, 0, (size_t)(end - r - 1) * sizeof *row);
        }
        N(multiply)
        (0, 0, end - begin, h->size, end, 1, s, end, h->v.data, h->v.stride, 0,
         y.data + begin * y.stride, y.stride);
    }
}

static void N(attention_forward)(const qdri_kernel *kernel)
{
    const int64_t context = kernel->u.attention.context, size = kernel->u.attention.head_size;
    const int64_t n_heads = kernel->u.attention.n_heads, n_kv = kernel->u.attention.n_kv_heads;
    const int64_t n_rows = kernel->u.attention.n_rows, stride = (n_heads + 2 * n_kv) * size,
                  panel = context * size;
    A *s = kernel->u.attention.work, *panels = s + 2 * QDRI_ATTENTION_ROWS * context;
    for (int64_t at = 0; at < n_rows; at += context)
        for (int64_t i = 0; i < n_heads; i++) {
            const T *qkv = (const T *)kernel->u.attention.qkv + at * stride,
                    *keys = qkv + (n_heads + i / (n_heads / n_kv)) * size;
            T *out = (T *)kernel->u.attention.out + at * n_heads * size + i * size;
            const N(head)
                h = {context,
                     size,
                     1 / SQRT((A)size),
                     N(panel_of)(qkv + i * size, stride, context, size, panels),
                     N(panel_of)(keys, stride, context, size, panels + panel),
                     N(panel_of)(keys + n_kv * size, stride, context, size, panels + 2 * panel)};
            const N(panel) y = N(open_panel)(out, n_heads * size, size, panels + 3 * panel);
            N(head_forward)(&h, y, (A *)kernel->u.attention.saved + i * n_rows + at, s);
            N(close_panel)(y, out, n_heads * size, context, size);
        }
}

/* P from the saved sums, in place of the scores; zero behind the diagonal. */
static void N(probabilities)(A *s, int64_t begin, int64_t end, const A *log_sums)
{
    for (int64_t r = begin; r < end; r++) {
        A *restrict row = s + (r - begin) * end;
        const A shift = log_sums[r];
        for (int64_t c = 0; c <= r; c++) row[c] = EXP(row[c] - shift);
        memset(row + r + 1, 0, (size_t)(end - r - 1) * sizeof *row);
    }
}

/* dS = P ∘ (dP - Σ dO∘O), in place of dP. */
static void N(score_gradients)(const A *p, A *dp, int64_t begin, int64_t end, N(panel) y,
                               N(panel) dy, int64_t size)
{
    for (int64_t r = begin; r < end; r++) {
        const A *restrict probability = p + (r - begin) * end;
        A *restrict d = dp + (r - begin) * end, dot = 0;
        for (int64_t c = 0; c < size; c++)
            dot += y.data[r * y.stride + c] * dy.data[r * dy.stride + c];
        for (int64_t c = 0; c < end; c++) d[c] = probability[c] * (d[c] - dot);
    }
}

static void N(head_backward)(const N(head) * h, N(panel) y, N(panel) dy, const A *log_sums,
                             N(panel) dq, N(panel) dk, N(panel) dv, A *s)
{
    A *dp = s + QDRI_ATTENTION_ROWS * h->context;
    for (int64_t begin = 0; begin < h->context; begin += QDRI_ATTENTION_ROWS) {
        const int64_t end = begin + least(h->context - begin, QDRI_ATTENTION_ROWS),
                      rows = end - begin;
        const A *dy_rows = dy.data + begin * dy.stride, *q_rows = h->q.data + begin * h->q.stride;
        N(scores)(h, begin, end, s);
        N(probabilities)(s, begin, end, log_sums);
        N(multiply)(1, 0, end, h->size, rows, 1, s, end, dy_rows, dy.stride, 1, dv.data, dv.stride);
        N(multiply)
        (0, 1, rows, end, h->size, 1, dy_rows, dy.stride, h->v.data, h->v.stride, 0, dp, end);
        N(score_gradients)(s, dp, begin, end, y, dy, h->size);
        N(multiply)
        (0, 0, rows, h->size, end, h->scale, dp, end, h->k.data, h->k.stride, 0,
         dq.data + begin * dq.stride, dq.stride);
        N(multiply)
        (1, 0, end, h->size, rows, h->scale, dp, end, q_rows, h->q.stride, 1, dk.data, dk.stride);
    }
}

static void N(clear_panel)(N(panel) panel, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        memset(panel.data + r * panel.stride, 0, (size_t)cols * sizeof *panel.data);
}

/* All query heads of one key head of one sequence: the gradients of its keys and values are their
 * sum. */
static void N(group_backward)(const qdri_kernel *kernel, int64_t at, int64_t kv, A *s, A *panels)
{
    const int64_t context = kernel->u.attention.context, size = kernel->u.attention.head_size,
                  n_rows = kernel->u.attention.n_rows;
    const int64_t n_heads = kernel->u.attention.n_heads, n_kv = kernel->u.attention.n_kv_heads,
                  group = n_heads / n_kv;
    const int64_t stride = (n_heads + 2 * n_kv) * size, y_stride = n_heads * size,
                  panel = context * size;
    const T *qkv = (const T *)kernel->u.attention.qkv + at * stride,
            *keys = qkv + (n_heads + kv) * size;
    T *dqkv = (T *)kernel->u.attention.out + at * stride, *dkeys = dqkv + (n_heads + kv) * size,
      *dvalues = dkeys + n_kv * size;
    N(head) h = {.context = context, .size = size, .scale = 1 / SQRT((A)size)};
    h.k = N(panel_of)(keys, stride, context, size, panels);
    h.v = N(panel_of)(keys + n_kv * size, stride, context, size, panels + panel);
    const N(panel) dk = N(open_panel)(dkeys, stride, size, panels + 2 * panel);
    const N(panel) dv = N(open_panel)(dvalues, stride, size, panels + 3 * panel);
    N(clear_panel)(dk, context, size);
    N(clear_panel)(dv, context, size);
    for (int64_t i = kv * group; i < (kv + 1) * group; i++) {
        const T *y = (const T *)kernel->u.attention.y + at * y_stride + i * size;
        const T *dy = (const T *)kernel->u.attention.dy + at * y_stride + i * size;
        h.q = N(panel_of)(qkv + i * size, stride, context, size, panels + 4 * panel);
        const N(panel) dq = N(open_panel)(dqkv + i * size, stride, size, panels + 5 * panel);
        N(head_backward)
        (&h, N(panel_of)(y, y_stride, context, size, panels + 6 * panel),
         N(panel_of)(dy, y_stride, context, size, panels + 7 * panel),
         (const A *)kernel->u.attention.saved + i * n_rows + at, dq, dk, dv, s);
        N(close_panel)(dq, dqkv + i * size, stride, context, size);
    }
    N(close_panel)(dk, dkeys, stride, context, size);
    N(close_panel)(dv, dvalues, stride, context, size);
}

static void N(attention_backward)(const qdri_kernel *kernel)
{
    const int64_t context = kernel->u.attention.context;
    A *s = kernel->u.attention.work, *panels = s + 2 * QDRI_ATTENTION_ROWS * context;
    for (int64_t at = 0; at < kernel->u.attention.n_rows; at += context)
        for (int64_t kv = 0; kv < kernel->u.attention.n_kv_heads; kv++)
            N(group_backward)(kernel, at, kv, s, panels);
}
