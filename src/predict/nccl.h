/* SPDX-License-Identifier: Apache-2.0 */
/* The output of all_reduce_perf and the other nccl-tests programs, as a table of collectives. */
#ifndef QUADRILLE_SRC_PREDICT_NCCL_H
#define QUADRILLE_SRC_PREDICT_NCCL_H

#include <stddef.h>

#include "common/failure.h"

/* 1: a line names the columns that nccl-tests print. Safe for arbitrary bytes, here and below. */
int nccl_is_output(const char *bytes, size_t n_bytes);

/* What the output does not state. */
typedef struct nccl_told {
    const char *name; /* of the file; error messages begin with it */
    const char *collective; /* of all rows; NULL: stated in the output */
    int ranks; /* of all rows; 0: stated in the output, or machine_ranks */
    int machine_ranks; /* 0: unknown */
} nccl_told;
/* Makes a table with the columns collective, gpus, bytes and time_us (out of place), whose rows are on the same lines
 * as in the output; *table is to be freed. */
int nccl_table(const char *bytes, size_t n_bytes, const nccl_told *told, char **table, size_t *table_bytes,
               failure *why);

#endif
