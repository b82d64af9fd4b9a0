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
 *                         failed, or instead of 0 if a rank was missing at the end (QDR_TIMEOUT)
 *  @retval QDR_ERR_ARGUMENT  on all ranks: the options or the environment of one of them are invalid; also n_local > 0
 *                            in one of several processes that a launcher started, unless the program has initialised
 *                            MPI
 *  @retval QDR_ERR_MPI  mpiexec started several ranks but each believes it is alone: the launcher and the MPI library
 *                       do not match */
QDR_API QDR_NODISCARD qdr_status qdr_launch(int n_local, const qdr_context_opts *opts, qdr_main_fn fn, void *user,
                                            int *exit_code);
/** See qdr_launch_watch(). `sentence` is valid during the call. */
typedef void (*qdr_stuck_fn)(const char *sentence, void *user);
/** MPI has calls that nothing can end: if a rank stops or hangs, the others wait for it forever in MPI_Init_thread,
 * MPI_Comm_split or MPI_Finalize, whatever QDR_TIMEOUT says. With a function set here, qdr_launch() with n_local = 0
 * starts a thread that looks out for this: it calls fn once if this process has been in one such call for longer than
 * QDR_TIMEOUT (rank 0's, once ranks have communicated). The sentence names this rank, the call, the time, and those
 * ranks of this node that are stopped, or else those that are not in that call. The library does nothing else about it:
 * fn may end the process, for example by _Exit(), upon which the launcher ends the others, or return, and the process
 * waits on. Without QDR_TIMEOUT, or if fn is NULL (the default), nothing looks out. The time during which the process
 * itself was stopped does not count. Local; not while qdr_launch() runs. */
QDR_API void qdr_launch_watch(qdr_stuck_fn fn, void *user);
/** The number of processes, including this one, that a launcher (mpiexec, srun, torchrun, …) started together,
 * according to the environment; 1 without a launcher. Where a launcher only numbers its processes: at least so many,
 * and 0 in the first one, which cannot know whether there are others. Does not touch MPI. Local, thread-safe as long as
 * nobody changes the environment. */
QDR_API int qdr_launched(void);
/** Writes what the MPI library that this process has loaded calls itself, "MPICH Version: 4.0.2"; "none" if the library
 * was built without MPI. It may be another version than that of the build, which is in version.h. MPI need not be
 * initialised. Local, thread-safe.
 *  @param[out] text  of `bytes` bytes including the terminating null; NULL: nothing is written */
QDR_API void qdr_launch_mpi_version(char *text, size_t bytes);
#ifdef __cplusplus
}
#endif
#endif
