/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of each role of a template, for one network, plan and machine. */
#ifndef QDRI_PERFMODEL_PRICE_PRICE_H
#define QDRI_PERFMODEL_PRICE_PRICE_H

#include "price/collective.h"
#include "price/template.h"

/* Everything on which prices depend. */
typedef struct qdri_pricing {
    const qdr_machine *machine;
    const qdr_plan *plan;
    qdri_sizes sizes;
    qdri_ways ways[QDR_N_AXES];
    /* If gradients are partitioned over more ranks than z, those of each micro-batch are reduce-scattered over d_parts
     * consecutive ranks of d; in the last micro-batch, sums continue over the other ranks. */
    int d_parts;
    qdri_ways d_near, d_far;
    int gathers_again; /* gathered rows are not kept */
    double coll_host_secs[QDR_N_AXES]; /* for a collective of activations, in addition to host_secs */
} qdri_pricing;

/* A role's price, and other data for the result. */
typedef struct qdri_role_price {
    qdri_price price;
    double secs; /* when it runs alone */
    double bytes_sent; /* by each rank over all its links; for collectives */
    int n_kernels;
    double host_secs; /* for enqueuing them */
} qdri_role_price;

/* n_layers: of the stage. */
void qdri_pricing_make(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan, double n_layers,
                       qdri_pricing *pricing);
/* Sets only what memory depends on. */
void qdri_pricing_sizes(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan, double n_layers,
                        qdri_pricing *pricing);
/* Changes the pricing to the sums of a micro-batch that is not the last. */
void qdri_pricing_before_last(qdri_pricing *pricing);
/* From now on gathered rows are not kept, as in a framework that lacks the memory for them. */
void qdri_pricing_gather_again(qdri_pricing *pricing);
qdri_role_price qdri_role_price_of(const qdri_pricing *pricing, const qdri_role *role);
/* The term to which the role's time on the processor belongs. */
qdr_time_term qdri_role_term(const qdri_role *role);

/* Memory-bound work: bytes moved, flops, kernels. */
double qdri_kernel_secs(const qdr_machine *machine, double bytes, double flops);

#endif
