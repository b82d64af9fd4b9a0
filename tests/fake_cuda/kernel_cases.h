/* SPDX-License-Identifier: Apache-2.0 */
/* One small kernel of each kind and variant, with its memory in one block. */
#ifndef FAKE_CUDA_KERNEL_CASES_H
#define FAKE_CUDA_KERNEL_CASES_H

#include "core/operands.h"
#include "dev/device.h"
#include "narrow.h"
#include "qdr_test.h"

/* Rows are whole sequences of 3. */
#ifndef KERNEL_CASE_ROWS
#define KERNEL_CASE_ROWS 6
#define KERNEL_CASE_COLS 7
#define KERNEL_CASE_BYTES (64 << 10)
#endif
enum { CASE_BYTES = KERNEL_CASE_BYTES, N_CASES = 2, ROWS = KERNEL_CASE_ROWS, COLS = KERNEL_CASE_COLS };

typedef struct kernel_case {
    qdri_kernel kernel;
    int number; /* 0: overwrites, 1: adds, or is otherwise different */
    uint64_t random;
    size_t used, work_begin, work_bytes; /* work: of attention, which may do there what it likes */
    _Alignas(64) unsigned char arena[CASE_BYTES];
} kernel_case;

static void fill_case(kernel_case *c, void *data, qdr_dtype dtype, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double value = (double)test_between(&c->random, 1, 1000) / 500;
        if (dtype == QDR_F64) ((double *)data)[i] = value;
        if (dtype == QDR_F32) ((float *)data)[i] = (float)value;
        if (is_narrow(dtype)) ((uint16_t *)data)[i] = narrow_bits(dtype, value);
    }
}

static void *take(kernel_case *c, qdr_dtype dtype, int64_t n)
{
    void *data = c->arena + c->used;
    c->used += ((size_t)n * qdr_dtype_bytes(dtype) + 127) / 64 * 64; /* and a gap */
    assert_true(c->used <= CASE_BYTES);
    fill_case(c, data, dtype, n);
    return data;
}

static qdr_dtype sums_of(qdr_dtype dtype) { return dtype == QDR_F64 ? QDR_F64 : QDR_F32; }

static int32_t *take_ids(kernel_case *c, int64_t n, int32_t below)
{
    int32_t *ids = take(c, QDR_I32, n);
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)test_between(&c->random, -1, below - 1);
    return ids;
}

static int32_t *take_first_keys(kernel_case *c, int64_t n, int64_t context)
{
    int32_t *keys = take(c, QDR_I32, n);
    for (int64_t i = 0; i < n; i++)
        keys[i] = (int32_t)test_between(&c->random, i % context ? keys[i - 1] : 0, i % context);
    return keys;
}

static void binary_case(kernel_case *c)
{
    qdri_kernel *k = &c->kernel;
    const int has_dtype2 = k->kind == QDRI_K_ADD || k->kind == QDRI_K_CAST;
    const qdr_dtype other = k->dtype == QDR_BF16 ? QDR_F32 : QDR_BF16;
    const qdr_dtype dtype2 = has_dtype2 && c->number ? other : k->dtype;
    k->u.binary.n = COLS;
    k->u.binary.dtype2 = dtype2;
    k->accumulate = c->number;
    k->u.binary.a = take(c, k->dtype, COLS);
    k->u.binary.b = take(c, dtype2, COLS);
    k->u.binary.y = take(c, k->kind == QDRI_K_CAST ? dtype2 : k->dtype, COLS);
}

/* Alone, or gated and added to. */
static void activation_case(kernel_case *c)
{
    qdri_kernel *k = &c->kernel;
    const int64_t n = ROWS * COLS, n_in = c->number ? 2 * n : n;
    k->u.activation.n_rows = ROWS;
    k->u.activation.n_cols = COLS;
    k->u.activation.function = c->number ? QDR_SILU : QDR_GELU_ERF;
    k->u.activation.gated = c->number;
    k->accumulate = c->number;
    k->u.activation.x = take(c, k->dtype, n_in);
    k->u.activation.dy = take(c, k->dtype, n);
    k->u.activation.y = take(c, k->dtype, n);
    k->u.activation.dx = take(c, k->dtype, n_in);
}

static void parts_case(kernel_case *c)
{
    c->kernel.u.parts.n = COLS;
    c->kernel.u.parts.n_parts = 3;
    c->kernel.u.parts.x = take(c, c->kernel.dtype, 3 * COLS);
    c->kernel.u.parts.y = take(c, c->kernel.dtype, COLS);
}

/* Positions: few rows that wrap around, or more rows than positions. */
static void rows_case(kernel_case *c)
{
    qdri_kernel *k = &c->kernel;
    const int sums = k->kind == QDRI_K_COLUMN_SUM || k->kind == QDRI_K_POSITION_SUM;
    k->u.rows.n_rows = ROWS;
    k->u.rows.n_cols = COLS;
    k->u.rows.context = c->number ? ROWS + 2 : ROWS - 1;
    k->u.rows.row0 = 4;
    k->accumulate = c->number;
    k->u.rows.x = take(c, k->dtype, ROWS * COLS);
    k->u.rows.y = take(c, k->dtype, ROWS * COLS);
    k->u.rows.p = take(c, sums ? sums_of(k->dtype) : k->dtype, k->u.rows.context * COLS);
}

static void norm_case(kernel_case *c)
{
    qdri_kernel *k = &c->kernel;
    const qdr_dtype sum = sums_of(k->dtype);
    const int64_t stride = COLS + (c->number && is_narrow(k->dtype) ? 2 : 0);
    k->u.norm.n_rows = ROWS;
    k->u.norm.n_cols = COLS;
    k->u.norm.stride = stride;
    k->u.norm.n_features = 2 * COLS;
    k->u.norm.is_rms = c->number;
    k->u.norm.n_parts = c->number ? 1 : 2;
    k->u.norm.epsilon = 1e-5;
    k->u.norm.x = take(c, k->dtype, ROWS * stride);
    k->u.norm.dy = take(c, k->dtype, ROWS * stride);
    k->u.norm.gamma = take(c, k->dtype, COLS);
    k->u.norm.beta = take(c, k->dtype, COLS);
    k->u.norm.y = take(c, k->dtype, ROWS * stride);
    k->u.norm.dx = take(c, k->dtype, ROWS * stride);
    k->u.norm.stats = take(c, sum, 2 * ROWS);
    k->u.norm.work = take(c, sum, 3 * ROWS * 2);
    k->u.norm.dgamma = take(c, sum, COLS);
    k->u.norm.dbeta = c->number ? take(c, sum, COLS) : NULL;
    k->accumulate = c->number;
}

static void attention_case(kernel_case *c)
{
    qdri_kernel *k = &c->kernel;
    const int64_t heads = c->number ? 4 : 2, size = 3, turned = c->number ? 2 : 0;
    const int64_t n_in = ROWS * (heads + 4) * size, n_out = ROWS * heads * size;
    const int is_forward = k->kind == QDRI_K_ATTENTION_FORWARD;
    k->u.attention.n_rows = ROWS;
    k->u.attention.context = 3;
    k->u.attention.window = c->number ? 2 : 3;
    k->u.attention.scale = 0.5;
    k->u.attention.cap = c->number;
    k->u.attention.n_heads = heads;
    k->u.attention.n_kv_heads = 2;
    k->u.attention.head_size = size;
    k->u.attention.rotary_columns = turned;
    k->u.attention.rotation = take(c, sums_of(k->dtype), 3 * turned);
    k->u.attention.head_norm = k->u.attention.has_sinks = k->accumulate = c->number;
    k->u.attention.epsilon = 0.5;
    k->u.attention.q_gamma = c->number ? take(c, k->dtype, size) : NULL;
    k->u.attention.k_gamma = c->number ? take(c, k->dtype, size) : NULL;
    k->u.attention.first_keys = c->number ? take_first_keys(c, ROWS, 3) : NULL;
    k->u.attention.sinks = c->number ? take(c, k->dtype, heads) : NULL;
    k->u.attention.d_q_gamma = c->number && !is_forward ? take(c, sums_of(k->dtype), size) : NULL;
    k->u.attention.d_k_gamma = c->number && !is_forward ? take(c, sums_of(k->dtype), size) : NULL;
    k->u.attention.d_sinks = c->number && !is_forward ? take(c, sums_of(k->dtype), heads) : NULL;
    k->u.attention.qkv = take(c, k->dtype, n_in);
    k->u.attention.y = take(c, k->dtype, n_out);
    k->u.attention.dy = take(c, k->dtype, n_out);
    k->u.attention.out = take(c, k->dtype, is_forward ? n_out : n_in);
    k->u.attention.saved = take(c, sums_of(k->dtype), ROWS * heads);
    c->work_begin = c->used;
    c->work_bytes = qdri_attention_work_bytes(k);
    k->u.attention.work = take(c, QDR_F32, (int64_t)c->work_bytes / 4);
}

static void embed_case(kernel_case *c)
{
    qdri_kernel *k = &c->kernel;
    const int is_forward = k->kind == QDRI_K_EMBED_FORWARD;
    k->u.embed.n_rows = ROWS;
    k->u.embed.n_cols = COLS;
    k->u.embed.begin = 2;
    k->u.embed.end = 6;
    k->u.embed.vocab = 8;
    k->u.embed.tokens = take_ids(c, ROWS, 8);
    k->u.embed.e = take(c, k->dtype, 4 * COLS);
    k->u.embed.dy = take(c, k->dtype, ROWS * COLS);
    k->u.embed.y = take(c, k->dtype, ROWS * COLS);
    k->u.embed.de = take(c, sums_of(k->dtype), 4 * COLS);
    k->accumulate = !is_forward && c->number;
}

static void ce_case(kernel_case *c)
{
    qdri_kernel *k = &c->kernel;
    const qdr_dtype sum = sums_of(k->dtype);
    k->u.ce.n_rows = ROWS;
    k->u.ce.n_cols = COLS;
    k->u.ce.begin = c->number ? 4 : 0;
    k->u.ce.vocab = COLS + 13;
    k->u.ce.scale = 0.5;
    k->u.ce.cap = c->number ? 5 : 0;
    k->u.ce.targets = take_ids(c, ROWS, 14);
    k->u.ce.logits = take(c, k->dtype, ROWS * COLS);
    k->u.ce.work = take(c, sum, ROWS);
    k->u.ce.work2 = take(c, sum, 2 * ROWS);
    k->u.ce.saved = take(c, sum, 2 * ROWS);
    k->u.ce.dlogits = take(c, k->dtype, ROWS * COLS);
    k->u.ce.result = take(c, QDR_F64, 2);
}

static void reduce_case(kernel_case *c)
{
    c->kernel.u.reduce.n = COLS;
    c->kernel.u.reduce.a = take(c, c->kernel.dtype, COLS);
    c->kernel.u.reduce.result = take(c, QDR_F64, 1);
    c->kernel.accumulate = c->number;
}

static void adamw_case(kernel_case *c)
{
    qdri_kernel *k = &c->kernel;
    const qdr_dtype sum = sums_of(k->dtype);
    k->u.adamw.n = COLS;
    k->u.adamw.p = take(c, k->dtype, COLS);
    k->u.adamw.master = is_narrow(k->dtype) ? take(c, sum, COLS) : NULL;
    k->u.adamw.g = take(c, sum, COLS);
    k->u.adamw.m = take(c, sum, COLS);
    k->u.adamw.v = take(c, sum, COLS);
    k->u.adamw.numbers = take(c, QDR_F64, sizeof *k->u.adamw.numbers / sizeof(double));
    k->u.adamw.clip_norm = c->number ? 0.1 : 0;
    k->u.adamw.lr = k->u.adamw.beta1 = k->u.adamw.beta2 = 0.5;
    k->u.adamw.epsilon = 1e-8;
    k->u.adamw.grad_scale = 2;
    k->u.adamw.skips = c->number;
}

static void block_case(kernel_case *c)
{
    c->kernel.u.block.n_rows = ROWS;
    c->kernel.u.block.row_bytes = 10;
    c->kernel.u.block.x_stride = 10;
    c->kernel.u.block.y_stride = c->number ? 13 : 10;
    c->kernel.u.block.x = take(c, QDR_F32, 100);
    c->kernel.u.block.y = take(c, QDR_F32, 100);
}

static void codec_case(kernel_case *c)
{
    enum { N = 150, RUN = 41, N_SOURCES = 4, MESSAGE = 512 };
    qdri_kernel *k = &c->kernel;
    if (k->dtype == QDR_F64) k->dtype = QDR_F32; /* F64 is never coded */
    k->u.codec.n = N;
    k->u.codec.run = c->number ? RUN : 0;
    k->u.codec.bits = c->number ? 4 : 16;
    k->u.codec.block = c->number ? 32 : 128;
    k->u.codec.flags = c->number ? QDR_CODEC_HADAMARD | QDR_CODEC_FEEDBACK : 0;
    k->accumulate = c->number;
    if (k->kind != QDRI_K_DECODE) k->u.codec.x = take(c, k->dtype, N);
    if (k->kind != QDRI_K_DECODE_SUM || c->number) k->u.codec.wire = take(c, QDR_F32, MESSAGE / 4);
    if (k->kind != QDRI_K_DECODE && c->number) k->u.codec.feedback = take(c, QDR_F32, N);
    if (k->kind != QDRI_K_ENCODE) k->u.codec.y = take(c, k->dtype, N);
    if (k->kind != QDRI_K_DECODE_SUM) return;
    k->u.codec.n_sources = N_SOURCES;
    k->u.codec.own = c->number ? 1 : -1;
    k->u.codec.stride = MESSAGE + 4;
    k->u.codec.sources = take(c, QDR_F32, N_SOURCES * (MESSAGE / 4 + 1));
}

static void (*const makers[QDRI_N_FAMILIES])(kernel_case *c) = {
    [QDRI_OF_BINARY] = binary_case, [QDRI_OF_PARTS] = parts_case,         [QDRI_OF_ROWS] = rows_case,
    [QDRI_OF_NORM] = norm_case,     [QDRI_OF_ATTENTION] = attention_case, [QDRI_OF_EMBED] = embed_case,
    [QDRI_OF_CE] = ce_case,         [QDRI_OF_REDUCE] = reduce_case,       [QDRI_OF_ADAMW] = adamw_case,
    [QDRI_OF_BLOCK] = block_case,   [QDRI_OF_CODEC] = codec_case,         [QDRI_OF_ACTIVATION] = activation_case,
};

/* The case of this kind, of a family that both CPUs and GPUs have. */
static void make_case(kernel_case *c, qdri_kernel_kind kind, qdr_dtype dtype, int number)
{
    memset(c, 0, sizeof *c);
    c->kernel.kind = kind;
    c->kernel.dtype = dtype;
    c->number = number;
    c->kernel.factor = number ? 0.5 : 0;
    c->random = (uint64_t)kind + 100 * (uint64_t)number;
    makers[qdri_family_of(kind)](c);
}

#endif
