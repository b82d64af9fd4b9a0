/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts on MPI, and programs under mpiexec. */
#include "comm/mpi.h"

#include "grid/context.h"
#include "quadrille/mpi.h"

qdr_status qdr_context_create_mpi(MPI_Comm comm, const qdr_context_opts *opts, qdr_context **ctx)
{
    qdri_comm *world = NULL;
    qdr_context *made = NULL;
    qdri_watch_opts watch;
    qdr_status status = qdri_context_check_opts(opts, &watch); /* before any rank waits */
    if (ctx) *ctx = NULL;
    if (!ctx) status = QDR_FAIL(QDR_ERR_ARGUMENT, "context: the place for the result is NULL");
    QDR_TRY(qdri_comm_create_mpi(&comm, status, &world));
    status = qdri_context_prepare(opts, qdri_comm_node_size(world), qdri_comm_node_rank(world),
                                  qdri_mpi_bells(world), &made);
    if (status == QDR_OK && !qdri_dev_runs_work(made->dev))
        status = QDR_FAIL(QDR_ERR_UNSUPPORTED,
                          "context: GPUs are not joined by MPI yet; use local ranks");
    QDR_TRY_OUT(status, qdri_comm_agree(world, status));
    qdri_comm_bind(world, made->dev);
    QDR_TRY_OUT(status, qdri_context_join(made, world));
    *ctx = made;
    return QDR_OK;
out:
    qdri_context_discard(&made); /* its threads sleep on bells of the world */
    qdri_comm_destroy(&world);
    return status;
}

static qdr_status run_rank(const qdr_context_opts *opts, qdr_main_fn fn, void *user, int *exit_code)
{
    qdr_context *ctx = NULL;
    QDR_TRY(qdr_context_create_mpi(MPI_COMM_WORLD, opts, &ctx));
    *exit_code = fn(ctx, user);
    qdr_context_destroy(&ctx);
    return QDR_OK;
}

qdr_status qdri_launch_mpi(const qdr_context_opts *opts, qdr_main_fn fn, void *user, int *exit_code)
{
    int started = 0;
    QDR_TRY(qdri_mpi_start(&started));
    const qdr_status status = run_rank(opts, fn, user, exit_code);
    if (started) qdri_mpi_stop();
    return status;
}
