/* SPDX-License-Identifier: Apache-2.0 */
/* How an example program starts and exits: one message for a failure, printed once, and an exit code. */
#ifndef EXAMPLES_PROGRAM_H
#define EXAMPLES_PROGRAM_H

#include <quadrille/quadrille.h>

#include "options.h"

/* Exit codes, the same for all programs of Quadrille. */
enum { LEAVE_OK = 0, LEAVE_FAILED = 1, LEAVE_BAD_INPUT = 2, LEAVE_NOTHING_FITS = 3 };

/* Leaves the calling function with the status of a failed call. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const qdr_status try_status_ = (call);                                                                         \
        if (try_status_ < 0) return try_status_;                                                                       \
    } while (0)

/* The function that each rank runs. All ranks return the same status. If a failure does not come from the library,
 * `sentence` is set. */
typedef qdr_status (*program_fn)(qdr_context *ctx, const void *settings, char sentence[PROBLEM_BYTES]);

/* Reads the command line, starts the ranks (threads of this process if *n_local > 0, otherwise those of mpiexec), runs
 * `fn` on each of them, prints on rank 0 what went wrong, and returns the exit code. */
int program_start(const usage_text *usage, int argc, char **argv, const int64_t *n_local, const int64_t *n_threads,
                  program_fn fn, const void *settings);

/* Allocates zeroed memory, to be freed: on every rank, or NULL on all of them (QDR_ERR_MEMORY). Collective. */
void *program_new(qdr_context *ctx, int64_t n_items, size_t item_bytes);

/* Creates a grid, which must have as many ranks as were started; otherwise says how to start them. The same result on
 * all ranks. */
qdr_status program_make_grid(qdr_context *ctx, const grid_shape *shape, const char *order, char sentence[PROBLEM_BYTES],
                             qdr_grid **grid);

#endif
