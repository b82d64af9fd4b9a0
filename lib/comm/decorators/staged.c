/* SPDX-License-Identifier: Apache-2.0 */
/* The decorator `staged`: collectives on device memory (of a GPU), performed by a host communicator. What is sent is
 * copied to pinned memory, a thread of the host device drives the inner communicator, and what was received is copied
 * back. The GPU's streams wait for a flag that the thread sets; the caller does not wait. */
#include <stdlib.h>

#include "comm/internal.h"
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

/* After a failure, streams that wait for the host continue; their device has failed, too. */
static void let_go(const staged_comm *comm) { atomic_store(flag(comm, FLAG_DONE), comm->n_launched); }

static qdr_status staged_launch(qdri_comm *base, const qdri_coll *coll, qdr_stream *stream)
{
    staged_comm *comm = (staged_comm *)base;
    const int is_broadcast = coll->kind == QDR_BROADCAST;
    const void *from = is_broadcast ? coll->recv : qdri_coll_source(coll);
    int64_t begin, n_in, n_out;
    qdri_coll_extent(coll, base->size, base->rank, &begin, &n_in, &n_out);
    if (coll->kind == QDR_ALL_GATHER && !coll->send) from = qdri_at(coll->recv, begin, coll->dtype);
    const size_t in_bytes = (size_t)n_in * qdr_dtype_bytes(coll->dtype);
    const size_t out_bytes = (size_t)n_out * qdr_dtype_bytes(coll->dtype),
                 out_begin = qdri_align_bytes(in_bytes, ALIGN);
    if (out_begin + out_bytes > comm->staging_bytes) {
        /* More staging is needed than ever before: the only case in which a launch waits. Also waits for the lane,
         * because the stream does not wait for it if the previous launch failed halfway. */
        void *memory = NULL;
        QDR_TRY(qdri_stream_synchronize(stream));
        QDR_TRY(qdri_stream_synchronize(comm->lane));
        staging_drop(comm);
        QDR_TRY(pinned(comm, out_begin + out_bytes, &memory));
        comm->staging = memory;
        comm->staging_bytes = out_begin + out_bytes;
    }
    /* The same collective between the two halves of the staging memory. */
    qdri_coll host = *coll;
    host.send = is_broadcast ? NULL : comm->staging;
    host.recv = comm->staging + (is_broadcast && in_bytes ? 0 : out_begin);
    comm->n_launched++;
    const signal_work ready = {base->dev, flag(comm, FLAG_READY), comm->n_launched},
                      done = {NULL, flag(comm, FLAG_DONE), comm->n_launched};
    QDR_TRY(qdri_copy(stream, comm->staging, from, in_bytes));
    QDR_TRY(qdri_flag_raise(stream, comm->flags + FLAG_READY, comm->n_launched));
    QDR_TRY(qdri_work(comm->lane, wait_ready, &ready, sizeof ready));
    QDR_TRY(qdri_comm_launch(base->inner, &host, comm->lane));
    QDR_TRY(qdri_work(comm->lane, raise_done, &done, sizeof done));
    QDR_TRY(qdri_flag_wait(stream, comm->flags + FLAG_DONE, comm->n_launched));
    if (qdri_dev_status(comm->host) != QDR_OK) let_go(comm);
    return out_bytes ? qdri_copy(stream, coll->recv, host.recv, out_bytes) : QDR_OK;
}

/* Called once, by the thread that sees the host device fail: the GPU's work must not wait for data that will not
 * arrive, and its device is poisoned with the reason. */
static void host_failed(void *user)
{
    staged_comm *root = user;
    (void)qdri_dev_raise(root->host);
    qdri_dev_poison(root->base.dev, qdri_dev_status(root->host), qdr_last_error());
    pthread_mutex_lock(&root->base.family_mutex);
    for (qdri_comm *each = &root->base; each; each = each->next)
        if (each->table == root->base.table) let_go((const staged_comm *)each);
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

static qdr_status staged_wrap(qdri_comm *parent, qdri_comm **comm);

static const qdri_comm_table staged_table = {
    .name = "staged",
    .unrecorded = "collectives are staged through the host for MPI; use NCCL, or one rank",
    .launch = staged_launch,
    .wrap = staged_wrap,
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

/* parent: NULL for a world. */
static qdr_status wrap(qdri_comm *parent, qdri_dev *host, qdri_dev *dev, qdri_comm **comm)
{
    staged_comm *made = NULL;
    qdr_status status = *comm ? staged_create(host, dev, &made) : QDR_OK;
    status = qdri_comm_decorate(status, made ? &made->base : NULL, &staged_table, parent, comm);
    if (status != QDR_OK && made) staged_free(made);
    return status;
}

static qdr_status staged_wrap(qdri_comm *parent, qdri_comm **comm)
{
    return wrap(parent, ((const staged_comm *)parent)->host, parent->dev, comm);
}

qdr_status qdri_comm_stage(qdri_comm **comm, qdri_dev *host, qdri_dev *dev)
{
    QDR_TRY(wrap(NULL, host, dev, comm));
    qdri_dev_on_poison(host, host_failed, *comm);
    return QDR_OK;
}
