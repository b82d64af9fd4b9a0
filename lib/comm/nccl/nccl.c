/* SPDX-License-Identifier: Apache-2.0 */
/* The `nccl` backend: creating and destroying communicators; everything but collectives is delegated to the host
 * communicator. At the end: the plugin's implementation of lib/dev/plugin.h. */
#include <stdlib.h>

#include "comm/nccl/internal.h"
#include "core/log.h"
#include "core/size.h"
#include "dev/cuda/cudnn.h"

static qdri_comm *host_of(qdri_comm *base) { return qdri_nccl_host((nccl_comm *)base); }

static qdr_status nccl_agree(qdri_comm *base, qdri_verdict *verdict)
{
    return qdri_comm_exchange(host_of(base), verdict);
}

static qdr_status nccl_broadcast(qdri_comm *base, int root, void *data, size_t bytes)
{
    return qdri_comm_broadcast(host_of(base), root, data, bytes);
}

static qdr_status nccl_compare_clocks(qdri_comm *base, int leaving, qdri_clock_offset *offset)
{
    return qdri_comm_compare_clocks(host_of(base), leaving, offset);
}

static qdr_status nccl_look(qdri_comm *base)
{
    qdri_comm *host = ((nccl_comm *)base)->host;
    return host->table->look ? host->table->look(host) : QDR_OK;
}

/* Aborting the root aborts the family. */
static void nccl_abort(qdri_comm *base)
{
    nccl_comm *comm = (nccl_comm *)base;
    qdri_reason_set(&base->why, qdr_last_error());
    if (base->root != base) return;
    qdri_comm_abort(comm->host);
    qdri_nccl_guard_abort(comm->guard);
}

/* Called before comm leaves the family: if the family was given up, comm is aborted with the others, not after them.
 * The root is destroyed last, and the guard needs the family. */
static void nccl_before_leaving(qdri_comm *base)
{
    nccl_comm *comm = (nccl_comm *)base;
    (void)qdri_nccl_guard_wait(comm->guard);
    if (base->root == base) comm->is_left = !qdri_nccl_guard_stop(comm->guard);
}

static void comm_free(nccl_comm *comm)
{
    if (!comm) return;
    qdri_nccl_watch_free(&comm->watch);
    pthread_mutex_destroy(&comm->calls);
    free(comm);
}

/* Destroys or aborts what NCCL has of it. */
static void close_handles(nccl_comm *comm, int aborts)
{
    ncclComm_t handle = atomic_exchange(&comm->handle, NULL);
    qdri_nccl_memory_leave(comm, aborts ? NULL : handle);
    if (comm->registers) ((qdri_cuda_dev *)comm->base.dev)->shared = (qdri_cuda_shared){0};
    if (handle) (void)qdri_nccl_close(comm->base.dev, handle, aborts);
    if (comm->stem) (void)qdri_nccl_close(comm->base.dev, comm->stem, aborts);
}

/* Cleans up after a failed creation: the caller keeps the host communicator. */
static void comm_discard(nccl_comm *comm)
{
    if (!comm) return;
    /* NCCL may still be splitting, and ends that before the stem. */
    const int has_ended = !comm->stem || qdri_nccl_close(comm->base.dev, comm->stem, 1);
    comm->stem = NULL;
    if (comm->place) qdri_nccl_adopt(comm); /* of a split that failed */
    close_handles(comm, 1);
    if (has_ended) comm_free(comm);
}

static void nccl_destroy(qdri_comm *base)
{
    nccl_comm *comm = (nccl_comm *)base;
    qdri_nccl_staged_free(comm);
    close_handles(comm, qdri_dev_status(base->dev) != QDR_OK);
    if (comm->is_left) return;
    qdri_comm_destroy(&comm->host);
    comm_free(comm);
}

static qdr_status nccl_split(qdri_comm *base, int colour, int key, qdri_comm **part);

static const qdri_comm_table nccl_table = {
    .name = "nccl",
    .launch = qdri_nccl_launch,
    .scratch_bytes = qdri_nccl_scratch_bytes,
    .split = nccl_split,
    .agree = nccl_agree,
    .broadcast = nccl_broadcast,
    .compare_clocks = nccl_compare_clocks,
    .look = nccl_look,
    .abort = nccl_abort,
    .destroy_parts = nccl_before_leaving,
    .destroy = nccl_destroy,
};

static qdr_status comm_create(qdri_comm *host, qdri_dev *dev, int max_ctas, nccl_comm **comm)
{
    QDR_TRY(QDRI_NEW(1, "a communicator of NCCL", comm));
    pthread_mutex_init(&(*comm)->calls, NULL);
    qdri_nccl_watch_init(&(*comm)->watch);
    (*comm)->base.dev = dev;
    (*comm)->host = host;
    (*comm)->max_ctas = max_ctas;
    return QDR_OK;
}

static void comm_begin(nccl_comm *comm, nccl_comm *parent)
{
    const qdri_comm *host = comm->host;
    qdri_comm_init(&comm->base, &nccl_table, comm->base.dev, host->rank, host->size, parent ? &parent->base : NULL);
    comm->base.node_size = host->node_size;
    comm->base.nodes = host->nodes;
    if (parent) comm->guard = parent->guard;
}

static qdr_status nccl_wrap(qdri_comm *host, qdri_dev *dev, qdri_comm **comm)
{
    qdri_cuda_dev *cuda = (qdri_cuda_dev *)dev;
    nccl_comm *made = NULL;
    int max_ctas = 1;
    *comm = host;
    if (host->size == 1) return QDR_OK;
    *comm = NULL;
    QDRI_CUDA_VISIT(cuda);
    QDR_TRY(qdri_comm_agree(host, qdri_cuda_status(cuda, visited, "cudaSetDevice")));
    QDR_TRY(qdri_nccl_prepare(host, dev, &max_ctas));
    qdr_status status = qdri_comm_agree(host, comm_create(host, dev, max_ctas, &made));
    QDR_TRY_OUT(status, status);
    QDR_TRY_OUT(status, qdri_nccl_open_stem(host, dev, &made->stem));
    QDR_TRY_OUT(status, qdri_nccl_split_off(host, made->stem, 0, made));
    comm_begin(made, NULL);
    made->base.timeout_ns = qdri_comm_timeout_ns(host);
    QDR_TRY_OUT(status, qdri_nccl_memory_open(host, made));
    status = qdri_comm_agree(host, qdri_nccl_guard_start(made));
    if (status != QDR_OK) (void)qdri_nccl_guard_stop(made->guard);
    QDR_TRY_OUT(status, status);
    /* Products leave the multiprocessors of one collective free, so that neither waits for the other's blocks to
     * finish. */
    if (qdri_nccl_sms(max_ctas) < cuda->gpu.n_sms) cuda->n_sms_free = cuda->gpu.n_sms - qdri_nccl_sms(max_ctas);
    *comm = &made->base;
    return QDR_OK;
out:
    comm_discard(made);
    return status;
}

/* Splits from the root's stem, or from a new stem of the part's members. */
static qdr_status open_part(nccl_comm *comm, int colour, nccl_comm *made)
{
    qdri_comm *talker = qdri_nccl_host(comm);
    if (comm->stem) return qdri_nccl_split_off(talker, comm->stem, colour, made);
    qdr_status status = QDR_OK;
    if (made->host && made->host->size > 1) status = qdri_nccl_open_stem(made->host, comm->base.dev, &made->stem);
    if (status == QDR_OK && made->stem) status = qdri_nccl_split_off(made->host, made->stem, 0, made);
    return qdri_comm_agree(talker, status);
}

/* Nothing can be split off any more. @return 0: NCCL hangs */
static int give_up_stem(nccl_comm *comm, qdr_status status)
{
    qdri_dev_poison(comm->base.dev, status, qdr_last_error());
    qdri_comm_abort(&comm->base);
    return qdri_nccl_guard_wait(comm->guard);
}

static qdr_status nccl_split(qdri_comm *base, int colour, int key, qdri_comm **part)
{
    nccl_comm *comm = (nccl_comm *)base, *made = NULL;
    qdri_comm *host = NULL;
    QDR_TRY(qdri_dev_raise(base->dev));
    QDRI_CUDA_VISIT((const qdri_cuda_dev *)base->dev);
    QDR_TRY(qdri_comm_agree(comm->host, qdri_cuda_status((const qdri_cuda_dev *)base->dev, visited, "cudaSetDevice")));
    QDR_TRY(qdri_comm_split(host_of(base), colour, key, &host));
    const int max_ctas = qdri_nccl_part_ctas(comm->max_ctas, base->root->n_parts);
    qdr_status status = qdri_comm_agree(comm->host, comm_create(host, base->dev, max_ctas, &made));
    QDR_TRY_OUT(status, status);
    status = open_part(comm, colour, made);
    /* If NCCL does not give up, it may still write to `made`. */
    if (status != QDR_OK && !give_up_stem(comm, status)) return status; /* the same on all ranks */
    QDR_TRY_OUT(status, status); /* the same on all ranks */
    const nccl_comm *root = (const nccl_comm *)base->root;
    if (root->registers) status = qdri_comm_agree(comm->host, qdri_nccl_memory_join(made, root));
    QDR_TRY_OUT(status, status);
    if (host) {
        comm_begin(made, comm);
        *part = &made->base;
    } else {
        comm_free(made);
    }
    return QDR_OK;
out:
    comm_discard(made);
    qdri_comm_destroy(&host);
    return status;
}

/* ---- the plugin's table ---- */

static void connect(const qdri_plugin_host *host)
{
    qdri_share_last_error(host->last_error);
    qdri_share_log(host->log);
    qdri_nccl_note_before(host->had_nccl);
}

static qdr_status find_versions(qdri_cuda_versions *versions)
{
    const qdr_status status = qdri_cuda_find_versions(versions);
    if (ncclGetVersion(&versions->nccl) != ncclSuccess) versions->nccl = 0;
    return status;
}

static qdr_status find_cudnn(int *version)
{
    const qdri_cudnn *api = NULL;
    *version = 0;
    QDR_TRY(qdri_cudnn_open(&api));
    *version = (int)api->version;
    return QDR_OK;
}

static const qdri_cuda_comms comms = {.nccl_fits = qdri_nccl_fits, .nccl_wrap = nccl_wrap};

QDR_API extern const qdri_plugin qdr_cuda_plugin;
const qdri_plugin qdr_cuda_plugin = {
    .build = QDRI_PLUGIN_BUILD,
    .connect = connect,
    .find_versions = find_versions,
    .find_gpu = qdri_cuda_find_gpu,
    .find_cudnn = find_cudnn,
    .dev_create = qdri_cuda_dev_create,
    .comm = &comms,
};
