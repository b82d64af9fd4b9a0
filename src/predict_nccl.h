/* SPDX-License-Identifier: Apache-2.0 */
/* What all_reduce_perf and its like of nccl-tests print, as a table of collectives. */
#ifndef QUADRILLE_SRC_PREDICT_NCCL_H
#define QUADRILLE_SRC_PREDICT_NCCL_H

#include <stddef.h>

#include "failure.h"

/* 1: a line names the columns that nccl-tests print. Any bytes are safe, here and below. */
int nccl_is_output(const char *bytes, size_t n_bytes);

/* What the text leaves out. */
typedef struct nccl_told {
    const char *name; /* of the text; begins sentences */
    const char *collective; /* of all rows; NULL: the text says it */
    int ranks; /* of all rows; 0: the text says it, or it is machine_ranks */
    int machine_ranks; /* 0: not known */
} nccl_told;
/* A table with the columns collective, gpus, bytes and time_us (out of place), whose rows lie on the lines that they
 * have in the text; *table is to be freed. */
int nccl_table(const char *bytes, size_t n_bytes, const nccl_told *told, char **table, size_t *table_bytes,
               failure *why);

#endif
