/* SPDX-License-Identifier: Apache-2.0 */
#include "fault/reordered.h"

#include "comm/mpi/mpi.h"
#include "core/status.h"

#if QDRI_HAVE_MPI
MPI_Comm reordered_world(void)
{
    MPI_Comm comm;
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank % 2 * size + rank, &comm);
    return comm;
}

qdr_status reordered_launch(qdr_main_fn fn, void *user, int *exit_code)
{
    qdr_context *ctx = NULL;
    int started = 0;
    qdr_status status = qdri_mpi_start(&started);
    if (status != QDR_OK) return status;
    MPI_Comm comm = reordered_world();
    status = qdr_context_create_mpi(comm, NULL, &ctx);
    MPI_Comm_free(&comm); /* the context has a copy */
    if (status == QDR_OK) *exit_code = fn(ctx, user);
    qdr_context_destroy(&ctx);
    qdri_mpi_stop();
    return status;
}
#else
qdr_status reordered_launch(qdr_main_fn fn, void *user, int *exit_code)
{
    (void)fn;
    (void)user;
    (void)exit_code;
    return QDR_FAIL(QDR_ERR_UNSUPPORTED, "test: this build has no MPI");
}
#endif
