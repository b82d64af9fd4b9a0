/* SPDX-License-Identifier: Apache-2.0 */
/* Who owns which part of a matrix, and what two owners have in common. Pure functions of coordinates. */
#ifndef QDRI_CORE_LAYOUT_H
#define QDRI_CORE_LAYOUT_H

#include "core/status.h"
#include "quadrille/matrix.h"

/* Where a rank stands in its grid. */
typedef struct qdri_place {
    int size[QDR_N_AXES], coordinate[QDR_N_AXES];
} qdri_place;
/* And among all ranks, whose order the axes alone do not say. */
typedef struct qdri_rank_place {
    qdri_place at;
    int rank, n_ranks;
} qdri_rank_place;

/* Columns that lie side by side in both of two parts. */
typedef struct qdri_run {
    int64_t n_cols, a_col, b_col; /* local first column in either part */
} qdri_run;

/* What two parts have in common: rows times runs. Two lists of n ranges meet in at most 2n-1 runs. */
#define QDRI_MAX_RUNS (2 * QDR_MAX_BLOCKS)
typedef struct qdri_overlap {
    int64_t n_rows, a_row, b_row; /* local first row in either part */
    int n_runs;
    qdri_run runs[QDRI_MAX_RUNS];
    int64_t n_elems;
} qdri_overlap;

/* @retval QDR_ERR_ARGUMENT, QDR_ERR_SHAPE  as qdr_matrix_owned() */
QDR_NODISCARD qdr_status qdri_matrix_check(const qdr_matrix *matrix);
/* The part of a checked matrix that belongs to a place; one range per block of columns, which may be empty. rank and
 * n_ranks matter only where it is not spread over the grid. */
void qdri_matrix_part(const qdr_matrix *matrix, const qdri_rank_place *place, qdr_owned *owned);
/* 1: where several ranks hold copies of a part, `from` is the one that serves `to`, which is `to` itself if it can be:
 * they agree on every axis that holds copies. */
int qdri_matrix_serves(const qdr_matrix *matrix, const qdri_rank_place *from, const qdri_rank_place *to);
void qdri_owned_overlap(const qdr_owned *a, const qdr_owned *b, qdri_overlap *overlap);

#endif
