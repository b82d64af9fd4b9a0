/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by linear layers and embeddings. */
#include "schedule/ops/layer.h"

/* Connects a layer whose parameters are known to its edges, and sets its shape. The input of an embedding is an edge of
 * tokens. */
void qdri_layer_connect(qdri_net *net, qdri_node *node, qdr_axis in_axis, qdr_edge in, qdr_edge out)
{
    const qdri_edge *from = &net->edges[in], *to = &net->edges[out];
    const qdri_parameter *w = &net->parameters[node->layer.weight];
    qdri_layer_shape *shape = &node->layer.shape;
    shape->node = net->n_nodes - 1;
    shape->name = node->name;
    shape->in_axis = in_axis;
    shape->out_axis = qdri_other_axis(in_axis);
    shape->m = net->cell_rows;
    shape->in_rows = from->owned.n_rows;
    shape->out_rows = to->owned.n_rows;
    shape->in_scattered = from->dtype != QDR_I32 && qdri_edge_scattered(net, from);
    shape->out_scattered = qdri_edge_scattered(net, to);
    shape->in_unit = from->matrix.scatter_unit;
    shape->out_unit = to->matrix.scatter_unit;
    shape->k = w->n_cols;
    shape->n = to->owned.n_cols;
    shape->shard_elems = w->shard_elems;
    shape->first_row = to->owned.rows.begin;
    shape->dtype = net->opts.dtype;
    shape->grad_dtype = net->grad_dtype;
    qdri_node_connect(net, node, 1, &in, out);
}

/* Adds a node with an empty layer. */
qdr_status qdri_layer_node_add(qdri_net *net, const char *name, qdri_node_kind kind, qdri_node **node)
{
    QDR_TRY(qdri_node_add(net, name, kind, node));
    (*node)->layer = (qdri_layer){.bias = -1, .gathered = QDRI_NO_REF};
    return QDR_OK;
}

qdr_status qdri_weight_add(qdri_net *net, const qdr_block *rows, const qdr_block *cols, qdr_axis row_axis,
                           qdr_axis col_axis, int *index)
{
    return qdri_parameter_add(net,
                              &(qdri_parameter_desc){.what = "weight",
                                                     .rows = rows,
                                                     .cols = cols,
                                                     .row_split = 1 + (int)row_axis,
                                                     .col_split = 1 + (int)col_axis,
                                                     .flat_over_z = 1},
                              index);
}
