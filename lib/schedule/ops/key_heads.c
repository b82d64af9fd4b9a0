/* SPDX-License-Identifier: Apache-2.0 */
/* Key heads of attention. A head's keys are followed by its values, each [n_rows, head_size]. */
#include "schedule/ops/key_heads.h"

#include "core/block.h"
#include "core/operands.h"
#include "core/size.h"

enum { ALIGN = 64 };

void qdri_key_heads_plan(const qdri_edge *qkv, int n_parts, qdri_kernel *kernel, qdri_key_heads *keys)
{
    const qdr_range *queries = &qkv->owned.cols[0], *key = &qkv->owned.cols[1];
    const qdr_block *cols = qkv->matrix.cols;
    const int64_t size = kernel->u.attention.head_size;
    *keys = (qdri_key_heads){.first_query = queries->begin / size,
                             .first_own = (key->begin - cols[0].width) / size,
                             .n_own = (key->end - key->begin) / size,
                             .n_all = cols[1].width / size,
                             .group = cols[0].width / cols[1].width};
    /* Unless every rank of the axis has exactly the key heads that its queries need. */
    for (int j = 0; j < n_parts; j++) {
        int64_t query_begin, query_end, key_begin, key_end;
        qdri_split(cols[0].width, cols[0].unit, n_parts, j, &query_begin, &query_end);
        qdri_split(cols[1].width, cols[1].unit, n_parts, j, &key_begin, &key_end);
        keys->gathered |= query_begin != key_begin * keys->group || query_end != key_end * keys->group;
    }
    const int64_t n_heads = (queries->end - queries->begin) / size;
    kernel->u.attention.n_heads = n_heads;
    kernel->u.attention.n_kv_heads = keys->n_own;
    if (!keys->gathered) return;
    /* The kernel assigns the same number of queries to each of its key heads. */
    const int64_t each = qdri_common_divisor(qdri_common_divisor(keys->group, keys->first_query), n_heads);
    kernel->u.attention.n_kv_heads = n_heads / each;
}

/* ---- memory ---- */

/* The saved state is the kernel's, followed by what was assembled; the workspace is the kernel's, followed by all
 * heads, a gradient of what was assembled, this rank's heads, and one head. */
typedef struct parts {
    size_t kernel_saved, kernel_work, assembled, heads, own, one;
} parts;

static size_t row_bytes(const qdri_kernel *kernel)
{
    return (size_t)kernel->u.attention.head_size * qdr_dtype_bytes(kernel->dtype);
}

static qdr_status kernel_bytes(const qdri_kernel *kernel, size_t *saved_bytes, size_t *work_bytes)
{
    *work_bytes = qdri_attention_work_bytes(kernel);
    return qdri_block_bytes(kernel->u.attention.n_heads, kernel->u.attention.n_rows, qdri_sum_type(kernel->dtype),
                            saved_bytes);
}

static qdr_status parts_of(const qdri_kernel *kernel, const qdri_key_heads *keys, parts *bytes)
{
    bytes->one = qdri_align_bytes((size_t)kernel->u.attention.n_rows * row_bytes(kernel), ALIGN);
    bytes->heads = 2 * (size_t)keys->n_all * bytes->one;
    bytes->own = 2 * (size_t)keys->n_own * bytes->one;
    bytes->assembled = (size_t)(kernel->u.attention.n_heads + 2 * kernel->u.attention.n_kv_heads) * bytes->one;
    QDR_TRY(kernel_bytes(kernel, &bytes->kernel_saved, &bytes->kernel_work));
    bytes->kernel_saved = qdri_align_bytes(bytes->kernel_saved, ALIGN);
    bytes->kernel_work = qdri_align_bytes(bytes->kernel_work, ALIGN);
    return QDR_OK;
}

qdr_status qdri_key_heads_sizes(const qdri_kernel *kernel, const qdri_key_heads *keys, size_t *saved_bytes,
                                size_t *work_bytes)
{
    parts bytes;
    if (!keys->gathered) return kernel_bytes(kernel, saved_bytes, work_bytes);
    QDR_TRY(parts_of(kernel, keys, &bytes));
    *saved_bytes = bytes.kernel_saved + bytes.assembled;
    *work_bytes = bytes.kernel_work + bytes.heads + bytes.assembled + bytes.own + bytes.one;
    return QDR_OK;
}

qdri_gathered_heads qdri_gathered_heads_of(const qdri_op_part *p)
{
    parts bytes = {0};
    const qdri_ref saved = p->node->saved, work = p->net->op_work;
    if (p->builder->status == QDR_OK) p->builder->status = parts_of(&p->node->kernel, &p->node->keys, &bytes);
    const size_t heads = bytes.kernel_work, d_assembled = heads + bytes.heads, own = d_assembled + bytes.assembled;
    return (qdri_gathered_heads){.saved = qdri_slice(saved, 0, bytes.kernel_saved),
                                 .assembled = qdri_slice(saved, bytes.kernel_saved, bytes.assembled),
                                 .heads = qdri_slice(work, heads, bytes.heads),
                                 .d_assembled = qdri_slice(work, d_assembled, bytes.assembled),
                                 .own = qdri_slice(work, own, bytes.own),
                                 .one = qdri_slice(work, own + bytes.own, bytes.one)};
}

/* ---- copies ---- */

/* Rows of a matrix: from the first to the end of the last, and the distance between them. */
typedef struct rows {
    qdri_ref ref;
    size_t stride;
} rows;

static rows rows_at(const qdri_op_part *p, qdri_ref matrix, size_t offset, size_t stride, int64_t n_heads)
{
    const size_t row = (size_t)n_heads * row_bytes(&p->node->kernel);
    const size_t bytes = p->n_rows ? (size_t)(p->n_rows - 1) * stride + row : 0;
    return (rows){qdri_slice(matrix, offset, bytes), stride};
}

/* The columns of n heads from `first` on, in a matrix of queries, n_keys keys and n_keys values. */
static rows columns(const qdri_op_part *p, qdri_ref matrix, int64_t n_keys, int64_t first, int64_t n)
{
    const size_t row = row_bytes(&p->node->kernel);
    const int64_t n_queries = p->node->kernel.u.attention.n_heads;
    return rows_at(p, matrix, (size_t)first * row, (size_t)(n_queries + 2 * n_keys) * row, n);
}

/* Key head `number`, or its values, among heads in one piece. */
static rows head_of(const qdri_op_part *p, qdri_ref heads, int64_t number, int is_value)
{
    const size_t row = row_bytes(&p->node->kernel), head = (size_t)p->n_rows * row;
    return rows_at(p, heads, (size_t)(2 * number + is_value) * head, row, 1);
}

/* The model's key head that is the kernel's head `slot`. */
static int64_t key_of(const qdri_op_part *p, int64_t slot)
{
    const qdri_kernel *kernel = &p->node->kernel;
    const int64_t each = kernel->u.attention.n_heads / kernel->u.attention.n_kv_heads;
    return (p->node->keys.first_query + slot * each) / p->node->keys.group;
}

static void copy(const qdri_op_part *p, rows from, rows to, int64_t n_heads)
{
    const qdri_kernel kernel = {.kind = QDRI_K_COPY_BLOCK,
                                .u.block = {.n_rows = p->n_rows,
                                            .row_bytes = (size_t)n_heads * row_bytes(&p->node->kernel),
                                            .x_stride = from.stride,
                                            .y_stride = to.stride}};
    qdri_op_add_kernel(p, &kernel, QDRI_NO_WORK, &(qdri_refs){1, {from.ref}}, &(qdri_refs){1, {to.ref}}, 0);
}

/* Gathers the key heads of all ranks, or sums their gradients. */
static void move(const qdri_op_part *p, qdr_coll_kind kind, const qdri_gathered_heads *g)
{
    const int64_t pair = 2 * p->node->kernel.u.attention.head_size; /* columns of the keys and values of a head */
    const int gathers = kind == QDR_ALL_GATHER;
    qdri_op_add_collective(p, p->node->axis, p->node->keys.n_all * pair,
                           &(qdri_task){.coll = kind,
                                        .n_reads = gathers ? 0 : 1,
                                        .reads = {g->heads},
                                        .n_writes = 1,
                                        .writes = {gathers ? g->heads : g->own},
                                        .split_unit = p->n_rows ? p->n_rows * pair : 1,
                                        .dtype = p->node->kernel.dtype});
}

void qdri_key_heads_gather(const qdri_op_part *p, const qdri_gathered_heads *g)
{
    const qdri_key_heads *keys = &p->node->keys;
    const int64_t n_queries = p->node->kernel.u.attention.n_heads, n_keys = p->node->kernel.u.attention.n_kv_heads;
    const qdri_ref qkv = qdri_op_input(p, 0);
    for (int64_t i = 0; i < 2 * keys->n_own; i++) {
        const int is_value = i >= keys->n_own;
        const int64_t number = keys->first_own + i - is_value * keys->n_own;
        copy(p, columns(p, qkv, keys->n_own, n_queries + i, 1), head_of(p, g->heads, number, is_value), 1);
    }
    move(p, QDR_ALL_GATHER, g);
    copy(p, columns(p, qkv, keys->n_own, 0, n_queries), columns(p, g->assembled, n_keys, 0, n_queries), n_queries);
    for (int64_t i = 0; i < 2 * n_keys; i++) {
        const int is_value = i >= n_keys;
        copy(p, head_of(p, g->heads, key_of(p, i - is_value * n_keys), is_value),
             columns(p, g->assembled, n_keys, n_queries + i, 1), 1);
    }
}

void qdri_key_heads_return(const qdri_op_part *p, const qdri_gathered_heads *g)
{
    const qdri_key_heads *keys = &p->node->keys;
    const int64_t n_queries = p->node->kernel.u.attention.n_heads, n_keys = p->node->kernel.u.attention.n_kv_heads;
    const qdri_ref dqkv = qdri_op_input_gradient(p, 0);
    const rows one = head_of(p, g->one, 0, 0);
    const qdri_kernel zero = {.kind = QDRI_K_ZERO, .u.block = {.row_bytes = g->heads.bytes}};
    /* Zeros for those that this rank did not use. */
    qdri_op_add_kernel(p, &zero, QDRI_NO_WORK, &(qdri_refs){0}, &(qdri_refs){1, {g->heads}}, 0);
    for (int64_t i = 0; i < 2 * n_keys; i++) {
        const int is_value = i >= n_keys;
        const qdri_ref to = head_of(p, g->heads, key_of(p, i - is_value * n_keys), is_value).ref;
        const qdri_kernel sum = {
            .kind = QDRI_K_ADD,
            .u.binary = {.n = p->n_rows * p->node->kernel.u.attention.head_size, .dtype2 = p->node->kernel.dtype}};
        copy(p, columns(p, g->d_assembled, n_keys, n_queries + i, 1), one, 1);
        qdri_op_add_kernel(p, &sum, QDRI_NO_WORK, &(qdri_refs){2, {to, one.ref}}, &(qdri_refs){1, {to}}, 0);
    }
    copy(p, columns(p, g->d_assembled, n_keys, 0, n_queries), columns(p, dqkv, keys->n_own, 0, n_queries), n_queries);
    move(p, QDR_REDUCE_SCATTER, g);
    for (int64_t i = 0; i < 2 * keys->n_own; i++) {
        const int is_value = i >= keys->n_own;
        copy(p, head_of(p, g->own, i - is_value * keys->n_own, is_value),
             columns(p, dqkv, keys->n_own, n_queries + i, 1), 1);
    }
}
