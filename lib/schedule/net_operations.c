/* SPDX-License-Identifier: Apache-2.0 */
/* Adding operations to a net: the library's own and the caller's. */
#include <string.h>

#include "core/block.h"
#include "schedule/net_parts.h"
#include "schedule/op_bytes.h"

/* Checks that the edges exist and contain features. */
static qdr_status check_inputs(const qdri_net *net, const char *who, int n_in, const qdr_edge *in)
{
    for (int i = 0; i < n_in; i++) {
        QDR_TRY(qdri_edge_check(net, in[i], who));
        if (net->edges[in[i]].dtype == QDR_I32)
            return QDR_FAIL(QDR_ERR_DTYPE, "%s: the input '%s' holds tokens, not features", who,
                            net->edges[in[i]].name);
    }
    return QDR_OK;
}

static qdr_status add_norm(qdri_net *net, const char *who, int has_beta, double epsilon, qdr_edge in, qdr_edge *out)
{
    qdri_node *node = NULL;
    QDR_TRY(check_inputs(net, who, 1, &in));
    if (!(epsilon >= 0))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: epsilon %g; use a number ≥ 0, 0 means 1e-5", who, epsilon);
    const qdr_matrix matrix = net->edges[in].matrix;
    QDR_TRY(qdri_node_add_with_edge(net, who, QDRI_NODE_NORM, &matrix, net->opts.dtype, out, &node));
    const qdri_edge *edge = &net->edges[in];
    node->u.norm = (qdr_layer_norm){.version = QDR_OPTS_INIT,
                                    .n_rows = edge->owned.n_rows,
                                    .n_cols = edge->owned.n_cols,
                                    .n_features = qdri_blocks_width(edge->matrix.cols),
                                    .axis = edge->matrix.col_axis,
                                    .epsilon = epsilon,
                                    .dtype = net->opts.dtype};
    QDR_TRY(qdri_norm_bytes(&node->u.norm, net->position.size[edge->matrix.col_axis], &node->saved_bytes,
                            &node->work_bytes));
    qdri_parameter_desc desc = {.what = "gamma",
                                .cols = edge->matrix.cols,
                                .col_split = 1 + (int)edge->matrix.col_axis,
                                .extra_sum = edge->matrix.scatter_rows ? 1 + (int)edge->matrix.scatter_axis : 0};
    int beta = 0;
    QDR_TRY(qdri_parameter_add(net, &desc, &node->parameter));
    desc.what = "beta";
    node->n_parameters = 1;
    if (has_beta) QDR_TRY(qdri_parameter_add(net, &desc, &beta));
    node->n_parameters += has_beta;
    qdri_node_connect(net, node, 1, &in, *out);
    return QDR_OK;
}

qdr_status qdri_net_add_layer_norm(qdri_net *net, const char *name, double epsilon, qdr_edge in, qdr_edge *out)
{
    const qdri_net before = *net;
    return qdri_net_keep(net, &before, add_norm(net, name, 1, epsilon, in, out));
}

qdr_status qdri_net_add_rms_norm(qdri_net *net, const char *name, double epsilon, qdr_edge in, qdr_edge *out)
{
    const qdri_net before = *net;
    return qdri_net_keep(net, &before, add_norm(net, name, 0, epsilon, in, out));
}

static qdr_status check_attention(const qdri_net *net, const char *who, int64_t head_size, int64_t context,
                                  const qdri_edge *edge)
{
    const qdr_block *b = edge->matrix.cols;
    if (head_size < 1 || context < 1 || net->opts.row_unit % context)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "%s: head size %" PRId64 ", context %" PRId64
                        ": both must be ≥ 1, and the stack's row_unit %" PRId64 " a multiple of the context",
                        who, head_size, context, net->opts.row_unit);
    if (qdri_blocks_count(b) != 3 || b[0].unit < 1 || b[0].unit % head_size || b[1].unit != head_size ||
        b[2].unit != head_size)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "%s: the input '%s' must have three blocks: queries in a unit of whole "
                        "heads, keys and values in units of the head size %" PRId64,
                        who, edge->name, head_size);
    if (b[1].width != b[2].width || b[0].width % b[1].width)
        return QDR_FAIL(
            QDR_ERR_SHAPE,
            "%s: %" PRId64 " query heads, %" PRId64 " key heads, %" PRId64
            " value heads: there must be as many keys as values, and their number must divide that of the queries",
            who, b[0].width / head_size, b[1].width / head_size, b[2].width / head_size);
    if (qdri_edge_scattered(net, edge) && edge->matrix.scatter_unit % context)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "%s: rows of '%s' are scattered in units of %" PRId64
                        "; set its out_row_unit to the context %" PRId64,
                        who, edge->name, edge->matrix.scatter_unit, context);
    return QDR_OK;
}

qdr_status qdri_net_add_attention(qdri_net *net, const char *name, int64_t head_size, int64_t context, qdr_edge in,
                                  qdr_edge *out)
{
    qdri_node *node = NULL;
    QDR_TRY(check_inputs(net, name, 1, &in));
    QDR_TRY(check_attention(net, name, head_size, context, &net->edges[in]));
    const qdri_edge *edge = &net->edges[in];
    const qdr_axis axis = edge->matrix.col_axis;
    qdr_attention local = {.version = QDR_OPTS_INIT,
                           .n_rows = edge->owned.n_rows,
                           .context = context,
                           .head_size = head_size,
                           .dtype = net->opts.dtype};
    qdri_key_heads keys;
    size_t saved_bytes, work_bytes;
    qdri_key_heads_plan(edge->matrix.cols, &edge->owned, axis, net->position.size[axis], &local, &keys);
    QDR_TRY(qdri_key_heads_sizes(&local, &keys, &saved_bytes, &work_bytes));
    qdr_matrix matrix = edge->matrix;
    memset(&matrix.cols[1], 0, (QDR_MAX_BLOCKS - 1) * sizeof matrix.cols[0]);
    QDR_TRY(qdri_node_add_with_edge(net, name, QDRI_NODE_ATTENTION, &matrix, net->opts.dtype, out, &node));
    node->u.attention.local = local;
    node->u.attention.keys = keys;
    node->saved_bytes = saved_bytes;
    node->work_bytes = work_bytes;
    node->needs_all_rows = keys.gathered;
    node->overwrites_only = node->makes_scores = 1;
    qdri_node_connect(net, node, 1, &in, *out);
    return QDR_OK;
}

qdr_status qdri_net_add_gelu(qdri_net *net, const char *name, qdr_edge in, qdr_edge *out)
{
    qdri_node *node = NULL;
    QDR_TRY(check_inputs(net, name, 1, &in));
    const qdr_matrix matrix = net->edges[in].matrix;
    QDR_TRY(qdri_node_add_with_edge(net, name, QDRI_NODE_GELU, &matrix, net->opts.dtype, out, &node));
    node->in_place = 1;
    qdri_node_connect(net, node, 1, &in, *out);
    return QDR_OK;
}

static int same_layout(const qdr_matrix *a, const qdr_matrix *b)
{
    return a->split_cols == b->split_cols && a->col_axis == b->col_axis && a->scatter_rows == b->scatter_rows &&
           a->scatter_unit == b->scatter_unit;
}

qdr_status qdri_net_add_residual(qdri_net *net, const char *name, qdr_edge a, qdr_edge b, qdr_edge *out)
{
    qdri_node *node = NULL;
    const qdr_edge in[2] = {a, b};
    QDR_TRY(check_inputs(net, name, 2, in));
    const qdri_edge *first = &net->edges[in[0]], *second = &net->edges[in[1]];
    if (!qdri_blocks_equal(first->matrix.cols, second->matrix.cols) || !same_layout(&first->matrix, &second->matrix))
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "%s: edges '%s' (%" PRId64 " features) and '%s' (%" PRId64
                        ") differ in blocks, axis or layout; both must be alike",
                        name, first->name, qdri_blocks_width(first->matrix.cols), second->name,
                        qdri_blocks_width(second->matrix.cols));
    const qdr_matrix matrix = first->matrix;
    QDR_TRY(qdri_node_add_with_edge(net, name, QDRI_NODE_RESIDUAL, &matrix, net->opts.dtype, out, &node));
    node->passes_gradient = 1;
    qdri_node_connect(net, node, 2, in, *out);
    return QDR_OK;
}

qdr_status qdri_net_add_cross_entropy(qdri_net *net, const char *name, qdr_edge logits, qdr_edge *targets)
{
    qdri_node *node = NULL;
    QDR_TRY(check_inputs(net, name, 1, &logits));
    if (qdri_blocks_count(net->edges[logits].matrix.cols) != 1 || net->edges[logits].n_uses)
        return QDR_FAIL(QDR_ERR_SHAPE, "%s: '%s' must be one block of logits that nothing else reads", name,
                        net->edges[logits].name);
    const qdri_edge *edge = &net->edges[logits];
    const qdr_cross_entropy loss = {.version = QDR_OPTS_INIT,
                                    .n_rows = edge->owned.n_rows,
                                    .n_cols = edge->owned.n_cols,
                                    .vocab_begin = edge->owned.cols[0].begin,
                                    .axis = edge->matrix.col_axis,
                                    .dtype = net->opts.dtype,
                                    .vocab = edge->matrix.cols[0].width};
    size_t saved_bytes, work_bytes;
    QDR_TRY(qdri_cross_entropy_bytes(&loss, &saved_bytes, &work_bytes));
    qdr_matrix matrix = edge->matrix;
    memset(matrix.cols, 0, sizeof matrix.cols);
    matrix.cols[0] = (qdr_block){1, 1};
    matrix.split_cols = 0;
    QDR_TRY(qdri_node_add_with_edge(net, name, QDRI_NODE_CROSS_ENTROPY, &matrix, QDR_I32, targets, &node));
    node->u.cross_entropy = loss;
    node->saved_bytes = saved_bytes;
    node->work_bytes = work_bytes;
    node->overwrites_only = 1;
    qdri_node_connect(net, node, 2, (const qdr_edge[]){logits, *targets}, -1);
    return QDR_OK;
}

qdr_status qdri_net_add_op(qdri_net *net, const qdr_op_desc *desc, qdr_edge *out)
{
    const char *who = desc->name;
    qdri_node *node = NULL;
    if (desc->n_in < 1 || desc->n_in > QDR_MAX_OP_INPUTS)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %d inputs; an operation reads 1 to %d edges", who, desc->n_in,
                        QDR_MAX_OP_INPUTS);
    for (int i = 0; i < desc->n_in; i++) {
        QDR_TRY(qdri_edge_check(net, desc->in[i], who));
        if (!same_layout(&net->edges[desc->in[0]].matrix, &net->edges[desc->in[i]].matrix))
            return QDR_FAIL(QDR_ERR_SHAPE, "%s: inputs '%s' and '%s' differ in axis or layout", who,
                            net->edges[desc->in[0]].name, net->edges[desc->in[i]].name);
    }
    QDR_TRY(check_inputs(net, who, desc->n_in, desc->in));
    qdr_matrix matrix = net->edges[desc->in[0]].matrix;
    if (qdri_blocks_count(desc->out)) {
        QDR_TRY(qdri_blocks_check(desc->out, who));
        memcpy(matrix.cols, desc->out, sizeof matrix.cols);
    }
    QDR_TRY(qdri_node_add_with_edge(net, who, QDRI_NODE_USER, &matrix, net->opts.dtype, out, &node));
    node->needs_all_rows = 1;
    node->saved_bytes = desc->saved_bytes;
    node->cost = desc->cost;
    qdri_node_connect(net, node, desc->n_in, desc->in, *out);
    return QDR_OK;
}
