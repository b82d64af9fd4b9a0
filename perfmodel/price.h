/* SPDX-License-Identifier: Apache-2.0 */
/* What each role of a template takes, for one network, plan and machine. */
#ifndef QDRI_PERFMODEL_PRICE_H
#define QDRI_PERFMODEL_PRICE_H

#include "collective.h"
#include "template.h"

/* All that prices depend on. */
typedef struct qdri_pricing {
    const qdr_machine *machine;
    const qdr_plan *plan;
    qdri_sizes sizes;
    qdri_ways ways[QDR_N_AXES];
    /* Where gradients are parted over more ranks than z, each micro-batch's are reduce-scattered over d_parts
     * consecutive ranks of d; the last one's sums go on over the others. */
    int d_parts;
    qdri_ways d_near, d_far;
    int gathers_again; /* gathered rows are not kept */
    double coll_host_secs[QDR_N_AXES]; /* of a collective of activations, beside host_secs */
} qdri_pricing;

/* A role's price, and what the answer needs besides. */
typedef struct qdri_role_price {
    qdri_price price;
    double secs; /* alone */
    double bytes_sent; /* by each rank over all its links; of collectives */
    int n_kernels;
    double host_secs; /* to enqueue them */
} qdri_role_price;

/* n_layers of the stage. */
void qdri_pricing_make(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan, double n_layers,
                       qdri_pricing *pricing);
/* Only what memory depends on. */
void qdri_pricing_sizes(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan, double n_layers,
                        qdri_pricing *pricing);
/* The sums of a micro-batch that is not the last. */
void qdri_pricing_before_last(qdri_pricing *pricing);
/* From now on gathered rows are not kept, as a framework does where they do not fit. */
void qdri_pricing_gather_again(qdri_pricing *pricing);
qdri_role_price qdri_role_price_of(const qdri_pricing *pricing, const qdri_role *role);
/* The term that the role's time on the processor belongs to. */
qdr_time_term qdri_role_term(const qdri_role *role);

/* Memory-bound work: bytes moved, flops, kernels. */
double qdri_kernel_secs(const qdr_machine *machine, double bytes, double flops);

#endif
