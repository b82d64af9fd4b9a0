/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers, also those that share the W of an embedding. */
#include <string.h>

#include "core/block.h"
#include "schedule/ops/layer.h"

/* Checks that the input edge has the columns and the axis that the layer reads. */
static qdr_status check_input(const qdri_net *net, const qdr_linear_desc *desc, const char *who, qdr_edge in)
{
    const qdri_edge *edge = &net->edges[in];
    const qdr_axis axis = desc->transposed ? QDR_Y : QDR_X;
    if (edge->dtype == QDR_I32)
        return QDR_FAIL(QDR_ERR_DTYPE, "%s: the input '%s' holds tokens, not features", who, edge->name);
    if (!edge->matrix.split_cols || edge->matrix.col_axis != axis)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "%s: a %s layer reads features split over %s, but edge '%s' is split over "
                        "%s; set transposed = %d",
                        who, desc->transposed ? "transposed" : "normal", axis == QDR_X ? "x" : "y", edge->name,
                        axis == QDR_X ? "y" : "x", !desc->transposed);
    if (qdri_blocks_equal(desc->in, edge->matrix.cols)) return QDR_OK;
    return QDR_FAIL(QDR_ERR_SHAPE,
                    "%s: the input's blocks (%" PRId64 " features in %d) differ from those of edge '%s' (%" PRId64
                    " in %d), or their units do; adjacent sides must have the same blocks",
                    who, qdri_blocks_width(desc->in), qdri_blocks_count(desc->in), edge->name,
                    qdri_blocks_width(edge->matrix.cols), qdri_blocks_count(edge->matrix.cols));
}

static qdr_status check_linear(const qdri_net *net, const qdr_linear_desc *desc, const char *who, qdr_edge in)
{
    if (desc->panels < 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: panels %d must not be negative; 0 uses the stack's option, 1 means none",
                        who, desc->panels);
    if (desc->storage != QDR_STORAGE_AUTO && desc->storage != QDR_OUT_IN && desc->storage != QDR_IN_OUT)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %d is not a storage; use QDR_OUT_IN, QDR_IN_OUT or QDR_STORAGE_AUTO",
                        who, (int)desc->storage);
    QDR_TRY(qdri_check_switch(who, "bias", desc->bias));
    QDR_TRY(qdri_check_switch(who, "transposed", desc->transposed));
    QDR_TRY(qdri_check_switch(who, "drop_gathered", desc->drop_gathered));
    QDR_TRY(qdri_check_product_type(desc->product_type, net->opts.dtype, who));
    QDR_TRY(qdri_check_layout(desc->out_layout, who));
    QDR_TRY(qdri_blocks_check(desc->in, who));
    QDR_TRY(qdri_blocks_check(desc->out, who));
    QDR_TRY(qdri_edge_check(net, in, who));
    if (desc->out_row_unit < 0 || (desc->out_row_unit && net->opts.row_unit % desc->out_row_unit))
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "%s: out_row_unit %" PRId64 " does not divide the stack's row_unit %" PRId64
                        "; use one that does, such as %" PRId64 ", or 0 for 1",
                        who, desc->out_row_unit, net->opts.row_unit, net->opts.row_unit);
    return check_input(net, desc, who, in);
}

static qdr_status add_own(qdri_net *net, const char *who, const qdr_linear_desc *desc, qdr_edge in, qdr_edge *out)
{
    const qdr_axis in_axis = desc->transposed ? QDR_Y : QDR_X, out_axis = qdri_other_axis(in_axis);
    qdri_node *node = NULL;
    QDR_TRY(check_linear(net, desc, who, in));
    QDR_TRY(qdri_layer_node_add(net, who, QDRI_NODE_LINEAR, &node));
    qdri_layer *layer = &node->layer;
    layer->shape.drop_gathered = desc->drop_gathered != 0;
    layer->shape.bias = desc->bias != 0;
    layer->shape.rounds = (desc->product_type ? desc->product_type : net->opts.product_type) == QDR_PRODUCT_FP8;
    QDR_TRY(qdri_weight_add(net, desc->out, desc->in, out_axis, in_axis, &layer->weight));
    if (desc->bias)
        QDR_TRY(qdri_parameter_add(
            net, &(qdri_parameter_desc){.what = "bias", .cols = desc->out, .col_split = 1 + (int)out_axis},
            &layer->bias));
    const qdr_matrix matrix = qdri_edge_matrix(net, desc->out, out_axis, desc->out_layout, desc->out_row_unit);
    QDR_TRY(qdri_edge_add(net, who, &matrix, net->opts.dtype, out));
    qdri_layer_connect(net, node, in_axis, in, *out);
    layer->panels = desc->panels;
    qdri_net_set_storage(net, net->n_nodes - 1, desc->storage);
    return QDR_OK;
}

/* A head whose W is the E of an embedding. */
static qdr_status add_tied(qdri_net *net, const char *name, int table, qdr_layout out_layout, qdr_edge in,
                           qdr_edge *out)
{
    qdri_node *node = NULL;
    if (table < 0 || table >= net->n_nodes || net->nodes[table].kind != QDRI_NODE_EMBEDDING ||
        net->nodes[table].layer.shares_last)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: a tied head needs an embedding of the same stack that is not tied yet",
                        name);
    const int weight = net->nodes[table].layer.weight;
    const qdri_parameter *e = &net->parameters[weight];
    qdr_linear_desc desc = {.out_layout = out_layout};
    memcpy(desc.in, e->cols, sizeof desc.in);
    memcpy(desc.out, e->rows, sizeof desc.out);
    QDR_TRY(check_linear(net, &desc, name, in));
    const qdr_matrix matrix = qdri_edge_matrix(net, desc.out, QDR_Y, out_layout, 1);
    QDR_TRY(qdri_node_add_with_edge(net, name, QDRI_NODE_LINEAR, &matrix, net->opts.dtype, out, &node));
    node->layer = (qdri_layer){.weight = weight, .bias = -1, .shares_first = 1, .gathered = QDRI_NO_REF};
    net->nodes[table].layer.shares_last = 1;
    qdri_layer_connect(net, node, QDR_X, in, *out);
    return QDR_OK;
}

static qdr_status add(qdri_net *net, const qdri_node_desc *desc, qdr_edge *out)
{
    const qdr_linear_desc *linear = &desc->u.linear.desc;
    const int tied_to = desc->u.linear.tied_to;
    return tied_to ? add_tied(net, desc->name, tied_to - 1, linear->out_layout, desc->in[0], out)
                   : add_own(net, desc->name, linear, desc->in[0], out);
}

/* ---- what ranks compare ---- */

static void describe(qdri_facts *facts, const char *who, const qdri_net *net, const qdri_node_desc *desc)
{
    static const char *const storages[] = {"QDR_STORAGE_AUTO", "QDR_OUT_IN", "QDR_IN_OUT"};
    const qdr_linear_desc *linear = &desc->u.linear.desc;
    if (desc->u.linear.tied_to) {
        qdri_facts_add(facts, who, "table", net->nodes[desc->u.linear.tied_to - 1].name);
        qdri_facts_add(facts, who, "out_layout", qdri_layout_name(linear->out_layout));
        return;
    }
    qdri_facts_add_blocks(facts, who, "in", linear->in, QDR_MAX_BLOCKS);
    qdri_facts_add_blocks(facts, who, "out", linear->out, QDR_MAX_BLOCKS);
    qdri_facts_add_int(facts, who, "bias", linear->bias != 0);
    qdri_facts_add_int(facts, who, "transposed", linear->transposed != 0);
    qdri_facts_add(facts, who, "out_layout", qdri_layout_name(linear->out_layout));
    qdri_facts_add_int(facts, who, "out_row_unit", linear->out_row_unit ? linear->out_row_unit : 1);
    qdri_facts_add_int(facts, who, "panels", linear->panels);
    qdri_facts_add_int(facts, who, "drop_gathered", linear->drop_gathered != 0);
    qdri_facts_add(facts, who, "storage", storages[linear->storage]); /* it has been checked */
    qdri_facts_add(facts, who, "product_type", qdri_product_type_name(linear->product_type));
}

const qdri_op qdri_linear_op = {.name = "layer", .n_in = 1, .add = add, .describe = describe};
