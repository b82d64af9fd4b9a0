/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of the `local` backend on devices whose streams run no host work (GPUs): ranks are threads of one
 * process, on one GPU or on several with peer access.
 *
 * The members meet on the host; then member 0 enqueues the whole collective for all of them on its stream: after events
 * on all members' streams, using copies and sums of the device, and before an event for which all streams wait. Nothing
 * running on a GPU ever waits there for another rank, so no rank can occupy resources that another one needs. The
 * price: a launch returns only when all members have arrived. */
#include "comm/local/local.h"

/* A member's contribution to the barrier, on the stack of a waiting thread. */
typedef struct offer {
    local_comm *comm;
    const qdri_coll *coll;
    qdr_stream *stream;
} offer;

typedef struct gathering {
    const qdri_seat *seats;
    int size;
    qdr_stream *stream; /* that of member 0 */
} gathering;

static const offer *offer_of(const gathering *g, int member) { return g->seats[member].data; }
static const qdri_coll *coll_of(const gathering *g, int member) { return offer_of(g, member)->coll; }

static void count_sent(const gathering *g, int from, int to, int64_t n_elems)
{
    if (from != to) qdri_count_sent(&offer_of(g, from)->comm->base, coll_of(g, from), n_elems);
}

static qdr_status take(const gathering *g, int from, int to, void *dst, const void *src, int64_t n_elems)
{
    count_sent(g, from, to, n_elems);
    return qdri_copy(g->stream, dst, src, (size_t)n_elems * qdr_dtype_bytes(coll_of(g, from)->dtype));
}

static qdr_status reduce(const gathering *g, const void *const *sources, void *const *results, int n_results, int64_t n)
{
    const qdri_coll *coll = coll_of(g, 0);
    qdri_kernel kernel = {.kind = QDRI_K_REDUCE, .dtype = coll->dtype};
    if (n == 0) return QDR_OK;
    kernel.u.gather.n = n;
    kernel.u.gather.n_sources = g->size;
    kernel.u.gather.n_results = n_results;
    kernel.u.gather.op = coll->op;
    kernel.u.gather.sources = sources;
    kernel.u.gather.results = results;
    return qdri_kernel_run(g->stream, &kernel);
}

static qdr_status all_reduce(const gathering *g)
{
    const void *sources[QDRI_REDUCE_MOST];
    void *results[QDRI_REDUCE_MOST];
    for (int j = 0; j < g->size; j++) {
        sources[j] = qdri_coll_source(coll_of(g, j));
        results[j] = coll_of(g, j)->recv;
    }
    /* Counts the bytes as if each member summed its part and sent it to all. */
    for (int owner = 0; owner < g->size; owner++) {
        int64_t begin, n;
        qdri_coll_part(coll_of(g, owner), g->size, owner, &begin, &n);
        for (int j = 0; j < g->size; j++) {
            count_sent(g, j, owner, n);
            count_sent(g, owner, j, n);
        }
    }
    return reduce(g, sources, results, g->size, coll_of(g, 0)->count);
}

static qdr_status reduce_scatter(const gathering *g)
{
    for (int owner = 0; owner < g->size; owner++) {
        const void *sources[QDRI_REDUCE_MOST];
        const qdri_coll *coll = coll_of(g, owner);
        void *result = coll->recv;
        int64_t begin, n;
        qdri_coll_part(coll, g->size, owner, &begin, &n);
        for (int j = 0; j < g->size; j++) {
            sources[j] = qdri_at(coll_of(g, j)->send, begin, coll->dtype);
            count_sent(g, j, owner, n);
        }
        QDR_TRY(reduce(g, sources, &result, 1, n));
    }
    return QDR_OK;
}

/* A part is in its owner's send, or in its recv. */
static qdr_status all_gather(const gathering *g)
{
    for (int from = 0; from < g->size; from++) {
        const qdri_coll *coll = coll_of(g, from);
        int64_t begin, n;
        qdri_coll_part(coll, g->size, from, &begin, &n);
        const void *src = coll->send ? coll->send : qdri_at(coll->recv, begin, coll->dtype);
        for (int to = 0; to < g->size && n > 0; to++)
            QDR_TRY(take(g, from, to, qdri_at_mutable(coll_of(g, to)->recv, begin, coll->dtype), src, n));
    }
    return QDR_OK;
}

/* The elements sent from one member to another in an all-to-all. */
typedef struct parcel {
    int64_t out_begin, n_out, in_begin, n_in;
} parcel;

static parcel parcel_of(const gathering *g, int from, int to)
{
    parcel p;
    qdri_coll_outgoing(coll_of(g, from), to, &p.out_begin, &p.n_out);
    qdri_coll_incoming(coll_of(g, to), from, &p.in_begin, &p.n_in);
    return p;
}

static qdr_status all_to_all(const gathering *g)
{
    for (int i = 0; i < g->size * g->size; i++) {
        const int from = i / g->size, to = i % g->size;
        const qdr_dtype dtype = coll_of(g, from)->dtype;
        const parcel p = parcel_of(g, from, to);
        QDR_TRY(take(g, from, to, qdri_at_mutable(coll_of(g, to)->recv, p.in_begin, dtype),
                     qdri_at(coll_of(g, from)->send, p.out_begin, dtype), p.n_in));
    }
    return QDR_OK;
}

static qdr_status enqueue_kind(const gathering *g)
{
    const qdri_coll *root;
    switch (coll_of(g, 0)->kind) {
    case QDR_ALL_GATHER: return all_gather(g);
    case QDR_REDUCE_SCATTER: return reduce_scatter(g);
    case QDR_ALL_REDUCE: return all_reduce(g);
    case QDR_BROADCAST:
        root = coll_of(g, coll_of(g, 0)->peer);
        for (int to = 0; to < g->size; to++)
            QDR_TRY(take(g, root->peer, to, coll_of(g, to)->recv, root->recv, root->count));
        return QDR_OK;
    case QDR_ALL_TO_ALL: return all_to_all(g);
    default:
        for (int to = 0; to < g->size; to++) {
            const qdri_coll *coll = coll_of(g, to);
            if (coll->peer2 >= 0)
                QDR_TRY(take(g, coll->peer2, to, coll->recv, coll_of(g, coll->peer2)->send, coll->recv_count));
        }
        return QDR_OK;
    }
}

/* Checked before anything is enqueued: members that fail may free their memory immediately. */
static qdr_status check_calls(const gathering *g)
{
    const int first = qdri_dev_gpu(offer_of(g, 0)->comm->base.dev);
    for (int j = 1; j < g->size; j++) { /* member 0's GPU must be able to access the memory of all members */
        qdri_dev *dev = offer_of(g, j)->comm->base.dev;
        if (qdri_dev_open_to(dev, first)) continue;
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "comm: ranks 0 and %d of the group are on GPUs %d and %d, which cannot reach each other's "
                        "memory; set QDR_CUDA_COMM=nccl, or let them share a GPU (.device = \"cuda:%d\")",
                        j, first, qdri_dev_gpu(dev), first);
    }
    for (int j = 1; j < g->size; j++)
        QDR_TRY(qdri_local_compare(&offer_of(g, 0)->comm->base, coll_of(g, 0), coll_of(g, j), j));
    const qdr_coll_kind kind = coll_of(g, 0)->kind;
    for (int i = 0; kind == QDR_ALL_TO_ALL && i < g->size * g->size; i++) {
        const parcel p = parcel_of(g, i / g->size, i % g->size);
        if (p.n_out != p.n_in) return qdri_local_fail_parts(i / g->size, p.n_out, i % g->size, p.n_in);
    }
    for (int j = 0; kind == QDR_SEND_RECV && j < g->size; j++) {
        const qdri_coll *coll = coll_of(g, j);
        const qdri_coll *to = coll->peer < 0 ? NULL : coll_of(g, coll->peer);
        QDR_TRY(qdri_local_check_peers(j, coll, to, coll->peer2 < 0 ? NULL : coll_of(g, coll->peer2)));
    }
    return QDR_OK;
}

static qdr_status enqueue(const gathering *g)
{
    const offer *first = offer_of(g, 0);
    for (int j = 1; j < g->size; j++) QDR_TRY(qdri_stream_wait_across(g->stream, offer_of(g, j)->comm->ready));
    QDR_TRY(enqueue_kind(g));
    QDR_TRY(qdri_event_record(first->comm->done, g->stream));
    for (int j = 1; j < g->size; j++) QDR_TRY(qdri_stream_wait_across(offer_of(g, j)->stream, first->comm->done));
    return QDR_OK;
}

/* Called by member 0's thread while the others wait. If it fails halfway, no stream of the others waits for the work
 * that uses their memory; so this function waits until that work has ended. */
static qdr_status enqueue_for_all(const gathering *g)
{
    qdri_kept_error kept;
    QDR_TRY(check_calls(g));
    const qdr_status status = enqueue(g);
    if (status == QDR_OK) return QDR_OK;
    qdri_keep_last_error(&kept);
    const qdr_status ended = qdri_stream_synchronize(g->stream);
    (void)ended;
    qdri_restore_last_error(&kept);
    return status;
}

static qdr_status meet(local_comm *comm, const qdri_coll *coll, qdr_stream *stream)
{
    const offer mine = {comm, coll, stream};
    char call[QDRI_CALL_BYTES];
    qdri_coll_describe(coll, comm->base.size, call);
    const qdri_seat seat = {.purpose = QDRI_TO_RUN, .data = &mine, .where = call, .binds = 1};
    qdri_barrier *barrier = &comm->group->barrier;
    gathering g = {.size = comm->base.size, .stream = stream};
    QDR_TRY(qdri_barrier_join(barrier, comm->base.rank, &comm->base, &seat, &g.seats));
    const qdr_status status = comm->base.rank == 0 ? enqueue_for_all(&g) : QDR_OK;
    return qdri_barrier_agree(barrier, comm->base.rank, &comm->base, status);
}

static qdr_status mark_ready(local_comm *comm, qdr_stream *stream)
{
    if (!comm->ready) QDR_TRY(qdri_event_create(comm->base.dev, &comm->ready));
    if (!comm->done) QDR_TRY(qdri_event_create(comm->base.dev, &comm->done));
    return qdri_event_record(comm->ready, stream);
}

/* A failure among the members is reported as on CPU streams: it poisons the device. */
qdr_status qdri_local_device_launch(qdri_comm *base, const qdri_coll *coll, qdr_stream *stream)
{
    local_comm *comm = (local_comm *)base;
    const qdr_status begun = mark_ready(comm, stream);
    const qdr_status status = begun == QDR_OK ? meet(comm, coll, stream) : begun;
    if (status < QDR_OK)
        qdri_dev_poison(base->dev, status, qdr_last_error());
    else
        qdri_count_call(base, coll);
    return begun; /* a failure that the others do not know about */
}
