/* SPDX-License-Identifier: Apache-2.0 */
/* Edges: the activations between nodes, and what the caller may ask of them. */
#include <stdlib.h>

#include "core/block.h"
#include "core/size.h"
#include "linear/internal.h"

qdr_status qdri_edge_check(const qdr_stack *stack, qdr_edge edge, const char *who)
{
    if (edge >= 0 && edge < stack->n_edges) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: edge %d does not exist; the stack has edges 0 to %d",
                    who, edge, stack->n_edges - 1);
}

int64_t qdri_edge_elems(const qdri_edge *edge) { return edge->owned.n_rows * edge->owned.n_cols; }

size_t qdri_edge_bytes(const qdri_edge *edge)
{
    return (size_t)qdri_edge_elems(edge) * qdr_dtype_bytes(edge->dtype);
}

qdri_ref qdri_edge_rows(const qdri_edge *edge, qdri_ref ref, int64_t begin, int64_t end)
{
    const size_t row_bytes = (size_t)edge->owned.n_cols * qdr_dtype_bytes(edge->dtype);
    if (ref.buffer < 0 || end - begin == edge->owned.n_rows) return ref;
    return (qdri_ref){ref.buffer, ref.offset + (size_t)begin * row_bytes,
                      (size_t)(end - begin) * row_bytes};
}

int qdri_edge_scattered(const qdr_stack *stack, const qdri_edge *edge)
{
    return edge->matrix.scatter_rows && stack->place.size[edge->matrix.scatter_axis] > 1;
}

/* The smallest cell has a whole scatter unit for each rank of the axis. */
static int units_suffice(const qdr_stack *stack, int g, int64_t scatter_unit)
{
    const qdr_stack_opts *opts = &stack->opts;
    const int gd = stack->place.size[QDR_D], gz = stack->place.size[QDR_Z];
    int64_t begin, end;
    qdri_split(opts->n_rows, opts->row_unit, gd, gd - 1, &begin, &end);
    qdri_split(end - begin, opts->row_unit, gz, gz - 1, &begin, &end);
    return (end - begin) / scatter_unit >= g;
}

qdr_matrix qdri_edge_matrix(const qdr_stack *stack, const qdr_block cols[QDR_MAX_BLOCKS],
                            qdr_axis col_axis, qdr_layout layout, int64_t scatter_unit)
{
    const qdr_axis scatter_axis = qdri_other_axis(col_axis);
    const int64_t unit = scatter_unit ? scatter_unit : 1;
    /* Single rows may leave ranks without any; whole sequences that are too few for the axis stay
     * replicated instead. */
    const int scatter = layout == QDR_SCATTERED &&
                        (unit == 1 || units_suffice(stack, stack->place.size[scatter_axis], unit));
    qdr_matrix matrix = {.version = QDR_OPTS_INIT,
                         .n_rows = stack->opts.n_rows,
                         .row_unit = stack->opts.row_unit,
                         .split_cols = 1,
                         .col_axis = col_axis,
                         .split_cells = 1,
                         .scatter_rows = scatter,
                         .scatter_axis = scatter_axis,
                         .scatter_unit = unit};
    for (int i = 0; i < QDR_MAX_BLOCKS; i++) matrix.cols[i] = cols[i];
    return matrix;
}

qdr_status qdri_edge_add(qdr_stack *stack, const char *name, const qdr_matrix *matrix,
                         qdr_dtype dtype, qdr_edge *edge)
{
    qdri_edge added = {.matrix = *matrix,
                       .dtype = dtype,
                       .with_gradient = dtype != QDR_I32,
                       .value = QDRI_NO_REF,
                       .gradient = QDRI_NO_REF,
                       .d = QDRI_NO_REF};
    int64_t elems = 0;
    size_t bytes = 0;
    QDR_TRY(qdr_matrix_owned(stack->grid, matrix, qdr_context_rank(qdr_grid_context(stack->grid)),
                             &added.owned));
    QDR_TRY(qdri_mul_elems(added.owned.n_rows, added.owned.n_cols, &elems));
    QDR_TRY(qdri_elems_bytes(elems, QDR_F64, &bytes));
    QDR_TRY(qdri_list_grow((void **)&stack->edges, stack->n_edges, &stack->edge_capacity,
                           sizeof added, "an edge of the stack"));
    QDR_TRY(qdri_strdup(name ? name : "", &added.name));
    stack->edges[stack->n_edges] = added;
    *edge = stack->n_edges++;
    return QDR_OK;
}

qdr_status qdr_stack_add_input(qdr_stack *stack, const char *name, const qdr_edge_desc *desc,
                               int with_gradient, qdr_edge *edge)
{
    QDR_TRY(qdri_stack_open(stack, "stack input"));
    if (!desc || !edge)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "stack input: a description and a place for the edge are needed, not NULL");
    *edge = -1;
    if (desc->col_axis != QDR_X && desc->col_axis != QDR_Y)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "stack input: columns are split over x or y, not over axis %d",
                        (int)desc->col_axis);
    if (desc->layout != QDR_REPLICATED && desc->layout != QDR_SCATTERED)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "stack input: %d is no layout; use QDR_REPLICATED or QDR_SCATTERED",
                        (int)desc->layout);
    if (desc->scatter_unit < 0)
        return QDR_FAIL(QDR_ERR_SHAPE, "stack input: scatter_unit %" PRId64 " may not be negative",
                        desc->scatter_unit);
    QDR_TRY(qdri_blocks_check(desc->cols, "stack input"));
    const qdr_matrix matrix = qdri_edge_matrix(stack, desc->cols, desc->col_axis, desc->layout,
                                               desc->scatter_unit);
    QDR_TRY(qdri_edge_add(stack, name, &matrix, stack->opts.dtype, edge));
    stack->edges[*edge].with_gradient = stack->edges[*edge].keeps_gradient = with_gradient != 0;
    return QDR_OK;
}

qdr_status qdr_stack_add_tokens(qdr_stack *stack, const char *name, qdr_edge *edge)
{
    QDR_TRY(qdri_stack_open(stack, "stack tokens"));
    if (!edge) return QDR_FAIL(QDR_ERR_ARGUMENT, "stack tokens: the place for the edge is NULL");
    *edge = -1;
    const qdr_block one[QDR_MAX_BLOCKS] = {{1, 1}};
    qdr_matrix matrix = qdri_edge_matrix(stack, one, QDR_X, QDR_REPLICATED, 1);
    matrix.split_cols = 0;
    return qdri_edge_add(stack, name, &matrix, QDR_I32, edge);
}

qdr_status qdr_stack_edge_matrix(const qdr_stack *stack, qdr_edge edge, qdr_matrix *matrix)
{
    if (!stack || !matrix)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "edge: the stack or the place for the result is NULL");
    QDR_TRY(qdri_edge_check(stack, edge, "edge"));
    *matrix = stack->edges[edge].matrix;
    return QDR_OK;
}

qdr_status qdr_stack_edge_owned(const qdr_stack *stack, qdr_edge edge, qdr_owned *owned)
{
    if (!stack || !owned)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "edge: the stack or the place for the result is NULL");
    QDR_TRY(qdri_edge_check(stack, edge, "edge"));
    *owned = stack->edges[edge].owned;
    return QDR_OK;
}

qdr_status qdr_stack_edge_value(const qdr_stack *stack, qdr_edge edge, void **value)
{
    if (!value) return QDR_FAIL(QDR_ERR_ARGUMENT, "edge: the place for the value is NULL");
    *value = NULL;
    QDR_TRY(qdri_stack_ready(stack, "edge"));
    QDR_TRY(qdri_edge_check(stack, edge, "edge"));
    *value = qdri_stack_pointer(stack, stack->edges[edge].value);
    return QDR_OK;
}

qdr_status qdr_stack_edge_gradient(const qdr_stack *stack, qdr_edge edge, void **gradient)
{
    if (!gradient) return QDR_FAIL(QDR_ERR_ARGUMENT, "edge: the place for the gradient is NULL");
    *gradient = NULL;
    QDR_TRY(qdri_stack_ready(stack, "edge"));
    QDR_TRY(qdri_edge_check(stack, edge, "edge"));
    if (!stack->edges[edge].keeps_gradient)
        return QDR_FAIL(QDR_ERR_STATE,
                        "edge '%s': its gradient is not kept; ask for an input made with_gradient "
                        "or for the last edge",
                        stack->edges[edge].name);
    *gradient = qdri_stack_pointer(stack, stack->edges[edge].gradient);
    return QDR_OK;
}
