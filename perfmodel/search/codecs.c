/* SPDX-License-Identifier: Apache-2.0 */
/* Which codecs pay on a plan: those that make its simulated step shorter. */
#include "core/codec.h"
#include "price/model.h"

/* A step must get shorter by this share: the model resolves no less. */
#define LEAST_GAIN 0.002

qdr_status qdr_model_choose_codecs(qdr_model *model, const qdr_codecs *offered, double memory_bytes, qdr_plan *plan,
                                   qdr_plan_result *result)
{
    static const qdr_axis by_size[] = {QDR_D, QDR_Z, QDR_X, QDR_Y};
    if (!model || !offered || !plan || !result)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "codecs: the model, the codecs, the plan or the result pointer is NULL");
    QDR_TRY(qdri_codecs_check(offered, "codecs"));
    const double limit = memory_bytes > 0 ? memory_bytes : model->machine.memory_bytes;
    qdr_plan best = *plan;
    best.codecs = (qdr_codecs){offered->version, .least_bytes = offered->least_bytes, .inside = offered->inside};
    QDR_TRY(qdr_model_predict(model, &best, result));
    for (int i = 0; i < QDR_N_AXES; i++)
        for (int class = 0; class < QDR_N_TRAFFIC_CLASSES; class ++) {
            qdr_plan trial = best;
            qdr_plan_result with;
            trial.codecs.of[by_size[i]][class] = offered->of[by_size[i]][class];
            if (qdri_codecs_are_same(&trial.codecs, &best.codecs)) continue;
            QDR_TRY(qdr_model_predict(model, &trial, &with));
            if (!(with.secs < result->secs * (1 - LEAST_GAIN))) continue;
            if (with.memory_bytes > limit && with.memory_bytes > result->memory_bytes) continue; /* feedback */
            best = trial;
            *result = with;
        }
    *plan = best;
    return QDR_OK;
}
