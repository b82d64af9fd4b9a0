/* SPDX-License-Identifier: Apache-2.0 */
/* The price of a task: the only place that turns a task into seconds and bytes. It depends on the task's own numbers,
 * the machine, and where the ranks of the grid are; whether the task is one of a plan or of a stack makes no
 * difference. */
#ifndef QDRI_PERFMODEL_PRICE_PRICE_H
#define QDRI_PERFMODEL_PRICE_PRICE_H

#include "core/coded.h"
#include "network/sizes.h"
#include "price/collective.h"
#include "price/simulate.h"
#include "quadrille/calibrate.h"
#include "schedule/schedule.h"

/* Everything on which prices depend. */
typedef struct qdri_pricing {
    const qdr_machine *machine;
    const qdr_plan *plan;
    qdri_sizes sizes; /* of the plan's network; not used for tasks */
    qdri_position grid; /* its sizes and levels */
    qdri_ways ways[QDRI_N_GROUPS];
    qdri_coding coding; /* the plan's */
    /* Of groups whose messages between nodes are coded: members on each node, and how these, and their counterparts on
     * different nodes, communicate. per_node 0: all are counterparts. */
    int per_node[QDRI_N_GROUPS];
    qdri_ways inside[QDRI_N_GROUPS], between[QDRI_N_GROUPS];
    int gathers_again; /* gathered rows are not kept */
    double coll_host_secs[QDR_N_AXES]; /* for a collective of activations, in addition to host_secs */
    double stall_secs; /* of each neighbour stage and micro-batch, in the state that is priced */
} qdri_pricing;

typedef struct qdri_task_price {
    qdri_price price;
    double secs; /* when it runs alone */
    double bytes_sent; /* by each rank over all its links; for collectives. Of coded ones, only between nodes */
    double bytes_plain; /* that it would send without a codec */
    double codec_secs; /* of encoding and decoding, part of which is hidden by sending */
    int n_kernels;
    double host_secs; /* for enqueuing them */
} qdri_task_price;

/* What a plan codes, for the first rank. */
qdri_coding qdri_plan_coding(const qdr_plan *plan, int ranks_per_node);
/* Sets the machine, and where the ranks of the plan's grid are. */
void qdri_pricing_place(const qdr_machine *machine, const qdr_plan *plan, qdri_pricing *pricing);
/* The same, and the sizes. */
void qdri_pricing_make(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan,
                       qdri_pricing *pricing);
/* Sets only what memory depends on. */
void qdri_pricing_sizes(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan,
                        qdri_pricing *pricing);
/* From now on gathered rows are not kept, as in a framework that lacks the memory for them. */
void qdri_pricing_gather_again(qdri_pricing *pricing);
int qdri_can_gather_again(const qdr_machine *machine);

/* ---- states.c ---- */

/* The shares of a plan's runs that are in the normal state and in each of the software's. */
void qdri_state_shares(const qdr_machine *machine, const qdr_plan *plan, double memory_bytes,
                       double shares[QDR_MAX_STATES + 1]);
/* From now on prices are those of a state; NULL: the normal one, as at first. */
void qdri_pricing_set_state(qdri_pricing *pricing, const qdr_machine_state *state);

/* Whether the task multiplies queries with keys, and scores with values. */
int qdri_task_makes_scores(const qdri_task *task);
qdri_task_price qdri_task_price_of(const qdri_pricing *pricing, const qdri_task *task);

/* The time of tasks that take secs on the device and host_secs to be enqueued: host and device work at the same time.
 * If both take about as long, neither alone determines the time. */
double qdri_secs_with_host(const qdr_machine_software *software, double secs, double host_secs);

/* The work of a task as the model counts it, to be measured; returns 0 if the model gives it no time of its own, or it
 * is a caller's operation. grid, order: its sizes and levels, and its order. Sets neither group nor secs. */
int qdri_task_sample(const qdri_task *task, const qdri_position *grid, const char *order, qdr_sample *sample);

/* Memory-bound work: bytes moved, flops, kernels. */
double qdri_kernel_secs(const qdr_machine *machine, double bytes, double flops);

#endif
