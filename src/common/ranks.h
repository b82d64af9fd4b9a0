/* SPDX-License-Identifier: Apache-2.0 */
/* How a program whose command line has been read comes to its ranks. */
#ifndef QUADRILLE_SRC_COMMON_RANKS_H
#define QUADRILLE_SRC_COMMON_RANKS_H

#include "common/failure.h"

/* Calls `run` on n_local ranks that are threads, or on those of mpiexec (0), on the device (NULL: QDR_DEVICE, else the
 * CPU) with n_threads each (0: the cores divided by the ranks), after they have agreed on their options (options.h).
 * Prints why ranks could not be started. Returns the exit code. */
int run_on_ranks(int64_t n_local, int64_t n_threads, const char *device, qdr_main_fn run, void *user);
/* Whether a context computes on a GPU. */
int is_on_gpu(const qdr_context *ctx);
/* Ends a process that has failed before it had ranks: joins the other processes of its launcher, if there are any, so
 * that none waits for it, and rank 0 prints what all of them are told by options_agree(). Returns the code. */
int fail_print_once(failure *why);

#endif
