/* SPDX-License-Identifier: Apache-2.0 */
/* A step of training a GPT: forward, backward and AdamW, task by task or as recorded graphs. */
#ifndef EXAMPLES_GPT_STEP_H
#define EXAMPLES_GPT_STEP_H

#include "gpt.h"

typedef struct gpt_step {
    gpt *model;
    qdr_adamw *optimizer;
    double loss_scale; /* of each sequence's sum */
    int is_recorded;
    /* By whether a micro-batch adds to gradients, and whether it is the step's last: */
    int has_run[2][2];
    qdr_graph *graphs[2][2];
} gpt_step;

/* Enqueues one micro-batch, whose tokens gpt_fill() has brought; behind the last one the optimizer's step, at the rate
 * that was set. Recorded from the second of a kind on: the first has made what there is to make. Collective,
 * stream-ordered. */
qdr_status gpt_step_run(gpt_step *step, int adds, int is_last);
/* Before the model and the optimizer. */
void gpt_step_destroy(gpt_step *step);

#endif
