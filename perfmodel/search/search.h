/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by all searches: options, and all grids of a number of ranks. */
#ifndef QDRI_PERFMODEL_SEARCH_SEARCH_H
#define QDRI_PERFMODEL_SEARCH_SEARCH_H

#include "quadrille/plan.h"

enum { QDRI_MAX_DIVISORS = 256 }; /* 720720 has 240; no number up to 2^20 has more */

QDR_NODISCARD qdr_status qdri_search_check(const qdr_search_opts *opts);
/* Replaces zeros by defaults: batch, layouts, recomputes. */
void qdri_search_defaults(qdr_search_opts *opts);
/* Partitions of gradients or optimizer state; wanted -1: z·d. */
int qdri_search_parts(int wanted, const qdr_plan *plan);

/* Sizes that an axis of n ranks can have: all divisors, or only the fixed one if it is a divisor. */
int qdri_search_sizes(int n, int fixed, int sizes[QDRI_MAX_DIVISORS]);
typedef void (*qdri_grid_fn)(const int size[QDR_N_AXES], void *user);
/* All grids that have the fixed sizes (0: any). */
void qdri_search_grids(int n_ranks, const int fixed[QDR_N_AXES], qdri_grid_fn each, void *user);

#endif
