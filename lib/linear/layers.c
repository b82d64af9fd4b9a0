/* SPDX-License-Identifier: Apache-2.0 */
/* Adding linear layers, embeddings and tied heads to a stack. */
#include <stdlib.h>
#include <string.h>

#include "core/block.h"
#include "core/size.h"
#include "linear/internal.h"

static qdr_status check_layout(qdr_layout layout, const char *who)
{
    if (layout == QDR_REPLICATED || layout == QDR_SCATTERED) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %d is no layout; use QDR_REPLICATED or QDR_SCATTERED",
                    who, (int)layout);
}

/* The input edge has the columns and the axis that the layer reads. */
static qdr_status check_input(const qdr_stack *stack, const qdr_linear_desc *desc, const char *who,
                              qdr_edge in)
{
    const qdri_edge *edge = &stack->edges[in];
    const qdr_axis axis = desc->transposed ? QDR_Y : QDR_X;
    if (edge->dtype == QDR_I32)
        return QDR_FAIL(QDR_ERR_DTYPE, "%s: the input '%s' holds tokens, not features", who,
                        edge->name);
    if (!edge->matrix.split_cols || edge->matrix.col_axis != axis)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "%s: a %s layer reads features split over %s, but edge '%s' is split over "
                        "%s; set transposed = %d",
                        who, desc->transposed ? "transposed" : "normal", axis == QDR_X ? "x" : "y",
                        edge->name, axis == QDR_X ? "y" : "x", !desc->transposed);
    if (qdri_blocks_equal(desc->in, edge->matrix.cols)) return QDR_OK;
    return QDR_FAIL(QDR_ERR_SHAPE,
                    "%s: the input's blocks (%" PRId64
                    " features in %d) differ from those of edge '%s' (%" PRId64
                    " in %d), or their units do; adjacent sides must have the same blocks",
                    who, qdri_blocks_width(desc->in), qdri_blocks_count(desc->in), edge->name,
                    qdri_blocks_width(edge->matrix.cols), qdri_blocks_count(edge->matrix.cols));
}

static qdr_status check_linear(const qdr_stack *stack, const qdr_linear_desc *desc, const char *who,
                               qdr_edge in)
{
    if (desc->version != QDR_OPTS_INIT)
        return QDR_FAIL(
            QDR_ERR_ARGUMENT,
            "%s: description of version %u, but this library knows %u; begin it with QDR_OPTS_INIT",
            who, desc->version, QDR_OPTS_INIT);
    if (desc->panels < 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s: panels %d may not be negative; 0 means as many as the stack's options "
                        "say, 1 means none",
                        who, desc->panels);
    if (desc->storage != QDR_STORAGE_AUTO && desc->storage != QDR_OUT_IN &&
        desc->storage != QDR_IN_OUT)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s: %d is no storage; use QDR_OUT_IN, QDR_IN_OUT or QDR_STORAGE_AUTO", who,
                        (int)desc->storage);
    QDR_TRY(check_layout(desc->out_layout, who));
    QDR_TRY(qdri_blocks_check(desc->in, who));
    QDR_TRY(qdri_blocks_check(desc->out, who));
    QDR_TRY(qdri_edge_check(stack, in, who));
    if (desc->out_row_unit < 0 || (desc->out_row_unit && stack->opts.row_unit % desc->out_row_unit))
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "%s: out_row_unit %" PRId64 " does not divide the stack's row_unit %" PRId64
                        "; use one that does, such as %" PRId64 ", or 0 for 1",
                        who, desc->out_row_unit, stack->opts.row_unit, stack->opts.row_unit);
    return check_input(stack, desc, who, in);
}

/* What the schedule needs to know of a layer on this rank. `in` may be an edge of tokens. */
static void set_shape(qdr_linear *layer, const char *name, const qdri_edge *in,
                      const qdri_edge *out)
{
    qdr_stack *stack = layer->stack;
    const qdri_parameter *w = &stack->parameters[layer->weight];
    qdri_layer_shape *shape = &layer->shape;
    shape->node = layer->node;
    shape->name = name;
    shape->in_axis = layer->transposed ? QDR_Y : QDR_X;
    shape->out_axis = qdri_other_axis(shape->in_axis);
    shape->m = stack->cell_rows;
    shape->in_rows = in->owned.n_rows;
    shape->out_rows = out->owned.n_rows;
    shape->in_scattered = in->dtype != QDR_I32 && qdri_edge_scattered(stack, in);
    shape->out_scattered = qdri_edge_scattered(stack, out);
    shape->in_unit = in->matrix.scatter_unit;
    shape->out_unit = out->matrix.scatter_unit;
    shape->k = w->n_cols;
    shape->n = out->owned.n_cols;
    shape->shard_elems = w->shard_elems;
    shape->first_row = out->owned.rows.begin;
    shape->dtype = stack->opts.dtype;
    shape->grad_dtype = stack->grad_dtype;
}

/* A node with an empty layer. */
static qdr_status add_layer_node(qdr_stack *stack, const char *name, qdri_node_kind kind,
                                 qdr_linear **layer)
{
    qdri_node *node = NULL;
    QDR_TRY(qdri_node_add(stack, name, kind, &node));
    const qdr_status status = QDRI_NEW(1, "a layer", &node->layer);
    if (status != QDR_OK) {
        qdri_node_drop(stack);
        return status;
    }
    *layer = node->layer;
    (*layer)->stack = stack;
    (*layer)->node = stack->n_nodes - 1;
    (*layer)->bias = -1;
    (*layer)->gathered = QDRI_NO_REF;
    return QDR_OK;
}

static void connect(qdr_stack *stack, qdr_linear *layer, qdr_edge in, qdr_edge out)
{
    qdri_node *node = &stack->nodes[layer->node];
    node->n_in = 1;
    node->in[0] = in;
    node->out = out;
    stack->edges[in].n_uses++;
    set_shape(layer, node->name, &stack->edges[in], &stack->edges[out]);
}

static qdr_status add_linear_parts(qdr_stack *stack, const qdr_linear_desc *desc, qdr_linear *layer,
                                   qdr_edge *out)
{
    const char *name = stack->nodes[layer->node].name;
    const qdr_axis in_axis = desc->transposed ? QDR_Y : QDR_X, out_axis = qdri_other_axis(in_axis);
    layer->transposed = desc->transposed != 0;
    layer->shape.drop_gathered = desc->drop_gathered != 0;
    layer->shape.bias = desc->bias != 0;
    const qdr_matrix matrix = qdri_edge_matrix(stack, desc->out, out_axis, desc->out_layout,
                                               desc->out_row_unit);
    QDR_TRY(qdri_parameter_add(stack,
                               &(qdri_parameter_desc){.owner = name,
                                                      .what = "weight",
                                                      .rows = desc->out,
                                                      .cols = desc->in,
                                                      .row_split = 1 + (int)out_axis,
                                                      .col_split = 1 + (int)in_axis,
                                                      .flat_over_z = 1},
                               &layer->weight));
    if (desc->bias)
        QDR_TRY(qdri_parameter_add(
            stack,
            &(qdri_parameter_desc){
                .owner = name, .what = "bias", .cols = desc->out, .col_split = 1 + (int)out_axis},
            &layer->bias));
    return qdri_edge_add(stack, name, &matrix, stack->opts.dtype, out);
}

/* Adds what `parts` adds, or nothing at all. */
static void roll_back(qdr_stack *stack, int n_parameters)
{
    qdri_node_drop(stack);
    while (stack->n_parameters > n_parameters) free(stack->parameters[--stack->n_parameters].name);
}

static qdr_status add_linear(qdr_stack *stack, const qdr_linear_desc *desc, qdr_edge in,
                             qdr_edge *out, qdr_linear **layer)
{
    const char *who = desc->name ? desc->name : "linear";
    const int n_parameters = stack->n_parameters;
    QDR_TRY(check_linear(stack, desc, who, in));
    QDR_TRY(add_layer_node(stack, who, QDRI_NODE_LINEAR, layer));
    const qdr_status status = add_linear_parts(stack, desc, *layer, out);
    if (status != QDR_OK) {
        roll_back(stack, n_parameters);
        *layer = NULL;
        return status;
    }
    connect(stack, *layer, in, *out);
    qdri_layer_set_panels(*layer, desc->panels);
    qdri_layer_set_storage(*layer, desc->storage,
                           desc->storage ? QDR_STORAGE_ASKED : QDR_STORAGE_FIXED);
    return QDR_OK;
}

qdr_status qdr_stack_add_linear(qdr_stack *stack, const qdr_linear_desc *desc, qdr_edge in,
                                qdr_edge *out, qdr_linear **layer)
{
    qdr_linear *added = NULL;
    if (layer) *layer = NULL;
    if (!desc || !out)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "linear: a description and a place for the edge are needed, not NULL");
    *out = -1;
    QDR_TRY(qdri_stack_open(stack, "linear"));
    QDR_TRY(add_linear(stack, desc, in, out, &added));
    if (layer) *layer = added;
    return QDR_OK;
}

static qdr_status check_embedding(const qdr_stack *stack, const qdr_embedding_desc *desc,
                                  const char *who, qdr_edge tokens)
{
    const qdr_block vocab[QDR_MAX_BLOCKS] = {desc->vocab},
                    features[QDR_MAX_BLOCKS] = {desc->features};
    QDR_TRY(check_layout(desc->layout, who));
    QDR_TRY(qdri_blocks_check(vocab, who));
    QDR_TRY(qdri_blocks_check(features, who));
    QDR_TRY(qdri_edge_check(stack, tokens, who));
    const qdri_edge *edge = &stack->edges[tokens];
    if (edge->dtype != QDR_I32 || edge->matrix.scatter_rows)
        return QDR_FAIL(QDR_ERR_DTYPE,
                        "%s: the input '%s' must hold the tokens of the whole cell; make it with "
                        "qdr_stack_add_tokens",
                        who, edge->name);
    if (desc->context < 0 || (desc->context && stack->opts.row_unit % desc->context))
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "%s: context %" PRId64 " does not divide the stack's row_unit %" PRId64,
                        who, desc->context, stack->opts.row_unit);
    return QDR_OK;
}

static qdr_status add_embedding_parts(qdr_stack *stack, const qdr_embedding_desc *desc,
                                      qdr_linear *layer, qdr_edge *out)
{
    const char *name = stack->nodes[layer->node].name;
    const qdr_block vocab[QDR_MAX_BLOCKS] = {desc->vocab},
                    features[QDR_MAX_BLOCKS] = {desc->features};
    const qdr_block positions[QDR_MAX_BLOCKS] = {{desc->context, 1}};
    const qdr_matrix matrix = qdri_edge_matrix(stack, features, QDR_X, desc->layout, 1);
    layer->transposed = 1;
    layer->shape.context = desc->context;
    QDR_TRY(qdri_parameter_add(stack,
                               &(qdri_parameter_desc){.owner = name,
                                                      .what = "weight",
                                                      .rows = vocab,
                                                      .cols = features,
                                                      .row_split = 1 + QDR_Y,
                                                      .col_split = 1 + QDR_X,
                                                      .flat_over_z = 1},
                               &layer->weight));
    const int extra_sum = matrix.scatter_rows ? 1 + QDR_Y : 0;
    if (desc->context)
        QDR_TRY(qdri_parameter_add(stack,
                                   &(qdri_parameter_desc){.owner = name,
                                                          .what = "positions",
                                                          .rows = positions,
                                                          .cols = features,
                                                          .col_split = 1 + QDR_X,
                                                          .extra_sum = extra_sum},
                                   &layer->bias));
    QDR_TRY(qdri_edge_add(stack, name, &matrix, stack->opts.dtype, out));
    const int64_t unit = desc->vocab.unit ? desc->vocab.unit : 1;
    qdri_split(desc->vocab.width, unit, stack->place.size[QDR_Y], stack->place.coordinate[QDR_Y],
               &layer->vocab_begin, &layer->vocab_end);
    return QDR_OK;
}

static qdr_status add_embedding(qdr_stack *stack, const qdr_embedding_desc *desc, qdr_edge tokens,
                                qdr_edge *out, qdr_linear **table)
{
    const char *who = desc->name ? desc->name : "embedding";
    const int n_parameters = stack->n_parameters;
    QDR_TRY(check_embedding(stack, desc, who, tokens));
    QDR_TRY(add_layer_node(stack, who, QDRI_NODE_EMBEDDING, table));
    const qdr_status status = add_embedding_parts(stack, desc, *table, out);
    if (status != QDR_OK) {
        roll_back(stack, n_parameters);
        *table = NULL;
        return status;
    }
    connect(stack, *table, tokens, *out);
    (*table)->shape.k = (*table)->vocab_end -
                        (*table)->vocab_begin; /* rows of E's block; its columns are the outputs */
    return QDR_OK;
}

qdr_status qdr_stack_add_embedding(qdr_stack *stack, const qdr_embedding_desc *desc,
                                   qdr_edge tokens, qdr_edge *out, qdr_linear **table)
{
    qdr_linear *added = NULL;
    if (table) *table = NULL;
    if (!desc || !out)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "embedding: a description and a place for the edge are needed, not NULL");
    *out = -1;
    QDR_TRY(qdri_stack_open(stack, "embedding"));
    QDR_TRY(add_embedding(stack, desc, tokens, out, &added));
    if (table) *table = added;
    return QDR_OK;
}

qdr_status qdr_stack_add_tied_head(qdr_stack *stack, const char *name, qdr_linear *table,
                                   qdr_layout out_layout, qdr_edge in, qdr_edge *out)
{
    const char *who = name ? name : "head";
    qdr_linear *head = NULL;
    if (!out) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the place for the edge is NULL", who);
    *out = -1;
    QDR_TRY(qdri_stack_open(stack, who));
    if (!table || table->stack != stack || stack->nodes[table->node].kind != QDRI_NODE_EMBEDDING ||
        table->shares_last)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s: a tied head needs an embedding of the same stack that is not tied yet",
                        who);
    const qdri_parameter *e = &stack->parameters[table->weight];
    qdr_linear_desc desc = {.version = QDR_OPTS_INIT, .name = who, .out_layout = out_layout};
    memcpy(desc.in, e->cols, sizeof desc.in);
    memcpy(desc.out, e->rows, sizeof desc.out);
    QDR_TRY(check_linear(stack, &desc, who, in));
    QDR_TRY(add_layer_node(stack, who, QDRI_NODE_LINEAR, &head));
    head->weight = table->weight;
    head->shares_first = 1;
    const qdr_matrix matrix = qdri_edge_matrix(stack, desc.out, QDR_Y, out_layout, 1);
    const qdr_status status = qdri_edge_add(stack, who, &matrix, stack->opts.dtype, out);
    if (status != QDR_OK) {
        qdri_node_drop(stack);
        return status;
    }
    table->shares_last = 1;
    connect(stack, head, in, *out);
    return QDR_OK;
}

qdr_status qdr_linear_in_matrix(const qdr_linear *layer, qdr_matrix *matrix)
{
    if (!layer || !matrix)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "linear: the layer or the place for the result is NULL");
    *matrix = layer->stack->edges[layer->stack->nodes[layer->node].in[0]].matrix;
    return QDR_OK;
}

qdr_status qdr_linear_out_matrix(const qdr_linear *layer, qdr_matrix *matrix)
{
    if (!layer || !matrix)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "linear: the layer or the place for the result is NULL");
    *matrix = layer->stack->edges[layer->stack->nodes[layer->node].out].matrix;
    return QDR_OK;
}

int qdr_linear_weight_index(const qdr_linear *layer) { return layer ? layer->weight : -1; }
