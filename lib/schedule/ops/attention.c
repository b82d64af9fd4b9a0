/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention of whole sequences, with the key heads that a rank's queries need. Saved: log-sum-exp of each row
 * and head. */
#include <math.h>
#include <string.h>

#include "core/block.h"
#include "core/operands.h"
#include "schedule/ops/key_heads.h"

static qdr_status check_scores(const char *who, const qdr_attention_desc *desc)
{
    if (!(desc->scale >= 0 && desc->scale < INFINITY && desc->cap >= 0 && desc->cap < INFINITY))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s: scale %g, cap %g; use numbers ≥ 0: 0 means 1/sqrt(head_size), and no cap", who,
                        desc->scale, desc->cap);
    if (desc->window < 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: window %" PRId64 "; use at least 1, or 0 for the whole context", who,
                        desc->window);
    return QDR_OK;
}

static qdr_status check_rotation(const char *who, const qdr_attention_desc *desc)
{
    const int64_t n = desc->rotary_columns;
    QDR_TRY(qdri_check_switch(who, "interleaved", desc->interleaved));
    if (n < 0 || n % 2 || n > desc->head_size || (n > 0 && !desc->frequencies))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s: %" PRId64 " rotary columns%s; use an even number up to the head size %" PRId64
                        ", with a frequency for each two",
                        who, n, desc->frequencies ? "" : ", but no frequencies", desc->head_size);
    for (int64_t i = 0; i < n / 2; i++)
        if (!isfinite(desc->frequencies[i]))
            return QDR_FAIL(QDR_ERR_ARGUMENT,
                            "%s: frequency %" PRId64 " of the rotary positions is %g; use a finite one", who, i,
                            desc->frequencies[i]);
    if (!(desc->magnitude >= 0 && desc->magnitude < INFINITY))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: magnitude %g; use a number ≥ 0, 0 means 1", who, desc->magnitude);
    return QDR_OK;
}

static qdr_status check_parameters(const char *who, const qdr_attention_desc *desc)
{
    QDR_TRY(qdri_check_switch(who, "head_norm", desc->head_norm));
    QDR_TRY(qdri_check_switch(who, "one_plus", desc->one_plus));
    QDR_TRY(qdri_check_switch(who, "sinks", desc->sinks));
    if (!(desc->epsilon >= 0 && desc->epsilon < INFINITY))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: epsilon %g; use a number ≥ 0, 0 means 1e-5", who, desc->epsilon);
    return QDR_OK;
}

static qdr_status check_first_keys(const qdri_net *net, const char *who, const qdr_attention_desc *desc)
{
    return desc->first_keys ? qdri_op_check_tokens(net, who, *desc->first_keys, "first keys") : QDR_OK;
}

static qdr_status check_heads(const qdri_net *net, const char *who, const qdr_attention_desc *desc,
                              const qdri_edge *edge)
{
    const int64_t head_size = desc->head_size, context = desc->context;
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

static int64_t window_of(const qdr_attention_desc *desc)
{
    return desc->window > 0 && desc->window < desc->context ? desc->window : desc->context;
}

static double scale_of(const qdr_attention_desc *desc)
{
    return desc->scale > 0 ? desc->scale : 1 / sqrt((double)desc->head_size);
}

static double epsilon_of(const qdr_attention_desc *desc) { return desc->epsilon > 0 ? desc->epsilon : 1e-5; }

/* All ranks have the gammas, whose gradients are sums over all heads; sinks are split like the queries. */
static qdr_status add_parameters(qdri_net *net, const qdr_attention_desc *desc, const qdri_edge *qkv, qdri_node *node)
{
    const qdr_matrix *matrix = &qkv->matrix;
    const int over_rows = matrix->scatter_rows ? 1 << matrix->scatter_axis : 0;
    const int64_t size = desc->head_size;
    const qdr_block columns[QDR_MAX_BLOCKS] = {{size, 1}};
    const qdr_block heads[QDR_MAX_BLOCKS] = {{matrix->cols[0].width / size, matrix->cols[0].unit / size}};
    qdri_parameter_desc gamma = {.what = "q_gamma",
                                 .cols = columns,
                                 .extra_sums = over_rows | 1 << matrix->col_axis,
                                 .initial = desc->one_plus ? 0 : 1};
    const qdri_parameter_desc sinks = {
        .what = "sinks", .cols = heads, .col_split = 1 + (int)matrix->col_axis, .extra_sums = over_rows};
    int other;
    node->n_parameters = 2 * desc->head_norm + desc->sinks;
    if (desc->head_norm) {
        QDR_TRY(qdri_parameter_add(net, &gamma, &node->parameter));
        gamma.what = "k_gamma";
        QDR_TRY(qdri_parameter_add(net, &gamma, &other));
    }
    return desc->sinks ? qdri_parameter_add(net, &sinks, desc->head_norm ? &other : &node->parameter) : QDR_OK;
}

static qdr_status add(qdri_net *net, const qdri_node_desc *desc, qdr_edge *out)
{
    const char *name = desc->name;
    const qdr_attention_desc *own = &desc->u.attention;
    const int64_t context = own->context;
    const qdr_edge in = desc->in[0];
    qdri_node *node = NULL;
    QDR_TRY(qdri_op_check_inputs(net, name, 1, &in));
    QDR_TRY(check_heads(net, name, own, &net->edges[in]));
    QDR_TRY(check_scores(name, own));
    QDR_TRY(check_rotation(name, own));
    QDR_TRY(check_parameters(name, own));
    QDR_TRY(check_first_keys(net, name, own));
    const qdri_edge *edge = &net->edges[in];
    const qdr_axis axis = edge->matrix.col_axis;
    qdri_kernel kernel = {.dtype = net->opts.dtype,
                          .u.attention = {.n_rows = edge->owned.n_rows,
                                          .context = context,
                                          .head_size = own->head_size,
                                          .window = window_of(own),
                                          .scale = scale_of(own),
                                          .cap = own->cap,
                                          .rotary_columns = own->rotary_columns,
                                          .interleaved = own->interleaved,
                                          .head_norm = own->head_norm,
                                          .one_plus = own->one_plus,
                                          .has_sinks = own->sinks,
                                          .epsilon = epsilon_of(own)}};
    qdri_key_heads keys;
    size_t saved_bytes, work_bytes;
    qdri_key_heads_plan(edge, net->position.size[axis], &kernel, &keys);
    QDR_TRY(qdri_key_heads_sizes(&kernel, &keys, &saved_bytes, &work_bytes));
    qdr_matrix matrix = edge->matrix;
    memset(&matrix.cols[1], 0, (QDR_MAX_BLOCKS - 1) * sizeof matrix.cols[0]);
    QDR_TRY(qdri_node_add_with_edge(net, name, QDRI_NODE_ATTENTION, &matrix, net->opts.dtype, out, &node));
    node->axis = axis;
    node->kernel = kernel;
    node->keys = keys;
    node->saved_bytes = saved_bytes;
    node->work_bytes = work_bytes;
    node->needs_all_rows = keys.gathered;
    node->overwrites_only = node->makes_scores = 1;
    QDR_TRY(add_parameters(net, own, &net->edges[in], node)); /* the edges may have moved */
    if (own->rotary_columns > 0) QDR_TRY(qdri_rotation_add(net, own, &node->rotation));
    qdri_node_connect(net, node, own->first_keys ? 2 : 1,
                      (const qdr_edge[]){in, own->first_keys ? *own->first_keys : 0}, *out);
    return QDR_OK;
}

static void describe(qdri_facts *facts, const char *who, const qdri_net *net, const qdri_node_desc *desc)
{
    (void)net;
    qdri_facts_add_int(facts, who, "head_size", desc->u.attention.head_size);
    qdri_facts_add_int(facts, who, "context", desc->u.attention.context);
    qdri_facts_add_real(facts, who, "scale", scale_of(&desc->u.attention));
    qdri_facts_add_real(facts, who, "cap", desc->u.attention.cap);
    qdri_facts_add_int(facts, who, "window", window_of(&desc->u.attention));
    qdri_facts_add_int(facts, who, "rotary_columns", desc->u.attention.rotary_columns);
    qdri_facts_add_int(facts, who, "interleaved", desc->u.attention.interleaved);
    for (int64_t i = 0; i < desc->u.attention.rotary_columns / 2; i++)
        qdri_facts_add_real(facts, who, "frequency", desc->u.attention.frequencies[i]);
    qdri_facts_add_real(facts, who, "magnitude", desc->u.attention.magnitude > 0 ? desc->u.attention.magnitude : 1);
    qdri_facts_add_int(facts, who, "head_norm", desc->u.attention.head_norm);
    qdri_facts_add_int(facts, who, "one_plus", desc->u.attention.one_plus);
    qdri_facts_add_real(facts, who, "epsilon", epsilon_of(&desc->u.attention));
    qdri_facts_add_int(facts, who, "sinks", desc->u.attention.sinks);
    qdri_facts_add_int(facts, who, "first_keys", desc->u.attention.first_keys ? *desc->u.attention.first_keys : -1);
}

/* ---- tasks ---- */

static int adds_to_any(const qdri_op_part *p)
{
    int adds = 0;
    for (int i = 0; i < p->node->n_parameters; i++) adds |= qdri_op_adds(p, i);
    return adds;
}

/* The kernel adds to the gradients of all parameters or of none: those that it should overwrite become zero first. */
static void clear_gradients(const qdri_op_part *p)
{
    for (int i = 0; i < p->node->n_parameters; i++) {
        const qdri_ref gradient = qdri_op_gradient(p, i);
        const qdri_kernel zero = {.kind = QDRI_K_ZERO, .u.block = {.row_bytes = gradient.bytes}};
        if (adds_to_any(p) && !qdri_op_adds(p, i))
            qdri_op_add_kernel(p, &zero, QDRI_NO_WORK, &(qdri_refs){0}, &(qdri_refs){1, {gradient}}, 0);
    }
}

/* Norms and rotations of heads, and caps of scores, of which there are n: what is turned is written, and read by the
 * kernel that follows. Backward turns and caps once more, and turns the gradients back. */
static qdri_task_work turn_work(const qdri_kernel *kernel, double n_scores, int backward)
{
    const double heads = (double)(kernel->u.attention.n_heads + kernel->u.attention.n_kv_heads);
    const double rows = (double)kernel->u.attention.n_rows, size = (double)kernel->u.attention.head_size;
    const double rotary = (double)kernel->u.attention.rotary_columns, has_norm = kernel->u.attention.head_norm;
    const double bytes = rows * heads * size * (double)qdr_dtype_bytes(kernel->dtype);
    const double table = (double)kernel->u.attention.context * rotary *
                         (double)qdr_dtype_bytes(qdri_sum_type(kernel->dtype));
    const double turning = 3 * rows * heads * rotary, norm = has_norm * rows * heads * size;
    const double capping = kernel->u.attention.cap > 0 ? (backward ? 10 : 8) * n_scores : 0;
    if (!qdri_attention_turns(kernel)) return (qdri_task_work){0, capping, 0, QDRI_COST_PLAIN};
    if (!backward) return (qdri_task_work){2 * bytes + table, turning + 5 * norm + capping, 2, QDRI_COST_PLAIN};
    return (qdri_task_work){(4 + has_norm) * bytes + 2 * table, 2 * turning + 15 * norm + capping, has_norm > 0 ? 6 : 4,
                            QDRI_COST_PLAIN};
}

/* A row sees its own position and, without a window, on average half of the others; the flops that are reported leave
 * half of its own out. */
static void attend(const qdri_op_part *p, int backward, const qdri_refs *reads, const qdri_refs *writes)
{
    qdri_kernel kernel = p->node->kernel;
    kernel.kind = backward ? QDRI_K_ATTENTION_BACKWARD : QDRI_K_ATTENTION_FORWARD;
    kernel.u.attention.n_rows = p->n_rows;
    const int64_t query_columns = kernel.u.attention.n_heads * kernel.u.attention.head_size;
    const double rows = (double)p->n_rows, times = backward ? 2.5 : 1;
    const double context = (double)kernel.u.attention.context, window = (double)kernel.u.attention.window;
    const double keys = window - window * (window - 1) / (2 * context); /* that a row sees, on average */
    const double row_bytes = (double)qdr_dtype_bytes(kernel.dtype) * (double)(qdri_op_columns(p) + query_columns);
    const double flops = 4 * rows * keys * (double)query_columns;
    qdri_task task = {.kind = QDRI_TASK_KERNEL,
                      .kernel = kernel,
                      .accumulate = backward && adds_to_any(p),
                      .n = query_columns,
                      .flops = times * 4 * rows * (keys - 0.5) * (double)query_columns};
    if (kernel.u.attention.n_heads > 0) {
        task.turns = turn_work(&kernel, rows * keys * (double)kernel.u.attention.n_heads, backward);
        task.work = backward ? (qdri_task_work){2 * rows * row_bytes, times * flops, 3, QDRI_COST_SCORES_BACKWARD}
                             : (qdri_task_work){rows * row_bytes, flops, 1, QDRI_COST_SCORES};
    }
    qdri_op_add(p, &task, reads, writes);
}

static qdri_ref work_of(const qdri_op_part *p)
{
    return qdri_slice(p->net->op_work, 0, qdri_attention_work_bytes(&p->node->kernel));
}

typedef struct parameters {
    qdri_ref q_gamma, k_gamma, sinks;
} parameters;

/* Those that the attention has. */
static parameters parameters_of(const qdri_op_part *p, qdri_ref (*of)(const qdri_op_part *p, int i))
{
    if (p->node->kernel.u.attention.head_norm) return (parameters){of(p, 0), of(p, 1), of(p, 2)};
    return (parameters){QDRI_NO_REF, QDRI_NO_REF, of(p, 0)};
}

/* Of the rows of this part: the edge has all of the cell's, q, k and v perhaps only some. */
static qdri_ref first_keys_of(const qdri_op_part *p)
{
    if (p->node->n_in < 2) return QDRI_NO_REF;
    const qdri_edge *keys = &p->net->edges[p->node->in[1]];
    const int64_t first = p->net->edges[p->node->in[0]].owned.rows.begin - keys->owned.rows.begin;
    return qdri_edge_rows(keys, keys->value, first + p->begin, first + p->end);
}

static qdri_ref rotation_of(const qdri_op_part *p)
{
    return p->node->rotation ? p->net->rotations[p->node->rotation - 1].table : QDRI_NO_REF;
}

static void attend_forward(const qdri_op_part *p, qdri_ref qkv, qdri_ref saved)
{
    const parameters own = parameters_of(p, qdri_op_parameter);
    attend(p, 0, &(qdri_refs){6, {qkv, rotation_of(p), own.q_gamma, own.k_gamma, own.sinks, first_keys_of(p)}},
           &(qdri_refs){3, {qdri_op_output(p), saved, work_of(p)}});
}

static void attend_backward(const qdri_op_part *p, qdri_ref qkv, qdri_ref saved, qdri_ref dqkv)
{
    const parameters own = parameters_of(p, qdri_op_parameter), d = parameters_of(p, qdri_op_gradient);
    const qdri_refs reads = {
        9,
        {p->dy, qkv, qdri_op_output(p), saved, rotation_of(p), own.q_gamma, own.k_gamma, own.sinks, first_keys_of(p)}};
    clear_gradients(p);
    attend(p, 1, &reads, &(qdri_refs){5, {dqkv, work_of(p), d.q_gamma, d.k_gamma, d.sinks}});
}

static void forward(const qdri_op_part *p)
{
    if (!p->node->keys.gathered) {
        attend_forward(p, qdri_op_input(p, 0), qdri_op_saved(p));
        return;
    }
    const qdri_gathered_heads g = qdri_gathered_heads_of(p);
    qdri_key_heads_gather(p, &g);
    attend_forward(p, g.assembled, g.saved);
}

static void backward(const qdri_op_part *p)
{
    if (!p->node->keys.gathered) {
        attend_backward(p, qdri_op_input(p, 0), qdri_op_saved(p), qdri_op_input_gradient(p, 0));
        return;
    }
    const qdri_gathered_heads g = qdri_gathered_heads_of(p);
    attend_backward(p, g.assembled, g.saved, g.d_assembled);
    qdri_key_heads_return(p, &g);
}

const qdri_op qdri_attention_op = {"attention",
                                   1,
                                   add,
                                   describe,
                                   forward,
                                   backward,
                                   QDRI_NEEDS_INPUT | QDRI_NEEDS_INPUT << 1 | QDRI_NEEDS_OUTPUT | QDRI_NEEDS_SAVED,
                                   NULL};
