/* SPDX-License-Identifier: Apache-2.0 */
/* Adding linear layers, embeddings and tied heads to a net. */
#include <string.h>

#include "core/block.h"
#include "schedule/net_parts.h"

static qdr_status check_layout(qdr_layout layout, const char *who)
{
    if (layout == QDR_REPLICATED || layout == QDR_SCATTERED) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %d is not a layout; use QDR_REPLICATED or QDR_SCATTERED", who, (int)layout);
}

qdr_status qdri_check_product_type(qdr_product_type type, qdr_dtype dtype, const char *who)
{
    if (type != QDR_PRODUCT_DEFAULT && type != QDR_PRODUCT_AS_STORED && type != QDR_PRODUCT_FP8)
        return QDR_FAIL(
            QDR_ERR_ARGUMENT,
            "%s: %d is not a product type; use QDR_PRODUCT_AS_STORED, QDR_PRODUCT_FP8 or QDR_PRODUCT_DEFAULT", who,
            (int)type);
    if (type != QDR_PRODUCT_FP8 || dtype == QDR_BF16 || dtype == QDR_F32) return QDR_OK;
    return QDR_FAIL(QDR_ERR_DTYPE, "%s: products in fp8 need a stack of bf16 or f32; this one is %s", who,
                    qdr_dtype_name(dtype));
}

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
    if (desc->version != QDR_OPTS_INIT)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s: description of version %u, but this library knows %u; begin it with QDR_OPTS_INIT", who,
                        desc->version, QDR_OPTS_INIT);
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
    QDR_TRY(check_layout(desc->out_layout, who));
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

/* Connects a layer whose parameters are known to its edges, and sets its shape. The input of an embedding is an edge of
 * tokens. */
static void connect(qdri_net *net, qdri_node *node, qdr_axis in_axis, qdr_edge in, qdr_edge out)
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
static qdr_status add_layer_node(qdri_net *net, const char *name, qdri_node_kind kind, qdri_node **node)
{
    QDR_TRY(qdri_node_add(net, name, kind, node));
    (*node)->layer = (qdri_layer){.bias = -1, .gathered = QDRI_NO_REF};
    return QDR_OK;
}

static qdr_status add_weight(qdri_net *net, const qdr_block *rows, const qdr_block *cols, qdr_axis row_axis,
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

void qdri_net_set_storage(qdri_net *net, int node, qdr_storage storage)
{
    qdri_layer *layer = &net->nodes[node].layer;
    layer->shape.storage = net->parameters[layer->weight].storage = storage;
}

void qdri_net_set_algorithms(qdri_net *net, int node, const int algorithms[QDRI_N_PRODUCTS])
{
    memcpy(net->nodes[node].layer.shape.algorithms, algorithms, sizeof net->nodes[node].layer.shape.algorithms);
}

static qdr_status add_linear(qdri_net *net, const qdr_linear_desc *desc, qdr_edge in, qdr_edge *out)
{
    const char *who = desc->name;
    const qdr_axis in_axis = desc->transposed ? QDR_Y : QDR_X, out_axis = qdri_other_axis(in_axis);
    qdri_node *node = NULL;
    QDR_TRY(check_linear(net, desc, who, in));
    QDR_TRY(add_layer_node(net, who, QDRI_NODE_LINEAR, &node));
    qdri_layer *layer = &node->layer;
    layer->shape.drop_gathered = desc->drop_gathered != 0;
    layer->shape.bias = desc->bias != 0;
    layer->shape.rounds = (desc->product_type ? desc->product_type : net->opts.product_type) == QDR_PRODUCT_FP8;
    QDR_TRY(add_weight(net, desc->out, desc->in, out_axis, in_axis, &layer->weight));
    if (desc->bias)
        QDR_TRY(qdri_parameter_add(
            net, &(qdri_parameter_desc){.what = "bias", .cols = desc->out, .col_split = 1 + (int)out_axis},
            &layer->bias));
    const qdr_matrix matrix = qdri_edge_matrix(net, desc->out, out_axis, desc->out_layout, desc->out_row_unit);
    QDR_TRY(qdri_edge_add(net, who, &matrix, net->opts.dtype, out));
    connect(net, node, in_axis, in, *out);
    layer->panels = desc->panels;
    qdri_net_set_storage(net, net->n_nodes - 1, desc->storage);
    return QDR_OK;
}

qdr_status qdri_net_add_linear(qdri_net *net, const qdr_linear_desc *desc, qdr_edge in, qdr_edge *out)
{
    const qdri_net before = *net;
    return qdri_net_keep(net, &before, add_linear(net, desc, in, out));
}

static qdr_status check_embedding(const qdri_net *net, const qdr_embedding_desc *desc, const char *who, qdr_edge tokens)
{
    const qdr_block vocab[QDR_MAX_BLOCKS] = {desc->vocab}, features[QDR_MAX_BLOCKS] = {desc->features};
    QDR_TRY(check_layout(desc->layout, who));
    QDR_TRY(qdri_blocks_check(vocab, who));
    QDR_TRY(qdri_blocks_check(features, who));
    QDR_TRY(qdri_edge_check(net, tokens, who));
    const qdri_edge *edge = &net->edges[tokens];
    if (edge->dtype != QDR_I32 || edge->matrix.scatter_rows)
        return QDR_FAIL(QDR_ERR_DTYPE,
                        "%s: the input '%s' must hold the tokens of the whole cell; make it with qdr_stack_add_tokens",
                        who, edge->name);
    if (desc->context < 0 || (desc->context && net->opts.row_unit % desc->context))
        return QDR_FAIL(QDR_ERR_SHAPE, "%s: context %" PRId64 " does not divide the stack's row_unit %" PRId64, who,
                        desc->context, net->opts.row_unit);
    return QDR_OK;
}

static qdr_status add_embedding(qdri_net *net, const qdr_embedding_desc *desc, qdr_edge tokens, qdr_edge *out)
{
    const char *who = desc->name;
    const qdr_block vocab[QDR_MAX_BLOCKS] = {desc->vocab}, features[QDR_MAX_BLOCKS] = {desc->features};
    const qdr_block positions[QDR_MAX_BLOCKS] = {{desc->context, 1}};
    const int64_t unit = desc->vocab.unit ? desc->vocab.unit : 1;
    qdri_node *node = NULL;
    QDR_TRY(check_embedding(net, desc, who, tokens));
    QDR_TRY(add_layer_node(net, who, QDRI_NODE_EMBEDDING, &node));
    qdri_layer *layer = &node->layer;
    const qdr_matrix matrix = qdri_edge_matrix(net, features, QDR_X, desc->layout, 1);
    QDR_TRY(add_weight(net, vocab, features, QDR_Y, QDR_X, &layer->weight));
    if (desc->context)
        QDR_TRY(qdri_parameter_add(net,
                                   &(qdri_parameter_desc){.what = "positions",
                                                          .rows = positions,
                                                          .cols = features,
                                                          .col_split = 1 + QDR_X,
                                                          .extra_sum = matrix.scatter_rows ? 1 + QDR_Y : 0},
                                   &layer->bias));
    QDR_TRY(qdri_edge_add(net, who, &matrix, net->opts.dtype, out));
    connect(net, node, QDR_Y, tokens, *out);
    int64_t vocab_end;
    qdri_split(desc->vocab.width, unit, net->position.size[QDR_Y], net->position.coordinate[QDR_Y],
               &layer->shape.vocab_begin, &vocab_end);
    layer->shape.vocab = desc->vocab.width;
    layer->shape.k = vocab_end - layer->shape.vocab_begin; /* rows of E's block; its columns are the outputs */
    layer->shape.context = desc->context;
    return QDR_OK;
}

qdr_status qdri_net_add_embedding(qdri_net *net, const qdr_embedding_desc *desc, qdr_edge tokens, qdr_edge *out)
{
    const qdri_net before = *net;
    return qdri_net_keep(net, &before, add_embedding(net, desc, tokens, out));
}

qdr_status qdri_net_add_tied_head(qdri_net *net, const char *name, int table, qdr_layout out_layout, qdr_edge in,
                                  qdr_edge *out)
{
    qdri_node *node = NULL;
    if (table < 0 || table >= net->n_nodes || net->nodes[table].kind != QDRI_NODE_EMBEDDING ||
        net->nodes[table].layer.shares_last)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: a tied head needs an embedding of the same stack that is not tied yet",
                        name);
    const int weight = net->nodes[table].layer.weight;
    const qdri_parameter *e = &net->parameters[weight];
    qdr_linear_desc desc = {.version = QDR_OPTS_INIT, .name = name, .out_layout = out_layout};
    memcpy(desc.in, e->cols, sizeof desc.in);
    memcpy(desc.out, e->rows, sizeof desc.out);
    QDR_TRY(check_linear(net, &desc, name, in));
    const qdr_matrix matrix = qdri_edge_matrix(net, desc.out, QDR_Y, out_layout, 1);
    QDR_TRY(qdri_node_add_with_edge(net, name, QDRI_NODE_LINEAR, &matrix, net->opts.dtype, out, &node));
    node->layer = (qdri_layer){.weight = weight, .bias = -1, .shares_first = 1, .gathered = QDRI_NO_REF};
    net->nodes[table].layer.shares_last = 1;
    connect(net, node, QDR_X, in, *out);
    return QDR_OK;
}
