/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of the `nccl` backend, with staging, time limits and counting around each. If parts are equal, they are
 * NCCL's own, whose order of summation NCCL chooses, the same for the same plan (docs/numerics.md). Uneven parts are
 * sent by grouped sends and receives; those to be summed are collected in staging, where one kernel adds them in rank
 * order, as in all other backends: an NCCL reduction per owner would round BF16 and F16 at each hop of its ring.
 *
 * NCCL's maxima and minima lose NaN. So an all-reduce gives it integers in the order of the numbers, and a
 * reduce-scatter is made of sends and receives. */
#include <stdlib.h>

#include "comm/nccl/internal.h"
#include "core/block.h"
#include "core/size.h"

/* Staging of a collective, and the event after its last use. */
struct nccl_staged {
    nccl_staged *next;
    qdri_staging *staging;
    qdr_event *used;
};

typedef struct nccl_call {
    nccl_comm *comm;
    const qdri_coll *coll;
    qdr_stream *stream;
    cudaStream_t on;
    ncclComm_t handle;
    ncclDataType_t type;
    ncclRedOp_t op;
    void *staging;
} nccl_call;

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

static int is_even(const qdri_coll *coll, int size)
{
    if (!coll->counts) return coll->split_unit == 0 || coll->count % (coll->split_unit * size) == 0;
    for (int j = 1; j < size; j++)
        if (coll->counts[j] != coll->counts[0]) return 0;
    return 1;
}

static int64_t part_of(const nccl_call *c, int j, int64_t *begin)
{
    int64_t n;
    qdri_coll_part(c->coll, c->comm->base.size, j, begin, &n);
    return n;
}

/* ---- registered memory ---- */

/* NCCL requires a send and its receive to be both registered or both not, and a rank knows only its own memory. So they
 * never use registered memory directly: its contents go through staging, which follows the contributions to a
 * reduce-scatter. */

/* data = NULL: the memory is not known yet, because staging is computed in advance. */
static int may_be_registered(const qdri_comm *comm, const void *data)
{
    return !data || qdri_nccl_memory_has((const nccl_comm *)comm, data);
}

/* Numbers of elements that are sent from, and received in, registered memory; *begin: where the own part is. */
static void find_registered(const qdri_comm *comm, const qdri_coll *coll, int64_t *begin, int64_t *n_out, int64_t *n_in)
{
    qdri_coll_extent(coll, comm->size, comm->rank, begin, n_out, n_in);
    /* An all-gather copies its own part to recv, and sends it from there. */
    if (coll->kind == QDR_ALL_GATHER || !may_be_registered(comm, coll->send)) *n_out = 0;
    /* What a reduce-scatter receives is added by a kernel. */
    if (coll->kind == QDR_REDUCE_SCATTER || !may_be_registered(comm, coll->recv)) *n_in = 0;
}

static size_t bytes_of(const qdri_coll *coll, int64_t n)
{
    return qdri_align_bytes((size_t)n * qdr_dtype_bytes(coll->dtype), 16);
}

static size_t unregistered_bytes(const qdri_comm *comm, const qdri_coll *coll)
{
    int64_t begin, n_out, n_in;
    if (!((const nccl_comm *)comm->root)->registers) return 0;
    find_registered(comm, coll, &begin, &n_out, &n_in);
    return bytes_of(coll, n_out) + bytes_of(coll, n_in);
}

/* The other members' contributions to an uneven reduce-scatter. */
static size_t contributions_bytes(const qdri_comm *comm, const qdri_coll *coll)
{
    int64_t begin, n;
    if (coll->kind != QDR_REDUCE_SCATTER) return 0;
    qdri_coll_part(coll, comm->size, comm->rank, &begin, &n);
    return (size_t)(comm->size - 1) * bytes_of(coll, n);
}

static int loses_nan(const qdri_coll *coll) { return coll->op != QDR_SUM && qdri_is_float(coll->dtype); }

/* Whether it is made of sends and receives. */
static int is_pairs(const qdri_coll *coll, int size)
{
    switch (coll->kind) {
    case QDR_ALL_GATHER: return !is_even(coll, size);
    case QDR_REDUCE_SCATTER: return !is_even(coll, size) || loses_nan(coll);
    case QDR_ALL_TO_ALL:
    case QDR_SEND_RECV: return 1;
    default: return 0;
    }
}

/* Whether an all-reduce needs staging for the integers that stand for its numbers. */
static int has_wider_keys(const qdri_coll *coll)
{
    return coll->kind == QDR_ALL_REDUCE && loses_nan(coll) && qdri_is_narrow(coll->dtype);
}

size_t qdri_nccl_scratch_bytes(const qdri_comm *comm, const qdri_coll *coll)
{
    if (has_wider_keys(coll)) return (size_t)coll->count * sizeof(int32_t);
    if (!is_pairs(coll, comm->size)) return 0;
    return contributions_bytes(comm, coll) + unregistered_bytes(comm, coll);
}

static qdr_status check(const nccl_call *c, ncclResult_t result, const char *name)
{
    if (result == ncclInProgress) return qdri_nccl_settle(qdri_nccl_host(c->comm), c->handle, NULL, name);
    return qdri_nccl_status(c->handle, result, name);
}

/* A send and a receive, each if there is anything. */
static ncclResult_t exchange(const nccl_call *c, int peer, const void *out, int64_t n_out, void *in, int64_t n_in)
{
    ncclResult_t result = ncclSuccess;
    if (n_out > 0) result = ncclSend(out, (size_t)n_out, c->type, peer, c->handle, c->on);
    if (result == ncclSuccess && n_in > 0) result = ncclRecv(in, (size_t)n_in, c->type, peer, c->handle, c->on);
    return result;
}

/* Runs pair(c, j) for each other member, in one group. */
static qdr_status for_all_others(const nccl_call *c, ncclResult_t (*pair)(const nccl_call *c, int j), const char *name)
{
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess) return check(c, result, "ncclGroupStart");
    for (int j = 0; j < c->comm->base.size; j++)
        if (j != c->comm->base.rank && result == ncclSuccess) result = pair(c, j);
    const ncclResult_t ended = ncclGroupEnd();
    return check(c, result == ncclSuccess || result == ncclInProgress ? ended : result, name);
}

static qdr_status copy(const nccl_call *c, void *dst, const void *src, int64_t n)
{
    if (n == 0) return QDR_OK;
    return qdri_copy(c->stream, dst, src, (size_t)n * qdr_dtype_bytes(c->coll->dtype));
}

/* ---- kinds of collectives ---- */

static ncclResult_t gather_pair(const nccl_call *c, int j)
{
    const qdri_coll *coll = c->coll;
    int64_t begin, own_begin;
    const int64_t n = part_of(c, j, &begin), n_own = part_of(c, c->comm->base.rank, &own_begin);
    return exchange(c, j, qdri_at(coll->recv, own_begin, coll->dtype), n_own,
                    qdri_at_mutable(coll->recv, begin, coll->dtype), n);
}

static qdr_status all_gather(const nccl_call *c)
{
    const qdri_coll *coll = c->coll;
    int64_t begin;
    const int64_t n = part_of(c, c->comm->base.rank, &begin);
    void *own = qdri_at_mutable(coll->recv, begin, coll->dtype);
    if (!is_even(coll, c->comm->base.size)) {
        if (coll->send) QDR_TRY(copy(c, own, coll->send, n));
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
    const int64_t n = part_of(c, rank, &begin);
    if (j == rank) return qdri_at(c->coll->send, begin, c->coll->dtype);
    const size_t slot = (size_t)(j < rank ? j : j - 1);
    return (const char *)c->staging + slot * bytes_of(c->coll, n);
}

static ncclResult_t scatter_pair(const nccl_call *c, int j)
{
    int64_t begin, own_begin;
    const int64_t n = part_of(c, j, &begin), n_own = part_of(c, c->comm->base.rank, &own_begin);
    return exchange(c, j, qdri_at(c->coll->send, begin, c->coll->dtype), n, (void *)(uintptr_t)contribution(c, j),
                    n_own);
}

/* Enqueues one of the kernels that gather sources in a result. */
static qdr_status run_kernel(const nccl_call *c, qdri_kernel_kind kind, int64_t n, int n_sources, const void **sources,
                             void *result)
{
    qdri_kernel kernel = {.kind = kind, .dtype = c->coll->dtype};
    kernel.u.gather.n = n;
    kernel.u.gather.n_sources = n_sources;
    kernel.u.gather.n_results = 1;
    kernel.u.gather.op = c->coll->op;
    kernel.u.gather.sources = sources;
    kernel.u.gather.results = &result;
    return qdri_kernel_run(c->stream, &kernel);
}

/* Adds in rank order; if there are more sources than a kernel accepts, the sum so far becomes the first source. It is
 * kept where the first contribution was, since the place of the result may be that of one not yet added. */
static qdr_status sum_contributions(const nccl_call *c, int64_t n)
{
    const int size = c->comm->base.size;
    const void *sources[QDRI_REDUCE_MOST];
    void *sum = (void *)(uintptr_t)contribution(c, c->comm->base.rank == 0 ? 1 : 0);
    for (int j = 0; j < size && n > 0;) {
        int n_sources = 0;
        if (j > 0) sources[n_sources++] = sum;
        while (j < size && n_sources < QDRI_REDUCE_MOST) sources[n_sources++] = contribution(c, j++);
        QDR_TRY(run_kernel(c, QDRI_K_REDUCE, n, n_sources, sources, j < size ? sum : c->coll->recv));
    }
    return QDR_OK;
}

static qdr_status reduce_scatter(const nccl_call *c)
{
    const qdri_coll *coll = c->coll;
    int64_t begin;
    const int64_t n = part_of(c, c->comm->base.rank, &begin);
    if (is_pairs(coll, c->comm->base.size)) {
        QDR_TRY(for_all_others(c, scatter_pair, "a reduce-scatter by sends"));
        return sum_contributions(c, n);
    }
    if (n == 0) return QDR_OK;
    return check(c, ncclReduceScatter(coll->send, coll->recv, (size_t)n, c->type, c->op, c->handle, c->on),
                 "ncclReduceScatter");
}

static qdr_status all_reduce(const nccl_call *c)
{
    const qdri_coll *coll = c->coll;
    const size_t n = (size_t)coll->count;
    const ncclDataType_t type = coll->dtype == QDR_F64 ? ncclInt64 : ncclInt32;
    if (n == 0) return QDR_OK;
    if (!loses_nan(coll))
        return check(c, ncclAllReduce(qdri_coll_source(coll), coll->recv, n, c->type, c->op, c->handle, c->on),
                     "ncclAllReduce");
    const void *numbers = qdri_coll_source(coll);
    void *keys = has_wider_keys(coll) ? c->staging : coll->recv;
    QDR_TRY(run_kernel(c, QDRI_K_TO_KEYS, coll->count, 1, &numbers, keys));
    QDR_TRY(check(c, ncclAllReduce(keys, keys, n, type, c->op, c->handle, c->on), "ncclAllReduce"));
    return run_kernel(c, QDRI_K_FROM_KEYS, coll->count, 1, (const void *[]){keys}, coll->recv);
}

static ncclResult_t exchange_pair(const nccl_call *c, int j)
{
    const qdri_coll *coll = c->coll;
    int64_t out_begin, n_out, in_begin, n_in;
    qdri_coll_outgoing(coll, j, &out_begin, &n_out);
    qdri_coll_incoming(coll, j, &in_begin, &n_in);
    return exchange(c, j, qdri_at(coll->send, out_begin, coll->dtype), n_out,
                    qdri_at_mutable(coll->recv, in_begin, coll->dtype), n_in);
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
    QDR_TRY(
        copy(c, qdri_at_mutable(coll->recv, in_begin, coll->dtype), qdri_at(coll->send, out_begin, coll->dtype), n_in));
    return for_all_others(c, exchange_pair, "an all-to-all");
}

/* peer: -1, or another member. */
static ncclResult_t send_recv_pair(const nccl_call *c, int j)
{
    const qdri_coll *coll = c->coll;
    return exchange(c, j, coll->send, j == coll->peer ? coll->count : 0, coll->recv,
                    j == coll->peer2 ? coll->recv_count : 0);
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
    return copy(c, coll->recv, coll->send, coll->count);
}

static qdr_status run(const nccl_call *c)
{
    const qdri_coll *coll = c->coll;
    const size_t n = (size_t)coll->count;
    switch (coll->kind) {
    case QDR_ALL_GATHER: return all_gather(c);
    case QDR_REDUCE_SCATTER: return reduce_scatter(c);
    case QDR_ALL_REDUCE: return all_reduce(c);
    case QDR_BROADCAST:
        if (n == 0) return QDR_OK;
        return check(c, ncclBroadcast(coll->recv, coll->recv, n, c->type, coll->peer, c->handle, c->on),
                     "ncclBroadcast");
    case QDR_ALL_TO_ALL: return all_to_all(c);
    default: return send_recv(c);
    }
}

/* Runs it with staging in the place of registered memory. */
static qdr_status run_unregistered(const nccl_call *c)
{
    qdri_coll moved = *c->coll;
    nccl_call call = *c;
    char *at = (char *)c->staging + contributions_bytes(&c->comm->base, c->coll);
    int64_t begin, n_out, n_in;
    find_registered(&c->comm->base, c->coll, &begin, &n_out, &n_in);
    call.coll = &moved;
    if (n_out > 0) {
        moved.send = at;
        QDR_TRY(copy(c, at, c->coll->send, n_out));
        at += bytes_of(&moved, n_out);
    }
    if (n_in > 0) {
        if (moved.kind == QDR_ALL_GATHER && !moved.send) moved.send = qdri_at(moved.recv, begin, moved.dtype);
        moved.recv = at;
    }
    QDR_TRY(run(&call));
    return copy(c, c->coll->recv, at, n_in);
}

/* ---- staging: reused by later collectives only when the GPU has finished with it ---- */

/* The staging memory itself is freed with the communicator's list. */
void qdri_nccl_staged_free(nccl_comm *comm)
{
    while (comm->staged) {
        nccl_staged *staged = comm->staged;
        comm->staged = staged->next;
        qdri_event_destroy(&staged->used);
        free(staged);
    }
}

static qdr_status stage(nccl_call *c, nccl_staged **staged)
{
    const size_t bytes = qdri_nccl_scratch_bytes(&c->comm->base, c->coll);
    qdri_staging *staging = NULL;
    *staged = NULL;
    for (nccl_staged **link = &c->comm->staged; *link;) { /* what the GPU has finished with */
        nccl_staged *old = *link;
        if (!qdri_event_reached(old->used)) {
            link = &old->next;
            continue;
        }
        *link = old->next;
        qdri_staging_done(&c->comm->base, old->staging);
        qdri_event_destroy(&old->used);
        free(old);
    }
    if (bytes == 0) return QDR_OK;
    QDR_TRY(qdri_staging_take(&c->comm->base, bytes, &c->staging, &staging));
    if (!staging || qdri_nccl_is_captured(c->stream)) return QDR_OK; /* or kept to the end */
    qdr_status status = QDRI_NEW(1, "staging of a collective", staged);
    if (status == QDR_OK) status = qdri_event_create(c->comm->base.dev, &(*staged)->used);
    if (status != QDR_OK) {
        free(*staged);
        qdri_staging_done(&c->comm->base, staging);
        return status;
    }
    (*staged)->staging = staging;
    (*staged)->next = c->comm->staged;
    c->comm->staged = *staged;
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
    case QDR_ALL_GATHER: return others * part_of(c, rank, &begin);
    case QDR_REDUCE_SCATTER: return qdri_coll_total(coll, c->comm->base.size) - part_of(c, rank, &begin);
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
    qdri_count_call(base, c->coll);
}

static qdr_status enqueue(nccl_call *c)
{
    nccl_comm *comm = c->comm;
    nccl_staged *staged;
    pthread_mutex_lock(&comm->calls);
    c->handle = atomic_load(&comm->handle);
    qdr_status status = c->handle ? stage(c, &staged) : QDR_ERR_PEER;
    if (status == QDR_OK)
        status = is_pairs(c->coll, comm->base.size) && unregistered_bytes(&comm->base, c->coll) > 0
                     ? run_unregistered(c)
                     : run(c);
    if (status == QDR_OK && staged) status = qdri_event_record(staged->used, c->stream);
    pthread_mutex_unlock(&comm->calls);
    /* An error that NCCL reports for a communicator that is being aborted, or soon will be, is not the reason for
     * aborting it. */
    const int is_poisoned = qdri_dev_status(comm->base.dev) != QDR_OK;
    if (atomic_load(&comm->handle) && (status == QDR_OK || !is_poisoned)) return status;
    QDR_TRY(qdri_dev_raise(comm->base.dev));
    return qdri_comm_fail_peer(&comm->base, qdr_coll_kind_name(c->coll->kind), qdri_reason_get(&comm->base.why));
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
    QDRI_CUDA_ENTER((const qdri_cuda_dev *)base->dev);
    QDR_TRY(qdri_nccl_watch_begin(comm, coll, stream, &watched));
    const qdr_status status = enqueue(&c);
    if (status != QDR_OK) qdri_dev_poison(base->dev, status, qdr_last_error());
    QDR_TRY(status);
    QDR_TRY(qdri_nccl_watch_end(comm, watched, stream));
    count(&c);
    return QDR_OK;
}
