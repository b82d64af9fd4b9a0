/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives on a GPU's memory through host memory. */
#include "comm/decorators/staged.h"

#include <stdlib.h>

#include "comm/decorators/decorator.h"
#include "core/size.h"

enum { ALIGN = 64 };

typedef struct staged_comm {
    qdri_comm base;
    qdri_dev *host; /* its thread calls the inner communicator */
    qdr_stream *lane; /* of the host device: runs this communicator's collectives, in order */
    uint32_t *flags; /* pinned; see the enum below */
    uint32_t n_launched;
    char *staging; /* pinned: sent data, followed by received data. Free again when the stream of the last launch
                    * reaches its next collective */
    size_t staging_bytes;
} staged_comm;

enum { FLAG_READY, FLAG_DONE }; /* set by the GPU's stream, when sent data are staged; set by the host */

static _Atomic uint32_t *flag(const staged_comm *comm, int which) { return (_Atomic uint32_t *)(comm->flags + which); }

/* ---- the data that a collective sends and receives on this rank ---- */

typedef struct extent {
    const void *from;
    void *to;
    size_t in_bytes, out_bytes;
    size_t out_begin; /* offset of `to` in what the host receives */
} extent;

static extent extent_of(const qdri_comm *comm, const qdri_coll *coll)
{
    const size_t each = qdr_dtype_bytes(coll->dtype);
    extent e = {.from = coll->send, .to = coll->recv};
    int64_t begin = 0, n_in = coll->count, n_out = coll->count;
    switch (coll->kind) {
    case QDR_ALL_GATHER:
        qdri_coll_part(coll, comm->size, comm->rank, &begin, &n_in);
        if (!coll->send) e.from = qdri_at(coll->recv, begin, coll->dtype);
        n_out = qdri_coll_total(coll, comm->size);
        break;
    case QDR_REDUCE_SCATTER:
        n_in = qdri_coll_total(coll, comm->size);
        qdri_coll_part(coll, comm->size, comm->rank, &begin, &n_out);
        break;
    case QDR_ALL_REDUCE: e.from = qdri_coll_source(coll); break;
    case QDR_BROADCAST:
        e.from = coll->recv;
        n_in = coll->peer == comm->rank ? coll->count : 0;
        n_out = coll->count - n_in;
        break;
    case QDR_ALL_TO_ALL:
        n_in = qdri_coll_offset(coll->counts, coll->count, comm->size);
        n_out = qdri_coll_offset(coll->recv_counts, coll->count, comm->size);
        break;
    default:
        n_in = coll->peer < 0 ? 0 : coll->count;
        n_out = coll->peer2 < 0 ? 0 : coll->recv_count;
        break;
    }
    e.in_bytes = (size_t)n_in * each;
    e.out_bytes = (size_t)n_out * each;
    return e;
}

/* ---- staging ---- */

static void staging_drop(staged_comm *comm)
{
    if (!comm->staging) return;
    qdri_unpin(comm->base.dev, comm->staging);
    void *memory = comm->staging;
    qdri_mem_free(comm->host, &memory);
    comm->staging = NULL;
    comm->staging_bytes = 0;
}

static qdr_status pinned(const staged_comm *comm, size_t bytes, void **memory)
{
    QDR_TRY(qdri_mem_alloc_for(comm->host, QDRI_STAGING, bytes, memory));
    const qdr_status status = qdri_pin(comm->base.dev, *memory, bytes);
    if (status != QDR_OK) qdri_mem_free(comm->host, memory);
    return status;
}

/* Called if more staging is needed than ever before: the only case in which a launch waits. Also waits for the lane,
 * because the stream does not wait for it if the previous launch failed halfway. */
static qdr_status staging_grow(staged_comm *comm, size_t bytes, qdr_stream *stream)
{
    void *memory = NULL;
    if (bytes <= comm->staging_bytes) return QDR_OK;
    QDR_TRY(qdri_stream_synchronize(stream));
    QDR_TRY(qdri_stream_synchronize(comm->lane));
    staging_drop(comm);
    QDR_TRY(pinned(comm, bytes, &memory));
    comm->staging = memory;
    comm->staging_bytes = bytes;
    return QDR_OK;
}

/* ---- the host's side ---- */

typedef struct signal_work {
    const qdri_dev *dev; /* the device whose stream sets the flag */
    _Atomic uint32_t *flag;
    uint32_t value;
} signal_work;

/* A GPU's write wakes no thread, so this polls. A GPU that has failed may never write. */
static qdr_status wait_ready(void *args)
{
    const signal_work *work = args;
    QDR_TRY(qdri_dev_raise(work->dev));
    if ((int32_t)(atomic_load_explicit(work->flag, memory_order_acquire) - work->value) >= 0) return QDR_OK;
    qdri_poll_again();
    return QDR_PENDING;
}

static qdr_status raise_done(void *args)
{
    const signal_work *work = args;
    atomic_store_explicit(work->flag, work->value, memory_order_release);
    return QDR_OK;
}

static qdr_status drive(const staged_comm *comm, const qdri_coll *coll)
{
    const signal_work ready = {comm->base.dev, flag(comm, FLAG_READY), comm->n_launched},
                      done = {NULL, flag(comm, FLAG_DONE), comm->n_launched};
    QDR_TRY(qdri_work(comm->lane, wait_ready, &ready, sizeof ready));
    QDR_TRY(qdri_comm_launch(comm->base.inner, coll, comm->lane));
    return qdri_work(comm->lane, raise_done, &done, sizeof done);
}

/* The same collective between the two halves of the staging memory. */
static qdri_coll on_host(const staged_comm *comm, const qdri_coll *coll, const extent *e)
{
    qdri_coll host = *coll;
    char *out = comm->staging + qdri_align_bytes(e->in_bytes, ALIGN);
    host.send = coll->kind == QDR_BROADCAST ? NULL : comm->staging;
    host.recv = coll->kind == QDR_BROADCAST && e->in_bytes ? comm->staging : out;
    return host;
}

/* After a failure, streams that wait for the host continue; their device has failed, too. */
static void let_go(const staged_comm *comm) { atomic_store(flag(comm, FLAG_DONE), comm->n_launched); }

static qdr_status enqueue(staged_comm *comm, const qdri_coll *coll, const extent *e, qdr_stream *stream)
{
    const qdri_coll host = on_host(comm, coll, e);
    comm->n_launched++;
    QDR_TRY(qdri_copy(stream, comm->staging, e->from, e->in_bytes));
    QDR_TRY(qdri_flag_raise(stream, comm->flags + FLAG_READY, comm->n_launched));
    QDR_TRY(drive(comm, &host));
    QDR_TRY(qdri_flag_wait(stream, comm->flags + FLAG_DONE, comm->n_launched));
    if (qdri_dev_status(comm->host) != QDR_OK) let_go(comm);
    return e->out_bytes ? qdri_copy(stream, e->to, host.recv, e->out_bytes) : QDR_OK;
}

static qdr_status staged_launch(qdri_comm *base, const qdri_coll *coll, qdr_stream *stream)
{
    staged_comm *comm = (staged_comm *)base;
    const extent e = extent_of(base, coll);
    const size_t bytes = qdri_align_bytes(e.in_bytes, ALIGN) + e.out_bytes;
    QDR_TRY(staging_grow(comm, bytes, stream));
    return enqueue(comm, coll, &e, stream);
}

/* ---- creating and destroying ---- */

/* Called once, by the thread that sees the host device fail: the GPU's work must not wait for data that will not
 * arrive, and its device is poisoned with the reason. */
static void host_failed(void *user)
{
    staged_comm *root = user;
    (void)qdri_dev_raise(root->host);
    qdri_dev_poison(root->base.dev, qdri_dev_status(root->host), qdr_last_error());
    pthread_mutex_lock(&root->base.family_mutex);
    for (qdri_comm *each = &root->base; each; each = each->next) {
        if (each->table == root->base.table) let_go((const staged_comm *)each);
    }
    pthread_mutex_unlock(&root->base.family_mutex);
}

static void staged_free(staged_comm *comm)
{
    void *memory = comm->flags;
    staging_drop(comm);
    qdri_stream_destroy(&comm->lane);
    if (memory) qdri_unpin(comm->base.dev, memory);
    qdri_mem_free(comm->host, &memory);
    free(comm);
}

static void staged_destroy(qdri_comm *base)
{
    staged_comm *comm = (staged_comm *)base;
    if (base->root == base) qdri_dev_on_poison(comm->host, NULL, NULL);
    qdri_stream_destroy(&comm->lane);
    qdri_comm_destroy(&base->inner);
    staged_free(comm);
}

static qdr_status staged_split(qdri_comm *base, int colour, int key, qdri_comm **part);

static const qdri_comm_table staged_table = {
    .name = "staged",
    .unrecorded = "collectives are staged through the host for MPI; use NCCL, or one rank",
    .launch = staged_launch,
    .scratch_bytes = qdri_inner_scratch_bytes,
    .split = staged_split,
    .agree = qdri_inner_agree,
    .broadcast = qdri_inner_broadcast,
    .summed_first = qdri_inner_summed_first,
    .compare_clocks = qdri_inner_compare_clocks,
    .abort = qdri_inner_abort,
    .destroy = staged_destroy,
};

static qdr_status staged_create(qdri_dev *host, qdri_dev *dev, staged_comm **comm)
{
    staged_comm *made = NULL;
    void *flags = NULL;
    *comm = NULL;
    qdr_status status = QDRI_NEW(1, "a staged communicator", &made);
    if (status != QDR_OK) return status;
    made->base.dev = dev;
    made->host = host;
    QDR_TRY_OUT(status, pinned(made, 2 * sizeof *made->flags, &flags));
    made->flags = flags;
    QDR_TRY_OUT(status, qdri_stream_create(host, QDRI_STREAM_COMM, &made->lane));
    *comm = made;
    return QDR_OK;
out:
    staged_free(made);
    return status;
}

/* Wraps a part of `world`, or of its parent: all ranks of it take part. */
static qdr_status wrap(qdri_comm *world, qdri_comm *parent, qdri_dev *host, qdri_dev *dev, qdri_comm **comm)
{
    qdri_comm *inner = *comm;
    staged_comm *made = NULL;
    qdr_status status = inner ? staged_create(host, dev, &made) : QDR_OK;
    status = qdri_comm_agree(world, status);
    if (status != QDR_OK) {
        if (made) staged_free(made);
        return status;
    }
    if (!made) return QDR_OK;
    qdri_decorate(&made->base, &staged_table, dev, inner, parent);
    *comm = &made->base;
    return QDR_OK;
}

static qdr_status staged_split(qdri_comm *base, int colour, int key, qdri_comm **part)
{
    const staged_comm *comm = (const staged_comm *)base;
    qdri_comm *made = NULL;
    QDR_TRY(qdri_comm_split(base->inner, colour, key, &made));
    const qdr_status status = wrap(base->inner, base, comm->host, base->dev, &made);
    if (status != QDR_OK) qdri_comm_destroy(&made);
    *part = made;
    return status;
}

qdr_status qdri_comm_stage(qdri_comm **comm, qdri_dev *host, qdri_dev *dev)
{
    QDR_TRY(wrap(*comm, NULL, host, dev, comm));
    qdri_dev_on_poison(host, host_failed, *comm);
    return QDR_OK;
}
