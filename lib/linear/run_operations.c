/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of a stack on the memory of their edges. */
#include <stdio.h>
#include <string.h>

#include "linear/operations.h"

/* The address of the task's rows in an edge's value. */
static void *value(const qdri_op_run *run, int number)
{
    const qdri_edge *edge = &run->stack->net.edges[number];
    const int64_t begin = run->task->k;
    return qdri_stack_pointer(run->stack, qdri_edge_rows(edge, edge->value, begin, begin + run->task->m));
}
static void *input(const qdri_op_run *run, int i) { return value(run, run->node->in[i]); }
static void *output(const qdri_op_run *run) { return value(run, run->node->out); }
static void *saved(const qdri_op_run *run)
{
    const int64_t begin = run->task->k;
    return qdri_stack_pointer(run->stack, qdri_saved_rows(&run->stack->net, run->node, begin, begin + run->task->m));
}
static void *work(const qdri_op_run *run) { return qdri_stack_pointer(run->stack, run->stack->net.op_work); }
static const void *d_output(const qdri_op_run *run) { return qdri_stack_pointer(run->stack, run->task->reads[0]); }
static void *d_input(const qdri_op_run *run, int i) { return qdri_stack_pointer(run->stack, run->task->writes[i]); }
static void *parameter(const qdri_op_run *run, int i)
{
    return qdri_stack_pointer(run->stack, run->stack->net.parameters[run->node->parameter + i].data);
}
static void *gradient(const qdri_op_run *run, int i)
{
    return qdri_stack_pointer(run->stack, run->stack->net.parameters[run->node->parameter + i].gradient);
}
static qdr_context *context(const qdri_op_run *run) { return qdr_grid_context(run->stack->grid); }
static int64_t elems(const qdri_op_run *run)
{
    return run->task->m * run->stack->net.edges[run->node->in[0]].owned.n_cols;
}
static qdr_layer_norm norm_of(const qdri_op_run *run)
{
    qdr_layer_norm norm = run->node->u.norm;
    norm.n_rows = run->task->m;
    return norm;
}
static qdr_attention attention_of(const qdri_op_run *run)
{
    qdr_attention attention = run->node->u.attention.local;
    attention.n_rows = run->task->m;
    return attention;
}
static qdr_cross_entropy cross_entropy_of(const qdri_op_run *run)
{
    qdr_cross_entropy ce = run->node->u.cross_entropy;
    ce.n_rows = run->task->m;
    return ce;
}

static qdr_status norm_forward(const qdri_op_run *run)
{
    const qdr_layer_norm norm = norm_of(run);
    return qdr_layer_norm_forward(run->stack->grid, &norm, input(run, 0), parameter(run, 0), parameter(run, 1),
                                  output(run), saved(run), work(run), run->stream);
}

static qdr_status norm_backward(const qdri_op_run *run)
{
    const int accumulate_parameters = (run->task->accumulate >> QDR_MAX_OP_INPUTS) & 1;
    const qdr_layer_norm norm = norm_of(run);
    return qdr_layer_norm_backward(run->stack->grid, &norm, input(run, 0), parameter(run, 0), d_output(run), saved(run),
                                   d_input(run, 0), run->task->accumulate & 1, gradient(run, 0), gradient(run, 1),
                                   accumulate_parameters, work(run), run->stream);
}

static qdr_status attention_forward(const qdri_op_run *run)
{
    const qdr_attention attention = attention_of(run);
    if (run->node->u.attention.keys.gathered) return qdri_run_gqa_forward(run);
    return qdr_attention_forward(context(run), &attention, input(run, 0), output(run), saved(run), work(run),
                                 run->stream);
}

static qdr_status attention_backward(const qdri_op_run *run)
{
    const qdr_attention attention = attention_of(run);
    if (run->node->u.attention.keys.gathered) return qdri_run_gqa_backward(run);
    return qdr_attention_backward(context(run), &attention, input(run, 0), output(run), saved(run), d_output(run),
                                  d_input(run, 0), work(run), run->stream);
}

static qdr_status gelu_forward(const qdri_op_run *run)
{
    return qdr_gelu_forward(context(run), elems(run), run->stack->net.opts.dtype, input(run, 0), output(run),
                            run->stream);
}

static qdr_status gelu_backward(const qdri_op_run *run)
{
    return qdr_gelu_backward(context(run), elems(run), run->stack->net.opts.dtype, input(run, 0), d_output(run),
                             d_input(run, 0), run->task->accumulate & 1, run->stream);
}

static qdr_status residual_forward(const qdri_op_run *run)
{
    return qdr_add(context(run), elems(run), run->stack->net.opts.dtype, input(run, 0), input(run, 1), output(run),
                   run->stream);
}

static qdr_status cross_entropy_forward(const qdri_op_run *run)
{
    const qdr_cross_entropy ce = cross_entropy_of(run);
    double *result = qdri_stack_pointer(run->stack, run->task->writes[0]);
    return qdr_cross_entropy_forward(run->stack->grid, &ce, input(run, 0), input(run, 1), result, saved(run), work(run),
                                     run->stream);
}

static qdr_status cross_entropy_backward(const qdri_op_run *run)
{
    const qdr_cross_entropy ce = cross_entropy_of(run);
    return qdr_cross_entropy_backward(run->stack->grid, &ce, input(run, 0), input(run, 1), saved(run),
                                      run->stack->loss_scale, d_input(run, 0), run->stream);
}

static const qdri_attached *attached(const qdri_op_run *run) { return &run->stack->attached[run->task->node]; }

/* Evaluates what a caller's function returned. Any status but QDR_OK fails the pass, because other ranks may be waiting
 * for what this one would have done next. `sentence` is the function's own message, "" if it left none. */
static qdr_status judge(const qdri_op_run *run, const char *pass, qdr_status returned, const char *sentence)
{
    const int rank = qdr_context_rank(context(run));
    const int is_error = returned < QDR_OK && strcmp(qdr_status_name(returned), "QDR_UNKNOWN") != 0;
    if (returned == QDR_OK) return QDR_OK;
    if (is_error)
        return qdri_fail(returned, __FILE__, __LINE__, "operation '%.100s': its %s failed on rank %d with %s%s%.300s",
                         run->node->name, pass, rank, qdr_status_name(returned), *sentence ? ": " : "", sentence);
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "operation '%.100s': its %s returned %d (%s) on rank %d, which is neither QDR_OK nor an error; "
                    "enqueue the work and return QDR_OK%s%.200s",
                    run->node->name, pass, (int)returned, qdr_status_name(returned), rank, *sentence ? ": " : "",
                    sentence);
}

/* Calls the caller's function, and separates its error message from an earlier one. */
static qdr_status call_user(const qdri_op_run *run, const char *pass, qdr_op_fn fn, const qdr_op_call *call)
{
    char before[QDRI_ERROR_BYTES], sentence[QDRI_ERROR_BYTES];
    snprintf(before, sizeof before, "%s", qdr_last_error());
    qdri_set_last_error("");
    const qdr_status returned = fn(call, attached(run)->user);
    snprintf(sentence, sizeof sentence, "%s", qdr_last_error());
    qdri_set_last_error(before);
    return judge(run, pass, returned, sentence);
}

/* Passes its blocks to the caller's function; `backward`: with gradients. */
static qdr_status run_user(const qdri_op_run *run, qdr_op_fn fn, int backward)
{
    const qdri_node *node = run->node;
    const void *in[QDR_MAX_OP_INPUTS] = {0};
    void *d_in[QDR_MAX_OP_INPUTS] = {0};
    int64_t in_cols[QDR_MAX_OP_INPUTS] = {0};
    int accumulate[QDR_MAX_OP_INPUTS] = {0};
    for (int i = 0; i < node->n_in; i++) {
        in[i] = input(run, i);
        in_cols[i] = run->stack->net.edges[node->in[i]].owned.n_cols;
        if (backward) d_in[i] = d_input(run, i);
        accumulate[i] = (run->task->accumulate >> i) & 1;
    }
    const qdr_owned *owned = &run->stack->net.edges[node->out].owned;
    const qdr_op_call call = {.ctx = context(run),
                              .stream = run->stream,
                              .n_in = node->n_in,
                              .in = in,
                              .in_cols = in_cols,
                              .n_rows = owned->n_rows,
                              .out = output(run),
                              .out_cols = owned->n_cols,
                              .saved = saved(run),
                              .d_out = backward ? d_output(run) : NULL,
                              .d_in = backward ? d_in : NULL,
                              .accumulate = accumulate};
    return call_user(run, backward ? "backward" : "forward", fn, &call);
}

static qdr_status user_forward(const qdri_op_run *run) { return run_user(run, attached(run)->forward, 0); }

static qdr_status user_backward(const qdri_op_run *run) { return run_user(run, attached(run)->backward, 1); }

static const struct {
    qdr_status (*forward)(const qdri_op_run *run);
    qdr_status (*backward)(const qdri_op_run *run); /* none: the schedule passes gradients on */
} runs[QDRI_N_NODE_KINDS] = {
    [QDRI_NODE_NORM] = {norm_forward, norm_backward},
    [QDRI_NODE_ATTENTION] = {attention_forward, attention_backward},
    [QDRI_NODE_GELU] = {gelu_forward, gelu_backward},
    [QDRI_NODE_RESIDUAL] = {residual_forward, NULL},
    [QDRI_NODE_CROSS_ENTROPY] = {cross_entropy_forward, cross_entropy_backward},
    [QDRI_NODE_USER] = {user_forward, user_backward},
};

qdr_status qdri_run_op(const qdri_op_run *run)
{
    return run->task->kind == QDRI_TASK_FORWARD ? runs[run->node->kind].forward(run)
                                                : runs[run->node->kind].backward(run);
}
