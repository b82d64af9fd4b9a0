/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts of ranks that provide their own broadcast and barrier. */
#include "comm/boot.h"
#include "context/context.h"
#include "core/sized.h"

/* Callbacks cannot run collectives: those need NCCL. */
static qdr_status prepare(const qdr_context_opts *opts, qdri_comm *world, qdr_context **ctx)
{
    QDR_TRY(qdri_context_prepare(opts, qdri_comm_node_size(world), qdri_comm_node_rank(world), NULL, ctx));
    if (qdri_comm_size(world) == 1) return QDR_OK;
    if (qdri_dev_runs_work((*ctx)->dev))
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "context: %d ranks with callbacks need GPUs connected by NCCL; use device \"cuda\", or use MPI "
                        "or local ranks for CPUs",
                        qdri_comm_size(world));
    if ((*ctx)->watch.check)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "context: QDR_CHECK needs subgroups of ranks that can communicate, which "
                                             "callbacks cannot provide; unset it, or use MPI");
    return QDR_OK;
}

static qdr_status join(qdr_context *ctx, qdri_comm **world)
{
    qdri_pairing pairing;
    qdri_boot_bind(*world, ctx->dev);
    QDR_TRY(qdri_boot_barrier(*world));
    QDR_TRY(qdri_context_greet(ctx, *world));
    if (qdri_comm_size(*world) > 1) QDR_TRY(qdri_pair(world, ctx->dev, QDRI_PAIR_AUTO, &pairing));
    return qdri_context_join(ctx, *world);
}

static qdr_status take_boot(const qdr_boot *boot, qdr_boot *callbacks)
{
    QDR_TRY(QDRI_TAKE(qdr_boot, boot, callbacks));
    if (callbacks->broadcast && callbacks->barrier) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "context: boot needs both callbacks, broadcast and barrier");
}

qdr_status qdr_context_create_boot(int rank, int size, const qdr_boot *boot, const qdr_context_opts *opts,
                                   qdr_context **ctx)
{
    qdri_comm *world = NULL;
    qdr_context *made = NULL;
    qdr_context_opts taken;
    qdr_boot callbacks;
    qdri_watch_opts watch;
    if (!ctx) return QDR_FAIL(QDR_ERR_ARGUMENT, "context: the result pointer is NULL");
    *ctx = NULL;
    if (size < 1 || rank < 0 || rank >= size)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "context: rank %d of %d; use 0 … size-1", rank, size);
    QDR_TRY(take_boot(boot, &callbacks)); /* NULL: there is no way to communicate */
    qdr_status status = qdri_context_take_opts(opts, &taken, &watch);
    QDR_TRY(qdri_comm_create_boot(&callbacks, rank, size, status, &world));
    status = prepare(opts, world, &made);
    return qdri_context_complete(status, made, world, join, ctx);
}
