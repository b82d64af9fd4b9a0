/* SPDX-License-Identifier: Apache-2.0 */
/* The task lists of a plan, with the price of each task: built by the builders that the runtime uses, for the rank that
 * has most, with all extents as in the run. Only the number of layers is smaller: those of a kind are alike, so
 * a few of them stand for all. */
#ifndef QDRI_PERFMODEL_PRICE_LISTS_H
#define QDRI_PERFMODEL_PRICE_LISTS_H

#include "network/describe.h"
#include "price/price.h"

/* The lists of which a step consists: one forward and one backward for each micro-batch. */
typedef enum qdri_list_kind {
    QDRI_LIST_FORWARD,
    QDRI_LIST_FORWARD_FIRST, /* of the first micro-batch, if parameters return then */
    QDRI_LIST_BACKWARD_ONLY, /* of a step with a single micro-batch */
    QDRI_LIST_BACKWARD_BEFORE, /* adds to the gradients, without sums over d */
    QDRI_LIST_BACKWARD_LAST, /* adds, and sums over all ranks */
    QDRI_N_LIST_KINDS
} qdri_list_kind;

/* In few layers, the times of a layer settle: the middle ones are like those of many. A list has so many of each kind,
 * one kind after the other: layers differ in whether they attend to a window, and in what they rotate. */
enum { QDRI_FEW_LAYERS = 4, QDRI_MOST_KINDS = 8 };

typedef struct qdri_list {
    qdri_schedule schedule;
    qdri_task_price *prices; /* of its tasks; not set by qdri_lists_make() */
    int capacity;
    int last_of_layer[QDRI_MOST_KINDS * QDRI_FEW_LAYERS][QDRI_N_STREAMS]; /* the last task on each stream; -1: none */
    int last_of_first, last_of_last; /* on the compute stream, of embedding and head; -1: none */
} qdri_list;

/* Zeroed, or the lists of another plan, whose memory is reused. */
typedef struct qdri_lists {
    qdri_net net;
    int n_kinds, n_each; /* layers of each kind in the lists */
    double share[QDRI_MOST_KINDS]; /* of all layers, by kind; 1 in all */
    int layer_of[QDRI_NODES_OF(QDRI_MOST_KINDS * QDRI_FEW_LAYERS)]; /* by node */
    double n_micro; /* forward passes of a step in each cell */
    int is_chain; /* each operation waits for the one before: no halves of a layer side by side, panels or parts */
    qdri_list of[QDRI_N_LIST_KINDS]; /* FORWARD_FIRST only with levels, BACKWARD_ONLY, or else BEFORE and LAST; the
                                      * others are empty */
    qdri_schedule step; /* of AdamW, without waits */
} qdri_lists;

/* Builds the lists, whose messages between nodes the plan's codecs code, with n_each layers of each kind, at most
 * QDRI_FEW_LAYERS; the sums of small gradients are those of n_stage_layers. Without waits they are only good for adding
 * up their tasks. */
QDR_NODISCARD qdr_status qdri_lists_make(const qdr_network *network, const qdr_plan *plan, int ranks_per_node,
                                         int n_each, double n_stage_layers, int with_waits, qdri_lists *lists);
void qdri_lists_free(qdri_lists *lists);

/* The part of the network to which a task belongs: the number of a layer, QDRI_LAYER_FIRST or QDRI_LAYER_LAST. */
int qdri_lists_layer(const qdri_lists *lists, const qdri_task *task);
/* The share of all layers for which one stands: a middle one of each kind; the others for none. 1: it is no layer. */
double qdri_lists_share(const qdri_lists *lists, int layer);
/* The backward list of the last micro-batch, and that of the others. */
static inline qdri_list_kind qdri_last_list(const qdri_lists *lists)
{
    return lists->n_micro > 1 ? QDRI_LIST_BACKWARD_LAST : QDRI_LIST_BACKWARD_ONLY;
}
static inline int qdri_is_backward(qdri_list_kind kind)
{
    return kind != QDRI_LIST_FORWARD && kind != QDRI_LIST_FORWARD_FIRST;
}
/* Whether the first micro-batch has a forward list of its own. */
static inline int qdri_has_returns(const qdri_lists *lists)
{
    return lists->of[QDRI_LIST_FORWARD_FIRST].schedule.n_tasks > 0;
}
/* What the lists repeat: what other software does again is added to their times instead. */
qdr_recompute qdri_listed_recompute(const qdr_plan *plan);
/* Number of forward passes of a step in each cell. */
double qdri_micro_batches(const qdr_plan *plan, const qdri_sizes *sizes);
/* Sets the prices of a list. */
void qdri_list_price(const qdri_lists *lists, const qdri_pricing *pricing, qdri_list_kind kind);

#endif
