/* SPDX-License-Identifier: Apache-2.0 */
/** @file auto.h  Plans in a running program: the model chooses a grid for the available ranks, or a stored plan is
 * used, if this runtime can execute it.
 *
 *    qdr_search_opts wanted = {QDR_INIT(qdr_search_opts), .batch = 32, .dtype = QDR_BF16};
 *    qdr_plan plan = {QDR_INIT(qdr_plan)};
 *    qdr_grid_opts opts = {QDR_INIT(qdr_grid_opts)};
 *    qdr_plan_auto(ctx, &network, NULL, &wanted, &(qdr_auto_plan){QDR_INIT(qdr_auto_plan), .plan = &plan});
 *    qdr_plan_grid_opts(&plan, &opts);
 *    qdr_grid_create(ctx, &opts, &grid); */
#ifndef QUADRILLE_AUTO_H
#define QUADRILLE_AUTO_H

#include "grid.h"
#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The machine given by the environment variable QDR_MACHINE, a name or a file as for qdr_machine_load(); "here" if
 * it is not set. Local.
 *  @param[out] machine  all zero after an error
 *  @retval others  as qdr_machine_load() */
QDR_API QDR_NODISCARD qdr_status qdr_machine_here(qdr_machine *machine);

/** Checks that this runtime can execute a plan: no pipeline, parts of gradients and optimizer state that nest, and
 * codecs that this library has. Local.
 *  @param n_ranks  the available ranks; 0: not compared
 *  @retval QDR_ERR_ARGUMENT     NULL, no size, an axis < 1, a grid that does not have n_ranks ranks, or parts that
 *                               do not nest
 *  @retval QDR_ERR_UNSUPPORTED  it cannot; the sentence explains how to plan again */
QDR_API QDR_NODISCARD qdr_status qdr_plan_check(const qdr_plan *plan, int n_ranks);

/** The grid of a plan. `order` points into the plan. Local.
 *  @retval QDR_ERR_ARGUMENT  NULL, or no size */
QDR_API QDR_NODISCARD qdr_status qdr_plan_grid_opts(const qdr_plan *plan, qdr_grid_opts *opts);

/** What the model chose. */
typedef struct qdr_auto_plan {
    size_t size; /**< QDR_INIT(qdr_auto_plan) */
    qdr_plan *plan, *second_plan; /**< where to write the best plan and the fastest plan of the second best grid, if
                                     there is one; NULL: not wanted */
    qdr_plan_result *result, *second_result; /**< and what is predicted for them; NULL: not wanted */
    char machine[QDR_MAX_NAME];
    int n_grids; /**< that fit and were compared in the end: 1 or 2 */
    int64_t n_candidates, n_fitting; /**< all possible plans; at most so many fit in memory */
} qdr_auto_plan;

/** Finds the fastest plan for the ranks of the context that fits in memory and that this runtime can run (see
 * qdr_plan_check()). Rank 0 searches and the others receive its answer, so all get the same plan. Collective, blocking;
 * ranks agree.
 *
 * network, machine and opts are taken from rank 0; other ranks may pass NULL.
 *  @param machine      NULL: the context's (qdr_context_opts)
 *  @param opts         NULL: one sequence per rank, F32. n_ranks: 0 or the context's size; threads: 0 for those of the
 *                      context; n_best is ignored
 *  @param[in,out] chosen  all but the four pointers is zero after an error, and so is what they point to
 *  @retval QDR_ERR_MEMORY       nothing fits; the sentence states how much would be needed
 *  @retval QDR_ERR_UNSUPPORTED  opts request something that this runtime does not support
 *  @retval others               as qdr_machine_load(), qdr_model_create(), qdr_model_search() */
QDR_API QDR_NODISCARD qdr_status qdr_plan_auto(qdr_context *ctx, const qdr_network *network, const qdr_machine *machine,
                                               const qdr_search_opts *opts, qdr_auto_plan *chosen);

#ifdef __cplusplus
}
#endif
#endif
