/* SPDX-License-Identifier: Apache-2.0 */
/** @file auto.h  Plans in a running program: the model chooses a grid for the ranks that there are, or a stored plan is
 * taken, if this runtime can do what it says.
 *
 *    qdr_search_opts wanted = {QDR_OPTS_INIT, .batch = 32, .dtype = QDR_BF16};
 *    qdr_auto_plan chosen;
 *    qdr_plan_auto(ctx, &network, NULL, &wanted, &chosen);
 *    qdr_grid_opts opts = qdr_plan_grid_opts(&chosen.best.plan);
 *    qdr_grid_create(ctx, &opts, &grid); */
#ifndef QUADRILLE_AUTO_H
#define QUADRILLE_AUTO_H

#include "grid.h"
#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The machine that the environment variable QDR_MACHINE says, a name or a file as qdr_machine_load() takes; without it
 * "laptop". Local.
 *  @param[out] machine  all zero after an error
 *  @retval others  as qdr_machine_load() */
QDR_API QDR_NODISCARD qdr_status qdr_machine_here(qdr_machine *machine);

/** Whether this runtime does what a plan says: it keeps all activations, parts gradients and optimizer state over z,
 * sends what it has in full, and has no pipeline. Local.
 *  @param n_ranks  that there are; 0: not compared
 *  @retval QDR_ERR_ARGUMENT     NULL, no version, an axis < 1, or a grid of other than n_ranks
 *  @retval QDR_ERR_UNSUPPORTED  it does not; the sentence says how to plan again */
QDR_API QDR_NODISCARD qdr_status qdr_plan_check(const qdr_plan *plan, int n_ranks);

/** The grid of a plan. `order` points into the plan. NULL: one rank. Local. */
QDR_API qdr_grid_opts qdr_plan_grid_opts(const qdr_plan *plan);

/** What the model chose. */
typedef struct qdr_auto_plan {
    char machine[QDR_MAX_NAME];
    qdr_planned_grid best;
    int n_grids; /**< that fit and were compared at last: 1 or 2 */
    qdr_planned_grid second; /**< the fastest plan of the next best grid; all zero: there is none */
    int64_t n_candidates, n_fitting; /**< plans that there are; of these, in memory */
} qdr_auto_plan;

/** The fastest plan for the ranks of the context that fits in memory and that this runtime can run (see
 * qdr_plan_check()). Rank 0 searches, the others receive its answer: all get the same. Collective, blocking; ranks
 * agree.
 *
 *  network, machine and opts are those of rank 0; other ranks may pass NULL.
 *  @param machine      NULL: that of qdr_machine_here()
 *  @param opts         NULL: one sequence a rank, F32. n_ranks: 0 or the context's size; recomputes: 0, or
 *                      QDR_RECOMPUTE_NONE among them, the only one searched; gradient_parts and optimizer_parts: 0;
 *                      n_best is not looked at
 *  @param[out] result  all zero after an error
 *  @retval QDR_ERR_MEMORY       nothing fits; the sentence says how much would be needed
 *  @retval QDR_ERR_UNSUPPORTED  opts ask for what this runtime does not do
 *  @retval others               as qdr_machine_load(), qdr_model_create(), qdr_model_search() */
QDR_API QDR_NODISCARD qdr_status qdr_plan_auto(qdr_context *ctx, const qdr_network *network, const qdr_machine *machine,
                                               const qdr_search_opts *opts, qdr_auto_plan *result);

#ifdef __cplusplus
}
#endif
#endif
