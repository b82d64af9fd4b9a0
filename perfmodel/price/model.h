/* SPDX-License-Identifier: Apache-2.0 */
/* The implementation of a model: the time of a step from the simulated lists of a plan, and its memory. */
#ifndef QDRI_PERFMODEL_PRICE_MODEL_H
#define QDRI_PERFMODEL_PRICE_MODEL_H

#include "price/lists.h"

/* ---- step.c ---- */

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
/* Prices the lists, of QDRI_FEW_LAYERS of each kind, and sets secs, time and busy of the result; its memory must be
 * set. after_secs: what follows the passes, however they are divided. */
QDR_NODISCARD qdr_status qdri_step_time(const qdri_lists *lists, const qdri_pricing *pricing, const qdri_stages *stages,
                                        qdri_step_work *work, qdr_plan_result *result, double *after_secs);

/* Whether the task belongs to the attention of a layer. */
int qdri_is_attention(const qdri_lists *lists, const qdri_task *task);
/* The term to which a task's time on the compute stream belongs. */
qdr_time_term qdri_task_term(const qdri_lists *lists, const qdri_task *task);
/* The time of a rank's step of AdamW, with the norm, on a stage of n_layers that begins with the embedding; and of the
 * host that enqueues it. */
double qdri_optimizer_secs(const qdri_lists *lists, const qdri_pricing *pricing, double n_layers, double *host_secs);

/* ---- model.c ---- */

/* A plan and its prediction. */
typedef struct qdri_planned_grid {
    qdr_plan plan;
    qdr_plan_result result;
} qdri_planned_grid;

/* As qdr_search_result, with the plans, the fastest first. */
typedef struct qdri_search_result {
    int n_best;
    qdri_planned_grid best[QDR_MAX_BEST];
    int64_t n_candidates, n_fitting, n_bounded, n_simulated, n_grids;
} qdri_search_result;

struct qdr_model {
    qdr_machine machine;
    qdr_network network;
    qdri_lists lists; /* of `listed`, of few layers */
    qdr_plan listed; /* zeroed: none */
    qdri_lists one_layer; /* of the last plan that was bounded, whose memory is reused */
    qdri_step_work work;
    qdri_grid_ways ways; /* of the last grid that was bounded */
    qdri_search_result found; /* by the last search of a caller */
};

/* ---- memory.c ---- */

/* Sets memory and memory_bytes of the result, those of the rank, and of the stage, that needs the most: a lower bound
 * in closed form, which prunes searches. What a plan needs, qdri_model_price() says. */
void qdri_memory(const qdri_pricing *pricing, const qdr_network *network, const qdri_stages *stages, double n_micro,
                 qdr_plan_result *result);
/* Whether the lists say what workspace the plan needs, else the machine's software has a formula of its own. */
int qdri_lists_have_workspace(const qdri_pricing *pricing);
/* Of a shard of the largest gradient that is summed over z before it is added to another; 0: it need not be. */
double qdri_added_bytes(const qdri_pricing *pricing);
/* Elements of parameters that the rank writes to a checkpoint which writes most. */
double qdri_saved_elems(const qdri_pricing *pricing, const qdr_network *network, const qdri_stages *stages);
/* Of AdamW, for each element. */
double qdri_state_bytes(qdr_dtype dtype);
/* Whether a plan or a search may have so many. */
enum { QDRI_MOST_THREADS = 65536 };
QDR_NODISCARD qdr_status qdri_threads_check(const char *who, int64_t threads);
/* Checks that the plan can be priced. */
QDR_NODISCARD qdr_status qdri_plan_check(const qdr_model *model, const qdr_plan *plan);
/* The time of a step without waiting for transfers: no panels or parts make it shorter. */
double qdri_busy_secs(const qdr_plan_result *result);
/* As qdr_model_predict(). */
QDR_NODISCARD qdr_status qdri_model_predict(qdr_model *model, const qdr_plan *plan, qdr_plan_result *result);
/* Copies a result to a caller who may not want it. */
QDR_NODISCARD qdr_status qdri_give_planned(const qdri_planned_grid *planned, qdr_plan *plan, qdr_plan_result *result);
/* Predicts a plan with the best panels and parts of those that need at most limit_bytes, or one where none does; they
 * are set in the plan. */
QDR_NODISCARD qdr_status qdri_model_choose(qdr_model *model, qdr_plan *plan, double limit_bytes,
                                           qdr_plan_result *result);
/* The memory of a plan whose panels and parts are both one where they are 0. Divides the rows into two parts, in the
 * plan, if it needs more than limit_bytes otherwise, and these are not fixed: that sometimes takes less. */
QDR_NODISCARD qdr_status qdri_model_memory(qdr_model *model, qdr_plan *plan, double limit_bytes,
                                           qdr_plan_result *result);
/* What a checked plan needs, by its lists: the only place that says so. Sets n_micro and memory of the result; where
 * its ranks are, with gathered rows kept if they fit; its stages; and the model's lists. */
QDR_NODISCARD qdr_status qdri_model_price(qdr_model *model, const qdr_plan *plan, qdri_pricing *pricing,
                                          qdri_stages *stages, qdr_plan_result *result);

#endif
