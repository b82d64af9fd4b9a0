/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs that begin after some steps of a run, or are given up when its loss rises. */
#ifndef EXAMPLES_CODEC_SWITCH_H
#define EXAMPLES_CODEC_SWITCH_H

#include "codec_guard.h"
#include "gpt_step.h"
#include "program.h"

typedef struct codec_switch {
    gpt_step *step; /* NULL: the codecs stay as they are */
    qdr_codecs codecs; /* of the stack */
    codec_guard guard;
    int skips; /* the optimizer skips steps whose gradients are not finite, as it does for f16 */
} codec_switch;

/* Keeps the codecs of the step's stack, and takes them away if `after` > 0. Refuses a stack without. Collective. */
qdr_status codec_switch_begin(codec_switch *self, gpt_step *step, int64_t after, double most,
                              char sentence[PROBLEM_BYTES]);
/* Call it before each step: sets the codecs when their time has come. Collective. */
qdr_status codec_switch_step(const codec_switch *self, int64_t step);
/* Whether a run can go on after a loss that is not finite, with other codecs. */
int codec_switch_forgives(const codec_switch *self, int64_t step);
/* Call it after each step, with the losses up to it, the same on all ranks: goes on with the preset "safe", between the
 * same ranks, if the guard gives up. why: receives the reason. Collective. */
qdr_status codec_switch_look(codec_switch *self, const double *losses, int64_t step, char why[CODEC_GUARD_BYTES],
                             int *gives_up);

#endif
