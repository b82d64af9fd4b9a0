/* SPDX-License-Identifier: Apache-2.0 */
/* Who owns which part of a matrix, and the overlap of two owners' parts. Pure functions of coordinates. */
#ifndef QDRI_CORE_LAYOUT_H
#define QDRI_CORE_LAYOUT_H

#include "core/status.h"
#include "quadrille/matrix.h"

/* The position of a rank in its grid. */
typedef struct qdri_position {
    int size[QDR_N_AXES], coordinate[QDR_N_AXES];
    int near, far; /* the levels of d, see core/group.h; 0: none */
} qdri_position;
/* The same together with the rank's number, which the axes alone do not determine. */
typedef struct qdri_rank_position {
    qdri_position at;
    int rank, n_ranks;
} qdri_rank_position;

/* Columns that are contiguous in both of two parts. */
typedef struct qdri_common_columns {
    int64_t n_cols, a_col, b_col; /* first local column in each part */
} qdri_common_columns;

/* The overlap of two parts: rows times runs. Two lists of n ranges overlap in at most 2n-1 runs. */
#define QDRI_MAX_RUNS (2 * QDR_MAX_BLOCKS)
typedef struct qdri_overlap {
    int64_t n_rows, a_row, b_row; /* first local row in each part */
    int n_runs;
    qdri_common_columns runs[QDRI_MAX_RUNS];
    int64_t n_elems;
} qdri_overlap;

/* @retval QDR_ERR_ARGUMENT, QDR_ERR_SHAPE  as for qdr_matrix_owned() */
QDR_NODISCARD qdr_status qdri_matrix_check(const qdr_matrix *matrix);
/* The part of a checked matrix that belongs to a position; one range per block of columns, which may be empty. rank and
 * n_ranks matter only if the matrix is not spread over the grid. */
void qdri_matrix_part(const qdr_matrix *matrix, const qdri_rank_position *position, qdr_owned *owned);
/* 1: if several ranks hold copies of a part, `from` is the one that sends it to `to`; that is `to` itself if possible.
 * They have the same coordinate on every axis that holds copies. */
int qdri_matrix_serves(const qdr_matrix *matrix, const qdri_rank_position *from, const qdri_rank_position *to);
void qdri_owned_overlap(const qdr_owned *a, const qdr_owned *b, qdri_overlap *overlap);

#endif
