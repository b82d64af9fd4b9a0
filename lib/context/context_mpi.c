/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts on MPI, and programs under mpiexec. */
#include "comm/mpi/lookout.h"
#include "comm/mpi/mpi.h"
#include "context/context.h"
#include "core/environment.h"
#include "core/log.h"
#include "quadrille/mpi.h"

/* This rank's device and, if it is a GPU, the one that drives MPI. */
static qdr_status prepare(const qdr_context_opts *opts, qdri_comm *world, qdr_context **ctx)
{
    qdri_wake_event *wake_events = qdri_mpi_wake_events(world);
    QDR_TRY(qdri_context_prepare(opts, qdri_comm_node_size(world), qdri_comm_node_rank(world), wake_events, ctx));
    if (qdri_dev_runs_work((*ctx)->dev)) return QDR_OK;
    QDR_TRY(qdri_dev_create_cpu(1, &(*ctx)->host_dev));
    if (wake_events) qdri_dev_use_wake_events((*ctx)->host_dev, wake_events);
    return QDR_OK;
}

static qdr_status join(qdr_context *ctx, qdri_comm **world)
{
    qdri_pairing pairing;
    qdri_comm_bind(*world, ctx->host_dev ? ctx->host_dev : ctx->dev);
    QDR_TRY(qdri_context_greet(ctx, *world));
    QDR_TRY(qdri_context_tell_machine(ctx, *world));
    if (ctx->host_dev) { /* the same on all ranks */
        QDR_TRY(qdri_pair(world, ctx->dev, QDRI_PAIR_MPI, &pairing));
        if (pairing == QDRI_PAIR_MPI) QDR_TRY(qdri_comm_stage(world, ctx->host_dev, ctx->dev));
    }
    return qdri_context_join(ctx, *world);
}

qdr_status qdr_context_create_mpi(MPI_Comm comm, const qdr_context_opts *opts, qdr_context **ctx)
{
    qdri_comm *world = NULL;
    qdr_context *made = NULL;
    qdr_context_opts taken;
    qdri_watch_opts watch = {0};
    qdr_status status = qdri_context_take_opts(opts, &taken, &watch); /* before any rank waits */
    if (ctx) *ctx = NULL;
    if (!ctx) status = QDR_FAIL(QDR_ERR_ARGUMENT, "context: the result pointer is NULL");
    QDR_TRY(qdri_comm_create_mpi(&comm, status, watch.timeout_secs, &world));
    status = prepare(opts, world, &made);
    return qdri_context_complete(status, made, world, join, ctx);
}

static qdr_status run(const qdr_context_opts *opts, qdr_main_fn fn, void *user, int *exit_code)
{
    int started = 0;
    qdr_context *ctx = NULL;
    QDR_TRY(qdri_mpi_start(&started));
    const qdr_status status = qdr_context_create_mpi(MPI_COMM_WORLD, opts, &ctx);
    if (status == QDR_OK) {
        qdri_lookout_set_limit(ctx->watch.timeout_secs);
        *exit_code = fn(ctx, user);
    }
    qdri_context_leave(&ctx);
    if (started) qdri_mpi_stop();
    if (qdri_mpi_misses_a_rank() && *exit_code == 0) *exit_code = 1; /* its own code will never be known */
    return status;
}

qdr_status qdri_launch_mpi(const qdr_context_opts *opts, qdr_main_fn fn, void *user, int *exit_code,
                           const qdri_stuck_watch *watch)
{
    double limit_secs;
    qdri_log_read_level(); /* options may be invalid on one rank only: they are refused when contexts are made */
    if (qdri_environment_number(QDRI_VARIABLE_TIMEOUT, &limit_secs) != QDR_OK) limit_secs = 0;
    qdri_lookout_begin(limit_secs, watch->fn, watch->user);
    const qdr_status status = run(opts, fn, user, exit_code);
    qdri_lookout_end();
    return status;
}
