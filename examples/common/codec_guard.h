/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the losses of a run with codecs say that it should go on without them. Arithmetic only. */
#ifndef EXAMPLES_CODEC_GUARD_H
#define EXAMPLES_CODEC_GUARD_H

#include <stdint.h>

enum { CODEC_GUARD_STEPS = 50, CODEC_GUARD_BYTES = 160 }; /* steps over which means are taken; of a reason */

typedef struct codec_guard {
    int64_t after; /* steps without codecs */
    double most; /* how far the mean loss may be above its least; 0: watches nothing */
    double sum, least; /* of the last losses; the least mean */
} codec_guard;

/* Call it after each step from 0 on, with the losses up to it. @return 1: the last one is not finite, or the mean of
 * the last ones, all of them of steps with codecs, is more than `most` above its least. why: receives the reason. */
int codec_guard_gives_up(codec_guard *self, const double *losses, int64_t step, char why[CODEC_GUARD_BYTES]);

#endif
