/* SPDX-License-Identifier: Apache-2.0 */
/* Positions of a grid's ranks, for layout arithmetic. */
#ifndef QDRI_TENSOR_PLACE_H
#define QDRI_TENSOR_PLACE_H

#include "core/layout.h"

/* The position of a rank, which must exist. */
void qdri_rank_place_of(const qdr_grid *grid, int rank, qdri_rank_place *place);

#endif
