/* SPDX-License-Identifier: Apache-2.0 */
/* What rooms above lib/grid see of contexts and grids. */
#ifndef QDRI_GRID_INTERNAL_H
#define QDRI_GRID_INTERNAL_H

#include "comm/comm.h"
#include "quadrille/grid.h"

qdri_dev *qdri_context_dev(const qdr_context *ctx);
qdri_comm *qdri_context_world(const qdr_context *ctx);
/* The channel's communicator; a group of one where the axis has size 1. */
qdri_comm *qdri_grid_comm(const qdr_grid *grid, qdr_channel channel);
/* The stream that carries a channel's bulk collectives (made with the grid, kind COMM). */
qdr_stream *qdri_grid_stream(const qdr_grid *grid, qdr_channel channel);
/* stream, or the context's if NULL. */
qdr_stream *qdri_stream_or_default(const qdr_grid *grid, qdr_stream *stream);
/* Coordinates of `rank` without checks. */
void qdri_grid_locate(const qdr_grid *grid, int rank, int coordinates[QDR_N_AXES]);
/* Reserves staging on a channel; sums of reserves are reported by qdr_stack_get_sizes. */
#endif
