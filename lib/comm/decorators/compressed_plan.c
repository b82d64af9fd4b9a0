/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/decorators/compressed_plan.h"

#include <stdlib.h>
#include <string.h>

#include "comm/internal.h"
#include "core/block.h"
#include "core/codec.h"
#include "core/size.h"

int64_t qdri_code_chunk_bytes;

int qdri_coll_is_coded(const qdri_coll *coll)
{
    const int is_sum = coll->op == QDR_SUM && qdri_coll_reduces(coll);
    return coll->codec && (is_sum || coll->kind == QDR_ALL_GATHER) && qdri_codec_shortens(coll->codec, coll->dtype);
}

qdri_code_key qdri_code_key_of(const qdri_coll *coll, int size, int64_t chunk_bytes)
{
    qdri_code_key key;
    memset(&key, 0, sizeof key);
    key.codec = *coll->codec;
    key.count = coll->count;
    key.split_unit = coll->split_unit;
    key.row_elems = coll->row_elems;
    key.chunk_bytes = qdri_code_chunk_bytes ? qdri_code_chunk_bytes : chunk_bytes;
    key.kind = (int32_t)coll->kind;
    key.dtype = (int32_t)coll->dtype;
    if (coll->counts) key.parts = qdri_digest_of(coll->counts, (size_t)size * sizeof *coll->counts) | 1;
    return key;
}

int64_t qdri_code_chunk(const qdri_code_plan *plan, int c, int j)
{
    const int64_t left = plan->n[j] - c * plan->chunk_elems;
    return left < 0 ? 0 : left < plan->chunk_elems ? left : plan->chunk_elems;
}

static int64_t message_bytes(const qdri_code_plan *plan, int64_t n_elems)
{
    return qdri_coded_bytes(&plan->key.codec, (qdr_dtype)plan->key.dtype, n_elems, plan->key.row_elems);
}

/* Parts of an all-reduce are whole rows. */
static void cut_all_reduce(qdri_code_plan *plan, const qdri_coded_group *group, const qdri_coll *coll)
{
    const int64_t unit = coll->row_elems ? coll->row_elems : 1;
    int64_t end;
    qdri_split(coll->count, unit, group->per_node, group->index, &plan->slice_begin, &end);
    plan->n_elems = end - plan->slice_begin;
    plan->is_exchange = plan->n_parts == 2;
    for (int j = 0; j < plan->n_parts; j++) {
        plan->begin[j] = 0;
        end = plan->n_elems;
        if (!plan->is_exchange) qdri_split(plan->n_elems, unit, plan->n_parts, j, &plan->begin[j], &end);
        plan->n[j] = end - plan->begin[j];
    }
}

/* Parts of counterparts: where they are, in a gather; if members of a node have summed them, one after the other. */
static void cut_by_members(qdri_code_plan *plan, const qdri_coded_group *group, const qdri_coll *coll)
{
    const int size = group->n_nodes * group->per_node;
    int64_t begin;
    for (int j = 0; j < size; j++) qdri_coll_part(coll, size, j, &begin, &plan->members[j]);
    for (int k = 0; k < plan->n_parts; k++) {
        qdri_coll_part(coll, size, k * group->per_node + group->index, &plan->begin[k], &plan->n[k]);
        if (coll->kind == QDR_REDUCE_SCATTER && group->per_node > 1) plan->begin[k] = plan->n_elems;
        plan->n_elems += plan->n[k];
    }
    if (coll->kind == QDR_REDUCE_SCATTER && group->per_node > 1)
        plan->slice_bytes = (size_t)plan->n_elems * qdr_dtype_bytes(coll->dtype);
}

static void cut_chunks(qdri_code_plan *plan)
{
    const qdri_coded_coll coll = {.codec = &plan->key.codec,
                                  .kind = (qdr_coll_kind)plan->key.kind,
                                  .dtype = (qdr_dtype)plan->key.dtype,
                                  .row_elems = plan->key.row_elems};
    int64_t most = 0;
    for (int j = 0; j < plan->n_parts; j++)
        if (plan->n[j] > most) most = plan->n[j];
    plan->chunk_elems = qdri_coded_chunk_elems(&coll, plan->n_parts, plan->key.chunk_bytes);
    plan->n_chunks = (int)qdri_ceil_div(most, plan->chunk_elems);
}

static void raise(size_t *most, int64_t bytes)
{
    if ((size_t)bytes > *most) *most = (size_t)bytes;
}

static void count_bytes(qdri_code_plan *plan)
{
    const int sums = plan->key.kind != (int32_t)QDR_ALL_GATHER, gathers = plan->key.kind != (int32_t)QDR_REDUCE_SCATTER;
    const int64_t each = (int64_t)qdr_dtype_bytes((qdr_dtype)plan->key.dtype);
    const int is_known = plan->key.codec.kind != QDR_CODEC_LOSSLESS;
    if (!is_known) plan->lengths_bytes = 3 * (size_t)plan->n_parts * sizeof(int64_t);
    for (int c = 0; c < plan->n_chunks; c++) {
        const int64_t mine = qdri_code_chunk(plan, c, plan->own), own_bytes = message_bytes(plan, mine);
        int64_t at = (int64_t)c * plan->n_parts, sent = 0, received = 0, gathered = 0, saved = 0;
        for (int j = 0; j < plan->n_parts; j++, at++) {
            const int64_t n = qdri_code_chunk(plan, c, j);
            const int is_own = j == plan->own;
            plan->sends[at] = is_own ? 0 : message_bytes(plan, n);
            plan->receives[at] = is_own ? 0 : own_bytes;
            plan->gathers[at] = message_bytes(plan, n);
            sent += plan->sends[at];
            received += plan->receives[at];
            gathered += plan->gathers[at];
            if (is_own) continue;
            if (sums && !plan->is_exchange) saved += n * each - (is_known ? plan->sends[at] : 0);
            if (gathers) saved += mine * each - (is_known ? own_bytes : 0);
        }
        raise(&plan->send_bytes, sums && !plan->is_exchange ? sent : 0);
        raise(&plan->receive_bytes, sums && !plan->is_exchange ? received : 0);
        raise(&plan->gather_bytes, gathers ? gathered : 0);
        const qdri_message message = {.codec = &plan->key.codec, .dtype = (qdr_dtype)plan->key.dtype, .n = mine};
        if (sums) raise(&plan->scratch_bytes, (int64_t)qdri_sum_scratch_bytes(&message));
        plan->bytes_saved += saved;
    }
}

/* However the caller wrote down the parts and the codec. */
static qdri_call call_of(const qdri_code_plan *plan, const qdri_coll *coll, int size)
{
    qdri_code_key same = plan->key;
    same.codec.block = qdri_codec_block(&same.codec);
    same.count = qdri_coll_total(coll, size);
    same.split_unit = 0;
    same.parts = qdri_digest_of(plan->members, (size_t)size * sizeof *plan->members);
    qdri_call made = {coll->kind, coll->dtype, same.count, "", qdri_digest_of(&same, sizeof same) | 1};
    qdr_codec_text(coll->codec, made.codec, sizeof made.codec);
    return made;
}

qdr_status qdri_code_plan_create(const qdri_coded_group *group, const qdri_coll *coll, int64_t chunk_bytes,
                                 qdri_code_plan **plan)
{
    qdri_code_plan *made = NULL;
    const int n_parts = group->n_nodes, size = n_parts * group->per_node;
    *plan = NULL;
    QDR_TRY(QDRI_NEW(1, "the plan of a coded collective", &made));
    made->key = qdri_code_key_of(coll, size, chunk_bytes);
    made->n_parts = n_parts;
    made->own = group->node;
    qdr_status status = QDRI_NEW(2 * n_parts + size, "parts of a coded collective", &made->begin);
    QDR_TRY_OUT(status, status);
    made->n = made->begin + n_parts;
    made->members = made->n + n_parts;
    if (coll->kind == QDR_ALL_REDUCE)
        cut_all_reduce(made, group, coll);
    else
        cut_by_members(made, group, coll);
    made->called = call_of(made, coll, size);
    cut_chunks(made);
    status = QDRI_NEW(3 * (size_t)made->n_chunks * (size_t)n_parts + 1, "messages of a coded collective", &made->sends);
    QDR_TRY_OUT(status, status);
    made->receives = made->sends + (size_t)made->n_chunks * (size_t)n_parts;
    made->gathers = made->receives + (size_t)made->n_chunks * (size_t)n_parts;
    count_bytes(made);
    *plan = made;
    return QDR_OK;
out:
    qdri_code_plan_free(made);
    return status;
}

void qdri_code_plan_free(qdri_code_plan *plan)
{
    if (!plan) return;
    free(plan->begin);
    free(plan->sends);
    free(plan);
}

size_t qdri_code_slot_bytes(const qdri_code_plan *plan)
{
    return qdri_align_bytes(plan->send_bytes, QDRI_CODED_STAGING_ALIGN) +
           qdri_align_bytes(plan->receive_bytes, QDRI_CODED_STAGING_ALIGN) +
           qdri_align_bytes(plan->gather_bytes, QDRI_CODED_STAGING_ALIGN) +
           qdri_align_bytes(plan->lengths_bytes, QDRI_CODED_STAGING_ALIGN);
}

size_t qdri_code_staging_bytes(const qdri_code_plan *plan)
{
    return QDRI_CODED_SLOTS * qdri_code_slot_bytes(plan) +
           qdri_align_bytes(plan->scratch_bytes, QDRI_CODED_STAGING_ALIGN) +
           qdri_align_bytes(plan->slice_bytes, QDRI_CODED_STAGING_ALIGN);
}
