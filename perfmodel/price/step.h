/* SPDX-License-Identifier: Apache-2.0 */
/* The time of a step, from the simulated lists of a plan. */
#ifndef QDRI_PERFMODEL_PRICE_STEP_H
#define QDRI_PERFMODEL_PRICE_STEP_H

#include "price/lists.h"

/* Memory for simulating a list, which is reused. */
typedef struct qdri_step_work {
    qdri_price *prices;
    qdri_sim_span *spans;
    int *next;
    int capacity;
} qdri_step_work;

QDR_NODISCARD qdr_status qdri_step_work_reserve(qdri_step_work *work, int n_tasks);
void qdri_step_work_free(qdri_step_work *work);

/* Prices a list and runs it; the spans of its tasks are in the work then. */
QDR_NODISCARD qdr_status qdri_list_simulate(const qdri_lists *lists, const qdri_pricing *pricing, qdri_list_kind kind,
                                            qdri_step_work *work, qdri_sim_times *times);
/* Prices the lists, of QDRI_FEW_LAYERS, and sets secs, time and busy of the result; its memory must be set. */
QDR_NODISCARD qdr_status qdri_step_time(const qdri_lists *lists, const qdri_pricing *pricing, const qdri_stages *stages,
                                        qdri_step_work *work, qdr_plan_result *result);

/* Whether the task belongs to the attention of a middle layer. */
int qdri_is_attention(const qdri_lists *lists, const qdri_task *task);
/* The term to which a task's time on the compute stream belongs. */
qdr_time_term qdri_task_term(const qdri_lists *lists, const qdri_task *task);
/* The time of the optimizer's work on a rank's shards. */
double qdri_optimizer_secs(const qdri_pricing *pricing, double n_layers);

#endif
