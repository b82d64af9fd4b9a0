/* SPDX-License-Identifier: Apache-2.0 */
/* The time of a step, from the simulated lists of a template. */
#ifndef QDRI_PERFMODEL_PRICE_STEP_H
#define QDRI_PERFMODEL_PRICE_STEP_H

#include "network/stages.h"
#include "price/price.h"

/* Memory for simulating a list, which is reused. */
typedef struct qdri_step_work {
    qdri_price *prices;
    qdri_sim_span *spans;
    int capacity;
    qdri_role_price roles[QDRI_MAX_ROLES];
} qdri_step_work;

void qdri_step_work_free(qdri_step_work *work);

/* Sets secs, time and busy of the result; its memory must be set. */
QDR_NODISCARD qdr_status qdri_step_time(const qdri_template *template, const qdri_pricing *pricing,
                                        const qdri_stages *stages, qdri_step_work *work, qdr_plan_result *result);

/* The backward list of micro-batches that are not the last. */
qdri_list_kind qdri_before_list(const qdri_pricing *pricing);
/* Number of forward passes of a step in each cell. */
double qdri_micro_batches(const qdr_plan *plan, const qdri_sizes *sizes);
/* The time of the optimizer's work on a rank's shards. */
double qdri_optimizer_secs(const qdri_pricing *pricing, double n_layers);

#endif
