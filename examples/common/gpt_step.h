/* SPDX-License-Identifier: Apache-2.0 */
/* A step of training a GPT: forward, backward and AdamW, task by task or as recorded graphs. */
#ifndef EXAMPLES_GPT_STEP_H
#define EXAMPLES_GPT_STEP_H

#include "gpt.h"

typedef struct gpt_step {
    gpt *model;
    qdr_adamw *optimizer;
    double loss_scale; /* of the next step, for each target's loss */
    int is_recorded; /* all steps then have the scale of the first */
    /* By whether a micro-batch adds to gradients, and whether it is the last of the step: */
    int has_run[2][2];
    qdr_graph *graphs[2][2];
} gpt_step;

/* Enqueues one micro-batch, whose tokens gpt_fill_rows() has set; after the last one also the optimizer's step,
 * with the rate that was set. The second and later micro-batches of a kind are recorded: the first one allocates
 * everything. Collective, stream-ordered. */
qdr_status gpt_step_run(gpt_step *step, int adds, int is_last);
/* Forgets what was recorded; the step can be run again. Call it before the model and the optimizer are destroyed. */
void gpt_step_destroy(gpt_step *step);

#endif
