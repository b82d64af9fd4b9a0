/* SPDX-License-Identifier: Apache-2.0 */
/* Creating and freeing a net, its lists, and its edges: the activations between nodes. */
#include "schedule/net.h"

#include <stdlib.h>
#include <string.h>

#include "core/block.h"
#include "core/operands.h"
#include "core/size.h"
#include "schedule/net_parts.h"

static qdr_status check_opts(const qdr_stack_opts *opts)
{
    if (!qdri_is_float(opts->dtype))
        return QDR_FAIL(QDR_ERR_DTYPE, "stack: element type %d; layers compute in " QDRI_FLOAT_NAMES, (int)opts->dtype);
    if (opts->n_rows < 0 || opts->row_unit < 0)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "stack: n_rows %" PRId64 " and row_unit %" PRId64
                        " may not be negative; use 0 or more rows, and a unit of 1 or more (0: 1)",
                        opts->n_rows, opts->row_unit);
    if (opts->row_unit > 0 && opts->n_rows % opts->row_unit)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "stack: row_unit %" PRId64 " does not divide n_rows %" PRId64
                        "; use a multiple such as %" PRId64,
                        opts->row_unit, opts->n_rows, qdri_round_up(opts->n_rows, opts->row_unit));
    if (opts->overlap < 0 || opts->overlap > (QDR_OVERLAP_ALL | QDR_OVERLAP_NONE))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "stack: overlap %d is not a sum of QDR_OVERLAP_ flags", opts->overlap);
    if (opts->prefetch < 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "stack: prefetch %d must not be negative; 0 means as many as fit in prefetch_bytes",
                        opts->prefetch);
    if (opts->panels < 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "stack: panels %d must not be negative; 0 chooses by cost, 1 means none",
                        opts->panels);
    if (opts->batch_parts < 0 || opts->batch_parts > QDRI_MAX_BATCH_PARTS)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "stack: batch_parts %d; use 1 to %d, or 0 to have them chosen",
                        opts->batch_parts, QDRI_MAX_BATCH_PARTS);
    if ((int)opts->recompute < QDR_RECOMPUTE_NONE || opts->recompute > QDR_RECOMPUTE_LAYERS)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "stack: recompute %d is none of the constants QDR_RECOMPUTE_…",
                        (int)opts->recompute);
    if (opts->recompute_every < 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "stack: recompute_every %d must not be negative; 0 and 1 mean every layer",
                        opts->recompute_every);
    QDR_TRY(qdri_check_switch("stack", "caller_memory", opts->caller_memory));
    QDR_TRY(qdri_check_switch("stack", "caller_activations", opts->caller_activations));
    return qdri_check_product_type(opts->product_type, opts->dtype, "stack");
}
static int64_t cell_rows(const qdri_position *position, int64_t n_rows, int64_t unit)
{
    int64_t begin, end;
    qdri_split(n_rows, unit, position->size[QDR_D], position->coordinate[QDR_D], &begin, &end);
    qdri_split(end - begin, unit, position->size[QDR_Z], position->coordinate[QDR_Z], &begin, &end);
    return end - begin;
}

qdr_status qdri_net_begin(qdri_net *net, const qdri_position *position, const qdr_stack_opts *opts)
{
    QDR_TRY(check_opts(opts));
    qdri_rotations_free(net);
    const qdri_net old = *net; /* the memory of its lists is kept */
    *net = (qdri_net){.position = *position,
                      .opts = *opts,
                      .edges = old.edges,
                      .edge_capacity = old.edge_capacity,
                      .nodes = old.nodes,
                      .node_capacity = old.node_capacity,
                      .parameters = old.parameters,
                      .parameter_capacity = old.parameter_capacity,
                      .buffers = {.items = old.buffers.items, .capacity = old.buffers.capacity},
                      .rotations = old.rotations,
                      .rotation_capacity = old.rotation_capacity,
                      .segment_layer = -1,
                      .hazards = old.hazards};
    if (net->opts.row_unit == 0) net->opts.row_unit = 1;
    if (net->opts.overlap == 0) net->opts.overlap = QDR_OVERLAP_ALL;
    net->grad_dtype = qdri_sum_type(opts->dtype);
    net->cell_rows = cell_rows(position, net->opts.n_rows, net->opts.row_unit);
    for (int i = 0; i < QDRI_N_CALLER; i++) {
        net->caller[i] = qdri_buffers_add(&net->buffers, QDRI_CALLER, 0);
        net->caller[i].bytes = SIZE_MAX; /* not known here */
    }
    net->workspace = qdri_buffers_add(&net->buffers, QDRI_WORKSPACE, 0);
    net->op_work = net->small_gradients = net->loss = QDRI_NO_REF;
    return net->buffers.status;
}

void qdri_net_free(qdri_net *net)
{
    free(net->edges);
    free(net->nodes);
    free(net->parameters);
    qdri_rotations_free(net);
    free(net->rotations);
    qdri_buffers_free(&net->buffers);
    qdri_hazards_free(&net->hazards);
    *net = (qdri_net){0};
}

/* ---- adding ---- */

qdr_status qdri_node_add(qdri_net *net, const char *name, qdri_node_kind kind, qdri_node **node)
{
    QDR_TRY(
        qdri_list_grow((void **)&net->nodes, net->n_nodes, &net->node_capacity, sizeof **node, "a node of the stack"));
    *node = &net->nodes[net->n_nodes++];
    **node = (qdri_node){
        .kind = kind, .name = name, .out = -1, .segment = net->segment, .parameter = -1, .saved = QDRI_NO_REF};
    return QDR_OK;
}

qdr_status qdri_node_add_with_edge(qdri_net *net, const char *name, qdri_node_kind kind, const qdr_matrix *matrix,
                                   qdr_dtype dtype, qdr_edge *edge, qdri_node **node)
{
    QDR_TRY(qdri_node_add(net, name, kind, node));
    const qdr_status status = qdri_edge_add(net, name, matrix, dtype, edge);
    net->n_nodes -= status != QDR_OK;
    return status;
}

void qdri_net_begin_segment(qdri_net *net) { net->segment = ++net->n_segments; }

void qdri_net_end_segment(qdri_net *net)
{
    net->segment = 0;
    net->segment_layer = -1;
}

void qdri_node_connect(qdri_net *net, qdri_node *node, int n_in, const qdr_edge *in, qdr_edge out)
{
    node->n_in = n_in;
    for (int i = 0; i < n_in; i++) {
        node->in[i] = in[i];
        net->edges[in[i]].n_uses++;
    }
    node->out = out;
}

qdr_status qdri_edge_check(const qdri_net *net, qdr_edge edge, const char *who)
{
    if (edge >= 0 && edge < net->n_edges) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: edge %d does not exist; the stack has edges 0 to %d", who, edge,
                    net->n_edges - 1);
}

qdri_ref qdri_edge_rows(const qdri_edge *edge, qdri_ref ref, int64_t begin, int64_t end)
{
    const size_t row_bytes = (size_t)edge->owned.n_cols * qdr_dtype_bytes(edge->dtype);
    if (ref.buffer < 0 || end - begin == edge->owned.n_rows) return ref;
    return (qdri_ref){ref.buffer, ref.offset + (size_t)begin * row_bytes, (size_t)(end - begin) * row_bytes};
}

int qdri_edge_scattered(const qdri_net *net, const qdri_edge *edge)
{
    return edge->matrix.scatter_rows && net->position.size[edge->matrix.scatter_axis] > 1;
}

qdr_matrix qdri_edge_matrix(const qdri_net *net, const qdr_block cols[QDR_MAX_BLOCKS], qdr_axis col_axis,
                            qdr_layout layout, int64_t scatter_unit)
{
    const qdr_axis scatter_axis = qdri_other_axis(col_axis);
    const int64_t unit = scatter_unit ? scatter_unit : 1;
    qdri_position last = net->position; /* of the smallest cell */
    for (int axis = 0; axis < QDR_N_AXES; axis++) last.coordinate[axis] = last.size[axis] - 1;
    /* Rows that are scattered singly may leave ranks without any; whole sequences that are too few for the axis stay
     * replicated instead. */
    const int64_t n_units = cell_rows(&last, net->opts.n_rows, net->opts.row_unit) / unit;
    const int scatter = layout == QDR_SCATTERED && (unit == 1 || n_units >= net->position.size[scatter_axis]);
    qdr_matrix matrix = {QDR_INIT(qdr_matrix),    .n_rows = net->opts.n_rows,   .row_unit = net->opts.row_unit,
                         .split_cols = 1,         .col_axis = col_axis,         .split_cells = 1,
                         .scatter_rows = scatter, .scatter_axis = scatter_axis, .scatter_unit = unit};
    for (int i = 0; i < QDR_MAX_BLOCKS; i++) matrix.cols[i] = cols[i];
    return matrix;
}

qdr_status qdri_edge_add(qdri_net *net, const char *name, const qdr_matrix *matrix, qdr_dtype dtype, qdr_edge *edge)
{
    int64_t elems = 0;
    size_t bytes = 0;
    QDR_TRY(qdri_matrix_check(matrix));
    QDR_TRY(qdri_list_grow((void **)&net->edges, net->n_edges, &net->edge_capacity, sizeof *net->edges,
                           "an edge of the stack"));
    qdri_edge *added = &net->edges[net->n_edges];
    *added = (qdri_edge){.name = name,
                         .matrix = *matrix,
                         .dtype = dtype,
                         .with_gradient = dtype != QDR_I32,
                         .value = QDRI_NO_REF,
                         .gradient = QDRI_NO_REF,
                         .d = QDRI_NO_REF};
    qdri_matrix_part(matrix, &(qdri_rank_position){.at = net->position}, &added->owned);
    QDR_TRY(qdri_mul_elems(added->owned.n_rows, added->owned.n_cols, &elems));
    QDR_TRY(qdri_elems_bytes(elems, QDR_F64, &bytes));
    *edge = net->n_edges++;
    return QDR_OK;
}

qdr_status qdri_net_add_input(qdri_net *net, const char *name, const qdr_edge_desc *desc, int with_gradient,
                              qdr_edge *edge)
{
    if (desc->col_axis != QDR_X && desc->col_axis != QDR_Y)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "stack input: columns are split over x or y, not over axis %d",
                        (int)desc->col_axis);
    if (desc->layout != QDR_REPLICATED && desc->layout != QDR_SCATTERED)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "stack input: %d is not a layout; use QDR_REPLICATED or QDR_SCATTERED",
                        (int)desc->layout);
    if (desc->scatter_unit < 0)
        return QDR_FAIL(QDR_ERR_SHAPE, "stack input: scatter_unit %" PRId64 " may not be negative", desc->scatter_unit);
    QDR_TRY(qdri_check_switch("stack input", "with_gradient", with_gradient));
    QDR_TRY(qdri_blocks_check(desc->cols, "stack input"));
    const qdr_matrix matrix = qdri_edge_matrix(net, desc->cols, desc->col_axis, desc->layout, desc->scatter_unit);
    QDR_TRY(qdri_edge_add(net, name, &matrix, net->opts.dtype, edge));
    net->edges[*edge].with_gradient = net->edges[*edge].keeps_gradient = with_gradient;
    return QDR_OK;
}

qdr_status qdri_net_add_tokens(qdri_net *net, const char *name, qdr_edge *edge)
{
    const qdr_block one[QDR_MAX_BLOCKS] = {{1, 1}};
    qdr_matrix matrix = qdri_edge_matrix(net, one, QDR_X, QDR_REPLICATED, 1);
    matrix.split_cols = 0;
    return qdri_edge_add(net, name, &matrix, QDR_I32, edge);
}

/* ---- what was described ---- */

void qdri_net_set_storage(qdri_net *net, int node, qdr_storage storage)
{
    qdri_layer *layer = &net->nodes[node].layer;
    layer->shape.storage = net->parameters[layer->weight].storage = storage;
}

void qdri_net_set_algorithms(qdri_net *net, int node, const int algorithms[QDRI_N_PRODUCTS])
{
    memcpy(net->nodes[node].layer.shape.algorithms, algorithms, sizeof net->nodes[node].layer.shape.algorithms);
}

void qdri_layer_largest(const qdri_net *net, const qdri_layer *layer, int64_t *m, int64_t *n, int64_t *k)
{
    const qdri_parameter *w = &net->parameters[layer->weight];
    qdri_position first = net->position; /* the first parts are the largest */
    for (int axis = 0; axis < QDR_N_AXES; axis++) first.coordinate[axis] = 0;
    *m = cell_rows(&first, net->opts.n_rows, net->opts.row_unit);
    *n = qdri_blocks_part(w->rows, w->row_parts, 0);
    *k = qdri_blocks_part(w->cols, w->col_parts, 0);
}

int qdri_net_runs_whole(const qdri_net *net)
{
    if (net->opts.caller_activations) return 0;
    for (int i = 0; i < net->n_nodes; i++) {
        const int out = net->nodes[i].out;
        if (out >= 0 && net->edges[out].n_uses == 0 && i < net->n_nodes - 1) return 0;
    }
    return net->n_nodes > 0;
}

int qdri_net_batch_parts(const qdri_net *net)
{
    return net->opts.batch_parts > 1 && qdri_net_sums(net) && !qdri_net_scatters(net) ? net->opts.batch_parts : 1;
}

int qdri_net_sums(const qdri_net *net) { return net->position.size[QDR_X] > 1 || net->position.size[QDR_Y] > 1; }

int qdri_net_scatters(const qdri_net *net)
{
    for (int i = 0; i < net->n_edges; i++)
        if (qdri_edge_scattered(net, &net->edges[i])) return 1;
    return 0;
}
