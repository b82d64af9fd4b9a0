/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: how many bytes ranks write, and how long that takes. */
#include <math.h>

#include "core/dtype.h"
#include "price/model.h"

enum { N_ARRAYS = 3 /* parameters and AdamW's moments */ };

/* Whichever takes longer: all ranks together, or one of them. A rate that is not known limits nothing. */
static double save_secs(const qdr_machine_file *file, const qdr_plan_checkpoint *of)
{
    const double all = file->all_bytes_per_sec > 0 ? of->bytes / file->all_bytes_per_sec : 0;
    const double rank = file->rank_bytes_per_sec > 0 ? of->rank_bytes / file->rank_bytes_per_sec : 0;
    return fmax(all, rank);
}

qdr_status qdr_model_checkpoint(const qdr_model *model, const qdr_plan *plan, qdr_plan_checkpoint *checkpoint)
{
    qdr_network_counts counts;
    qdri_pricing pricing;
    qdr_network network;
    if (checkpoint) *checkpoint = (qdr_plan_checkpoint){0};
    if (!model || !plan || !checkpoint)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "checkpoint: the model, the plan or the result is NULL");
    QDR_TRY(qdri_plan_check(model, plan));
    network = model->network;
    if (network.positions && plan->sequence) network.positions = plan->sequence; /* as in kept memory */
    QDR_TRY(qdr_network_params(&network, &counts));
    const double each = N_ARRAYS * (double)qdr_dtype_bytes(qdri_sum_type(plan->dtype));
    const qdri_stages stages = qdri_stages_make(&model->machine, &model->network, plan);
    qdri_pricing_sizes(&model->machine, &model->network, plan, stages.first, &pricing);
    checkpoint->bytes = each * (double)counts.total;
    checkpoint->rank_bytes = each * qdri_saved_elems(&pricing, &model->network, &stages);
    checkpoint->secs = save_secs(&model->machine.file, checkpoint);
    return QDR_OK;
}
