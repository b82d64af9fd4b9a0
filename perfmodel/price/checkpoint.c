/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: how many bytes ranks write, and how long that takes. */
#include <math.h>

#include "core/dtype.h"
#include "core/sized.h"
#include "price/model.h"

enum { N_ARRAYS = 3 /* parameters and AdamW's moments */ };

/* Whichever takes longer: all ranks together, or one of them. A rate that is not known limits nothing. */
static double save_secs(const qdr_machine_file *file, const qdr_plan_checkpoint *of)
{
    const double all = file->all_bytes_per_sec > 0 ? of->bytes / file->all_bytes_per_sec : 0;
    const double rank = file->rank_bytes_per_sec > 0 ? of->rank_bytes / file->rank_bytes_per_sec : 0;
    return fmax(all, rank);
}

qdr_status qdr_model_checkpoint(const qdr_model *model, const qdr_plan *given, qdr_plan_checkpoint *checkpoint)
{
    qdr_network_counts counts = {QDR_INIT(qdr_network_counts)};
    qdr_plan_checkpoint own;
    qdri_pricing pricing;
    qdr_network network;
    qdr_plan plan;
    QDR_TRY(QDRI_CLEAR(qdr_plan_checkpoint, checkpoint));
    if (!model) return QDR_FAIL(QDR_ERR_ARGUMENT, "checkpoint: the model is NULL");
    QDR_TRY(QDRI_TAKE(qdr_plan, given, &plan));
    QDR_TRY(qdri_plan_check(model, &plan));
    network = model->network;
    if (network.positions && plan.sequence) network.positions = plan.sequence; /* as in kept memory */
    QDR_TRY(qdr_network_params(&network, &counts));
    const double each = N_ARRAYS * (double)qdr_dtype_bytes(qdri_sum_type(plan.dtype));
    const qdri_stages stages = qdri_stages_make(&model->machine, &model->network, &plan);
    qdri_pricing_sizes(&model->machine, &model->network, &plan, &pricing);
    own.bytes = each * (double)counts.total;
    own.rank_bytes = each * qdri_saved_elems(&pricing, &model->network, &stages);
    own.secs = save_secs(&model->machine.file, &own);
    QDRI_GIVE(qdr_plan_checkpoint, checkpoint, &own);
    return QDR_OK;
}
