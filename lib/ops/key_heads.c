/* SPDX-License-Identifier: Apache-2.0 */
/* Attention whose queries need key heads of other ranks: grouped queries on an axis with more ranks than key heads.
 * Keys and values are gathered over the axis, and the gradients of each head are summed over the ranks that used it;
 * here are the copies between the matrices of the attention and heads in one piece. */
#include "ops/ops.h"
#include "ops/steps.h"

/* Rows of a matrix: the address of the first, and the distance between rows. */
typedef struct rows {
    char *at;
    size_t stride;
} rows;

static size_t row_bytes(const qdr_attention *local) { return (size_t)local->head_size * qdr_dtype_bytes(local->dtype); }

/* The columns of the heads from `first` on, in a matrix of n_heads queries, n_keys keys and n_keys values. */
static rows columns(const qdr_attention *local, const void *matrix, int64_t n_keys, int64_t first)
{
    const size_t row = row_bytes(local);
    return (rows){(char *)(uintptr_t)matrix + (size_t)first * row, (size_t)(local->n_heads + 2 * n_keys) * row};
}

/* Key head `number`, or its values, among heads in one piece. */
static rows head_of(const qdr_attention *local, const void *heads, int64_t number, int is_value)
{
    const size_t row = row_bytes(local), head = (size_t)local->n_rows * row;
    return (rows){(char *)(uintptr_t)heads + (size_t)(2 * number + is_value) * head, row};
}

/* The model's key head that is the kernel's head `slot`. */
static int64_t key_of(const qdr_attention *local, const qdri_key_heads *keys, int64_t slot)
{
    return (keys->first_query + slot * (local->n_heads / local->n_kv_heads)) / keys->group;
}

static qdr_status copy(const qdr_attention *local, rows from, rows to, int64_t n_heads, qdr_stream *stream)
{
    qdri_kernel kernel = {.kind = QDRI_K_COPY_BLOCK, .dtype = QDR_U8};
    kernel.u.block.n_rows = local->n_rows;
    kernel.u.block.row_bytes = (size_t)n_heads * row_bytes(local);
    kernel.u.block.x = from.at;
    kernel.u.block.x_stride = from.stride;
    kernel.u.block.y = to.at;
    kernel.u.block.y_stride = to.stride;
    return qdri_kernel_run(stream, &kernel);
}

qdr_status qdri_keys_copy_own(const qdr_attention *local, const qdri_key_heads *keys, void *qkv, void *own, int unpack,
                              qdr_stream *stream)
{
    for (int64_t i = 0; i < 2 * keys->n_own; i++) {
        const int is_value = i >= keys->n_own;
        const rows head = head_of(local, own, i - is_value * keys->n_own, is_value);
        const rows column = columns(local, qkv, keys->n_own, local->n_heads + i);
        QDR_TRY(copy(local, unpack ? head : column, unpack ? column : head, 1, stream));
    }
    return QDR_OK;
}

qdr_status qdri_keys_assemble(const qdr_attention *local, const qdri_key_heads *keys, const void *qkv,
                              const void *heads, void *assembled, qdr_stream *stream)
{
    const int64_t n_queries = local->n_heads, n_keys = local->n_kv_heads;
    QDR_TRY(copy(local, columns(local, qkv, keys->n_own, 0), columns(local, assembled, n_keys, 0), n_queries, stream));
    for (int64_t i = 0; i < 2 * n_keys; i++) {
        const int is_value = i >= n_keys;
        const rows from = head_of(local, heads, key_of(local, keys, i - is_value * n_keys), is_value);
        QDR_TRY(copy(local, from, columns(local, assembled, n_keys, n_queries + i), 1, stream));
    }
    return QDR_OK;
}

qdr_status qdri_keys_spread(const qdr_attention *local, const qdri_key_heads *keys, const void *d_assembled,
                            void *heads, void *dqkv, void *work, qdr_stream *stream)
{
    const int64_t n_queries = local->n_heads, n_keys = local->n_kv_heads;
    QDR_TRY(qdri_fill_zero(stream, heads, 2 * (size_t)(keys->n_all * local->n_rows) * row_bytes(local)));
    for (int64_t i = 0; i < 2 * n_keys; i++) {
        const int is_value = i >= n_keys;
        const rows from = columns(local, d_assembled, n_keys, n_queries + i);
        const rows to = head_of(local, heads, key_of(local, keys, i - is_value * n_keys), is_value);
        /* to += from, by way of `work`, which has the rows of a head without gaps. */
        const qdri_kernel sum = qdri_sum_of_two(local->n_rows * local->head_size, local->dtype, to.at, work, to.at);
        QDR_TRY(copy(local, from, (rows){work, row_bytes(local)}, 1, stream));
        QDR_TRY(qdri_kernel_run(stream, &sum));
    }
    return copy(local, columns(local, d_assembled, n_keys, 0), columns(local, dqkv, keys->n_own, 0), n_queries, stream);
}
