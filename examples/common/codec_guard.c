/* SPDX-License-Identifier: Apache-2.0 */
#include "codec_guard.h"

#include <math.h>
#include <stdio.h>

/* @return 1: the last losses are too high */
static int rises(codec_guard *self, const double *losses, int64_t step, char why[CODEC_GUARD_BYTES])
{
    const int64_t n = step + 1;
    self->sum += losses[step] - (n > CODEC_GUARD_STEPS ? losses[step - CODEC_GUARD_STEPS] : 0);
    if (n < CODEC_GUARD_STEPS) return 0;
    const double mean = self->sum / CODEC_GUARD_STEPS;
    if (n == CODEC_GUARD_STEPS || mean < self->least) self->least = mean;
    snprintf(why, CODEC_GUARD_BYTES, "the mean loss of %d steps is %.4f, more than %g above the least, %.4f",
             CODEC_GUARD_STEPS, mean, self->most, self->least);
    return mean > self->least + self->most;
}

int codec_guard_gives_up(codec_guard *self, const double *losses, int64_t step, char why[CODEC_GUARD_BYTES])
{
    if (self->most <= 0) return 0;
    if (isfinite(losses[step])) return rises(self, losses, step, why) && step >= self->after + CODEC_GUARD_STEPS;
    snprintf(why, CODEC_GUARD_BYTES, "the loss is not a finite number");
    return 1;
}
