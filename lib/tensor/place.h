/* SPDX-License-Identifier: Apache-2.0 */
/* Places of a grid's ranks, for arithmetic of layouts. */
#ifndef QDRI_TENSOR_PLACE_H
#define QDRI_TENSOR_PLACE_H

#include "core/layout.h"

/* The place of a rank that exists. */
void qdri_rank_place_of(const qdr_grid *grid, int rank, qdri_rank_place *place);

#endif
