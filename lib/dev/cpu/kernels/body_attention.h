/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention, head by head, one block of query rows at a time: products by BLAS, softmax here. The backward pass
 * recomputes the probabilities from the saved log-sum-exp. Elements narrower than `real` are converted to panels of one
 * head. */

/* One head of one sequence: matrices [context, head_size] and their leading dimensions. */
typedef struct head {
    int64_t context, head_size;
    int64_t in_stride, out_stride; /* of q, k, v, dq, dk, dv; of o, d_o */
    real scale;
    const real *q, *k, *v, *d_o;
    real *o, *dq, *dk, *dv;
    real *log_sums; /* [context] */
    real *scores, *ds; /* [block, context] */
} head;

/* C[m,n] = alpha·op(A)·op(B) + beta·C. Zeroing C here is faster than letting BLAS multiply it by 0. */
static void head_product(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, real alpha, const real *a,
                         int64_t lda, const real *b, int64_t ldb, real beta, real *c, int64_t ldc)
{
    if (beta == 0) {
        for (int64_t r = 0; r < m; r++) memset(c + r * ldc, 0, (size_t)n * sizeof *c);
        beta = 1;
    }
    const qdri_gemm product = {.m = m,
                               .n = n,
                               .k = k,
                               .a = a,
                               .b = b,
                               .c = c,
                               .lda = lda,
                               .ldb = ldb,
                               .ldc = ldc,
                               .trans_a = trans_a,
                               .trans_b = trans_b,
                               .alpha = alpha,
                               .beta = beta};
    real_product(&product);
}

/* Turns a row of scores into probabilities; returns log Σ exp. Columns from n to n_all are in the future. */
static real softmax_row(real *s, int64_t n, int64_t n_all)
{
    real most = -(real)INFINITY;
    real sum = 0;
    SIMD_MAX(most)
    for (int64_t c = 0; c < n; c++) most = s[c] > most ? s[c] : most;
    SIMD_SUM(sum)
    for (int64_t c = 0; c < n; c++) {
        s[c] = real_exp(s[c] - most);
        sum += s[c];
    }
    const real share = 1 / sum;
    SIMD for (int64_t c = 0; c < n; c++) s[c] *= share;
    memset(s + n, 0, (size_t)(n_all - n) * sizeof *s);
    return most + (real)log((double)sum);
}

static void head_forward(const head *h)
{
    const int64_t hs = h->head_size;
    const int64_t ld = h->context;
    for (int64_t begin = 0; begin < h->context; begin += QDRI_ATTENTION_BLOCK) {
        const int64_t left = h->context - begin;
        const int64_t rows = left < QDRI_ATTENTION_BLOCK ? left : QDRI_ATTENTION_BLOCK;
        const int64_t cols = begin + rows;
        head_product(0, 1, rows, cols, hs, h->scale, h->q + begin * h->in_stride, h->in_stride, h->k, h->in_stride, 0,
                     h->scores, ld);
        for (int64_t r = 0; r < rows; r++)
            h->log_sums[begin + r] = softmax_row(h->scores + r * ld, begin + r + 1, cols);
        head_product(0, 0, rows, hs, cols, 1, h->scores, ld, h->v, h->in_stride, 0, h->o + begin * h->out_stride,
                     h->out_stride);
    }
}

/* Turns scores s into probabilities, and ds (the gradient of the probabilities) into that of the scores before
 * scaling. */
static void softmax_backward_row(real *s, real *ds, real log_sum, real scale, int64_t n, int64_t n_all)
{
    real dot = 0;
    SIMD_SUM(dot)
    for (int64_t c = 0; c < n; c++) {
        s[c] = real_exp(s[c] - log_sum);
        dot += s[c] * ds[c];
    }
    SIMD for (int64_t c = 0; c < n; c++) ds[c] = s[c] * (ds[c] - dot) * scale;
    memset(s + n, 0, (size_t)(n_all - n) * sizeof *s);
    memset(ds + n, 0, (size_t)(n_all - n) * sizeof *ds);
}

static void block_backward(const head *h, int64_t begin, int64_t rows, real beta)
{
    const int64_t hs = h->head_size;
    const int64_t ld = h->context;
    const int64_t cols = begin + rows;
    const real *q = h->q + begin * h->in_stride;
    const real *d_o = h->d_o + begin * h->out_stride;
    head_product(0, 1, rows, cols, hs, h->scale, q, h->in_stride, h->k, h->in_stride, 0, h->scores, ld);
    head_product(0, 1, rows, cols, hs, 1, d_o, h->out_stride, h->v, h->in_stride, 0, h->ds, ld);
    for (int64_t r = 0; r < rows; r++)
        softmax_backward_row(h->scores + r * ld, h->ds + r * ld, h->log_sums[begin + r], h->scale, begin + r + 1, cols);
    head_product(0, 0, rows, hs, cols, 1, h->ds, ld, h->k, h->in_stride, 0, h->dq + begin * h->in_stride, h->in_stride);
    head_product(1, 0, cols, hs, rows, 1, h->ds, ld, q, h->in_stride, beta, h->dk, h->in_stride);
    head_product(1, 0, cols, hs, rows, 1, h->scores, ld, d_o, h->out_stride, beta, h->dv, h->in_stride);
}

/* Processes the last block first: it covers all rows of dk and dv, which the first head of a group overwrites. */
static void head_backward(const head *h, int is_first)
{
    const int64_t last = (h->context - 1) / QDRI_ATTENTION_BLOCK * QDRI_ATTENTION_BLOCK;
    for (int64_t begin = last; begin >= 0; begin -= QDRI_ATTENTION_BLOCK) {
        const int64_t left = h->context - begin;
        const int64_t rows = left < QDRI_ATTENTION_BLOCK ? left : QDRI_ATTENTION_BLOCK;
        block_backward(h, begin, rows, is_first && begin == last ? 0 : 1);
    }
}

/* Where the matrices of one (sequence, head) begin. */
typedef struct offsets {
    int64_t row, in_width, out_width; /* first row; columns of qkv and of y */
    int64_t q, k, v, o; /* first columns */
} offsets;

static offsets find_offsets(const qdri_kernel *kernel, int64_t sequence, int64_t head_index)
{
    const int64_t hs = kernel->u.attention.head_size;
    const int64_t heads = kernel->u.attention.n_heads;
    const int64_t kv_heads = kernel->u.attention.n_kv_heads;
    const int64_t kv = head_index / (heads / kv_heads);
    return (offsets){.row = sequence * kernel->u.attention.context,
                     .in_width = (heads + 2 * kv_heads) * hs,
                     .out_width = heads * hs,
                     .q = head_index * hs,
                     .k = (heads + kv) * hs,
                     .v = (heads + kv_heads + kv) * hs,
                     .o = head_index * hs};
}

/* The panels of a converted head follow the two blocks of scores. */
static real *panel(const qdri_kernel *kernel, int index)
{
    const int64_t context = kernel->u.attention.context;
    return (real *)kernel->u.attention.work + 2 * QDRI_ATTENTION_BLOCK * context +
           index * context * kernel->u.attention.head_size;
}

/* A head's matrix as `real`: the original, or converted into panel `index`. */
static const real *head_load(const qdri_kernel *kernel, const void *data, int64_t row, int64_t width, int64_t col,
                             int index)
{
    const elem *from = (const elem *)data + row * width + col;
    if (ELEM_IS_REAL) return (const real *)(const void *)from;
    const int64_t hs = kernel->u.attention.head_size;
    real *to = panel(kernel, index);
    for (int64_t r = 0; r < kernel->u.attention.context; r++) {
        SIMD for (int64_t c = 0; c < hs; c++) to[r * hs + c] = get(from[r * width + c]);
    }
    return to;
}

/* Where a head's result is computed: in place, or in panel `index`, from which head_store() rounds it. */
static real *head_out(const qdri_kernel *kernel, int64_t row, int64_t width, int64_t col, int index)
{
    if (!ELEM_IS_REAL) return panel(kernel, index);
    return (real *)kernel->u.attention.out + row * width + col;
}

static void head_store(const qdri_kernel *kernel, int64_t row, int64_t width, int64_t col, const real *from)
{
    const int64_t hs = kernel->u.attention.head_size;
    elem *to = (elem *)kernel->u.attention.out + row * width + col;
    if (ELEM_IS_REAL) return;
    for (int64_t r = 0; r < kernel->u.attention.context; r++) {
        SIMD for (int64_t c = 0; c < hs; c++) to[r * width + c] = put(from[r * hs + c]);
    }
}

static head head_open(const qdri_kernel *kernel, const offsets *at, int64_t head_index)
{
    const int64_t context = kernel->u.attention.context;
    const int64_t hs = kernel->u.attention.head_size;
    const void *qkv = kernel->u.attention.qkv;
    real *work = kernel->u.attention.work;
    return (head){
        .context = context,
        .head_size = hs,
        .in_stride = ELEM_IS_REAL ? at->in_width : hs,
        .out_stride = ELEM_IS_REAL ? at->out_width : hs,
        .scale = (real)(1 / sqrt((double)hs)),
        .q = head_load(kernel, qkv, at->row, at->in_width, at->q, 0),
        .k = head_load(kernel, qkv, at->row, at->in_width, at->k, 1),
        .v = head_load(kernel, qkv, at->row, at->in_width, at->v, 2),
        .log_sums = (real *)kernel->u.attention.saved + at->row * kernel->u.attention.n_heads + head_index * context,
        .scores = work,
        .ds = work + QDRI_ATTENTION_BLOCK * context,
    };
}

static void attention_forward(const qdri_kernel *kernel)
{
    const int64_t n_sequences = kernel->u.attention.n_rows / kernel->u.attention.context;
    for (int64_t s = 0; s < n_sequences; s++) {
        for (int64_t i = 0; i < kernel->u.attention.n_heads; i++) {
            const offsets at = find_offsets(kernel, s, i);
            head h = head_open(kernel, &at, i);
            h.o = head_out(kernel, at.row, at.out_width, at.o, 3);
            head_forward(&h);
            head_store(kernel, at.row, at.out_width, at.o, h.o);
        }
    }
}

static void attention_backward(const qdri_kernel *kernel)
{
    const int64_t n_rows = kernel->u.attention.n_rows;
    const int64_t heads = kernel->u.attention.n_heads, kv_heads = kernel->u.attention.n_kv_heads;
    if (heads == 0) { /* keys that no query uses */
        const int64_t n = n_rows * 2 * kv_heads * kernel->u.attention.head_size;
        if (n > 0) memset(kernel->u.attention.out, 0, (size_t)n * sizeof(elem));
        return;
    }
    const int64_t group = heads / kv_heads; /* query heads that add to dk and dv of one key head */
    for (int64_t s = 0; s < n_rows / kernel->u.attention.context; s++) {
        for (int64_t i = 0; i < heads; i++) {
            const offsets at = find_offsets(kernel, s, i);
            head h = head_open(kernel, &at, i);
            h.d_o = head_load(kernel, kernel->u.attention.dy, at.row, at.out_width, at.o, 3);
            h.dq = head_out(kernel, at.row, at.in_width, at.q, 4);
            h.dk = head_out(kernel, at.row, at.in_width, at.k, 5);
            h.dv = head_out(kernel, at.row, at.in_width, at.v, 6);
            head_backward(&h, i % group == 0);
            head_store(kernel, at.row, at.in_width, at.q, h.dq);
            if ((i + 1) % group != 0) continue;
            head_store(kernel, at.row, at.in_width, at.k, h.dk);
            head_store(kernel, at.row, at.in_width, at.v, h.dv);
        }
    }
}
