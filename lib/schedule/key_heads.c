/* SPDX-License-Identifier: Apache-2.0 */
/* Key heads of attention. */
#include "schedule/key_heads.h"

#include "core/block.h"
#include "core/size.h"
#include "schedule/op_bytes.h"

enum { ALIGN = 64 };

void qdri_key_heads_plan(const qdr_block cols[QDR_MAX_BLOCKS], const qdr_owned *own, qdr_axis axis, int n_parts,
                         qdr_attention *local, qdri_key_heads *keys)
{
    const qdr_range *queries = &own->cols[0], *key = &own->cols[1];
    const int64_t size = local->head_size;
    *keys = (qdri_key_heads){.axis = axis,
                             .first_query = queries->begin / size,
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
    local->n_heads = (queries->end - queries->begin) / size;
    local->n_kv_heads = keys->n_own;
    if (!keys->gathered) return;
    /* The kernel assigns the same number of queries to each of its key heads. */
    const int64_t each = qdri_common_divisor(qdri_common_divisor(keys->group, keys->first_query), local->n_heads);
    local->n_kv_heads = local->n_heads / each;
}

qdr_status qdri_key_heads_parts(const qdr_attention *local, const qdri_key_heads *keys, qdri_key_heads_bytes *bytes)
{
    const size_t row = (size_t)local->head_size * qdr_dtype_bytes(local->dtype);
    bytes->one = qdri_align_bytes((size_t)local->n_rows * row, ALIGN);
    bytes->heads = 2 * (size_t)keys->n_all * bytes->one;
    bytes->own = 2 * (size_t)keys->n_own * bytes->one;
    bytes->assembled = (size_t)(local->n_heads + 2 * local->n_kv_heads) * bytes->one;
    QDR_TRY(qdri_attention_bytes(local, &bytes->kernel_saved, &bytes->kernel_work));
    bytes->kernel_saved = qdri_align_bytes(bytes->kernel_saved, ALIGN);
    bytes->kernel_work = qdri_align_bytes(bytes->kernel_work, ALIGN);
    return QDR_OK;
}

qdr_status qdri_key_heads_sizes(const qdr_attention *local, const qdri_key_heads *keys, size_t *saved_bytes,
                                size_t *work_bytes)
{
    qdri_key_heads_bytes bytes;
    if (!keys->gathered) return qdri_attention_bytes(local, saved_bytes, work_bytes);
    QDR_TRY(qdri_key_heads_parts(local, keys, &bytes));
    *saved_bytes = bytes.kernel_saved + bytes.assembled;
    *work_bytes = bytes.kernel_work + bytes.heads + bytes.assembled + bytes.own + bytes.one;
    return QDR_OK;
}
