/* SPDX-License-Identifier: Apache-2.0 */
/* The four outputs of `quadrille linear`: gathered on rank 0 and written, all or none. */
#ifndef QUADRILLE_SRC_LINEAR_RESULTS_H
#define QUADRILLE_SRC_LINEAR_RESULTS_H

#include <quadrille/stack.h>

#include "linear/files.h"

typedef struct layer_results {
    qdr_grid *grid;
    qdr_stack *stack;
    int weight; /* index of W; b follows */
    qdr_dtype dtype;
    const qdr_matrix *in, *out; /* layouts of dx and y */
    const void *dx, *y; /* this rank's parts */
    int64_t n, k;
} layer_results;

/* Checks, before any work is done, that DIR can be created or written to. */
int results_check_folder(const char *dir, failure *why);
/* Checks that no result replaces an input. Local, for rank 0. */
int results_check_files(const char *const paths[N_FILES], const char *dir, int n_ranks, failure *why);
/* Writes y.npy, dx.npy, dw.npy and db.npy to DIR, which is created if absent. Collective; a failure is the same on all
 * ranks and leaves no new files. */
int results_write(const layer_results *results, const char *dir, failure *why);

#endif
