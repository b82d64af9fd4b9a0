/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of the `nccl` backend. If parts are equal, they are NCCL's own, whose order of summation NCCL chooses,
 * the same for the same plan (docs/numerics.md). Uneven parts are sent by grouped sends and receives; those to be
 * summed are collected in staging, where one kernel adds them in rank order, as in all other backends: an NCCL
 * reduction per owner would round BF16 and F16 at each hop of its ring. */
#include "comm/nccl/internal.h"
#include "core/size.h"

/* ---- parts ---- */

static int is_even(const qdri_coll *coll, int size)
{
    if (!coll->counts) return coll->split_unit == 0 || coll->count % (coll->split_unit * size) == 0;
    for (int j = 1; j < size; j++)
        if (coll->counts[j] != coll->counts[0]) return 0;
    return 1;
}

int64_t qdri_nccl_part(const nccl_call *c, int j, int64_t *begin)
{
    int64_t n;
    qdri_coll_part(c->coll, c->comm->base.size, j, begin, &n);
    return n;
}

/* Distance between the other members' contributions to an uneven reduce-scatter. */
static size_t stride_of(int64_t n, qdr_dtype dtype) { return qdri_align_bytes((size_t)n * qdr_dtype_bytes(dtype), 16); }

static size_t contributions_bytes(const qdri_comm *comm, const qdri_coll *coll)
{
    int64_t begin, n;
    if (coll->kind != QDR_REDUCE_SCATTER) return 0;
    qdri_coll_part(coll, comm->size, comm->rank, &begin, &n);
    return (size_t)(comm->size - 1) * stride_of(n, coll->dtype);
}

/* Whether it is made of sends and receives. */
static int is_pairs(const qdri_coll *coll, int size)
{
    switch (coll->kind) {
    case QDR_ALL_GATHER:
    case QDR_REDUCE_SCATTER: return !is_even(coll, size);
    case QDR_ALL_TO_ALL:
    case QDR_SEND_RECV: return 1;
    default: return 0;
    }
}

size_t qdri_nccl_scratch_bytes(const qdri_comm *comm, const qdri_coll *coll)
{
    if (!is_pairs(coll, comm->size)) return 0;
    return contributions_bytes(comm, coll) + qdri_nccl_unregistered_bytes(comm, coll);
}

/* ---- calls ---- */

static qdr_status check(const nccl_call *c, ncclResult_t result, const char *name)
{
    if (result == ncclInProgress) return qdri_nccl_settle(qdri_nccl_host(c->comm), c->handle, NULL, name);
    return qdri_nccl_status(c->handle, result, name);
}

static ncclResult_t send_to(const nccl_call *c, int peer, const void *data, int64_t n)
{
    return n > 0 ? ncclSend(data, (size_t)n, c->type, peer, c->handle, c->on) : ncclSuccess;
}

static ncclResult_t receive_from(const nccl_call *c, int peer, void *data, int64_t n)
{
    return n > 0 ? ncclRecv(data, (size_t)n, c->type, peer, c->handle, c->on) : ncclSuccess;
}

static ncclResult_t first_of(ncclResult_t first, ncclResult_t second)
{
    return first != ncclSuccess && first != ncclInProgress ? first : second;
}

/* Runs pair(c, j) for each other member, in one group. */
static qdr_status for_all_others(const nccl_call *c, ncclResult_t (*pair)(const nccl_call *c, int j), const char *name)
{
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess) return check(c, result, "ncclGroupStart");
    for (int j = 0; j < c->comm->base.size; j++)
        if (j != c->comm->base.rank && result == ncclSuccess) result = pair(c, j);
    return check(c, first_of(result, ncclGroupEnd()), name);
}

static qdr_status copy_own(const nccl_call *c, void *dst, const void *src, int64_t n)
{
    if (n == 0 || dst == src) return QDR_OK;
    return qdri_copy(c->stream, dst, src, (size_t)n * qdr_dtype_bytes(c->coll->dtype));
}

/* ---- kinds of collectives ---- */

static ncclResult_t gather_pair(const nccl_call *c, int j)
{
    const qdri_coll *coll = c->coll;
    int64_t begin, own_begin;
    const int64_t n = qdri_nccl_part(c, j, &begin), n_own = qdri_nccl_part(c, c->comm->base.rank, &own_begin);
    const void *own = qdri_at(coll->recv, own_begin, coll->dtype);
    const ncclResult_t sent = send_to(c, j, own, n_own);
    if (sent != ncclSuccess) return sent;
    return receive_from(c, j, qdri_at_mutable(coll->recv, begin, coll->dtype), n);
}

static qdr_status all_gather(const nccl_call *c)
{
    const qdri_coll *coll = c->coll;
    int64_t begin;
    const int64_t n = qdri_nccl_part(c, c->comm->base.rank, &begin);
    void *own = qdri_at_mutable(coll->recv, begin, coll->dtype);
    if (!is_even(coll, c->comm->base.size)) {
        if (coll->send) QDR_TRY(copy_own(c, own, coll->send, n));
        return for_all_others(c, gather_pair, "an all-gather of uneven parts");
    }
    if (n == 0) return QDR_OK;
    return check(c, ncclAllGather(coll->send ? coll->send : own, coll->recv, (size_t)n, c->type, c->handle, c->on),
                 "ncclAllGather");
}

/* Member j's contribution to this rank's part. */
static const void *contribution(const nccl_call *c, int j)
{
    const int rank = c->comm->base.rank;
    int64_t begin;
    const int64_t n = qdri_nccl_part(c, rank, &begin);
    if (j == rank) return qdri_at(c->coll->send, begin, c->coll->dtype);
    const size_t slot = (size_t)(j < rank ? j : j - 1);
    return (const char *)c->staging + slot * stride_of(n, c->coll->dtype);
}

static ncclResult_t scatter_pair(const nccl_call *c, int j)
{
    int64_t begin, own_begin;
    const int64_t n = qdri_nccl_part(c, j, &begin), n_own = qdri_nccl_part(c, c->comm->base.rank, &own_begin);
    const ncclResult_t sent = send_to(c, j, qdri_at(c->coll->send, begin, c->coll->dtype), n);
    if (sent != ncclSuccess) return sent;
    return receive_from(c, j, (void *)(uintptr_t)contribution(c, j), n_own);
}

/* Adds in rank order; if there are more sources than a kernel accepts, the sum so far becomes the first source. */
static qdr_status sum_contributions(const nccl_call *c, int64_t n)
{
    const void *sources[QDRI_REDUCE_MOST];
    void *result = c->coll->recv;
    qdri_kernel kernel = {.kind = QDRI_K_REDUCE, .dtype = c->coll->dtype};
    kernel.u.gather.n = n;
    kernel.u.gather.n_results = 1;
    kernel.u.gather.op = c->coll->op;
    kernel.u.gather.sources = sources;
    kernel.u.gather.results = &result;
    for (int j = 0; j < c->comm->base.size && n > 0;) {
        int n_sources = 0;
        if (j > 0) sources[n_sources++] = result;
        while (j < c->comm->base.size && n_sources < QDRI_REDUCE_MOST) sources[n_sources++] = contribution(c, j++);
        kernel.u.gather.n_sources = n_sources;
        QDR_TRY(qdri_kernel_run(c->stream, &kernel));
    }
    return QDR_OK;
}

static qdr_status reduce_scatter(const nccl_call *c)
{
    const qdri_coll *coll = c->coll;
    int64_t begin;
    const int64_t n = qdri_nccl_part(c, c->comm->base.rank, &begin);
    if (!is_even(coll, c->comm->base.size)) {
        QDR_TRY(for_all_others(c, scatter_pair, "a reduce-scatter of uneven parts"));
        return sum_contributions(c, n);
    }
    if (n == 0) return QDR_OK;
    return check(c, ncclReduceScatter(coll->send, coll->recv, (size_t)n, c->type, c->op, c->handle, c->on),
                 "ncclReduceScatter");
}

static qdr_status all_reduce(const nccl_call *c)
{
    const qdri_coll *coll = c->coll;
    if (coll->count == 0) return QDR_OK;
    return check(
        c, ncclAllReduce(qdri_coll_source(coll), coll->recv, (size_t)coll->count, c->type, c->op, c->handle, c->on),
        "ncclAllReduce");
}

static qdr_status broadcast(const nccl_call *c)
{
    const qdri_coll *coll = c->coll;
    if (coll->count == 0) return QDR_OK;
    return check(c, ncclBroadcast(coll->recv, coll->recv, (size_t)coll->count, c->type, coll->peer, c->handle, c->on),
                 "ncclBroadcast");
}

static ncclResult_t exchange_pair(const nccl_call *c, int j)
{
    const qdri_coll *coll = c->coll;
    int64_t out_begin, n_out, in_begin, n_in;
    qdri_coll_outgoing(coll, j, &out_begin, &n_out);
    qdri_coll_incoming(coll, j, &in_begin, &n_in);
    const ncclResult_t sent = send_to(c, j, qdri_at(coll->send, out_begin, coll->dtype), n_out);
    if (sent != ncclSuccess) return sent;
    return receive_from(c, j, qdri_at_mutable(coll->recv, in_begin, coll->dtype), n_in);
}

static qdr_status all_to_all(const nccl_call *c)
{
    const qdri_coll *coll = c->coll;
    const int rank = c->comm->base.rank;
    int64_t out_begin, n_out, in_begin, n_in;
    qdri_coll_outgoing(coll, rank, &out_begin, &n_out);
    qdri_coll_incoming(coll, rank, &in_begin, &n_in);
    if (n_out != n_in)
        return QDR_FAIL(QDR_ERR_SHAPE, "all-to-all: rank %d sends itself %" PRId64 " elements and expects %" PRId64,
                        rank, n_out, n_in);
    QDR_TRY(copy_own(c, qdri_at_mutable(coll->recv, in_begin, coll->dtype), qdri_at(coll->send, out_begin, coll->dtype),
                     n_in));
    return for_all_others(c, exchange_pair, "an all-to-all");
}

/* peer: -1, or another member. */
static ncclResult_t send_recv_pair(const nccl_call *c, int j)
{
    const qdri_coll *coll = c->coll;
    const ncclResult_t sent = j == coll->peer ? send_to(c, j, coll->send, coll->count) : ncclSuccess;
    if (sent != ncclSuccess || j != coll->peer2) return sent;
    return receive_from(c, j, coll->recv, coll->recv_count);
}

static qdr_status send_recv(const nccl_call *c)
{
    const qdri_coll *coll = c->coll;
    const int rank = c->comm->base.rank;
    if ((coll->peer == rank) != (coll->peer2 == rank))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "send-recv: rank %d sends to rank %d but receives from %d; a rank that sends to itself must "
                        "also receive from itself",
                        rank, coll->peer, coll->peer2);
    if (coll->peer != rank) return for_all_others(c, send_recv_pair, "a send-recv");
    if (coll->count != coll->recv_count)
        return QDR_FAIL(QDR_ERR_SHAPE, "send-recv: rank %d sends itself %" PRId64 " elements and expects %" PRId64,
                        rank, coll->count, coll->recv_count);
    return copy_own(c, coll->recv, coll->send, coll->count);
}

static qdr_status run(const nccl_call *c)
{
    switch (c->coll->kind) {
    case QDR_ALL_GATHER: return all_gather(c);
    case QDR_REDUCE_SCATTER: return reduce_scatter(c);
    case QDR_ALL_REDUCE: return all_reduce(c);
    case QDR_BROADCAST: return broadcast(c);
    case QDR_ALL_TO_ALL: return all_to_all(c);
    default: return send_recv(c);
    }
}

qdr_status qdri_nccl_enqueue(const nccl_call *c)
{
    const qdri_comm *comm = &c->comm->base;
    if (!is_pairs(c->coll, comm->size) || qdri_nccl_unregistered_bytes(comm, c->coll) == 0) return run(c);
    return qdri_nccl_run_unregistered(c, contributions_bytes(comm, c->coll), run);
}
