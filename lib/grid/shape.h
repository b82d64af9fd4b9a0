/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of grids: sizes, orders, coordinates. Pure functions. */
#ifndef QDRI_GRID_SHAPE_H
#define QDRI_GRID_SHAPE_H

#include "core/group.h"
#include "core/status.h"
#include "quadrille/grid.h"

typedef struct qdri_grid_shape {
    int sizes[QDR_N_AXES];
    char order[8]; /* fastest axis first, "xyzd" */
    qdri_levels levels;
} qdri_grid_shape;

/* @retval QDR_ERR_ARGUMENT  opts are not a grid of n_ranks; the message proposes one */
QDR_NODISCARD qdr_status qdri_shape_read(const qdr_grid_opts *opts, int n_ranks, qdri_grid_shape *shape);
/* coordinates must be within the grid. */
int qdri_shape_rank(const qdri_grid_shape *shape, const int coordinates[QDR_N_AXES]);
void qdri_shape_locate(const qdri_grid_shape *shape, int rank, int coordinates[QDR_N_AXES]);
/* Where a rank is, with the levels. */
void qdri_shape_position(const qdri_grid_shape *shape, int rank, qdri_position *position);
/* "2x1x1x4 order xyzd", and the levels if there are any. */
void qdri_shape_words(const qdri_grid_shape *shape, char *text, size_t capacity);
/* See qdr_grid_picture(). */
size_t qdri_shape_picture(const qdri_grid_shape *shape, char *text, size_t capacity);

#endif
