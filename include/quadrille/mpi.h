/* SPDX-License-Identifier: Apache-2.0 */
/** @file mpi.h  Contexts on MPI. The only public header with an MPI type; installed with every build. A library built
 * without MPI does not contain its function, so programs that call it do not link. */
#ifndef QUADRILLE_MPI_H
#define QUADRILLE_MPI_H

#include <mpi.h>

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif
/** Makes this rank's context from an MPI communicator. Collective over comm. comm is duplicated; MPI is neither
 * initialised nor finalised. opts may be NULL.
 *  @retval QDR_ERR_STATE     MPI is not initialised, is finalised, or has no MPI_THREAD_MULTIPLE
 *  @retval QDR_ERR_ARGUMENT  comm is MPI_COMM_NULL, an intercommunicator, or, as far as MPI can tell, not a
 *                            communicator. On this rank only: others that pass a valid one wait for it
 *  @retval QDR_ERR_MPI       MPI failed, or the launcher started several ranks that each believe they are alone
 *
 * After MPI_Finalize the context's collective calls fail with QDR_ERR_STATE, and destroying only frees memory.
 *
 * After QDR_ERR_TIMEOUT (QDR_TIMEOUT, see context.h) qdr_context_destroy() waits for the missing ranks once more, for
 * six seconds at the most. MPI_Finalize would then wait forever: call MPI_Abort, or exit without MPI_Finalize,
 * as qdr_launch() does.
 *
 * MPICH 4.0 over UCX may hang in MPI_Finalize if ranks communicate over TCP. qdr_launch() avoids that with a barrier of
 * all ranks and 20 ms of sleep before MPI_Finalize. */
QDR_API QDR_NODISCARD qdr_status qdr_context_create_mpi(MPI_Comm comm, const qdr_context_opts *opts, qdr_context **ctx);
#ifdef __cplusplus
}
#endif
#endif
