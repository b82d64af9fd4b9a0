/* SPDX-License-Identifier: Apache-2.0 */
/* How a program runs on its ranks: as the command line says, as a plan of `quadrille plan -o` says, or as the model
 * chooses (--grid auto). */
#ifndef EXAMPLES_CHOICE_H
#define EXAMPLES_CHOICE_H

#include <quadrille/quadrille.h>

#include "options.h"

typedef struct choice {
    const char *plan, *machine; /* a file; a name or a file. NULL: not given */
    grid_shape grid; /* all zero: not given */
    const char *order; /* NULL: not given */
    int layout, dtype, serial; /* qdr_layout, qdr_dtype, 0 or 1; -1: not given */
    int64_t context, batch, micro_batch; /* 0: not given */
    int overlap; /* made: sum of QDR_OVERLAP_…; 0: all */
    char order_text[8]; /* made: `order` may point here */
} choice;

/* Completes what was given: beside a plan or the model's choice, what was given wins; what nothing says is as `usual`,
 * whose micro_batch is also the one that the model must take (0: any). network: for the model; its context is not
 * looked at. Collective, ranks agree; rank 0 says in a line what was chosen, and why. */
qdr_status choice_make(qdr_context *ctx, const choice *given, const choice *usual, const qdr_network *network,
                       choice *made, char sentence[PROBLEM_BYTES]);

#endif
