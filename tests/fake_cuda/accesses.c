/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that each kernel reads and writes: lib/core/kernels.h in terms of addresses. Reads come before writes,
 * since results may be inputs. */
#include "accesses.h"

#include "core/dtype.h"
#include "core/operands.h"

typedef fake_kernel_accesses list;

static size_t elem_bytes(const qdri_kernel *kernel) { return qdr_dtype_bytes(kernel->dtype); }

static size_t sum_bytes(const qdri_kernel *kernel) { return kernel->dtype == QDR_F64 ? sizeof(double) : sizeof(float); }

void fake_add_access(list *l, fake_access_kind kind, const void *data, size_t bytes)
{
    if (data && bytes) l->all[l->n++] = (fake_access){kind, data, bytes, 0, 1};
}

static void reads(list *l, const void *data, int64_t n, size_t bytes)
{
    fake_add_access(l, FAKE_READ, data, (size_t)n * bytes);
}

static void writes(list *l, const void *data, int64_t n, size_t bytes)
{
    fake_add_access(l, FAKE_WRITE, data, (size_t)n * bytes);
}

/* A result that may be added to. */
static void sums(list *l, const void *data, int64_t n, size_t bytes, int accumulate)
{
    if (accumulate) reads(l, data, n, bytes);
    writes(l, data, n, bytes);
}

static void binary(const qdri_kernel *kernel, list *l)
{
    const int64_t n = kernel->u.binary.n;
    const size_t bytes = elem_bytes(kernel), bytes2 = qdr_dtype_bytes(kernel->u.binary.dtype2);
    const int is_cast = kernel->kind == QDRI_K_CAST;
    reads(l, kernel->u.binary.a, n, bytes);
    if (kernel->kind == QDRI_K_ADD) reads(l, kernel->u.binary.b, n, bytes2);
    writes(l, kernel->u.binary.y, n, is_cast ? bytes2 : bytes);
}

static void activation(const qdri_kernel *kernel, list *l)
{
    const int64_t n = kernel->u.activation.n_rows * kernel->u.activation.n_cols;
    const int64_t n_in = kernel->u.activation.gated ? 2 * n : n;
    reads(l, kernel->u.activation.x, n_in, elem_bytes(kernel));
    if (kernel->kind == QDRI_K_ACTIVATION_FORWARD) {
        writes(l, kernel->u.activation.y, n, elem_bytes(kernel));
        return;
    }
    reads(l, kernel->u.activation.dy, n, elem_bytes(kernel));
    sums(l, kernel->u.activation.dx, n_in, elem_bytes(kernel), kernel->accumulate);
}

static void parts(const qdri_kernel *kernel, list *l)
{
    reads(l, kernel->u.parts.x, kernel->u.parts.n * kernel->u.parts.n_parts, elem_bytes(kernel));
    writes(l, kernel->u.parts.y, kernel->u.parts.n, elem_bytes(kernel));
}

/* ---- rows ---- */

static void bias_add(const qdri_kernel *kernel, list *l)
{
    const int64_t n = kernel->u.rows.n_rows * kernel->u.rows.n_cols;
    if (n > 0) reads(l, kernel->u.rows.p, kernel->u.rows.n_cols, elem_bytes(kernel));
    sums(l, kernel->u.rows.y, n, elem_bytes(kernel), 1);
}

static void column_sum(const qdri_kernel *kernel, list *l)
{
    const int64_t n = kernel->u.rows.n_rows * kernel->u.rows.n_cols;
    reads(l, kernel->u.rows.x, n, elem_bytes(kernel));
    if (n > 0 || !kernel->accumulate)
        sums(l, kernel->u.rows.p, kernel->u.rows.n_cols, sum_bytes(kernel), kernel->accumulate);
}

/* The rows of p that n_rows from row0 on meet: up to two runs. */
typedef struct position_run {
    int64_t begin, n;
} position_run;

static int position_runs(const qdri_kernel *kernel, position_run *runs)
{
    const int64_t context = kernel->u.rows.context, n_rows = kernel->u.rows.n_rows;
    const int64_t begin = kernel->u.rows.row0 % context;
    if (n_rows >= context) {
        runs[0] = (position_run){0, context};
        return 1;
    }
    const int64_t before_end = begin + n_rows <= context ? n_rows : context - begin;
    runs[0] = (position_run){begin, before_end};
    runs[1] = (position_run){0, n_rows - before_end};
    return 2;
}

static void position_add(const qdri_kernel *kernel, list *l)
{
    const int64_t n = kernel->u.rows.n_cols;
    const size_t row_bytes = (size_t)n * elem_bytes(kernel);
    position_run runs[2];
    const int n_runs = position_runs(kernel, runs);
    for (int i = 0; i < n_runs; i++)
        reads(l, (const char *)kernel->u.rows.p + (size_t)runs[i].begin * row_bytes, runs[i].n, row_bytes);
    sums(l, kernel->u.rows.y, kernel->u.rows.n_rows * n, elem_bytes(kernel), 1);
}

static void position_sum(const qdri_kernel *kernel, list *l)
{
    const int64_t n = kernel->u.rows.n_cols;
    const size_t row_bytes = (size_t)n * sum_bytes(kernel);
    position_run runs[2];
    const int n_runs = position_runs(kernel, runs);
    reads(l, kernel->u.rows.x, kernel->u.rows.n_rows * n, elem_bytes(kernel));
    if (!kernel->accumulate) writes(l, kernel->u.rows.p, kernel->u.rows.context, row_bytes);
    for (int i = 0; i < n_runs && kernel->accumulate; i++)
        sums(l, (const char *)kernel->u.rows.p + (size_t)runs[i].begin * row_bytes, runs[i].n, row_bytes, 1);
}

/* ---- norms ---- */

/* Numbers for each row, of which an RMS norm has one. */
static int64_t norm_numbers(const qdri_kernel *kernel, int64_t each)
{
    return kernel->u.norm.n_rows * (kernel->u.norm.is_rms ? 1 : each);
}

/* A matrix of rows that may be parts of longer ones. */
static void norm_matrix(const qdri_kernel *kernel, list *l, fake_access_kind kind, const void *data)
{
    const size_t bytes = elem_bytes(kernel);
    const int64_t n_rows = kernel->u.norm.n_rows, n_cols = kernel->u.norm.n_cols, stride = kernel->u.norm.stride;
    if (stride == n_cols)
        fake_add_access(l, kind, data, (size_t)(n_rows * n_cols) * bytes);
    else if (n_rows > 0 && n_cols > 0)
        l->all[l->n++] = (fake_access){kind, data, (size_t)n_cols * bytes, (size_t)stride * bytes, n_rows};
}

static void norm_moments(const qdri_kernel *kernel, list *l)
{
    norm_matrix(kernel, l, FAKE_READ, kernel->u.norm.x);
    writes(l, kernel->u.norm.work, norm_numbers(kernel, 3), sum_bytes(kernel));
}

static void norm_merge(const qdri_kernel *kernel, list *l)
{
    reads(l, kernel->u.norm.work, norm_numbers(kernel, 3) * kernel->u.norm.n_parts, sum_bytes(kernel));
    writes(l, kernel->u.norm.stats, norm_numbers(kernel, 2), sum_bytes(kernel));
}

static void norm_inputs(const qdri_kernel *kernel, list *l)
{
    const int64_t n_cols = kernel->u.norm.n_cols;
    norm_matrix(kernel, l, FAKE_READ, kernel->u.norm.x);
    if (kernel->u.norm.n_rows > 0) reads(l, kernel->u.norm.gamma, n_cols, elem_bytes(kernel));
    if (n_cols > 0) reads(l, kernel->u.norm.stats, norm_numbers(kernel, 2), sum_bytes(kernel));
}

static void norm_apply(const qdri_kernel *kernel, list *l)
{
    norm_inputs(kernel, l);
    if (kernel->u.norm.n_rows > 0) reads(l, kernel->u.norm.beta, kernel->u.norm.n_cols, elem_bytes(kernel));
    norm_matrix(kernel, l, FAKE_WRITE, kernel->u.norm.y);
}

static void norm_sums(const qdri_kernel *kernel, list *l)
{
    const int64_t n_cols = kernel->u.norm.n_cols;
    const int accumulate = kernel->accumulate;
    norm_inputs(kernel, l);
    norm_matrix(kernel, l, FAKE_READ, kernel->u.norm.dy);
    writes(l, kernel->u.norm.work, norm_numbers(kernel, 2), sum_bytes(kernel));
    if (kernel->u.norm.n_rows == 0 && accumulate) return;
    sums(l, kernel->u.norm.dgamma, n_cols, sum_bytes(kernel), accumulate);
    sums(l, kernel->u.norm.dbeta, n_cols, sum_bytes(kernel), accumulate);
}

static void norm_backward(const qdri_kernel *kernel, list *l)
{
    norm_inputs(kernel, l);
    norm_matrix(kernel, l, FAKE_READ, kernel->u.norm.dy);
    if (kernel->u.norm.n_cols > 0) reads(l, kernel->u.norm.work, norm_numbers(kernel, 2), sum_bytes(kernel));
    if (kernel->accumulate) norm_matrix(kernel, l, FAKE_READ, kernel->u.norm.dx);
    norm_matrix(kernel, l, FAKE_WRITE, kernel->u.norm.dx);
}

/* ---- attention ---- */

typedef struct widths {
    int64_t in, out; /* columns of qkv and of y */
} widths;

static widths attention_widths(const qdri_kernel *kernel)
{
    const int64_t heads = kernel->u.attention.n_heads, kv_heads = kernel->u.attention.n_kv_heads;
    const int64_t size = kernel->u.attention.head_size;
    return (widths){(heads + 2 * kv_heads) * size, heads * size};
}

/* The GPU's kernels keep a sum of each row and head there. */
static void attention_work(const qdri_kernel *kernel, list *l)
{
    const int64_t n_rows = kernel->u.attention.n_rows, n_heads = kernel->u.attention.n_heads;
    const int64_t n_turned = kernel->u.attention.rotary_columns || kernel->u.attention.head_norm
                                 ? n_heads + kernel->u.attention.n_kv_heads
                                 : 0;
    const size_t sums = ((size_t)(n_rows * n_heads) * sum_bytes(kernel) + 63) / 64 * 64;
    const size_t turned = (size_t)(n_rows * n_turned * kernel->u.attention.head_size) * elem_bytes(kernel);
    if (n_rows > 0) fake_add_access(l, FAKE_SCRATCH, kernel->u.attention.work, sums + turned);
}

static void attention_numbers(const qdri_kernel *kernel, list *l)
{
    if (kernel->u.attention.n_rows == 0) return;
    reads(l, kernel->u.attention.rotation, kernel->u.attention.context * kernel->u.attention.rotary_columns,
          sum_bytes(kernel));
    reads(l, kernel->u.attention.q_gamma, kernel->u.attention.head_size, elem_bytes(kernel));
    reads(l, kernel->u.attention.k_gamma, kernel->u.attention.head_size, elem_bytes(kernel));
    reads(l, kernel->u.attention.sinks, kernel->u.attention.n_heads, elem_bytes(kernel));
}

static void attention_forward(const qdri_kernel *kernel, list *l)
{
    const int64_t n_rows = kernel->u.attention.n_rows;
    reads(l, kernel->u.attention.first_keys, n_rows, sizeof(int32_t));
    const widths w = attention_widths(kernel);
    if (kernel->u.attention.n_heads == 0) return;
    reads(l, kernel->u.attention.qkv, n_rows * w.in, elem_bytes(kernel));
    attention_numbers(kernel, l);
    attention_work(kernel, l);
    writes(l, kernel->u.attention.out, n_rows * w.out, elem_bytes(kernel));
    writes(l, kernel->u.attention.saved, n_rows * kernel->u.attention.n_heads, sum_bytes(kernel));
}

static void attention_backward(const qdri_kernel *kernel, list *l)
{
    const int64_t n_rows = kernel->u.attention.n_rows;
    reads(l, kernel->u.attention.first_keys, n_rows, sizeof(int32_t));
    const widths w = attention_widths(kernel);
    if (kernel->u.attention.n_heads > 0) {
        reads(l, kernel->u.attention.qkv, n_rows * w.in, elem_bytes(kernel));
        reads(l, kernel->u.attention.y, n_rows * w.out, elem_bytes(kernel));
        reads(l, kernel->u.attention.dy, n_rows * w.out, elem_bytes(kernel));
        reads(l, kernel->u.attention.saved, n_rows * kernel->u.attention.n_heads, sum_bytes(kernel));
        attention_numbers(kernel, l);
        attention_work(kernel, l);
    }
    sums(l, kernel->u.attention.d_q_gamma, kernel->u.attention.head_size, sum_bytes(kernel), kernel->accumulate);
    sums(l, kernel->u.attention.d_k_gamma, kernel->u.attention.head_size, sum_bytes(kernel), kernel->accumulate);
    sums(l, kernel->u.attention.d_sinks, kernel->u.attention.n_heads, sum_bytes(kernel), kernel->accumulate);
    writes(l, kernel->u.attention.out, n_rows * w.in, elem_bytes(kernel));
}

/* ---- tokens ---- */

static void embed(const qdri_kernel *kernel, list *l)
{
    const int64_t n_cols = kernel->u.embed.n_cols, n = kernel->u.embed.n_rows * n_cols;
    const int64_t n_table = (kernel->u.embed.end - kernel->u.embed.begin) * n_cols;
    const int accumulate = kernel->accumulate;
    reads(l, kernel->u.embed.tokens, kernel->u.embed.n_rows, sizeof(int32_t));
    if (kernel->kind == QDRI_K_EMBED_FORWARD) {
        if (n > 0) reads(l, kernel->u.embed.e, n_table, elem_bytes(kernel));
        writes(l, kernel->u.embed.y, n, elem_bytes(kernel));
        return;
    }
    reads(l, kernel->u.embed.dy, n, elem_bytes(kernel));
    if (n > 0 || !accumulate) sums(l, kernel->u.embed.de, n_table, sum_bytes(kernel), accumulate);
}

static void ce(const qdri_kernel *kernel, list *l)
{
    const int64_t n_rows = kernel->u.ce.n_rows, n = n_rows * kernel->u.ce.n_cols;
    const size_t bytes = sum_bytes(kernel);
    const qdri_kernel_kind kind = kernel->kind;
    if (kind != QDRI_K_CE_LOSS) reads(l, kernel->u.ce.logits, n, elem_bytes(kernel));
    if (kind != QDRI_K_CE_MAX) reads(l, kernel->u.ce.targets, n_rows, sizeof(int32_t));
    if (kind == QDRI_K_CE_SUMS || kind == QDRI_K_CE_LOSS) reads(l, kernel->u.ce.work, n_rows, bytes);
    if (kind == QDRI_K_CE_MAX) writes(l, kernel->u.ce.work, n_rows, bytes);
    if (kind == QDRI_K_CE_SUMS) writes(l, kernel->u.ce.work2, 2 * n_rows, bytes);
    if (kind == QDRI_K_CE_BACKWARD) {
        if (n > 0) reads(l, kernel->u.ce.saved, 2 * n_rows, bytes);
        writes(l, kernel->u.ce.dlogits, n, elem_bytes(kernel));
    }
    if (kind != QDRI_K_CE_LOSS) return;
    reads(l, kernel->u.ce.work2, 2 * n_rows, bytes);
    writes(l, kernel->u.ce.saved, 2 * n_rows, bytes);
    writes(l, kernel->u.ce.result, 2, sizeof(double));
}

/* ---- the rest ---- */

static void sum_squares(const qdri_kernel *kernel, list *l)
{
    reads(l, kernel->u.reduce.a, kernel->u.reduce.n, elem_bytes(kernel));
    sums(l, kernel->u.reduce.result, 1, sizeof(double), kernel->accumulate);
}

static void adamw_rate(const qdri_kernel *kernel, list *l)
{
    writes(l, kernel->u.adamw.numbers->rate, 2 * QDRI_RATE_PIECES, sizeof(double));
    writes(l, &kernel->u.adamw.numbers->lr, 1, sizeof(double));
}

static void adamw_begin(const qdri_kernel *kernel, list *l)
{
    qdri_adamw_numbers *numbers = kernel->u.adamw.numbers;
    reads(l, &numbers->norm_squared, 1, sizeof(double));
    sums(l, numbers->rate, 2 * QDRI_RATE_PIECES, sizeof(double), kernel->u.adamw.n_ranks > 1);
    reads(l, &numbers->lr, 1, sizeof(double));
    sums(l, &numbers->n_begun, 2, sizeof(double), 1);
    writes(l, &numbers->factor, 3, sizeof(double));
}

static void adamw(const qdri_kernel *kernel, list *l)
{
    const int64_t n = kernel->u.adamw.n;
    const size_t bytes = sum_bytes(kernel);
    if (n > 0) reads(l, &kernel->u.adamw.numbers->n_steps, 5, sizeof(double));
    reads(l, kernel->u.adamw.g, n, bytes);
    sums(l, kernel->u.adamw.m, n, bytes, 1);
    sums(l, kernel->u.adamw.v, n, bytes, 1);
    if (qdri_is_narrow(kernel->dtype)) sums(l, kernel->u.adamw.master, n, bytes, 1);
    sums(l, kernel->u.adamw.p, n, elem_bytes(kernel), 1); /* read where it has a master */
}

/* Bytes are moved, written or not. */
static void copy_block(const qdri_kernel *kernel, list *l)
{
    const int64_t n_rows = kernel->u.block.n_rows;
    const size_t bytes = kernel->u.block.row_bytes;
    if (n_rows == 0 || bytes == 0) return;
    l->all[l->n++] = (fake_access){FAKE_READ_COPY, kernel->u.block.x, bytes, kernel->u.block.x_stride, n_rows};
    l->all[l->n++] = (fake_access){FAKE_WRITE, kernel->u.block.y, bytes, kernel->u.block.y_stride, n_rows};
}

static void gather(const qdri_kernel *kernel, list *l)
{
    const int64_t n = kernel->u.gather.n;
    const size_t key = kernel->dtype == QDR_F64 ? 8 : 4, bytes = elem_bytes(kernel);
    const size_t read = kernel->kind == QDRI_K_FROM_KEYS ? key : bytes;
    const size_t written = kernel->kind == QDRI_K_TO_KEYS ? key : bytes;
    for (int i = 0; i < kernel->u.gather.n_sources; i++) reads(l, kernel->u.gather.sources[i], n, read);
    for (int i = 0; i < kernel->u.gather.n_results; i++) writes(l, kernel->u.gather.results[i], n, written);
}

/* ---- codecs ---- */

static void encode(const qdri_kernel *kernel, list *l)
{
    for (int i = 0; i < kernel->u.codec.n_parts; i++) {
        const qdri_kernel one = fake_code_part(kernel, i);
        encode(&one, l);
    }
    if (kernel->u.codec.n_parts) return;
    reads(l, kernel->u.codec.x, kernel->u.codec.n, elem_bytes(kernel));
    writes(l, kernel->u.codec.wire, 1, fake_message_bytes(kernel));
    sums(l, kernel->u.codec.feedback, kernel->u.codec.n, sizeof(float), 1);
}

static void decode(const qdri_kernel *kernel, list *l)
{
    for (int i = 0; i < kernel->u.codec.n_parts; i++) {
        const qdri_kernel one = fake_code_part(kernel, i);
        decode(&one, l);
    }
    if (kernel->u.codec.n_parts) return;
    reads(l, kernel->u.codec.wire, 1, fake_message_bytes(kernel));
    sums(l, kernel->u.codec.y, kernel->u.codec.n, elem_bytes(kernel), kernel->accumulate);
}

static void decode_sum(const qdri_kernel *kernel, list *l)
{
    const int own = kernel->u.codec.own, n_messages = kernel->u.codec.n_sources - (own >= 0);
    const size_t bytes = fake_message_bytes(kernel), stride = kernel->u.codec.stride;
    const fake_access messages = {FAKE_READ, kernel->u.codec.sources, bytes, stride, n_messages};
    if (kernel->u.codec.n == 0) return;
    if (n_messages > 0) l->all[l->n++] = messages;
    if (own >= 0) reads(l, kernel->u.codec.x, kernel->u.codec.n, elem_bytes(kernel));
    writes(l, kernel->u.codec.wire, 1, bytes);
    if (kernel->u.codec.wire) sums(l, kernel->u.codec.feedback, kernel->u.codec.n, sizeof(float), 1);
    writes(l, kernel->u.codec.y, kernel->u.codec.n, elem_bytes(kernel));
}

static void (*const finders[QDRI_N_KERNELS])(const qdri_kernel *kernel, list *l) = {
    [QDRI_K_ADD] = binary,
    [QDRI_K_SUM_PARTS] = parts,
    [QDRI_K_CAST] = binary,
    [QDRI_K_BIAS_ADD] = bias_add,
    [QDRI_K_COLUMN_SUM] = column_sum,
    [QDRI_K_ACTIVATION_FORWARD] = activation,
    [QDRI_K_ACTIVATION_BACKWARD] = activation,
    [QDRI_K_NORM_MOMENTS] = norm_moments,
    [QDRI_K_NORM_MERGE] = norm_merge,
    [QDRI_K_NORM_APPLY] = norm_apply,
    [QDRI_K_NORM_SUMS] = norm_sums,
    [QDRI_K_NORM_BACKWARD] = norm_backward,
    [QDRI_K_ATTENTION_FORWARD] = attention_forward,
    [QDRI_K_ATTENTION_BACKWARD] = attention_backward,
    [QDRI_K_EMBED_FORWARD] = embed,
    [QDRI_K_EMBED_BACKWARD] = embed,
    [QDRI_K_POSITION_ADD] = position_add,
    [QDRI_K_POSITION_SUM] = position_sum,
    [QDRI_K_CE_MAX] = ce,
    [QDRI_K_CE_SUMS] = ce,
    [QDRI_K_CE_LOSS] = ce,
    [QDRI_K_CE_BACKWARD] = ce,
    [QDRI_K_SUM_SQUARES] = sum_squares,
    [QDRI_K_ADAMW_RATE] = adamw_rate,
    [QDRI_K_ADAMW_BEGIN] = adamw_begin,
    [QDRI_K_ADAMW] = adamw,
    [QDRI_K_COPY_BLOCK] = copy_block,
    [QDRI_K_REDUCE] = gather,
    [QDRI_K_TO_KEYS] = gather,
    [QDRI_K_FROM_KEYS] = gather,
    [QDRI_K_ENCODE] = encode,
    [QDRI_K_DECODE] = decode,
    [QDRI_K_DECODE_SUM] = decode_sum,
};

void fake_find_accesses(const qdri_kernel *kernel, list *found)
{
    found->name = qdri_kernel_name(kernel->kind);
    found->n = 0;
    finders[kernel->kind](kernel, found);
}
