/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of the `nccl` backend: staging, time limits and counting around each collective. */
#include <stdlib.h>

#include "comm/nccl/internal.h"
#include "core/block.h"
#include "core/size.h"

/* Staging of a collective, and the event after its last use. */
struct nccl_held {
    nccl_held *next;
    qdri_staging *staging;
    qdr_event *used;
};

static ncclDataType_t type_of(qdr_dtype dtype)
{
    switch (dtype) {
    case QDR_F64: return ncclFloat64;
    case QDR_BF16: return ncclBfloat16;
    case QDR_F16: return ncclFloat16;
    case QDR_I32: return ncclInt32;
    case QDR_U8: return ncclUint8;
    default: return ncclFloat32;
    }
}

static ncclRedOp_t op_of(qdr_reduce op) { return op == QDR_MAX ? ncclMax : op == QDR_MIN ? ncclMin : ncclSum; }

/* ---- staging: reused by later collectives only when the GPU has finished with it ---- */

static void held_collect(nccl_comm *comm)
{
    for (nccl_held **link = &comm->held; *link;) {
        nccl_held *held = *link;
        if (!qdri_event_reached(held->used)) {
            link = &held->next;
            continue;
        }
        *link = held->next;
        qdri_staging_done(&comm->base, held->staging);
        qdri_event_destroy(&held->used);
        free(held);
    }
}

/* The staging memory itself is freed with the communicator's list. */
void qdri_nccl_held_free(nccl_comm *comm)
{
    while (comm->held) {
        nccl_held *held = comm->held;
        comm->held = held->next;
        qdri_event_destroy(&held->used);
        free(held);
    }
}

static qdr_status stage(nccl_call *c, nccl_held **held)
{
    const size_t bytes = qdri_nccl_scratch_bytes(&c->comm->base, c->coll);
    qdri_staging *staging = NULL;
    *held = NULL;
    held_collect(c->comm);
    if (bytes == 0) return QDR_OK;
    QDR_TRY(qdri_staging_take(&c->comm->base, bytes, &c->staging, &staging));
    if (!staging || qdri_nccl_is_captured(c->stream)) return QDR_OK; /* or kept to the end */
    qdr_status status = QDRI_NEW(1, "staging of a collective", held);
    if (status == QDR_OK) status = qdri_event_create(c->comm->base.dev, &(*held)->used);
    if (status != QDR_OK) {
        free(*held);
        qdri_staging_done(&c->comm->base, staging);
        return status;
    }
    (*held)->staging = staging;
    (*held)->next = c->comm->held;
    c->comm->held = *held;
    return QDR_OK;
}

/* ---- counting: as if each pair exchanged what it must ---- */

static int64_t sent_elems(const nccl_call *c)
{
    const qdri_coll *coll = c->coll;
    const int rank = c->comm->base.rank;
    const int64_t others = c->comm->base.size - 1;
    int64_t begin, n;
    switch (coll->kind) {
    case QDR_ALL_GATHER: return others * qdri_nccl_part(c, rank, &begin);
    case QDR_REDUCE_SCATTER: return qdri_coll_total(coll, c->comm->base.size) - qdri_nccl_part(c, rank, &begin);
    case QDR_ALL_REDUCE:
        qdri_split(coll->count, 1, c->comm->base.size, rank, &begin, &n);
        return coll->count + (others - 1) * (n - begin);
    case QDR_BROADCAST: return coll->peer == rank ? others * coll->count : 0;
    case QDR_ALL_TO_ALL:
        qdri_coll_outgoing(coll, rank, &begin, &n);
        return qdri_coll_offset(coll->counts, coll->count, c->comm->base.size) - n;
    default: return coll->peer >= 0 && coll->peer != rank ? coll->count : 0;
    }
}

static void count(const nccl_call *c)
{
    qdri_comm *base = &c->comm->base;
    qdri_counter *counter = qdri_counter_of(base, c->coll);
    const int64_t n_elems = sent_elems(c);
    const int64_t n_off_node = n_elems / (base->size - 1) * (base->size - base->node_size);
    qdri_count_sent(base, c->coll, n_elems);
    atomic_fetch_add(&counter->bytes_off_node, n_off_node * (int64_t)qdr_dtype_bytes(c->coll->dtype));
    atomic_fetch_add(&counter->n_calls, 1);
}

/* ---- a launch ---- */

/* An error that NCCL reports for a communicator being aborted is not the reason for aborting it. */
static qdr_status fail_given_up(const nccl_comm *comm, const qdri_coll *coll)
{
    QDR_TRY(qdri_dev_raise(comm->base.dev));
    return qdri_comm_fail_peer(&comm->base, qdr_coll_kind_name(coll->kind),
                               qdri_reason_get((qdri_reason *)(uintptr_t)&comm->base.why));
}

static qdr_status enqueue(nccl_call *c)
{
    nccl_comm *comm = c->comm;
    nccl_held *held;
    pthread_mutex_lock(&comm->calls);
    c->handle = atomic_load(&comm->handle);
    qdr_status status = c->handle ? stage(c, &held) : QDR_ERR_PEER;
    if (status == QDR_OK) status = qdri_nccl_enqueue(c);
    if (status == QDR_OK && held) status = qdri_event_record(held->used, c->stream);
    pthread_mutex_unlock(&comm->calls);
    return atomic_load(&comm->handle) ? status : fail_given_up(comm, c->coll);
}

qdr_status qdri_nccl_launch(qdri_comm *base, const qdri_coll *coll, qdr_stream *stream)
{
    nccl_comm *comm = (nccl_comm *)base;
    nccl_watched *watched;
    nccl_call c = {.comm = comm,
                   .coll = coll,
                   .stream = stream,
                   .on = qdri_cuda_handle(stream),
                   .type = type_of(coll->dtype),
                   .op = op_of(coll->op)};
    QDR_TRY(qdri_cuda_enter((const qdri_cuda_dev *)base->dev));
    QDR_TRY(qdri_nccl_watch_begin(comm, coll, stream, &watched));
    const qdr_status status = enqueue(&c);
    if (status != QDR_OK) qdri_dev_poison(base->dev, status, qdr_last_error());
    QDR_TRY(status);
    QDR_TRY(qdri_nccl_watch_end(comm, watched, stream));
    count(&c);
    return QDR_OK;
}
