/* SPDX-License-Identifier: Apache-2.0 */
/* The implementation of a model. */
#ifndef QDRI_PERFMODEL_PRICE_MODEL_H
#define QDRI_PERFMODEL_PRICE_MODEL_H

#include "price/step.h"

struct qdr_model {
    qdr_machine machine;
    qdr_network network;
    qdri_lists lists, one_layer; /* of the last plan, whose memory is reused: of few layers, and of one for bounds */
    qdri_step_work work;
    qdri_grid_ways ways; /* of the last grid that was bounded */
};

/* Partitions of gradients or optimizer state over at most `most` ranks, of what is in `inner` parts already; 0: the
 * same number. */
int qdri_parts_nest(int parts, int inner, int most);
/* memory.c: sets memory and memory_bytes of the result, those of the rank, and of the stage, that needs the most. */
void qdri_memory(const qdri_pricing *pricing, const qdr_network *network, const qdri_stages *stages, double n_micro,
                 qdr_plan_result *result);
/* Checks that the plan can be priced. */
QDR_NODISCARD qdr_status qdri_plan_check(const qdr_model *model, const qdr_plan *plan);
/* The time of a step without waiting for transfers: no panels or parts make it shorter. */
double qdri_busy_secs(const qdr_plan_result *result);
/* Predicts a plan with the best panels and parts, which are set in the plan. */
QDR_NODISCARD qdr_status qdri_model_choose(qdr_model *model, qdr_plan *plan, qdr_plan_result *result);
/* Where the ranks of a checked plan are, with gathered rows kept if they fit, and its stages; sets n_micro and memory
 * of the result. */
qdri_stages qdri_model_price(const qdr_model *model, const qdr_plan *plan, qdri_pricing *pricing,
                             qdr_plan_result *result);

#endif
