/* SPDX-License-Identifier: Apache-2.0 */
/* The operands of kernels. */
#include "core/operands.h"

#include <string.h>

#include "core/dtype.h"
#include "core/size.h"

/* ---- the table ---- */

#define OPERAND(name, member, use, type, extent, times, is_optional)                                                   \
    {                                                                                                                  \
        name, offsetof(qdri_kernel, u.member), QDRI_OPERAND_##use, QDRI_OPERAND_##type, QDRI_PER_##extent, times,      \
            is_optional                                                                                                \
    }
#define READ(name, member, type, extent, times) OPERAND(name, member, READ, type, extent, times, 0)
#define WRITE(name, member, type, extent, times) OPERAND(name, member, WRITTEN, type, extent, times, 0)
#define SUM(name, member, type, extent, times) OPERAND(name, member, SUMMED, type, extent, times, 0)
#define UPDATE(name, member, type, extent, times) OPERAND(name, member, UPDATED, type, extent, times, 0)

static const qdri_operand add[] = {READ("a", binary.a, T, ELEMENT, 1), READ("b", binary.b, DTYPE2, ELEMENT, 1),
                                   WRITE("y", binary.y, T, ELEMENT, 1)};
static const qdri_operand cast[] = {READ("a", binary.a, T, ELEMENT, 1), WRITE("y", binary.y, DTYPE2, ELEMENT, 1)};
static const qdri_operand sum_parts[] = {READ("x", parts.x, T, PART, 1), WRITE("y", parts.y, T, ELEMENT, 1)};
static const qdri_operand activation[] = {READ("x", activation.x, T, INPUT, 1),
                                          WRITE("y", activation.y, T, ELEMENT, 1)};
static const qdri_operand activation_backward[] = {READ("dy", activation.dy, T, ELEMENT, 1),
                                                   READ("x", activation.x, T, INPUT, 1),
                                                   SUM("dx", activation.dx, T, INPUT, 1)};

static const qdri_operand bias_add[] = {READ("b", rows.p, T, COLUMN, 1), UPDATE("y", rows.y, T, ELEMENT, 1)};
static const qdri_operand column_sum[] = {READ("x", rows.x, T, ELEMENT, 1), SUM("sum", rows.p, A, COLUMN, 1)};
static const qdri_operand position_add[] = {READ("P", rows.p, T, TABLE, 1), UPDATE("y", rows.y, T, ELEMENT, 1)};
static const qdri_operand position_sum[] = {READ("dy", rows.x, T, ELEMENT, 1), SUM("dP", rows.p, A, TABLE, 1)};

static const qdri_operand norm_moments[] = {READ("x", norm.x, T, ELEMENT, 1), WRITE("moments", norm.work, A, ROW, 3)};
static const qdri_operand norm_merge[] = {READ("moments", norm.work, A, PART, 3),
                                          WRITE("statistics", norm.stats, A, ROW, 2)};
static const qdri_operand norm_apply[] = {READ("x", norm.x, T, ELEMENT, 1), READ("statistics", norm.stats, A, ROW, 2),
                                          READ("gamma", norm.gamma, T, COLUMN, 1),
                                          OPERAND("beta", norm.beta, READ, T, COLUMN, 1, 1),
                                          WRITE("y", norm.y, T, ELEMENT, 1)};
static const qdri_operand norm_sums[] = {READ("dy", norm.dy, T, ELEMENT, 1),
                                         READ("x", norm.x, T, ELEMENT, 1),
                                         READ("statistics", norm.stats, A, ROW, 2),
                                         READ("gamma", norm.gamma, T, COLUMN, 1),
                                         WRITE("sums", norm.work, A, ROW, 2),
                                         OPERAND("dgamma", norm.dgamma, SUMMED, A, COLUMN, 1, 1),
                                         OPERAND("dbeta", norm.dbeta, SUMMED, A, COLUMN, 1, 1)};
static const qdri_operand norm_backward[] = {
    READ("dy", norm.dy, T, ELEMENT, 1),        READ("x", norm.x, T, ELEMENT, 1),
    READ("statistics", norm.stats, A, ROW, 2), READ("gamma", norm.gamma, T, COLUMN, 1),
    READ("sums", norm.work, A, ROW, 2),        SUM("dx", norm.dx, T, ELEMENT, 1)};

#define FIRST_KEYS OPERAND("first keys", attention.first_keys, READ, I32, ROW, 1, 1)
static const qdri_operand attention[] = {
    READ("qkv", attention.qkv, T, QKV, 1),           READ("rotation", attention.rotation, A, ROTATION, 1),
    READ("q gamma", attention.q_gamma, T, GAMMA, 1), READ("k gamma", attention.k_gamma, T, GAMMA, 1),
    READ("sinks", attention.sinks, T, SINK, 1),      FIRST_KEYS,
    WRITE("y", attention.out, T, ELEMENT, 1),        WRITE("saved", attention.saved, A, HEAD, 1),
    WRITE("work", attention.work, BYTE, WORK, 1)};
static const qdri_operand attention_backward[] = {READ("dy", attention.dy, T, ELEMENT, 1),
                                                  READ("qkv", attention.qkv, T, QKV, 1),
                                                  READ("y", attention.y, T, ELEMENT, 1),
                                                  READ("saved", attention.saved, A, HEAD, 1),
                                                  READ("rotation", attention.rotation, A, ROTATION, 1),
                                                  READ("q gamma", attention.q_gamma, T, GAMMA, 1),
                                                  READ("k gamma", attention.k_gamma, T, GAMMA, 1),
                                                  READ("sinks", attention.sinks, T, SINK, 1),
                                                  FIRST_KEYS,
                                                  WRITE("dqkv", attention.out, T, QKV, 1),
                                                  WRITE("work", attention.work, BYTE, WORK, 1),
                                                  SUM("q gamma's gradient", attention.d_q_gamma, A, GAMMA, 1),
                                                  SUM("k gamma's gradient", attention.d_k_gamma, A, GAMMA, 1),
                                                  SUM("sinks' gradient", attention.d_sinks, A, SINK, 1)};

static const qdri_operand embed[] = {READ("tokens", embed.tokens, I32, ROW, 1), READ("E", embed.e, T, TABLE, 1),
                                     WRITE("y", embed.y, T, ELEMENT, 1)};
static const qdri_operand embed_backward[] = {READ("tokens", embed.tokens, I32, ROW, 1),
                                              READ("dy", embed.dy, T, ELEMENT, 1), SUM("dE", embed.de, A, TABLE, 1)};

static const qdri_operand ce_max[] = {READ("logits", ce.logits, T, ELEMENT, 1), WRITE("maxima", ce.work, A, ROW, 1)};
static const qdri_operand ce_sums[] = {READ("logits", ce.logits, T, ELEMENT, 1),
                                       READ("targets", ce.targets, I32, ROW, 1), READ("maxima", ce.work, A, ROW, 1),
                                       WRITE("sums", ce.work2, A, ROW, 2)};
static const qdri_operand ce_loss[] = {READ("targets", ce.targets, I32, ROW, 1), READ("maxima", ce.work, A, ROW, 1),
                                       READ("sums", ce.work2, A, ROW, 2), WRITE("loss", ce.result, F64, CALL, 2),
                                       WRITE("saved", ce.saved, A, ROW, 2)};
static const qdri_operand ce_backward[] = {READ("logits", ce.logits, T, ELEMENT, 1),
                                           READ("targets", ce.targets, I32, ROW, 1), READ("saved", ce.saved, A, ROW, 2),
                                           WRITE("dlogits", ce.dlogits, T, ELEMENT, 1)};

static const qdri_operand sum_squares[] = {READ("g", reduce.a, T, ELEMENT, 1), SUM("sum", reduce.result, F64, CALL, 1)};
enum { N_NUMBERS = sizeof(qdri_adamw_numbers) / sizeof(double) };
static const qdri_operand adamw_numbers[] = {UPDATE("numbers", adamw.numbers, F64, CALL, N_NUMBERS)};
static const qdri_operand adamw[] = {
    READ("g", adamw.g, A, ELEMENT, 1),   READ("numbers", adamw.numbers, F64, CALL, N_NUMBERS),
    UPDATE("p", adamw.p, T, ELEMENT, 1), UPDATE("m", adamw.m, A, ELEMENT, 1),
    UPDATE("v", adamw.v, A, ELEMENT, 1), OPERAND("master", adamw.master, UPDATED, A, ELEMENT, 1, 1)};

static const qdri_operand copy[] = {READ("x", block.x, BYTE, ELEMENT, 1), WRITE("y", block.y, BYTE, ELEMENT, 1)};
static const qdri_operand zero[] = {WRITE("y", block.y, BYTE, ELEMENT, 1)};

static const struct {
    const qdri_operand *all;
    int n;
} table[QDRI_N_KERNELS] = {
#define ROW(list)                                                                                                      \
    {                                                                                                                  \
        list, sizeof(list) / sizeof *(list)                                                                            \
    }
    [QDRI_K_ADD] = ROW(add),
    [QDRI_K_SUM_PARTS] = ROW(sum_parts),
    [QDRI_K_CAST] = ROW(cast),
    [QDRI_K_BIAS_ADD] = ROW(bias_add),
    [QDRI_K_COLUMN_SUM] = ROW(column_sum),
    [QDRI_K_ACTIVATION_FORWARD] = ROW(activation),
    [QDRI_K_ACTIVATION_BACKWARD] = ROW(activation_backward),
    [QDRI_K_NORM_MOMENTS] = ROW(norm_moments),
    [QDRI_K_NORM_MERGE] = ROW(norm_merge),
    [QDRI_K_NORM_APPLY] = ROW(norm_apply),
    [QDRI_K_NORM_SUMS] = ROW(norm_sums),
    [QDRI_K_NORM_BACKWARD] = ROW(norm_backward),
    [QDRI_K_ATTENTION_FORWARD] = ROW(attention),
    [QDRI_K_ATTENTION_BACKWARD] = ROW(attention_backward),
    [QDRI_K_EMBED_FORWARD] = ROW(embed),
    [QDRI_K_EMBED_BACKWARD] = ROW(embed_backward),
    [QDRI_K_POSITION_ADD] = ROW(position_add),
    [QDRI_K_POSITION_SUM] = ROW(position_sum),
    [QDRI_K_CE_MAX] = ROW(ce_max),
    [QDRI_K_CE_SUMS] = ROW(ce_sums),
    [QDRI_K_CE_LOSS] = ROW(ce_loss),
    [QDRI_K_CE_BACKWARD] = ROW(ce_backward),
    [QDRI_K_SUM_SQUARES] = ROW(sum_squares),
    [QDRI_K_ADAMW_RATE] = ROW(adamw_numbers),
    [QDRI_K_ADAMW_BEGIN] = ROW(adamw_numbers),
    [QDRI_K_ADAMW] = ROW(adamw),
    [QDRI_K_COPY_BLOCK] = ROW(copy),
    [QDRI_K_COPY] = ROW(copy),
    [QDRI_K_ZERO] = ROW(zero),
};

int qdri_kernel_operands(qdri_kernel_kind kind, const qdri_operand **operands)
{
    *operands = table[kind].all;
    return table[kind].n;
}

/* ---- extents ---- */

typedef struct extents {
    int64_t rows, cols, in_blocks, qkv_cols, heads, parts, table_rows, turned_cols, gammas, sinks;
} extents;

static extents extents_of(const qdri_kernel *kernel)
{
    switch (qdri_family_of(kernel->kind)) {
    case QDRI_OF_BINARY: return (extents){.rows = kernel->u.binary.n, .cols = 1};
    case QDRI_OF_PARTS: return (extents){.rows = kernel->u.parts.n, .cols = 1, .parts = kernel->u.parts.n_parts};
    case QDRI_OF_ROWS:
        return (extents){
            .rows = kernel->u.rows.n_rows, .cols = kernel->u.rows.n_cols, .table_rows = kernel->u.rows.context};
    case QDRI_OF_ACTIVATION:
        return (extents){.rows = kernel->u.activation.n_rows,
                         .cols = kernel->u.activation.n_cols,
                         .in_blocks = 1 + kernel->u.activation.gated};
    case QDRI_OF_NORM:
        return (extents){.rows = kernel->u.norm.n_rows, .cols = kernel->u.norm.n_cols, .parts = kernel->u.norm.n_parts};
    case QDRI_OF_ATTENTION: {
        const int64_t heads = kernel->u.attention.n_heads, size = kernel->u.attention.head_size;
        return (extents){.rows = kernel->u.attention.n_rows,
                         .cols = heads * size,
                         .qkv_cols = (heads + 2 * kernel->u.attention.n_kv_heads) * size,
                         .heads = heads,
                         .table_rows = kernel->u.attention.context,
                         .turned_cols = kernel->u.attention.rotary_columns,
                         .gammas = kernel->u.attention.head_norm ? size : 0,
                         .sinks = kernel->u.attention.has_sinks ? heads : 0};
    }
    case QDRI_OF_EMBED:
        return (extents){.rows = kernel->u.embed.n_rows,
                         .cols = kernel->u.embed.n_cols,
                         .table_rows = kernel->u.embed.end - kernel->u.embed.begin};
    case QDRI_OF_CE: return (extents){.rows = kernel->u.ce.n_rows, .cols = kernel->u.ce.n_cols};
    case QDRI_OF_REDUCE: return (extents){.rows = kernel->u.reduce.n, .cols = 1};
    case QDRI_OF_ADAMW: return (extents){.rows = kernel->u.adamw.n, .cols = 1};
    case QDRI_OF_BLOCK:
        return (extents){.rows = kernel->kind == QDRI_K_COPY_BLOCK ? kernel->u.block.n_rows : 1,
                         .cols = (int64_t)kernel->u.block.row_bytes};
    default: return (extents){.rows = 0};
    }
}

static int64_t at_most(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

int64_t qdri_operand_elems(const qdri_kernel *kernel, const qdri_operand *operand)
{
    const extents e = extents_of(kernel);
    const int reads = operand->use == QDRI_OPERAND_READ;
    const int is_rms = qdri_family_of(kernel->kind) == QDRI_OF_NORM && kernel->u.norm.is_rms;
    int64_t n = 1;
    switch (operand->extent) {
    case QDRI_PER_ELEMENT: n = at_most(e.rows, e.cols); break;
    case QDRI_PER_INPUT: n = at_most(at_most(e.rows, e.cols), e.in_blocks); break;
    case QDRI_PER_QKV: n = at_most(e.rows, e.qkv_cols); break;
    case QDRI_PER_ROW: n = e.rows; break;
    case QDRI_PER_COLUMN: n = reads && e.rows == 0 ? 0 : e.cols; break;
    case QDRI_PER_HEAD: n = at_most(e.rows, e.heads); break;
    case QDRI_PER_PART: n = at_most(e.rows, e.parts); break;
    case QDRI_PER_WORK: n = e.rows == 0 || e.heads == 0 ? 0 : (int64_t)qdri_attention_work_bytes(kernel); break;
    case QDRI_PER_ROTATION: n = e.rows == 0 ? 0 : at_most(e.table_rows, e.turned_cols); break;
    case QDRI_PER_GAMMA: n = reads && e.rows == 0 ? 0 : e.gammas; break;
    case QDRI_PER_SINK: n = reads && e.rows == 0 ? 0 : e.sinks; break;
    case QDRI_PER_TABLE: n = reads && e.rows == 0 ? 0 : at_most(e.table_rows, e.cols); break;
    default: break;
    }
    return at_most(n, is_rms ? 1 : operand->times);
}

/* Blocks of scores, slopes of capped ones, panels of one head. */
size_t qdri_attention_thread_bytes(const qdri_kernel *kernel)
{
    const size_t context = (size_t)kernel->u.attention.context, size = (size_t)kernel->u.attention.head_size;
    const size_t n_blocks = kernel->u.attention.cap > 0 ? 3 : 2;
    const size_t n_panels = qdri_is_narrow(kernel->dtype)  ? 7 /* q, k, v, dy or y, dq, dk, dv */
                            : qdri_attention_turns(kernel) ? 2
                                                           : 0;
    const size_t bytes = context * (n_blocks * QDRI_ATTENTION_BLOCK + n_panels * size) *
                         qdr_dtype_bytes(qdri_sum_type(kernel->dtype));
    return qdri_align_bytes(bytes, 64);
}

/* On a GPU: sums, turned queries and keys. */
size_t qdri_attention_work_bytes(const qdri_kernel *kernel)
{
    const size_t size = (size_t)kernel->u.attention.head_size, on_cpu = qdri_attention_thread_bytes(kernel);
    const int is_turned = qdri_attention_turns(kernel);
    const size_t n_heads = (size_t)kernel->u.attention.n_heads + (size_t)kernel->u.attention.n_kv_heads;
    const size_t n_turned = is_turned ? (size_t)kernel->u.attention.n_rows * n_heads * size : 0;
    const size_t on_gpu = qdri_attention_sums_bytes(kernel) + n_turned * qdr_dtype_bytes(kernel->dtype);
    return qdri_align_bytes(on_cpu > on_gpu ? on_cpu : on_gpu, 64);
}

/* ---- pointers ---- */

void *qdri_operand_pointer(const qdri_kernel *kernel, const qdri_operand *operand)
{
    void *pointer;
    memcpy(&pointer, (const char *)kernel + operand->member, sizeof pointer);
    return pointer;
}

void qdri_kernel_bind(qdri_kernel *kernel, void *const *reads, int n_reads, void *const *writes, int n_writes)
{
    const qdri_operand *operand = table[kernel->kind].all, *end = operand + table[kernel->kind].n;
    int read = 0, written = 0;
    for (; operand < end; operand++) {
        void *pointer = NULL;
        if (operand->use == QDRI_OPERAND_READ && read < n_reads) pointer = reads[read++];
        if (operand->use != QDRI_OPERAND_READ && written < n_writes) pointer = writes[written++];
        memcpy((char *)kernel + operand->member, &pointer, sizeof pointer);
    }
}

/* ---- parts ---- */

/* Bytes of an operand from one row to the next; 0: all rows share it. */
static size_t row_step(const qdri_kernel *kernel, const qdri_operand *operand)
{
    const extents e = extents_of(kernel);
    const int is_norm = qdri_family_of(kernel->kind) == QDRI_OF_NORM;
    const size_t sum_bytes = qdr_dtype_bytes(qdri_sum_type(kernel->dtype));
    const size_t bytes[] = {[QDRI_OPERAND_T] = qdr_dtype_bytes(kernel->dtype),
                            [QDRI_OPERAND_A] = sum_bytes,
                            [QDRI_OPERAND_DTYPE2] = 0,
                            [QDRI_OPERAND_I32] = sizeof(int32_t),
                            [QDRI_OPERAND_F64] = sizeof(double),
                            [QDRI_OPERAND_BYTE] = 1};
    const size_t each = operand->type == QDRI_OPERAND_DTYPE2 ? qdr_dtype_bytes(kernel->u.binary.dtype2)
                                                             : bytes[operand->type];
    switch (operand->extent) {
    case QDRI_PER_ELEMENT: return each * (size_t)(is_norm ? kernel->u.norm.stride : e.cols);
    case QDRI_PER_INPUT: return each * (size_t)(e.cols * e.in_blocks);
    case QDRI_PER_QKV: return each * (size_t)e.qkv_cols;
    case QDRI_PER_ROW: return each * (size_t)(is_norm && kernel->u.norm.is_rms ? 1 : operand->times);
    case QDRI_PER_HEAD: return each * (size_t)e.heads;
    default: return 0;
    }
}

static int64_t *n_rows_of(qdri_kernel *kernel)
{
    switch (qdri_family_of(kernel->kind)) {
    case QDRI_OF_BINARY: return &kernel->u.binary.n;
    case QDRI_OF_ROWS: return &kernel->u.rows.n_rows;
    case QDRI_OF_ACTIVATION: return &kernel->u.activation.n_rows;
    case QDRI_OF_NORM: return &kernel->u.norm.n_rows;
    case QDRI_OF_ATTENTION: return &kernel->u.attention.n_rows;
    case QDRI_OF_EMBED: return &kernel->u.embed.n_rows;
    case QDRI_OF_CE: return &kernel->u.ce.n_rows;
    case QDRI_OF_ADAMW: return &kernel->u.adamw.n;
    default: return NULL;
    }
}

qdri_division qdri_kernel_division(const qdri_kernel *kernel)
{
    const qdri_operand *operand = table[kernel->kind].all, *end = operand + table[kernel->kind].n;
    const extents e = extents_of(kernel);
    qdri_division division = {.n_rows = e.rows, .row_elems = e.cols > e.qkv_cols ? e.cols : e.qkv_cols};
    if (operand == end || kernel->kind == QDRI_K_NORM_SUMS || qdri_family_of(kernel->kind) == QDRI_OF_BLOCK)
        return (qdri_division){0};
    if (kernel->kind == QDRI_K_SUM_PARTS) return (qdri_division){.n_cols = e.rows, .col_elems = e.parts};
    for (; operand < end; operand++) {
        const int sums = operand->use == QDRI_OPERAND_SUMMED;
        if (operand->extent == QDRI_PER_PART || (operand->extent == QDRI_PER_CALL && operand->use != QDRI_OPERAND_READ))
            return (qdri_division){0};
        if (sums && (operand->extent == QDRI_PER_COLUMN || operand->extent == QDRI_PER_TABLE)) {
            division.n_cols = e.cols;
            division.col_elems = e.rows;
        }
    }
    if (division.n_cols) division.n_rows = 0;
    return division;
}

void qdri_kernel_take_rows(qdri_kernel *kernel, int64_t first, int64_t n)
{
    const qdri_operand *operand = table[kernel->kind].all, *end = operand + table[kernel->kind].n;
    for (; operand < end; operand++) {
        char *pointer = qdri_operand_pointer(kernel, operand);
        if (pointer) pointer += (size_t)first * row_step(kernel, operand);
        memcpy((char *)kernel + operand->member, &pointer, sizeof pointer);
    }
    if (qdri_family_of(kernel->kind) == QDRI_OF_ROWS) kernel->u.rows.row0 += first;
    *n_rows_of(kernel) = n;
}

/* ---- names ---- */

const char *qdri_kernel_name(qdri_kernel_kind kind)
{
    static const char *const names[] = {
#define KERNEL(constant, name, family, function) name,
#include "core/kernel_list.h"
#undef KERNEL
    };
    return names[kind];
}
