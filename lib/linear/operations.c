/* SPDX-License-Identifier: Apache-2.0 */
/* Adding operations to a stack: the library's own and the caller's. */
#include <stdlib.h>
#include <string.h>

#include "core/block.h"
#include "core/size.h"
#include "linear/internal.h"
#include "linear/operations.h"

/* Which edges an operation reads, and its output (NULL: none). */
static qdr_status add_node(qdr_stack *stack, const char *name, int n_in, const qdr_edge *in,
                           const qdr_matrix *out_matrix, qdr_edge *out, qdri_node **node)
{
    QDR_TRY(qdri_node_add(stack, name, QDRI_NODE_OP, node));
    (*node)->n_in = n_in;
    memcpy((*node)->in, in, (size_t)n_in * sizeof *in);
    if (!out_matrix) return QDR_OK;
    const qdr_status status = qdri_edge_add(stack, name, out_matrix, stack->opts.dtype, out);
    if (status != QDR_OK)
        qdri_node_drop(stack);
    else
        (*node)->out = *out;
    return status;
}

static void count_uses(qdr_stack *stack, const qdri_node *node)
{
    for (int i = 0; i < node->n_in; i++) stack->edges[node->in[i]].n_uses++;
}

/* The checks that all operations share; *out = -1 until there is one. */
static qdr_status begin(const qdr_stack *stack, const char *who, int n_in, const qdr_edge *in,
                        qdr_edge *out)
{
    if (!out) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the place for the edge is NULL", who);
    *out = -1;
    QDR_TRY(qdri_stack_open(stack, who));
    for (int i = 0; i < n_in; i++) {
        QDR_TRY(qdri_edge_check(stack, in[i], who));
        if (stack->edges[in[i]].dtype == QDR_I32)
            return QDR_FAIL(QDR_ERR_DTYPE, "%s: the input '%s' holds tokens, not features", who,
                            stack->edges[in[i]].name);
    }
    return QDR_OK;
}

static qdr_status add_norm_parameters(qdr_stack *stack, qdri_node *node, const qdri_edge *edge)
{
    const int extra_sum = edge->matrix.scatter_rows ? 1 + (int)edge->matrix.scatter_axis : 0;
    qdri_parameter_desc desc = {.owner = node->name,
                                .what = "gamma",
                                .cols = edge->matrix.cols,
                                .col_split = 1 + (int)edge->matrix.col_axis,
                                .extra_sum = extra_sum};
    int beta = 0;
    QDR_TRY(qdri_parameter_add(stack, &desc, &node->parameter));
    desc.what = "beta";
    node->n_parameters = 1;
    QDR_TRY(qdri_parameter_add(stack, &desc, &beta));
    node->n_parameters = 2;
    return QDR_OK;
}

qdr_status qdr_stack_add_layer_norm(qdr_stack *stack, const char *name, double epsilon, qdr_edge in,
                                    qdr_edge *out)
{
    const char *who = name ? name : "layer norm";
    qdri_node *node = NULL;
    QDR_TRY(begin(stack, who, 1, &in, out));
    if (!(epsilon >= 0))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: epsilon %g; use a number ≥ 0, 0 means 1e-5", who,
                        epsilon);
    const qdr_matrix matrix = stack->edges[in].matrix;
    QDR_TRY(add_node(stack, who, 1, &in, &matrix, out, &node));
    const qdri_edge *edge = &stack->edges[in];
    node->u.norm = (qdr_layer_norm){.version = QDR_OPTS_INIT,
                                    .n_rows = edge->owned.n_rows,
                                    .n_cols = edge->owned.n_cols,
                                    .n_features = qdri_blocks_width(edge->matrix.cols),
                                    .axis = edge->matrix.col_axis,
                                    .epsilon = epsilon,
                                    .dtype = stack->opts.dtype};
    node->forward = qdri_run_norm_forward;
    node->backward = qdri_run_norm_backward;
    const double elems = (double)qdri_edge_elems(edge), bytes = (double)qdri_edge_bytes(edge);
    node->cost = (qdr_op_cost){8 * elems, 14 * elems, 3 * bytes, 5 * bytes};
    qdr_status status = qdr_layer_norm_sizes(stack->grid, &node->u.norm, &node->saved_bytes,
                                             &node->work_bytes);
    if (status == QDR_OK) status = add_norm_parameters(stack, node, edge);
    if (status != QDR_OK)
        return status; /* the description is spoilt, as after any failed allocation */
    count_uses(stack, node);
    return QDR_OK;
}

static qdr_status check_attention(const qdr_stack *stack, const char *who, int64_t head_size,
                                  int64_t context, const qdri_edge *edge)
{
    const qdr_block *b = edge->matrix.cols;
    if (head_size < 1 || context < 1 || stack->opts.row_unit % context)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "%s: head size %" PRId64 ", context %" PRId64
                        ": both must be ≥ 1, and the stack's row_unit %" PRId64
                        " a multiple of the context",
                        who, head_size, context, stack->opts.row_unit);
    if (qdri_blocks_count(b) != 3 || b[0].unit < 1 || b[0].unit % head_size ||
        b[1].unit != head_size || b[2].unit != head_size)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "%s: the input '%s' must have three blocks: queries in a unit of whole "
                        "heads, keys and values in units of the head size %" PRId64,
                        who, edge->name, head_size);
    if (b[1].width != b[2].width || b[0].width % b[1].width)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "%s: %" PRId64 " query heads, %" PRId64 " key heads, %" PRId64
                        " value heads: keys and values must be equally many, and divide the "
                        "queries",
                        who, b[0].width / head_size, b[1].width / head_size,
                        b[2].width / head_size);
    if (qdri_edge_scattered(stack, edge) && edge->matrix.scatter_unit % context)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "%s: rows of '%s' are scattered in units of %" PRId64
                        "; set its out_row_unit to the context %" PRId64,
                        who, edge->name, edge->matrix.scatter_unit, context);
    return QDR_OK;
}

qdr_status qdr_stack_add_attention(qdr_stack *stack, const char *name, int64_t head_size,
                                   int64_t context, qdr_edge in, qdr_edge *out)
{
    const char *who = name ? name : "attention";
    qdri_node *node = NULL;
    QDR_TRY(begin(stack, who, 1, &in, out));
    QDR_TRY(check_attention(stack, who, head_size, context, &stack->edges[in]));
    qdr_matrix matrix = stack->edges[in].matrix;
    memset(&matrix.cols[1], 0, (QDR_MAX_BLOCKS - 1) * sizeof matrix.cols[0]);
    QDR_TRY(add_node(stack, who, 1, &in, &matrix, out, &node));
    const qdri_edge *edge = &stack->edges[in];
    qdr_attention *local = &node->u.attention.local;
    qdri_key_heads *keys = &node->u.attention.keys;
    *local = (qdr_attention){.version = QDR_OPTS_INIT,
                             .n_rows = edge->owned.n_rows,
                             .context = context,
                             .head_size = head_size,
                             .dtype = stack->opts.dtype};
    qdri_key_heads_plan(stack, edge, local, keys);
    node->forward = keys->gathered ? qdri_run_grouped_forward : qdri_run_attention_forward;
    node->backward = keys->gathered ? qdri_run_grouped_backward : qdri_run_attention_backward;
    node->needs_all_rows = keys->gathered;
    node->overwrites_only = 1;
    const double products = 2.0 * (double)edge->owned.n_rows * (double)context *
                            (double)(local->n_heads * head_size);
    const double bytes = (double)qdri_edge_bytes(edge);
    node->cost = (qdr_op_cost){products, 2.5 * products, 1.5 * bytes,
                               3 * bytes}; /* causal: half of the 2·2·T·T·hs */
    QDR_TRY(qdri_key_heads_sizes(local, keys, &node->saved_bytes, &node->work_bytes));
    count_uses(stack, node);
    return QDR_OK;
}

qdr_status qdr_stack_add_gelu(qdr_stack *stack, const char *name, qdr_edge in, qdr_edge *out)
{
    const char *who = name ? name : "gelu";
    qdri_node *node = NULL;
    QDR_TRY(begin(stack, who, 1, &in, out));
    const qdr_matrix matrix = stack->edges[in].matrix;
    QDR_TRY(add_node(stack, who, 1, &in, &matrix, out, &node));
    node->forward = qdri_run_gelu_forward;
    node->backward = qdri_run_gelu_backward;
    const double elems = (double)qdri_edge_elems(&stack->edges[in]),
                 bytes = (double)qdri_edge_bytes(&stack->edges[in]);
    node->cost = (qdr_op_cost){12 * elems, 20 * elems, 2 * bytes, 3 * bytes};
    count_uses(stack, node);
    return QDR_OK;
}

static int same_layout(const qdr_matrix *a, const qdr_matrix *b)
{
    return a->split_cols == b->split_cols && a->col_axis == b->col_axis &&
           a->scatter_rows == b->scatter_rows && a->scatter_unit == b->scatter_unit;
}

qdr_status qdr_stack_add_residual(qdr_stack *stack, const char *name, qdr_edge a, qdr_edge b,
                                  qdr_edge *out)
{
    const char *who = name ? name : "residual";
    const qdr_edge in[2] = {a, b};
    qdri_node *node = NULL;
    QDR_TRY(begin(stack, who, 2, in, out));
    const qdri_edge *first = &stack->edges[a], *second = &stack->edges[b];
    if (!qdri_blocks_equal(first->matrix.cols, second->matrix.cols) ||
        !same_layout(&first->matrix, &second->matrix))
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "%s: edges '%s' (%" PRId64 " features) and '%s' (%" PRId64
                        ") differ in blocks, axis or layout; both must be alike",
                        who, first->name, qdri_blocks_width(first->matrix.cols), second->name,
                        qdri_blocks_width(second->matrix.cols));
    const qdr_matrix matrix = first->matrix;
    QDR_TRY(add_node(stack, who, 2, in, &matrix, out, &node));
    node->forward = qdri_run_residual_forward;
    node->passes_gradient = 1;
    const double elems = (double)qdri_edge_elems(&stack->edges[a]),
                 bytes = (double)qdri_edge_bytes(&stack->edges[a]);
    node->cost = (qdr_op_cost){elems, 0, 3 * bytes, 0};
    count_uses(stack, node);
    return QDR_OK;
}

qdr_status qdr_stack_add_cross_entropy(qdr_stack *stack, const char *name, qdr_edge logits,
                                       qdr_edge *targets)
{
    const char *who = name ? name : "cross-entropy";
    qdri_node *node = NULL;
    QDR_TRY(begin(stack, who, 1, &logits, targets));
    if (qdri_blocks_count(stack->edges[logits].matrix.cols) != 1 || stack->edges[logits].n_uses)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "%s: '%s' must be one block of logits that nothing else reads", who,
                        stack->edges[logits].name);
    qdr_matrix matrix = stack->edges[logits].matrix;
    memset(matrix.cols, 0, sizeof matrix.cols);
    matrix.cols[0] = (qdr_block){1, 1};
    matrix.split_cols = 0;
    QDR_TRY(qdri_edge_add(stack, who, &matrix, QDR_I32, targets));
    const qdr_edge in[2] = {logits, *targets};
    QDR_TRY(add_node(stack, who, 2, in, NULL, NULL, &node));
    const qdri_edge *edge = &stack->edges[logits];
    node->u.cross_entropy = (qdr_cross_entropy){.version = QDR_OPTS_INIT,
                                                .n_rows = edge->owned.n_rows,
                                                .n_cols = edge->owned.n_cols,
                                                .vocab_begin = edge->owned.cols[0].begin,
                                                .axis = edge->matrix.col_axis,
                                                .dtype = stack->opts.dtype,
                                                .vocab = edge->matrix.cols[0].width};
    node->forward = qdri_run_cross_entropy_forward;
    node->backward = qdri_run_cross_entropy_backward;
    node->overwrites_only = 1;
    const double elems = (double)qdri_edge_elems(edge), bytes = (double)qdri_edge_bytes(edge);
    node->cost = (qdr_op_cost){5 * elems, 4 * elems, 2 * bytes, 2 * bytes};
    QDR_TRY(qdr_cross_entropy_sizes(stack->grid, &node->u.cross_entropy, &node->saved_bytes,
                                    &node->work_bytes));
    count_uses(stack, node);
    return QDR_OK;
}

static qdr_status check_op(const qdr_stack *stack, const qdr_op_desc *desc, const char *who)
{
    if (desc->n_in < 1 || desc->n_in > QDR_MAX_OP_INPUTS)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %d inputs; an operation reads 1 to %d edges", who,
                        desc->n_in, QDR_MAX_OP_INPUTS);
    if (!desc->forward || !desc->backward)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: forward and backward must both be given", who);
    for (int i = 0; i < desc->n_in; i++) {
        QDR_TRY(qdri_edge_check(stack, desc->in[i], who));
        if (!same_layout(&stack->edges[desc->in[0]].matrix, &stack->edges[desc->in[i]].matrix))
            return QDR_FAIL(QDR_ERR_SHAPE, "%s: inputs '%s' and '%s' differ in axis or layout", who,
                            stack->edges[desc->in[0]].name, stack->edges[desc->in[i]].name);
    }
    return QDR_OK;
}

qdr_status qdr_stack_add_op(qdr_stack *stack, const qdr_op_desc *desc, qdr_edge *out)
{
    qdri_node *node = NULL;
    if (!desc) return QDR_FAIL(QDR_ERR_ARGUMENT, "operation: the description is NULL");
    const char *who = desc->name ? desc->name : "operation";
    QDR_TRY(qdri_stack_open(stack, who));
    QDR_TRY(check_op(stack, desc, who));
    QDR_TRY(begin(stack, who, desc->n_in, desc->in, out));
    qdr_matrix matrix = stack->edges[desc->in[0]].matrix;
    if (qdri_blocks_count(desc->out)) {
        QDR_TRY(qdri_blocks_check(desc->out, who));
        memcpy(matrix.cols, desc->out, sizeof matrix.cols);
    }
    QDR_TRY(add_node(stack, who, desc->n_in, desc->in, &matrix, out, &node));
    node->u.user = *desc;
    node->forward = qdri_run_user_forward;
    node->backward = qdri_run_user_backward;
    node->needs_all_rows = 1;
    node->saved_bytes = desc->saved_bytes;
    node->cost = desc->cost;
    count_uses(stack, node);
    return QDR_OK;
}
