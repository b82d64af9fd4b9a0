/* SPDX-License-Identifier: Apache-2.0 */
/* How a program runs on its ranks: according to the command line, to a plan of `quadrille plan -o`, or to the model
 * (--grid auto). */
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

/* Completes the given choices: they take precedence over a plan and over the model's choice; everything else is as in
 * `usual`, whose micro_batch is also the one that the model must use (0: any). network: for the model; its context is
 * not used. Collective, ranks agree; rank 0 prints in one line what was chosen, and why. */
qdr_status choice_make(qdr_context *ctx, const choice *given, const choice *usual, const qdr_network *network,
                       choice *made, char sentence[PROBLEM_BYTES]);

#endif
