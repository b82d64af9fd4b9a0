/* SPDX-License-Identifier: Apache-2.0 */
/** @file launch.h  For programs that should run both under mpiexec and with ranks as threads: one call that does
 * either. */
#ifndef QUADRILLE_LAUNCH_H
#define QUADRILLE_LAUNCH_H

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif
/** What one rank runs, with its context ready; its result is the exit code of that rank. When it returns the context
 * ends, with all of its objects that are left: they may not be used or destroyed afterwards. */
typedef int (*qdr_main_fn)(qdr_context *ctx, void *user);

/** Runs `fn` once on each rank and waits.
 *  n_local > 0: n_local ranks are threads of this process, and MPI is not touched. n_local = 0: the ranks are the
 * processes that mpiexec started (MPI is initialised and finalised here), or a single rank where none did or MPI is not
 * built in.
 *  @param[out] exit_code  the highest exit code of any local rank; under MPI this process's own, or 1 if its context
 *                         failed
 *  @retval QDR_ERR_ARGUMENT  among others: n_local > 0 in one of several processes that a launcher started, unless the
 *                            program has initialised MPI
 *  @retval QDR_ERR_MPI  mpiexec started several ranks but each believes to be alone: the launcher and the MPI library
 *                       differ */
QDR_API QDR_NODISCARD qdr_status qdr_launch(int n_local, const qdr_context_opts *opts, qdr_main_fn fn, void *user,
                                            int *exit_code);
/** Processes that a launcher (mpiexec, srun) started with this one, as its environment says; 1 where there is none. It
 * does not touch MPI. Local, thread-safe while the environment stays. */
QDR_API int qdr_launched(void);
#ifdef __cplusplus
}
#endif
#endif
