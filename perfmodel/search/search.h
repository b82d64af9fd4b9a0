/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by all searches: options, all grids of a number of ranks, and bounds. */
#ifndef QDRI_PERFMODEL_SEARCH_SEARCH_H
#define QDRI_PERFMODEL_SEARCH_SEARCH_H

#include "price/model.h"

/* ---- space.c ---- */

enum { QDRI_MAX_DIVISORS = 256 }; /* 720720 has 240; no number up to 2^20 has more */

QDR_NODISCARD qdr_status qdri_search_check(const qdr_search_opts *opts);
/* Replaces zeros by defaults: batch, layouts, recomputes. */
void qdri_search_defaults(qdr_search_opts *opts);
/* A plan with one layout and recomputation, and no panels or partitions. */
qdr_plan qdri_search_plan(const qdr_search_opts *opts, const int size[QDR_N_AXES], int64_t micro_batch);
/* The lower bound of a plan's memory whatever its order, on which feedback depends; result: of qdri_memory(). */
static inline double qdri_search_bound_bytes(const qdr_plan_result *result)
{
    return result->memory_bytes - result->memory[QDR_MEMORY_FEEDBACK];
}

/* Sizes that an axis of n ranks can have: all divisors, or only the fixed one if it is a divisor. */
int qdri_search_sizes(int n, int fixed, int sizes[QDRI_MAX_DIVISORS]);
typedef void (*qdri_grid_fn)(const int size[QDR_N_AXES], void *user);
/* All grids that have the fixed sizes (0: any). */
void qdri_search_grids(int n_ranks, const int fixed[QDR_N_AXES], qdri_grid_fn each, void *user);

/* The orders that are searched: the fixed one, or all. */
enum { QDRI_N_ORDERS = 24 };
int qdri_search_orders(const qdr_search_opts *opts, char orders[QDRI_N_ORDERS][8]);

/* ---- parts.c ---- */

/* Partitions of gradients and optimizer state, as in qdr_plan. */
typedef struct qdri_parts {
    int gradient, optimizer;
} qdri_parts;

/* Two numbers for each level of links but the last, z and z·d. */
enum { QDRI_MOST_DEGREES = 2 * QDR_MAX_LINKS, QDRI_MOST_PAIRS = QDRI_MOST_DEGREES * (QDRI_MOST_DEGREES + 1) / 2 };
/* Those that are tried on a grid, the smallest numbers first: the options' own, if they nest, or those that
 * qdr_search_opts promises for any_levels. */
int qdri_search_parts(const qdr_machine *machine, const qdr_search_opts *opts, const int size[QDR_N_AXES],
                      qdri_parts pairs[QDRI_MOST_PAIRS]);
/* Whether the options' own depend on the order of the axes. */
int qdri_search_has_words(const qdr_search_opts *opts);
/* The options' own on a grid with this order, nesting or not. */
qdri_parts qdri_search_given(const qdr_machine *machine, const qdr_search_opts *opts, const int size[QDR_N_AXES],
                             const char *order);
void qdri_search_set_parts(qdri_parts parts, qdr_plan *plan);

/* ---- search.c and min_ranks.c ---- */

/* As qdr_model_search(), and the others, with the plans. */
QDR_NODISCARD qdr_status qdri_model_search(qdr_model *model, const qdr_search_opts *opts, qdri_search_result *result);
QDR_NODISCARD qdr_status qdri_model_least_memory(qdr_model *model, const qdr_search_opts *opts,
                                                 qdri_planned_grid *least);
typedef struct qdri_fewest_ranks {
    int n_ranks, tried_to;
    qdri_planned_grid least;
} qdri_fewest_ranks;
QDR_NODISCARD qdr_status qdri_model_fewest_ranks(qdr_model *model, const qdr_search_opts *opts, int most,
                                                 qdri_fewest_ranks *fewest);

/* ---- bound.c ----
 *
 * Lower bounds for a step's time, in closed form. A list takes at least as long as its work on the processor, as its
 * longest chain (forward: that work and every sum and gather of activations; backward: the same without what only
 * parameters need), and as each stream of transfers. */

/* Kinds of recomputation, by number, and those of them that are searched, one bit for each. */
enum {
    QDRI_N_RECOMPUTES = QDR_RECOMPUTE_OPERATIONS + 1,
    QDRI_RECOMPUTES = 1 << QDR_RECOMPUTE_NONE | 1 << QDR_RECOMPUTE_OPERATIONS | 1 << QDR_RECOMPUTE_FULL
};

/* Times of one list, in seconds. */
typedef struct qdri_bound_sums {
    double processor, chain; /* chain: its part on the processor */
} qdri_bound_sums;

/* Transfers of one list over one kind of group. */
typedef struct qdri_axis_sums {
    double rows, weights, gradients;
    double link[QDR_MAX_LINKS]; /* seconds for which they use a link up */
} qdri_axis_sums;

/* A collective, and how often it occurs in each list. */
typedef struct qdri_transfer {
    const qdri_task *task;
    double times[QDRI_N_LIST_KINDS];
} qdri_transfer;
/* Those of one kind of group. Bounds are lower without what there is no room for, so they remain bounds. */
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
    double again_secs[QDRI_N_RECOMPUTES]; /* of the processor, at least, that are in no list */
    qdri_transfers transfers[QDRI_N_GROUPS]; /* those that are alike are counted, and priced once */
    qdri_axis_sums group[QDRI_N_GROUPS][16][QDRI_N_LIST_KINDS]; /* by the set of faster axes */
    unsigned short known[QDRI_N_GROUPS];
    double optimizer_secs;
} qdri_bounds;

/* ways: those of the last call for this machine, which are kept if the grid is the same. */
void qdri_bounds_make(qdri_lists *lists, const qdri_pricing *pricing, double n_layers, qdri_grid_ways *ways,
                      qdri_bounds *bounds);
/* The bound for each kind of recomputation that is searched; of lists that repeat something only for theirs. */
void qdri_bound_secs(qdri_bounds *bounds, const char *order, double secs[QDRI_N_RECOMPUTES]);
/* The lower one by the work of the processor alone, without the optimizer's, of a step n_micro times as long. */
void qdri_bound_work(const qdri_bounds *bounds, double n_micro, double secs[QDRI_N_RECOMPUTES]);
/* That of all plans that differ from this one only in order, recomputation, partitions, and how their cells are divided
 * into z and d: a cell has the same rows, and its products use whole weights. With z = 1 products may also add to
 * gradients, which takes no less. */
QDR_NODISCARD qdr_status qdri_model_work(qdr_model *model, const qdr_plan *plan, double secs[QDRI_N_RECOMPUTES]);

#endif
