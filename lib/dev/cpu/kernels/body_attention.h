/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention, head by head, one block of query rows at a time: products by BLAS, softmax here. The backward pass
 * recomputes the probabilities from the saved log-sum-exp. Elements narrower than `real` are converted to panels of one
 * head. */

/* One head of one sequence: matrices [context, head_size] and their leading dimensions. */
typedef struct head {
    int64_t context, head_size;
    int64_t qk_stride, in_stride, out_stride; /* of q, k; of v, dq, dk, dv; of o, d_o */
    int64_t window;
    const int32_t *first_keys; /* of the sequence's rows; NULL: none */
    int keeps_bits; /* 1: products by BLAS */
    real scale, cap, sink; /* sink -inf: none */
    const real *q, *k, *v, *d_o;
    real *o, *dq, *dk, *dv;
    real *log_sums; /* [context] */
    real *d_sink; /* NULL: none */
    real *scores, *ds, *slopes; /* [block, context]; slopes: of the cap, if there is one */
} head;

/* C[m,n] = alpha·op(A)·op(B) + beta·C. Zeroing C here is faster than letting BLAS multiply it by 0. The blocks are so
 * small that oneDNN, which knows newer processors, takes half of OpenBLAS's time; plain heads keep their bits. */
static void head_product(const head *h, int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, real alpha,
                         const real *a, int64_t lda, const real *b, int64_t ldb, real beta, real *c, int64_t ldc)
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
    if (h->keeps_bits || !REAL_IS_FLOAT || !qdri_sgemm_onednn(&product)) real_product(&product);
}

/* The first key that a row sees; a later row never sees an earlier one. */
static int64_t first_key(const head *h, int64_t row)
{
    const int64_t in_window = row < h->window ? 0 : row - h->window + 1;
    return h->first_keys && h->first_keys[row] > in_window ? h->first_keys[row] : in_window;
}

/* What a row does not see, before `first` and from `end` on. */
static void clear_outside(real *row, int64_t first, int64_t end, int64_t n)
{
    if (first > 0) memset(row, 0, (size_t)first * sizeof *row);
    memset(row + end, 0, (size_t)(n - end) * sizeof *row);
}

/* Caps a block of scores, and keeps the slopes. */
static void cap_scores(const head *h, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++) {
        real *s = h->scores + r * h->context, *slopes = h->slopes + r * h->context;
        SIMD for (int64_t c = 0; c < cols; c++)
        {
            const real t = real_tanh(s[c] / h->cap);
            s[c] = h->cap * t;
            slopes[c] = (1 - t) * (1 + t);
        }
    }
}

/* Turns n scores into probabilities; returns log Σ exp, of the sink, too. */
static real softmax_row(real *s, int64_t n, real sink)
{
    real most = sink;
    real sum = 0;
    SIMD_MAX(most)
    for (int64_t c = 0; c < n; c++) most = s[c] > most ? s[c] : most;
    SIMD_SUM(sum)
    for (int64_t c = 0; c < n; c++) {
        s[c] = real_exp(s[c] - most);
        sum += s[c];
    }
    sum += real_exp(sink - most);
    const real share = 1 / sum;
    SIMD for (int64_t c = 0; c < n; c++) s[c] *= share;
    return most + (real)log((double)sum);
}

static void head_forward(const head *h)
{
    const int64_t hs = h->head_size;
    const int64_t ld = h->context;
    for (int64_t begin = 0; begin < h->context; begin += QDRI_ATTENTION_BLOCK) {
        const int64_t left = h->context - begin;
        const int64_t rows = left < QDRI_ATTENTION_BLOCK ? left : QDRI_ATTENTION_BLOCK;
        const int64_t from = first_key(h, begin), cols = begin + rows - from;
        head_product(h, 0, 1, rows, cols, hs, h->scale, h->q + begin * h->qk_stride, h->qk_stride,
                     h->k + from * h->qk_stride, h->qk_stride, 0, h->scores, ld);
        if (h->cap > 0) cap_scores(h, rows, cols);
        for (int64_t r = 0; r < rows; r++) {
            const int64_t first = first_key(h, begin + r) - from, end = begin + r + 1 - from;
            real *s = h->scores + r * ld;
            clear_outside(s, first, end, cols);
            h->log_sums[begin + r] = softmax_row(s + first, end - first, h->sink);
        }
        head_product(h, 0, 0, rows, hs, cols, 1, h->scores, ld, h->v + from * h->in_stride, h->in_stride, 0,
                     h->o + begin * h->out_stride, h->out_stride);
    }
}

/* Turns n scores s into probabilities, and ds (the gradient of the probabilities) into that of the scores before
 * scaling; returns the mean of ds. Not inlined: GCC would make a copy for scores without a cap, and not vectorise
 * it. */
static __attribute__((noinline)) real softmax_backward_row(real *s, real *ds, real log_sum, real scale, int64_t n)
{
    real dot = 0;
    SIMD_SUM(dot)
    for (int64_t c = 0; c < n; c++) {
        s[c] = real_exp(s[c] - log_sum);
        dot += s[c] * ds[c];
    }
    SIMD for (int64_t c = 0; c < n; c++) ds[c] = s[c] * (ds[c] - dot) * scale;
    return dot;
}

static void block_backward(const head *h, int64_t begin, int64_t rows)
{
    const int64_t hs = h->head_size;
    const int64_t ld = h->context;
    const int64_t from = first_key(h, begin), cols = begin + rows - from;
    const int64_t at = from * h->in_stride; /* of the first key */
    const real *q = h->q + begin * h->qk_stride, *k = h->k + from * h->qk_stride;
    const real *d_o = h->d_o + begin * h->out_stride;
    head_product(h, 0, 1, rows, cols, hs, h->scale, q, h->qk_stride, k, h->qk_stride, 0, h->scores, ld);
    head_product(h, 0, 1, rows, cols, hs, 1, d_o, h->out_stride, h->v + at, h->in_stride, 0, h->ds, ld);
    if (h->cap > 0) cap_scores(h, rows, cols);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t first = first_key(h, begin + r) - from, end = begin + r + 1 - from;
        real *s = h->scores + r * ld, *ds = h->ds + r * ld;
        clear_outside(s, first, end, cols);
        clear_outside(ds, first, end, cols);
        const real log_sum = h->log_sums[begin + r];
        const real mean = softmax_backward_row(s + first, ds + first, log_sum, h->scale, end - first);
        if (h->d_sink) *h->d_sink -= real_exp(h->sink - log_sum) * mean;
    }
    for (int64_t i = 0; h->slopes && i < rows * cols; i++)
        h->ds[i / cols * ld + i % cols] *= h->slopes[i / cols * ld + i % cols];
    head_product(h, 0, 0, rows, hs, cols, 1, h->ds, ld, k, h->qk_stride, 0, h->dq + begin * h->in_stride, h->in_stride);
    head_product(h, 1, 0, cols, hs, rows, 1, h->ds, ld, q, h->qk_stride, 1, h->dk + at, h->in_stride);
    head_product(h, 1, 0, cols, hs, rows, 1, h->scores, ld, d_o, h->out_stride, 1, h->dv + at, h->in_stride);
}

/* The first head of a group overwrites dk and dv. */
static void head_backward(const head *h, int is_first)
{
    for (int64_t r = 0; is_first && r < h->context; r++) {
        memset(h->dk + r * h->in_stride, 0, (size_t)h->head_size * sizeof *h->dk);
        memset(h->dv + r * h->in_stride, 0, (size_t)h->head_size * sizeof *h->dv);
    }
    const int64_t last = (h->context - 1) / QDRI_ATTENTION_BLOCK * QDRI_ATTENTION_BLOCK;
    for (int64_t begin = last; begin >= 0; begin -= QDRI_ATTENTION_BLOCK) {
        const int64_t left = h->context - begin;
        const int64_t rows = left < QDRI_ATTENTION_BLOCK ? left : QDRI_ATTENTION_BLOCK;
        block_backward(h, begin, rows);
    }
}

/* Where the matrices of one (sequence, head) begin. */
typedef struct offsets {
    int64_t row, in_width, out_width; /* first row; columns of qkv and of y */
    int64_t q, k, v, o; /* first columns */
} offsets;

/* Query heads that have the same keys and values, and add to the same gradients of them. */
static int64_t group_of(const qdri_kernel *kernel)
{
    return kernel->u.attention.n_heads / kernel->u.attention.n_kv_heads;
}

static offsets find_offsets(const qdri_kernel *kernel, int64_t sequence, int64_t head_index)
{
    const int64_t hs = kernel->u.attention.head_size;
    const int64_t heads = kernel->u.attention.n_heads;
    const int64_t kv_heads = kernel->u.attention.n_kv_heads;
    const int64_t kv = head_index / group_of(kernel);
    return (offsets){.row = sequence * kernel->u.attention.context,
                     .in_width = (heads + 2 * kv_heads) * hs,
                     .out_width = heads * hs,
                     .q = head_index * hs,
                     .k = (heads + kv) * hs,
                     .v = (heads + kv_heads + kv) * hs,
                     .o = head_index * hs};
}

/* The panels of a head that is converted or turned follow the blocks of scores. */
static real *panel(const qdri_kernel *kernel, int index)
{
    const int64_t context = kernel->u.attention.context, n_blocks = kernel->u.attention.cap > 0 ? 3 : 2;
    return (real *)kernel->u.attention.work +
           context * (n_blocks * QDRI_ATTENTION_BLOCK + index * kernel->u.attention.head_size);
}

/* A head has a short piece of each row of all heads, which hardware does not fetch in time. */
static void head_fetch(const qdri_kernel *kernel, const elem *row, int64_t width)
{
    enum { N_ROWS_AHEAD = 16 };
    qdri_fetch(row + N_ROWS_AHEAD * width, (size_t)kernel->u.attention.head_size * sizeof *row);
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
        head_fetch(kernel, from + r * width, width);
        SIMD for (int64_t c = 0; c < hs; c++) to[r * hs + c] = get(from[r * width + c]);
    }
    return to;
}

/* What the norm of a head multiplies by. */
static real head_scale(const qdri_kernel *kernel, const elem *x)
{
    const int64_t hs = kernel->u.attention.head_size;
    real sum = 0;
    SIMD_SUM(sum)
    for (int64_t c = 0; c < hs; c++) sum += get(x[c]) * get(x[c]);
    return 1 / real_sqrt(sum / (real)hs + (real)kernel->u.attention.epsilon);
}

static real gamma_shift(const qdri_kernel *kernel) { return kernel->u.attention.one_plus ? 1 : 0; }

/* From the gradient of a normed row to that of the row, which is added to d_gamma, too. */
static void norm_row_backward(const qdri_kernel *kernel, const elem *x, const elem *gamma, real *d_gamma, real *d)
{
    const int64_t hs = kernel->u.attention.head_size;
    const real scale = head_scale(kernel, x), shift = gamma_shift(kernel);
    real dot = 0;
    SIMD for (int64_t c = 0; c < hs; c++) d_gamma[c] += d[c] * get(x[c]) * scale;
    SIMD_SUM(dot)
    for (int64_t c = 0; c < hs; c++) {
        d[c] *= get(gamma[c]) + shift;
        dot += d[c] * get(x[c]);
    }
    dot *= scale * scale / (real)hs;
    SIMD for (int64_t c = 0; c < hs; c++) d[c] = scale * (d[c] - get(x[c]) * dot);
}

/* Turns n pairs of numbers, x[i] and x[other + i], `step` apart; to may be x. */
ONE_FUNCTION void turn_pairs(int64_t n, const real *cosines, const real *sines, real sign, const real *x, real *to,
                             int64_t step, int64_t other)
{
    SIMD for (int64_t i = 0; i < n; i++)
    {
        const real a = x[i * step], b = x[i * step + other], sine = sign * sines[i];
        to[i * step] = a * cosines[i] - b * sine;
        to[i * step + other] = b * cosines[i] + a * sine;
    }
}

/* Turns the pairs of a row of a head; sign -1: back. Other columns of `to` stay. */
static void turn_row(const qdri_kernel *kernel, int64_t row, real sign, const real *x, real *to)
{
    const int64_t n = kernel->u.attention.rotary_columns / 2;
    const real *cosines = (const real *)kernel->u.attention.rotation + row * 2 * n, *sines = cosines + n;
    if (kernel->u.attention.interleaved)
        turn_pairs(n, cosines, sines, sign, x, to, 2, 1);
    else
        turn_pairs(n, cosines, sines, sign, x, to, 1, n);
}

/* As head_load(), for queries or keys: normed, and turned. */
static const real *head_load_turned(const qdri_kernel *kernel, int64_t row, int64_t width, int64_t col,
                                    const elem *gamma, int index)
{
    const void *qkv = kernel->u.attention.qkv;
    if (!qdri_attention_turns(kernel)) return head_load(kernel, qkv, row, width, col, index);
    const elem *x = (const elem *)qkv + row * width + col;
    const int64_t hs = kernel->u.attention.head_size;
    /* Where turn_row() can read x itself, only the columns behind those that it turns are copied. */
    const int64_t first = ELEM_IS_REAL && !gamma ? kernel->u.attention.rotary_columns : 0;
    real *to = panel(kernel, index);
    for (int64_t r = 0; r < kernel->u.attention.context; r++, x += width, to += hs) {
        head_fetch(kernel, x, width);
        if (gamma) {
            const real scale = head_scale(kernel, x), shift = gamma_shift(kernel);
            SIMD for (int64_t c = 0; c < hs; c++) to[c] = get(x[c]) * (scale * (get(gamma[c]) + shift));
        } else {
            SIMD for (int64_t c = first; c < hs; c++) to[c] = get(x[c]);
        }
        turn_row(kernel, r, 1, first ? (const real *)(const void *)x : to, to);
    }
    return panel(kernel, index);
}

/* Gradients of turned queries or keys become those of what was loaded. */
static void head_turn_back(const qdri_kernel *kernel, const offsets *at, int64_t col, const elem *gamma, real *d_gamma,
                           real *d, int64_t stride)
{
    const elem *x = (const elem *)kernel->u.attention.qkv + at->row * at->in_width + col;
    for (int64_t r = 0; qdri_attention_turns(kernel) && r < kernel->u.attention.context; r++) {
        turn_row(kernel, r, -1, d + r * stride, d + r * stride);
        if (gamma) norm_row_backward(kernel, x + r * at->in_width, gamma, d_gamma, d + r * stride);
    }
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

/* before: the head before, if it has the same keys and values, which then are loaded. */
static head head_open(const qdri_kernel *kernel, const offsets *at, int64_t head_index, const head *before)
{
    const int64_t context = kernel->u.attention.context;
    const int64_t hs = kernel->u.attention.head_size;
    const elem *sinks = kernel->u.attention.sinks;
    const int32_t *first_keys = kernel->u.attention.first_keys;
    real *work = kernel->u.attention.work, *d_sinks = kernel->u.attention.d_sinks;
    return (head){
        .context = context,
        .head_size = hs,
        .qk_stride = ELEM_IS_REAL && !qdri_attention_turns(kernel) ? at->in_width : hs,
        .in_stride = ELEM_IS_REAL ? at->in_width : hs,
        .out_stride = ELEM_IS_REAL ? at->out_width : hs,
        .window = kernel->u.attention.window,
        .keeps_bits = !qdri_attention_takes_onednn(kernel),
        .first_keys = first_keys ? first_keys + at->row : NULL,
        .scale = (real)kernel->u.attention.scale,
        .cap = (real)kernel->u.attention.cap,
        .sink = sinks ? get(sinks[head_index]) : -(real)INFINITY,
        .d_sink = d_sinks ? d_sinks + head_index : NULL,
        .q = head_load_turned(kernel, at->row, at->in_width, at->q, kernel->u.attention.q_gamma, 0),
        .k = before ? before->k
                    : head_load_turned(kernel, at->row, at->in_width, at->k, kernel->u.attention.k_gamma, 1),
        .v = before ? before->v : head_load(kernel, kernel->u.attention.qkv, at->row, at->in_width, at->v, 2),
        .log_sums = (real *)kernel->u.attention.saved + at->row * kernel->u.attention.n_heads + head_index * context,
        .scores = work,
        .ds = work + QDRI_ATTENTION_BLOCK * context,
        .slopes = kernel->u.attention.cap > 0 ? work + 2 * QDRI_ATTENTION_BLOCK * context : NULL,
    };
}

/* The query heads of this part. */
static span heads_of(const qdri_kernel *kernel)
{
    if (kernel->u.attention.n_heads == 0) return (span){0, 0};
    const int64_t group = group_of(kernel);
    const span keys = span_of(kernel, kernel->u.attention.n_kv_heads);
    return (span){keys.first * group, keys.n * group};
}

static void attention_forward(const qdri_kernel *kernel)
{
    const int64_t n_sequences = kernel->u.attention.n_rows / kernel->u.attention.context;
    const span heads = heads_of(kernel);
    head h = {0};
    for (int64_t s = 0; s < n_sequences; s++) {
        for (int64_t i = heads.first; i < heads.first + heads.n; i++) {
            const offsets at = find_offsets(kernel, s, i);
            h = head_open(kernel, &at, i, i % group_of(kernel) == 0 ? NULL : &h);
            h.o = head_out(kernel, at.row, at.out_width, at.o, 3);
            head_forward(&h);
            head_store(kernel, at.row, at.out_width, at.o, h.o);
        }
    }
}

static void clear_sums(const qdri_kernel *kernel, real *sums, int64_t n)
{
    if (sums && !kernel->accumulate) memset(sums, 0, (size_t)n * sizeof *sums);
}

static void attention_backward(const qdri_kernel *kernel)
{
    const int64_t n_rows = kernel->u.attention.n_rows;
    const int64_t heads = kernel->u.attention.n_heads, kv_heads = kernel->u.attention.n_kv_heads;
    clear_sums(kernel, kernel->u.attention.d_q_gamma, kernel->u.attention.head_size);
    clear_sums(kernel, kernel->u.attention.d_k_gamma, kernel->u.attention.head_size);
    if (heads == 0) { /* keys that no query uses */
        const int64_t n = n_rows * 2 * kv_heads * kernel->u.attention.head_size;
        if (n > 0) memset(kernel->u.attention.out, 0, (size_t)n * sizeof(elem));
        return;
    }
    const int64_t group = group_of(kernel);
    const span own = heads_of(kernel);
    real *d_sinks = kernel->u.attention.d_sinks;
    head h = {0};
    clear_sums(kernel, d_sinks ? d_sinks + own.first : NULL, own.n);
    for (int64_t s = 0; s < n_rows / kernel->u.attention.context; s++) {
        for (int64_t i = own.first; i < own.first + own.n; i++) {
            const offsets at = find_offsets(kernel, s, i);
            h = head_open(kernel, &at, i, i % group == 0 ? NULL : &h);
            h.d_o = head_load(kernel, kernel->u.attention.dy, at.row, at.out_width, at.o, 3);
            h.dq = head_out(kernel, at.row, at.in_width, at.q, 4);
            h.dk = head_out(kernel, at.row, at.in_width, at.k, 5);
            h.dv = head_out(kernel, at.row, at.in_width, at.v, 6);
            head_backward(&h, i % group == 0);
            head_turn_back(kernel, &at, at.q, kernel->u.attention.q_gamma, kernel->u.attention.d_q_gamma, h.dq,
                           h.in_stride);
            head_store(kernel, at.row, at.in_width, at.q, h.dq);
            if ((i + 1) % group != 0) continue;
            head_turn_back(kernel, &at, at.k, kernel->u.attention.k_gamma, kernel->u.attention.d_k_gamma, h.dk,
                           h.in_stride);
            head_store(kernel, at.row, at.in_width, at.k, h.dk);
            head_store(kernel, at.row, at.in_width, at.v, h.dv);
        }
    }
}
