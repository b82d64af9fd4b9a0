/* SPDX-License-Identifier: Apache-2.0 */
/** @file launch.h  For programs that should run both under mpiexec and with ranks as threads: one call for both. */
#ifndef QUADRILLE_LAUNCH_H
#define QUADRILLE_LAUNCH_H

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif
/** What one rank runs, with its context ready; its result is the exit code of that rank: 0 … 255, and any other value
 * counts as 1. When it returns, the context is destroyed with all of its remaining objects: they may not be used or
 * destroyed afterwards. Ranks that wait for one that has returned fail with QDR_ERR_PEER. */
typedef int (*qdr_main_fn)(qdr_context *ctx, void *user);

/** Runs `fn` once on each rank and waits.
 * n_local > 0: n_local ranks are threads of this process, and MPI is not touched. n_local = 0: the ranks are the
 * processes that mpiexec started (MPI is initialised and finalised here), or a single rank if it did not, or if the
 * library was built without MPI.
 *  @param[out] exit_code  the highest exit code of any local rank; under MPI this process's own, or 1 if its context
 *                         failed
 *  @retval QDR_ERR_ARGUMENT  on all ranks: the options or the environment of one of them are invalid; also n_local > 0
 *                            in one of several processes that a launcher started, unless the program has initialised
 *                            MPI
 *  @retval QDR_ERR_MPI  mpiexec started several ranks but each believes it is alone: the launcher and the MPI library
 *                       do not match */
QDR_API QDR_NODISCARD qdr_status qdr_launch(int n_local, const qdr_context_opts *opts, qdr_main_fn fn, void *user,
                                            int *exit_code);
/** The number of processes, including this one, that a launcher (mpiexec, srun, torchrun, …) started together,
 * according to the environment; at least so many where a launcher only numbers its processes; 1 without a launcher.
 * Does not touch MPI. Local, thread-safe as long as nobody changes the environment. */
QDR_API int qdr_launched(void);
#ifdef __cplusplus
}
#endif
#endif
