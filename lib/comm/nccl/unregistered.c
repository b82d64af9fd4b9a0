/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives that avoid registered memory. NCCL requires a send and its receive to be both registered or both
 * not, and a rank knows only its own memory. So they never use registered memory directly: its contents go through
 * staging. */
#include "comm/nccl/internal.h"
#include "core/size.h"

/* data = NULL: the memory is not known yet, because staging is computed in advance. */
static int may_be_registered(const qdri_comm *comm, const void *data)
{
    return !data || qdri_nccl_memory_has((const nccl_comm *)comm, data);
}

/* Number of elements that are sent from registered memory. */
static int64_t n_sent(const qdri_comm *comm, const qdri_coll *coll)
{
    if (!may_be_registered(comm, coll->send)) return 0;
    switch (coll->kind) {
    case QDR_REDUCE_SCATTER: return qdri_coll_total(coll, comm->size);
    case QDR_ALL_TO_ALL: return qdri_coll_offset(coll->counts, coll->count, comm->size);
    case QDR_SEND_RECV: return coll->peer < 0 ? 0 : coll->count;
    default: return 0; /* all-gather: the own part is copied to recv and sent from there */
    }
}

static int64_t n_received(const qdri_comm *comm, const qdri_coll *coll)
{
    if (!may_be_registered(comm, coll->recv)) return 0;
    switch (coll->kind) {
    case QDR_ALL_GATHER: return qdri_coll_total(coll, comm->size);
    case QDR_ALL_TO_ALL: return qdri_coll_offset(coll->recv_counts, coll->count, comm->size);
    case QDR_SEND_RECV: return coll->peer2 < 0 ? 0 : coll->recv_count;
    default: return 0; /* reduce-scatter: a kernel adds what was received */
    }
}

static size_t bytes_of(const qdri_coll *coll, int64_t n)
{
    return qdri_align_bytes((size_t)n * qdr_dtype_bytes(coll->dtype), 16);
}

size_t qdri_nccl_unregistered_bytes(const qdri_comm *comm, const qdri_coll *coll)
{
    if (!((const nccl_comm *)comm->root)->registers) return 0;
    return bytes_of(coll, n_sent(comm, coll)) + bytes_of(coll, n_received(comm, coll));
}

static qdr_status copy(const nccl_call *c, void *dst, const void *src, int64_t n)
{
    if (n == 0) return QDR_OK;
    return qdri_copy(c->stream, dst, src, (size_t)n * qdr_dtype_bytes(c->coll->dtype));
}

qdr_status qdri_nccl_run_unregistered(const nccl_call *c, size_t staged, qdr_status (*run)(const nccl_call *c))
{
    qdri_coll moved = *c->coll;
    nccl_call call = *c;
    char *at = (char *)c->staging + staged;
    const int64_t n_out = n_sent(&c->comm->base, c->coll), n_in = n_received(&c->comm->base, c->coll);
    call.coll = &moved;
    if (n_out > 0) {
        moved.send = at;
        QDR_TRY(copy(c, at, c->coll->send, n_out));
        at += bytes_of(&moved, n_out);
    }
    if (n_in > 0) {
        int64_t begin;
        (void)qdri_nccl_part(c, c->comm->base.rank, &begin);
        if (moved.kind == QDR_ALL_GATHER && !moved.send) moved.send = qdri_at(moved.recv, begin, moved.dtype);
        moved.recv = at;
    }
    QDR_TRY(run(&call));
    return copy(c, c->coll->recv, at, n_in);
}
