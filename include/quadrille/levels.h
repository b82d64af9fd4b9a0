/* SPDX-License-Identifier: Apache-2.0 */
/** @file levels.h  Levels of a grid in words: over how many ranks gradients and optimizer state are partitioned.
 *
 *    qdr_grid_opts opts = {QDR_INIT(qdr_grid_opts), .x = 1, .y = 1, .z = 2, .d = 16};
 *    qdr_levels_read(ctx, "node,all", &opts);
 *    qdr_grid_create(ctx, &opts, &grid); */
#ifndef QUADRILLE_LEVELS_H
#define QUADRILLE_LEVELS_H

#include "grid.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Sets gradient_parts and optimizer_parts of opts. The words are "GP,OP", for gradients and optimizer state, or a
 * single one: "none" (z,z), "zero1" (z,all) or "zero2" (all,all). GP and OP are each
 *
 *    a number                                of parts
 *    all                                     z·d
 *    module, cache, numa, package or node    as many as ranks that follow one another in (z, d), z first, share one:
 *                                            a module of GPUs, an outermost cache, a NUMA node, a package, a node
 *
 * Which ranks share a node is as in qdr_context_node(). Within a node it follows from where the calling threads may
 * run, or on GPUs from where these are attached; what a rank has only a part of, or several of, it shares with no one.
 * If units hold unequally many ranks, or if their number does not nest with z, GP and z·d, the next word of this order
 * that fits is taken, all in the end, and a warning in rank 0's log says so. Numbers are taken as they are.
 *
 * Collective, blocking; ranks agree: all must pass the same words and the same grid. If one of the words is module,
 * cache, numa or package, the machine is read, as by qdr_topo_load().
 *  @param[in,out] opts  x, y, z, d and order must be set; unchanged after an error
 *  @retval QDR_ERR_ARGUMENT  NULL, unknown words, numbers that do not nest, a grid that does not have the context's
 *                            ranks; or ranks ask for different levels
 *  @retval others            as qdr_topo_load() */
QDR_API QDR_NODISCARD qdr_status qdr_levels_read(qdr_context *ctx, const char *words, qdr_grid_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
