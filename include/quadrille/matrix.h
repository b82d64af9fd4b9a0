/* SPDX-License-Identifier: Apache-2.0 */
/** @file matrix.h  Which rows and columns of a global matrix a rank owns, and moving matrices between two such layouts.
 *
 * A layout is a value, pure data: rows [M] are split over a list of axes, one after the other, in units; columns are a
 * list of blocks, each split over at most one axis, in its own unit. Axes that split nothing hold copies. Parts differ
 * by at most one unit, and larger parts come first; a rank may own nothing. A rank's part is stored row-major and
 * dense: n_rows × n_cols, the columns of block 0 first. */
#ifndef QUADRILLE_MATRIX_H
#define QUADRILLE_MATRIX_H

#include "grid.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum qdr_spread {
    QDR_SPREAD_GRID = 0, /**< over the axes of the grid, as the members below state */
    QDR_SPREAD_RANKS, /**< rows split over all ranks in rank order, all columns (data parallel: drop-in callers) */
    QDR_SPREAD_ROOT /**< rank 0 owns everything, the others nothing */
} qdr_spread;

typedef struct qdr_matrix {
    size_t size; /**< QDR_INIT(qdr_matrix) */
    int64_t n_rows; /**< M, global */
    int64_t row_unit; /**< rows that stay together in the splits over d, z; 0: 1; divides n_rows */
    qdr_block cols[QDR_MAX_BLOCKS]; /**< global blocks of columns */
    qdr_spread spread;
    int split_cols; /**< 1: columns are split over col_axis */
    qdr_axis col_axis; /**< QDR_X or QDR_Y */
    int split_cells; /**< 1: rows are split over d, then z (an activation) */
    int scatter_rows; /**< 1: rows are split again over scatter_axis */
    qdr_axis scatter_axis;
    int64_t scatter_unit; /**< rows that stay together in that last split; 0: 1 */
} qdr_matrix;

/** A run of global columns [begin, end). No members will be added. */
typedef struct qdr_range {
    int64_t begin, end;
} qdr_range;

/** What one rank owns of a matrix: rows [row_begin, row_end) times the columns of its ranges, stored in this order. */
typedef struct qdr_owned {
    size_t size; /**< QDR_INIT(qdr_owned) */
    qdr_range rows;
    int n_ranges;
    qdr_range cols[QDR_MAX_BLOCKS];
    int64_t n_rows, n_cols; /**< local extents: rows.end - rows.begin, and the sum over the ranges */
} qdr_owned;

/** What `rank` of the grid owns of `matrix`. Local, thread-safe.
 *  @retval QDR_ERR_SHAPE     a unit does not divide its width or n_rows, or a size is negative
 *  @retval QDR_ERR_ARGUMENT  NULL, no such rank, or no such axis */
QDR_API QDR_NODISCARD qdr_status qdr_matrix_owned(const qdr_grid *grid, const qdr_matrix *matrix, int rank,
                                                  qdr_owned *owned);

/** Moves a matrix from one layout to another, both over the same grid and of the same global extents. Collective over
 * the grid, agrees, stream-ordered on `stream` (NULL: the context's). Copies of the source are assumed to be equal;
 * every copy of the target is written. src and dst are device memory of the local extents and must not overlap.
 *  @retval QDR_ERR_SHAPE   the global extents differ; nothing was moved
 *  @retval QDR_ERR_ARGUMENT  NULL where this rank has elements; an address that is not a multiple of an element's
 *                            bytes; src and dst that overlap; other layouts, or another type, on another rank; on a GPU
 *                            memory of the host or of another GPU; nothing was moved
 *  @retval QDR_ERR_MEMORY  no memory for packing; nothing was moved */
QDR_API QDR_NODISCARD qdr_status qdr_redistribute(qdr_grid *grid, const qdr_matrix *src_layout, const void *src,
                                                  const qdr_matrix *dst_layout, void *dst, qdr_dtype dtype,
                                                  qdr_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
