/* SPDX-License-Identifier: Apache-2.0 */
/* Which elements of a collective belong to which member. */
#include <string.h>

#include "comm/internal.h"
#include "core/block.h"

int qdri_coll_reduces(const qdri_coll *coll)
{
    return coll->kind == QDR_REDUCE_SCATTER || coll->kind == QDR_ALL_REDUCE;
}

const void *qdri_coll_source(const qdri_coll *coll) { return coll->send ? coll->send : coll->recv; }

int64_t qdri_coll_offset(const int64_t *counts, int64_t count, int j)
{
    if (!counts) return j * count;
    int64_t begin = 0;
    for (int i = 0; i < j; i++) begin += counts[i];
    return begin;
}

static void locate(const int64_t *counts, int64_t count, int j, int64_t *begin, int64_t *n)
{
    *begin = qdri_coll_offset(counts, count, j);
    *n = counts ? counts[j] : count;
}

void qdri_coll_part(const qdri_coll *coll, int size, int j, int64_t *begin, int64_t *n)
{
    const int is_whole = coll->kind == QDR_ALL_REDUCE || coll->kind == QDR_BROADCAST;
    const int64_t unit = is_whole ? 1 : coll->split_unit;
    if (unit == 0 || coll->counts) {
        locate(coll->counts, coll->count, j, begin, n);
        return;
    }
    int64_t end;
    qdri_split(coll->count, unit, size, j, begin, &end);
    *n = end - *begin;
}

/* A length is another member's word: no more than there is room for is taken. */
static void shorten(const int64_t *lengths, int j, int64_t *n)
{
    if (lengths && lengths[j] < *n) *n = lengths[j] < 0 ? 0 : lengths[j];
}

void qdri_coll_outgoing(const qdri_coll *coll, int j, int64_t *begin, int64_t *n)
{
    locate(coll->counts, coll->count, j, begin, n);
    shorten(coll->lengths, j, n);
}

void qdri_coll_incoming(const qdri_coll *coll, int j, int64_t *begin, int64_t *n)
{
    locate(coll->recv_counts, coll->count, j, begin, n);
    shorten(coll->recv_lengths, j, n);
}

void qdri_coll_gathered(const qdri_coll *coll, int size, int j, int64_t *begin, int64_t *n)
{
    qdri_coll_part(coll, size, j, begin, n);
    shorten(coll->lengths, j, n);
}

void qdri_coll_extent(const qdri_coll *coll, int size, int rank, int64_t *begin, int64_t *n_send, int64_t *n_recv)
{
    *begin = 0;
    *n_send = *n_recv = coll->count;
    switch (coll->kind) {
    case QDR_ALL_GATHER:
        qdri_coll_part(coll, size, rank, begin, n_send);
        *n_recv = qdri_coll_total(coll, size);
        break;
    case QDR_REDUCE_SCATTER:
        *n_send = qdri_coll_total(coll, size);
        qdri_coll_part(coll, size, rank, begin, n_recv);
        break;
    case QDR_BROADCAST:
        *n_send = coll->peer == rank ? coll->count : 0;
        *n_recv = coll->count - *n_send;
        break;
    case QDR_ALL_TO_ALL:
        *n_send = qdri_coll_offset(coll->counts, coll->count, size);
        *n_recv = qdri_coll_offset(coll->recv_counts, coll->count, size);
        break;
    case QDR_SEND_RECV:
        *n_send = coll->peer < 0 ? 0 : coll->count;
        *n_recv = coll->peer2 < 0 ? 0 : coll->recv_count;
        break;
    default: break;
    }
}

int64_t qdri_coll_total(const qdri_coll *coll, int size)
{
    if (coll->kind == QDR_ALL_TO_ALL || coll->kind == QDR_SEND_RECV) return -1;
    if (coll->kind == QDR_ALL_REDUCE || coll->kind == QDR_BROADCAST) return coll->count;
    if (!coll->counts) return coll->split_unit > 0 ? coll->count : size * coll->count;
    return qdri_coll_offset(coll->counts, 0, size);
}

qdri_compared qdri_coll_compared(const qdri_coll *coll, int size)
{
    const qdri_call own = {coll->kind, coll->dtype, qdri_coll_total(coll, size), "", 0};
    return (qdri_compared){own, coll->stage_of ? *coll->stage_of : own, (int)coll->op,
                           coll->kind == QDR_BROADCAST ? coll->peer : 0};
}

const void *qdri_at(const void *p, int64_t n, qdr_dtype dtype)
{
    return p ? (const char *)p + (size_t)n * qdr_dtype_bytes(dtype) : NULL;
}

void *qdri_at_mutable(void *p, int64_t n, qdr_dtype dtype)
{
    return p ? (char *)p + (size_t)n * qdr_dtype_bytes(dtype) : NULL;
}

void qdri_coll_copy(qdr_dtype dtype, void *dst, const void *src, int64_t n_elems)
{
    if (n_elems > 0 && dst != src) memcpy(dst, src, (size_t)n_elems * qdr_dtype_bytes(dtype));
}
