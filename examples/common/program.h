/* SPDX-License-Identifier: Apache-2.0 */
/* How an example program starts and how it leaves: one sentence for a failure, said once, and an exit code. */
#ifndef EXAMPLES_PROGRAM_H
#define EXAMPLES_PROGRAM_H

#include <quadrille/quadrille.h>

#include "options.h"

/* Exit codes, the same for every program of Quadrille. */
enum { LEAVE_OK = 0, LEAVE_FAILED = 1, LEAVE_BAD_INPUT = 2, LEAVE_NOTHING_FITS = 3 };

/* Leaves the calling function with the status of a failed call. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const qdr_status try_status_ = (call);                                                                         \
        if (try_status_ < 0) return try_status_;                                                                       \
    } while (0)

/* What each rank runs. All ranks return the same status. Where a failure is none of the library's, `sentence` is
 * filled. */
typedef qdr_status (*program_fn)(qdr_context *ctx, const void *settings, char sentence[PROBLEM_BYTES]);

/* Reads the command line, starts the ranks (threads of this process if *n_local > 0, else what mpiexec started), runs
 * `fn` on each of them, says on rank 0 what went wrong, and returns the exit code. */
int program_start(const usage_text *usage, int argc, char **argv, const int64_t *n_local, const int64_t *n_threads,
                  program_fn fn, const void *settings);

/* Zeroed memory for `free`: on every rank, or NULL on all of them (QDR_ERR_MEMORY). Collective. */
void *program_new(qdr_context *ctx, int64_t n_items, size_t item_bytes);

/* The grid's ranks must be as many as were started; says how to start them otherwise. Same result on all ranks. */
qdr_status program_make_grid(qdr_context *ctx, const grid_shape *shape, const char *order, char sentence[PROBLEM_BYTES],
                             qdr_grid **grid);

#endif
