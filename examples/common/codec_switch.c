/* SPDX-License-Identifier: Apache-2.0 */
#include "codec_switch.h"

/* Recorded steps would keep the codecs that they were recorded with. */
static qdr_status set(const codec_switch *self, const qdr_codecs *codecs)
{
    gpt_step_destroy(self->step);
    return qdr_stack_set_codecs(self->step->model->stack, codecs);
}

qdr_status codec_switch_begin(codec_switch *self, gpt_step *step, int64_t after, double most,
                              char sentence[PROBLEM_BYTES])
{
    int n_coded = 0;
    const int skips = qdr_stack_dtype(step->model->stack) == QDR_F16;
    *self = (codec_switch){.step = step, .guard = {.after = after, .most = most}, .skips = skips};
    TRY(qdr_stack_get_codecs(step->model->stack, &self->codecs));
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        for (int class = 0; class < QDR_N_TRAFFIC_CLASSES; class ++)
            n_coded += self->codecs.of[axis][class].kind != QDR_CODEC_RAW;
    if (n_coded == 0)
        return REFUSE(sentence, "--codec-%s: nothing is coded; name codecs, such as --codec hybrid",
                      after ? "after" : "guard");
    return after ? set(self, NULL) : QDR_OK;
}

qdr_status codec_switch_step(const codec_switch *self, int64_t step)
{
    return self->step && self->guard.after && step == self->guard.after ? set(self, &self->codecs) : QDR_OK;
}

int codec_switch_forgives(const codec_switch *self, int64_t step)
{
    return self->step && self->skips && self->guard.most > 0 && step >= self->guard.after;
}

qdr_status codec_switch_look(codec_switch *self, const double *losses, int64_t step, char why[CODEC_GUARD_BYTES],
                             int *gives_up)
{
    qdr_codecs safe;
    *gives_up = self->step && codec_guard_gives_up(&self->guard, losses, step, why);
    if (!*gives_up) return QDR_OK;
    self->guard.most = 0;
    TRY(qdr_codecs_parse("safe", &safe));
    safe.least_bytes = self->codecs.least_bytes;
    safe.inside = self->codecs.inside;
    return set(self, &safe);
}
