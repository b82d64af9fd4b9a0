/* SPDX-License-Identifier: Apache-2.0 */
/* Lower bounds for a step's time, in closed form. A list takes at least as long as its work on the processor, as its
 * longest chain (forward: that work and every sum and gather of activations; backward: the same without what only
 * parameters need), and as each stream of transfers. */
#ifndef QDRI_PERFMODEL_SEARCH_BOUND_H
#define QDRI_PERFMODEL_SEARCH_BOUND_H

#include "price/step.h"

/* Times of one list, in seconds. */
typedef struct qdri_bound_sums {
    double processor, chain; /* chain: its part on the processor */
} qdri_bound_sums;

/* Transfers of one list over one axis. */
typedef struct qdri_axis_sums {
    double rows, weights, gradients;
} qdri_axis_sums;

/* A collective, and how often it occurs in each list. */
typedef struct qdri_transfer {
    const qdri_task *task;
    double times[QDRI_N_LIST_KINDS];
} qdri_transfer;
/* Those of one axis. Bounds are lower without what there is no room for, so they remain bounds. */
enum { QDRI_MOST_TRANSFERS = 48 };
typedef struct qdri_transfers {
    int n;
    qdri_transfer of[QDRI_MOST_TRANSFERS];
} qdri_transfers;

/* All bounds for one grid, layout and micro-batch: the processor's part once, that of transfers once for each position
 * that an axis can have in an order. */
typedef struct qdri_bounds {
    const qdri_lists *lists; /* of one layer */
    qdri_pricing pricing; /* its ways and order are not used */
    qdri_grid_ways *ways;
    double n_layers;
    qdri_bound_sums sums[QDRI_N_LIST_KINDS];
    double forward_layers_secs, attention_secs; /* processor time that recomputation repeats */
    qdri_transfers transfers[QDR_N_AXES]; /* those that are alike are counted, and priced once */
    qdri_axis_sums axis[QDR_N_AXES][16][QDRI_N_LIST_KINDS]; /* by the set of faster axes */
    unsigned short known[QDR_N_AXES];
    double optimizer_secs;
} qdri_bounds;

/* ways: those of the last call for this machine, which are kept if the grid is the same. */
void qdri_bounds_make(const qdri_lists *lists, const qdri_pricing *pricing, double n_layers, qdri_grid_ways *ways,
                      qdri_bounds *bounds);
enum { QDRI_N_RECOMPUTES = 3 };
/* The bound for each kind of recomputation. */
void qdri_bound_secs(qdri_bounds *bounds, const char *order, double secs[QDRI_N_RECOMPUTES]);

#endif
