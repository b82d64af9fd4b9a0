/* SPDX-License-Identifier: Apache-2.0 */
/* Argument checks of products and kernels. */
#include "core/dtype.h"
#include "core/operands.h"
#include "core/size.h"
#include "dev/device.h"

static qdr_status matrix_check(const char *name, const void *data, int64_t n_rows, int64_t n_cols, int64_t stride)
{
    int64_t n_elems = 0;
    if (n_rows == 0 || n_cols == 0) return QDR_OK;
    if (!data) return QDR_FAIL(QDR_ERR_ARGUMENT, "product: %s is NULL", name);
    if (stride < n_cols)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "product: the leading dimension %" PRId64 " of %s is less than its %" PRId64 " columns", stride,
                        name, n_cols);
    return qdri_mul_elems(n_rows, stride, &n_elems);
}

qdr_status qdri_gemm_check(const qdri_gemm *gemm)
{
    if (!gemm) return QDR_FAIL(QDR_ERR_ARGUMENT, "product: its description is NULL");
    if (gemm->m < 0 || gemm->n < 0 || gemm->k < 0)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "product: m, n, k are %" PRId64 ", %" PRId64 ", %" PRId64 "; none may be negative", gemm->m,
                        gemm->n, gemm->k);
    if (!qdri_is_float(gemm->dtype) || (gemm->c_dtype != gemm->dtype && gemm->c_dtype != qdri_sum_type(gemm->dtype)))
        return QDR_FAIL(QDR_ERR_DTYPE,
                        "product: operands of %s cannot give a result of %s; use " QDRI_FLOAT_NAMES
                        ", and the same type (or f32, for bf16 and f16) for the result",
                        qdr_dtype_name(gemm->dtype), qdr_dtype_name(gemm->c_dtype));
    const int a = (int)gemm->round_a, b = (int)gemm->round_b, rounds = a != QDRI_AS_STORED || b != QDRI_AS_STORED;
    if (rounds &&
        (a < QDRI_E4M3 || a > QDRI_E5M2 || b < QDRI_E4M3 || b > QDRI_E5M2 || (a == QDRI_E5M2 && b == QDRI_E5M2)))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "product: no product rounds A in way %d and B in way %d; use %d (e4m3) for "
                        "both, or %d (e5m2) for one of them",
                        a, b, QDRI_E4M3, QDRI_E5M2);
    if (rounds && gemm->dtype != QDR_BF16 && gemm->dtype != QDR_F32)
        return QDR_FAIL(QDR_ERR_DTYPE, "product: operands of %s cannot be rounded to fp8; use bf16 or f32",
                        qdr_dtype_name(gemm->dtype));
    if (gemm->m == 0 || gemm->n == 0) return QDR_OK;
    const int ta = gemm->trans_a != 0, tb = gemm->trans_b != 0;
    QDR_TRY(matrix_check("A", gemm->a, ta ? gemm->k : gemm->m, ta ? gemm->m : gemm->k, gemm->lda));
    QDR_TRY(matrix_check("B", gemm->b, tb ? gemm->n : gemm->k, tb ? gemm->k : gemm->n, gemm->ldb));
    return matrix_check("C", gemm->c, gemm->m, gemm->n, gemm->ldc);
}

static const char *name_of(const qdri_kernel *kernel) { return qdri_kernel_name(kernel->kind); }

static qdr_status not_null(const qdri_kernel *kernel, const char *what, const void *data, int64_t n_elems)
{
    if (data || n_elems == 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %s is NULL, but has %" PRId64 " elements", name_of(kernel), what, n_elems);
}

/* Checks that the extents are not negative and that their product fits. */
static qdr_status sizes(const qdri_kernel *kernel, int64_t a, int64_t b)
{
    int64_t product;
    if (a < 0 || b < 0)
        return QDR_FAIL(QDR_ERR_SHAPE, "%s: the sizes are %" PRId64 " and %" PRId64 "; neither may be negative",
                        name_of(kernel), a, b);
    return qdri_mul_elems(a, b, &product);
}

static qdr_status operands_check(const qdri_kernel *kernel)
{
    const qdri_operand *all;
    const int n = qdri_kernel_operands(kernel->kind, &all);
    for (int i = 0; i < n; i++)
        if (!all[i].is_optional && !qdri_operand_pointer(kernel, &all[i]))
            QDR_TRY(not_null(kernel, all[i].name, NULL, qdri_operand_elems(kernel, &all[i])));
    return QDR_OK;
}

static qdr_status binary_check(const qdri_kernel *kernel)
{
    const int has_dtype2 = kernel->kind == QDRI_K_ADD || kernel->kind == QDRI_K_CAST;
    if (has_dtype2 && !qdri_is_float(kernel->u.binary.dtype2))
        return QDR_FAIL(QDR_ERR_DTYPE, "element-wise kernel: the second type is %s; use " QDRI_FLOAT_NAMES,
                        qdr_dtype_name(kernel->u.binary.dtype2));
    return sizes(kernel, kernel->u.binary.n, 1);
}

static qdr_status parts_check(const qdri_kernel *kernel)
{
    if (kernel->u.parts.n_parts < 1)
        return QDR_FAIL(QDR_ERR_SHAPE, "%s: %d parts; at least 1", name_of(kernel), kernel->u.parts.n_parts);
    return sizes(kernel, kernel->u.parts.n, kernel->u.parts.n_parts);
}

static qdr_status rows_check(const qdri_kernel *kernel)
{
    const int has_rows = kernel->kind == QDRI_K_POSITION_ADD || kernel->kind == QDRI_K_POSITION_SUM;
    if (has_rows && (kernel->u.rows.context < 1 || kernel->u.rows.row0 < 0))
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "%s: context %" PRId64 " and first row %" PRId64 "; they must be at least 1 and 0",
                        name_of(kernel), kernel->u.rows.context, kernel->u.rows.row0);
    return sizes(kernel, kernel->u.rows.n_rows, kernel->u.rows.n_cols);
}

static qdr_status activation_check(const qdri_kernel *kernel)
{
    const int function = (int)kernel->u.activation.function, gated = kernel->u.activation.gated;
    int64_t in_cols;
    if (function < 0 || function >= QDRI_N_ACTIVATIONS || gated < 0 || gated > 1)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: function %d, gated %d; use functions 0 to %d, gated or not (1, 0)",
                        name_of(kernel), function, gated, QDRI_N_ACTIVATIONS - 1);
    QDR_TRY(sizes(kernel, kernel->u.activation.n_rows, kernel->u.activation.n_cols));
    QDR_TRY(qdri_mul_elems(kernel->u.activation.n_cols, 1 + gated, &in_cols));
    return sizes(kernel, kernel->u.activation.n_rows, in_cols);
}

static qdr_status norm_check(const qdri_kernel *kernel)
{
    const qdri_kernel_kind kind = kernel->kind;
    const int64_t n_rows = kernel->u.norm.n_rows, n_cols = kernel->u.norm.n_cols, stride = kernel->u.norm.stride;
    QDR_TRY(sizes(kernel, n_rows, n_cols));
    if (kind != QDRI_K_NORM_MERGE && n_rows > 1 && stride < n_cols)
        return QDR_FAIL(QDR_ERR_SHAPE, "%s: rows of %" PRId64 " columns, but a stride of %" PRId64, name_of(kernel),
                        n_cols, stride);
    if (kind == QDRI_K_NORM_MERGE && kernel->u.norm.n_parts < 1)
        return QDR_FAIL(QDR_ERR_SHAPE, "%s: %d parts to merge; at least 1", name_of(kernel), kernel->u.norm.n_parts);
    if ((kind == QDRI_K_NORM_BACKWARD || (kind == QDRI_K_NORM_MOMENTS && kernel->u.norm.is_rms)) &&
        kernel->u.norm.n_features < 1 && n_rows * n_cols > 0)
        return QDR_FAIL(QDR_ERR_SHAPE, "%s: %" PRId64 " features in all; at least 1", name_of(kernel),
                        kernel->u.norm.n_features);
    return QDR_OK;
}

static qdr_status attention_check(const qdri_kernel *kernel)
{
    const int64_t rows = kernel->u.attention.n_rows, context = kernel->u.attention.context;
    const int64_t heads = kernel->u.attention.n_heads, kv_heads = kernel->u.attention.n_kv_heads;
    int64_t width = 0;
    if (rows < 0 || heads < 0 || kv_heads < 0 || kernel->u.attention.head_size < 1 || context < 1 ||
        rows % context != 0 || (heads > 0 && (kv_heads == 0 || heads % kv_heads != 0)))
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "attention: %" PRId64 " rows, context %" PRId64 ", %" PRId64 " heads over %" PRId64
                        " key heads of size %" PRId64 "; rows must be whole contexts and key heads divide heads",
                        rows, context, heads, kv_heads, kernel->u.attention.head_size);
    if (kernel->u.attention.window < 1 || kernel->u.attention.window > context)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "attention: a window of %" PRId64 " in a context of %" PRId64 "; use 1 to %" PRId64,
                        kernel->u.attention.window, context, context);
    const int64_t turned = kernel->u.attention.rotary_columns;
    if (turned < 0 || turned % 2 != 0 || turned > kernel->u.attention.head_size)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "attention: %" PRId64 " rotary columns of %" PRId64 "; use an even number of them", turned,
                        kernel->u.attention.head_size);
    QDR_TRY(qdri_mul_elems(heads + 2 * kv_heads, kernel->u.attention.head_size, &width));
    return sizes(kernel, rows, width);
}

/* Checks that the n words from `begin` on are within the whole vocabulary, if that is known. */
static qdr_status vocab_check(const qdri_kernel *kernel, int64_t begin, int64_t n, int64_t vocab)
{
    if (vocab == 0 || (vocab > 0 && begin <= vocab - n)) return QDR_OK;
    return QDR_FAIL(QDR_ERR_SHAPE,
                    "%s: a part of %" PRId64 " words from %" PRId64 " on is outside a vocabulary of %" PRId64
                    "; 0 means not known",
                    name_of(kernel), n, begin, vocab);
}

static qdr_status embed_check(const qdri_kernel *kernel)
{
    const int64_t words = kernel->u.embed.end - kernel->u.embed.begin;
    QDR_TRY(sizes(kernel, kernel->u.embed.n_rows, kernel->u.embed.n_cols));
    QDR_TRY(sizes(kernel, words, kernel->u.embed.n_cols));
    return vocab_check(kernel, kernel->u.embed.begin, words, kernel->u.embed.vocab);
}

static qdr_status ce_check(const qdri_kernel *kernel)
{
    QDR_TRY(sizes(kernel, kernel->u.ce.n_rows, kernel->u.ce.n_cols));
    return vocab_check(kernel, kernel->u.ce.begin, kernel->u.ce.n_cols, kernel->u.ce.vocab);
}

static qdr_status reduce_check(const qdri_kernel *kernel) { return sizes(kernel, kernel->u.reduce.n, 1); }

static qdr_status adamw_check(const qdri_kernel *kernel)
{
    if (kernel->kind == QDRI_K_ADAMW_BEGIN && !(kernel->u.adamw.grad_scale > 0))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "AdamW: gradients are scaled by %g; 1 means not at all",
                        kernel->u.adamw.grad_scale);
    if (kernel->kind != QDRI_K_ADAMW) return QDR_OK;
    QDR_TRY(sizes(kernel, kernel->u.adamw.n, 1));
    return qdri_is_narrow(kernel->dtype)
               ? not_null(kernel, "the fp32 master copy", kernel->u.adamw.master, kernel->u.adamw.n)
               : QDR_OK;
}

static qdr_status block_check(const qdri_kernel *kernel)
{
    const size_t bytes = kernel->u.block.row_bytes;
    if (kernel->u.block.n_rows > 1 && (kernel->u.block.x_stride < bytes || kernel->u.block.y_stride < bytes))
        return QDR_FAIL(QDR_ERR_SHAPE, "block copy: rows of %zu bytes, but strides of %zu and %zu", bytes,
                        kernel->u.block.x_stride, kernel->u.block.y_stride);
    return sizes(kernel, kernel->u.block.n_rows, 1);
}

/* Also accepts I32, unlike other kernels. */
static qdr_status gather_check(const qdri_kernel *kernel)
{
    const int n_sources = kernel->u.gather.n_sources, n_results = kernel->u.gather.n_results;
    if (!qdri_is_float(kernel->dtype) && kernel->dtype != QDR_I32)
        return QDR_FAIL(QDR_ERR_DTYPE, "%s: the type is %s; use f32, f64, bf16, f16 or i32", name_of(kernel),
                        qdr_dtype_name(kernel->dtype));
    if (n_sources < 1 || n_sources > QDRI_REDUCE_MOST || n_results < 1 || n_results > QDRI_REDUCE_MOST)
        return QDR_FAIL(QDR_ERR_SHAPE, "%s: %d sources and %d results; 1 to %d of each", name_of(kernel), n_sources,
                        n_results, QDRI_REDUCE_MOST);
    const int64_t n = kernel->u.gather.n;
    QDR_TRY(sizes(kernel, n, 1));
    for (int i = 0; i < n_sources; i++) QDR_TRY(not_null(kernel, "a source", kernel->u.gather.sources[i], n));
    for (int i = 0; i < n_results; i++) QDR_TRY(not_null(kernel, "a result", kernel->u.gather.results[i], n));
    return QDR_OK;
}

static qdr_status code_parts_check(const qdri_kernel *kernel)
{
    const int n_parts = kernel->u.codec.n_parts;
    if (n_parts < 0 || n_parts > QDRI_CODE_PARTS_MOST)
        return QDR_FAIL(QDR_ERR_SHAPE, "%s: %d messages at once; at most %d", name_of(kernel), n_parts,
                        QDRI_CODE_PARTS_MOST);
    for (int i = 0; i < n_parts; i++) {
        const qdri_code_part *part = &kernel->u.codec.parts[i];
        if (part->n < 0 || part->n > kernel->u.codec.n)
            return QDR_FAIL(QDR_ERR_SHAPE, "%s: message %d has %" PRId64 " elements, the longest %" PRId64,
                            name_of(kernel), i, part->n, kernel->u.codec.n);
        QDR_TRY(not_null(kernel, "the message", part->wire, part->n));
        QDR_TRY(kernel->kind == QDRI_K_ENCODE ? not_null(kernel, "x", part->x, part->n)
                                              : not_null(kernel, "y", part->y, part->n));
    }
    return QDR_OK;
}

static qdr_status codec_check(const qdri_kernel *kernel)
{
    const qdri_kernel_kind kind = kernel->kind;
    const int64_t n = kernel->u.codec.n;
    const int bits = kernel->u.codec.bits, block = kernel->u.codec.block;
    if (!qdri_is_float(kernel->dtype) || kernel->dtype == QDR_F64)
        return QDR_FAIL(QDR_ERR_DTYPE, "%s: the type is %s; use f32, bf16 or f16", name_of(kernel),
                        qdr_dtype_name(kernel->dtype));
    const int is_bf16 = bits == 0 && kernel->dtype == QDR_F32 && block == 128;
    if (!is_bf16 &&
        ((bits != 4 && bits != 8 && bits != 16) || (block != 32 && block != 64 && block != 128 && block != 256)))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %d bits in blocks of %d; use 4, 8 or 16 in 32, 64, 128 or 256",
                        name_of(kernel), bits, block);
    QDR_TRY(sizes(kernel, n, 1));
    QDR_TRY(sizes(kernel, kernel->u.codec.run, 1));
    if (kind != QDRI_K_DECODE_SUM && kernel->u.codec.n_parts) return code_parts_check(kernel);
    if (kind != QDRI_K_DECODE_SUM) QDR_TRY(not_null(kernel, "the message", kernel->u.codec.wire, n));
    if (kind == QDRI_K_ENCODE) return not_null(kernel, "x", kernel->u.codec.x, n);
    if (kind == QDRI_K_DECODE_SUM) {
        const int n_sources = kernel->u.codec.n_sources, own = kernel->u.codec.own;
        if (n_sources < 1 || own < -1 || own >= n_sources)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: source %d of %d is raw; at least 1 source, of which -1 to n - 1",
                            name_of(kernel), own, n_sources);
        if (own >= 0) QDR_TRY(not_null(kernel, "x", kernel->u.codec.x, n));
        if (n_sources > 1 || own < 0) QDR_TRY(not_null(kernel, "the messages", kernel->u.codec.sources, n));
    }
    return not_null(kernel, "y", kernel->u.codec.y, n);
}

static qdr_status pack_check(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.codec.n;
    if (kernel->dtype != QDR_F32 && kernel->dtype != QDR_BF16)
        return QDR_FAIL(QDR_ERR_DTYPE, "%s: the type is %s; use f32 or bf16", name_of(kernel),
                        qdr_dtype_name(kernel->dtype));
    QDR_TRY(sizes(kernel, n, 1));
    QDR_TRY(not_null(kernel, "the message", kernel->u.codec.wire, n));
    if (kernel->kind == QDRI_K_PACK) {
        QDR_TRY(not_null(kernel, "the number of bytes", kernel->u.codec.n_bytes, 1));
        return not_null(kernel, "x", kernel->u.codec.x, n);
    }
    return not_null(kernel, "y", kernel->u.codec.y, n);
}

static qdr_status (*const checks[QDRI_N_FAMILIES])(const qdri_kernel *kernel) = {
    [QDRI_OF_BINARY] = binary_check, [QDRI_OF_PARTS] = parts_check,           [QDRI_OF_ROWS] = rows_check,
    [QDRI_OF_NORM] = norm_check,     [QDRI_OF_ATTENTION] = attention_check,   [QDRI_OF_EMBED] = embed_check,
    [QDRI_OF_CE] = ce_check,         [QDRI_OF_REDUCE] = reduce_check,         [QDRI_OF_ADAMW] = adamw_check,
    [QDRI_OF_BLOCK] = block_check,   [QDRI_OF_GATHER] = gather_check,         [QDRI_OF_CODEC] = codec_check,
    [QDRI_OF_PACK] = pack_check,     [QDRI_OF_ACTIVATION] = activation_check,
};

qdr_status qdri_kernel_check(const qdri_kernel *kernel)
{
    if (!kernel) return QDR_FAIL(QDR_ERR_ARGUMENT, "kernel: its description is NULL");
    if ((int)kernel->kind < 0 || kernel->kind >= QDRI_N_KERNELS)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "kernel: there is no kernel %d", (int)kernel->kind);
    const qdri_kernel_family family = qdri_family_of(kernel->kind);
    if (family < QDRI_OF_BLOCK && !qdri_is_float(kernel->dtype))
        return QDR_FAIL(QDR_ERR_DTYPE, "kernel: the type is %s; use " QDRI_FLOAT_NAMES, qdr_dtype_name(kernel->dtype));
    QDR_TRY(checks[family](kernel));
    return operands_check(kernel);
}

qdr_status qdri_fail_id(const char *what, int64_t row, int32_t id, int64_t vocab)
{
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "%s in row %" PRId64 " on this rank is %" PRId32 ", but the vocabulary has %" PRId64
                    "; use 0 to %" PRId64 ", or a negative one for none",
                    what, row, id, vocab, vocab - 1);
}

qdr_status qdri_fail_first_key(int64_t row, int32_t first_key, int32_t least, int64_t most)
{
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "attention: the first key in row %" PRId64 " on this rank is %" PRId32 "; use %" PRId32
                    ", that of the row before it in the sequence, to %" PRId64 ", the row's own place there",
                    row, first_key, least, most);
}

qdr_status qdri_fail_rate(double lr)
{
    return QDR_FAIL(
        QDR_ERR_ARGUMENT,
        "adamw: the learning rate of this rank's step is %.17g, and another rank's differs (QDR_CHECK=1 names "
        "it); give every rank the same",
        lr);
}
