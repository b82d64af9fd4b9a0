/* SPDX-License-Identifier: Apache-2.0 */
/* Which codecs pay on a plan: those that make its simulated step shorter. */
#include "core/codec.h"
#include "core/sized.h"
#include "price/model.h"

/* A step must get shorter by this share: the model resolves no less. */
#define LEAST_GAIN 0.002

qdr_status qdr_model_choose_codecs(qdr_model *model, const qdr_codecs *offered, double memory_bytes, qdr_plan *plan,
                                   qdr_plan_result *result)
{
    static const qdr_axis by_size[] = {QDR_D, QDR_Z, QDR_X, QDR_Y};
    qdr_codecs all;
    qdr_plan best;
    qdr_plan_result found;
    if (!model) return QDR_FAIL(QDR_ERR_ARGUMENT, "codecs: the model is NULL");
    QDR_TRY(QDRI_CLEAR(qdr_plan_result, result));
    QDR_TRY(QDRI_TAKE(qdr_codecs, offered, &all));
    QDR_TRY(QDRI_TAKE(qdr_plan, plan, &best));
    QDR_TRY(qdri_codecs_check(&all, "codecs"));
    const double limit = memory_bytes > 0 ? memory_bytes : model->machine.memory_bytes;
    best.codecs = (qdr_codecs){QDR_INIT(qdr_codecs), .least_bytes = all.least_bytes, .inside = all.inside};
    QDR_TRY(qdri_model_predict(model, &best, &found));
    for (int i = 0; i < QDR_N_AXES; i++)
        for (int class = 0; class < QDR_N_TRAFFIC_CLASSES; class ++) {
            qdr_plan trial = best;
            qdr_plan_result with;
            trial.codecs.of[by_size[i]][class] = all.of[by_size[i]][class];
            if (qdri_codecs_are_same(&trial.codecs, &best.codecs)) continue;
            QDR_TRY(qdri_model_predict(model, &trial, &with));
            if (!(with.secs < found.secs * (1 - LEAST_GAIN))) continue;
            if (with.memory_bytes > limit && with.memory_bytes > found.memory_bytes) continue; /* feedback */
            best = trial;
            found = with;
        }
    QDRI_GIVE(qdr_plan, plan, &best);
    QDRI_GIVE(qdr_plan_result, result, &found);
    return QDR_OK;
}
