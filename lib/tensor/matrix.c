/* SPDX-License-Identifier: Apache-2.0 */
/* The query for what a rank owns. */
#include "grid/internal.h"
#include "tensor/place.h"

void qdri_rank_place_of(const qdr_grid *grid, int rank, qdri_rank_place *place)
{
    for (int axis = 0; axis < QDR_N_AXES; axis++) place->at.size[axis] = qdr_grid_size(grid, (qdr_axis)axis);
    qdri_grid_locate(grid, rank, place->at.coordinate);
    place->rank = rank;
    place->n_ranks = qdr_context_size(qdr_grid_context(grid));
}

qdr_status qdr_matrix_owned(const qdr_grid *grid, const qdr_matrix *matrix, int rank, qdr_owned *owned)
{
    qdri_rank_place place;
    if (!owned) return QDR_FAIL(QDR_ERR_ARGUMENT, "matrix: owned is NULL; pass a pointer");
    *owned = (qdr_owned){.n_ranges = 0};
    if (!grid) return QDR_FAIL(QDR_ERR_ARGUMENT, "matrix: the grid is NULL");
    const int n_ranks = qdr_context_size(qdr_grid_context(grid));
    if (rank < 0 || rank >= n_ranks)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "matrix: there is no rank %d; the grid has ranks 0 to %d", rank, n_ranks - 1);
    QDR_TRY(qdri_matrix_check(matrix));
    qdri_rank_place_of(grid, rank, &place);
    qdri_matrix_part(matrix, &place, owned);
    return QDR_OK;
}
