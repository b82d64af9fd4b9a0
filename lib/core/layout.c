/* SPDX-License-Identifier: Apache-2.0 */
/* Ownership of matrices as pure functions of coordinates. */
#include "core/layout.h"

#include <string.h>

#include "core/block.h"
#include "core/order.h"
#include "core/size.h"

static int64_t unit_of(int64_t unit) { return unit ? unit : 1; }

static int is_axis(qdr_axis axis) { return (int)axis >= 0 && (int)axis < QDR_N_AXES; }

static qdr_status rows_check(const qdr_matrix *matrix)
{
    const int64_t rows = matrix->n_rows, unit = matrix->row_unit, scatter = matrix->scatter_unit;
    if (rows < 0) return QDR_FAIL(QDR_ERR_SHAPE, "matrix: n_rows is %" PRId64 "; it must be ≥ 0", rows);
    if (unit < 0 || rows % unit_of(unit))
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "matrix: row_unit %" PRId64 " does not divide n_rows %" PRId64
                        "; use whole sequences, or a row_unit of 1",
                        unit, rows);
    if (!matrix->scatter_rows) return QDR_OK;
    const int64_t whole = matrix->split_cells ? unit_of(unit) : rows;
    if (scatter < 0 || whole % unit_of(scatter))
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "matrix: scatter_unit %" PRId64 " does not divide the %s %" PRId64
                        "; use a divisor of it, or 1",
                        scatter, matrix->split_cells ? "row_unit" : "n_rows", whole);
    return QDR_OK;
}

/* No axis may split twice. */
static qdr_status axes_check(const qdr_matrix *matrix)
{
    if (matrix->split_cols && matrix->col_axis != QDR_X && matrix->col_axis != QDR_Y)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "matrix: col_axis is %d; it must be QDR_X or QDR_Y", (int)matrix->col_axis);
    if (!matrix->scatter_rows) return QDR_OK;
    if (!is_axis(matrix->scatter_axis))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "matrix: scatter_axis is %d; axes are QDR_X to QDR_D",
                        (int)matrix->scatter_axis);
    if (matrix->split_cols && matrix->scatter_axis == matrix->col_axis)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "matrix: axis %c cannot split columns and scatter rows; scatter over the other of x and y",
                        QDRI_USUAL_ORDER[matrix->scatter_axis]);
    if (matrix->split_cells && matrix->scatter_axis >= QDR_Z)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "matrix: axis %c already splits the rows into cells; scatter over x or y",
                        QDRI_USUAL_ORDER[matrix->scatter_axis]);
    return QDR_OK;
}

qdr_status qdri_matrix_check(const qdr_matrix *matrix)
{
    if (!matrix) return QDR_FAIL(QDR_ERR_ARGUMENT, "matrix: the layout is NULL");
    if ((int)matrix->spread < QDR_SPREAD_GRID || matrix->spread > QDR_SPREAD_ROOT)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "matrix: spread is %d; use one of QDR_SPREAD_…", (int)matrix->spread);
    QDR_TRY(qdri_check_switch("matrix", "split_cols", matrix->split_cols));
    QDR_TRY(qdri_check_switch("matrix", "split_cells", matrix->split_cells));
    QDR_TRY(qdri_check_switch("matrix", "scatter_rows", matrix->scatter_rows));
    QDR_TRY(qdri_blocks_check(matrix->cols, "matrix"));
    QDR_TRY(rows_check(matrix));
    return matrix->spread == QDR_SPREAD_GRID ? axes_check(matrix) : QDR_OK;
}

/* Reduces a range to one part of it. */
static void range_split(qdr_range *range, int64_t unit, int n_parts, int index)
{
    int64_t begin = 0, end = 0;
    qdri_split(range->end - range->begin, unit, n_parts, index, &begin, &end);
    *range = (qdr_range){range->begin + begin, range->begin + end};
}

static qdr_range rows_part(const qdr_matrix *matrix, const qdri_rank_position *position)
{
    const int64_t unit = unit_of(matrix->row_unit);
    qdr_range rows = {0, matrix->n_rows};
    if (matrix->spread == QDR_SPREAD_RANKS) range_split(&rows, unit, position->n_ranks, position->rank);
    if (matrix->spread == QDR_SPREAD_ROOT && position->rank != 0) rows.end = 0;
    if (matrix->spread != QDR_SPREAD_GRID) return rows;
    if (matrix->split_cells) {
        range_split(&rows, unit, position->at.size[QDR_D], position->at.coordinate[QDR_D]);
        range_split(&rows, unit, position->at.size[QDR_Z], position->at.coordinate[QDR_Z]);
    }
    if (matrix->scatter_rows)
        range_split(&rows, unit_of(matrix->scatter_unit), position->at.size[matrix->scatter_axis],
                    position->at.coordinate[matrix->scatter_axis]);
    return rows;
}

void qdri_matrix_part(const qdr_matrix *matrix, const qdri_rank_position *position, qdr_owned *owned)
{
    const int split = matrix->spread == QDR_SPREAD_GRID && matrix->split_cols;
    int64_t block_begin = 0;
    *owned = (qdr_owned){.rows = rows_part(matrix, position)};
    owned->n_rows = owned->rows.end - owned->rows.begin;
    owned->n_ranges = qdri_blocks_count(matrix->cols);
    for (int i = 0; i < owned->n_ranges; i++) {
        const qdr_block *block = &matrix->cols[i];
        qdr_range range = {block_begin, block_begin + block->width};
        block_begin = range.end;
        if (split)
            range_split(&range, unit_of(block->unit), position->at.size[matrix->col_axis],
                        position->at.coordinate[matrix->col_axis]);
        owned->cols[i] = range;
        owned->n_cols += range.end - range.begin;
    }
}

int qdri_matrix_serves(const qdr_matrix *matrix, const qdri_rank_position *from, const qdri_rank_position *to)
{
    if (matrix->spread != QDR_SPREAD_GRID) return 1;
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        const int is_split = (matrix->split_cells && axis >= QDR_Z) ||
                             (matrix->split_cols && axis == (int)matrix->col_axis) ||
                             (matrix->scatter_rows && axis == (int)matrix->scatter_axis);
        if (!is_split && from->at.coordinate[axis] != to->at.coordinate[axis]) return 0;
    }
    return 1;
}

static qdr_range range_common(qdr_range a, qdr_range b)
{
    const int64_t begin = a.begin > b.begin ? a.begin : b.begin;
    const int64_t end = qdri_least(a.end, b.end);
    return (qdr_range){begin, end > begin ? end : begin};
}

void qdri_owned_overlap(const qdr_owned *a, const qdr_owned *b, qdri_overlap *overlap)
{
    const qdr_range rows = range_common(a->rows, b->rows);
    int64_t a_col = 0, n_cols = 0;
    memset(overlap, 0, sizeof *overlap);
    overlap->n_rows = rows.end - rows.begin;
    overlap->a_row = rows.begin - a->rows.begin;
    overlap->b_row = rows.begin - b->rows.begin;
    for (int i = 0; i < a->n_ranges; i++) {
        int64_t b_col = 0;
        for (int j = 0; j < b->n_ranges; j++) {
            const qdr_range cols = range_common(a->cols[i], b->cols[j]);
            const int64_t width = cols.end - cols.begin;
            if (width)
                overlap->runs[overlap->n_runs++] = (qdri_common_columns){width, a_col + cols.begin - a->cols[i].begin,
                                                                         b_col + cols.begin - b->cols[j].begin};
            n_cols += width;
            b_col += b->cols[j].end - b->cols[j].begin;
        }
        a_col += a->cols[i].end - a->cols[i].begin;
    }
    overlap->n_elems = overlap->n_rows * n_cols;
}
