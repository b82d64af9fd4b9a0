/* SPDX-License-Identifier: Apache-2.0 */
/* The caller's own operations. */
#include <stdio.h>
#include <string.h>

#include "linear/internal.h"

/* Calls the caller's function, and separates its error message, if it leaves one, from an earlier one. Any status but
 * QDR_OK fails the pass, because other ranks may be waiting for what this one would have done next. */
static qdr_status call(const qdr_stack *stack, const qdri_task *task, const qdr_op_call *what)
{
    const qdri_attached *attached = &stack->attached[task->node];
    const int backward = task->kind == QDRI_TASK_CALLER_BACKWARD;
    const int rank = qdr_context_rank(qdr_grid_context(stack->grid));
    const char *pass = backward ? "backward" : "forward";
    char before[QDRI_ERROR_BYTES], sentence[QDRI_ERROR_BYTES];
    snprintf(before, sizeof before, "%s", qdr_last_error());
    qdri_set_last_error("");
    const qdr_status returned = (backward ? attached->backward : attached->forward)(what, attached->user);
    snprintf(sentence, sizeof sentence, "%s", qdr_last_error());
    qdri_set_last_error(before);
    if (returned == QDR_OK) return QDR_OK;
    if (returned < QDR_OK && strcmp(qdr_status_name(returned), "QDR_UNKNOWN") != 0)
        return qdri_fail(returned, __FILE__, __LINE__, "operation '%.100s': its %s failed on rank %d with %s%s%.300s",
                         task->name, pass, rank, qdr_status_name(returned), *sentence ? ": " : "", sentence);
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "operation '%.100s': its %s returned %d (%s) on rank %d, which is neither QDR_OK nor an error; "
                    "enqueue the work and return QDR_OK%s%.200s",
                    task->name, pass, (int)returned, qdr_status_name(returned), rank, *sentence ? ": " : "", sentence);
}

qdr_status qdri_run_caller(const qdr_stack *stack, const qdri_task *task, qdr_stream *stream)
{
    const qdri_node *node = &stack->net.nodes[task->node];
    const int backward = task->kind == QDRI_TASK_CALLER_BACKWARD, n_in = node->n_in;
    const void *in[QDR_MAX_OP_INPUTS] = {0};
    void *d_in[QDR_MAX_OP_INPUTS] = {0};
    int64_t in_cols[QDR_MAX_OP_INPUTS] = {0};
    int accumulate[QDR_MAX_OP_INPUTS] = {0};
    for (int i = 0; i < n_in; i++) {
        in[i] = qdri_stack_pointer(stack, task->reads[backward + i]);
        in_cols[i] = stack->net.edges[node->in[i]].owned.n_cols;
        if (backward) d_in[i] = qdri_stack_pointer(stack, task->writes[i]);
        accumulate[i] = (task->accumulate >> i) & 1;
    }
    const qdri_ref *out = backward ? &task->reads[1 + n_in] : &task->writes[0]; /* and then the saved state */
    const qdr_owned *owned = &stack->net.edges[node->out].owned;
    const qdr_op_call what = {.ctx = qdr_grid_context(stack->grid),
                              .stream = stream,
                              .n_in = n_in,
                              .in = in,
                              .in_cols = in_cols,
                              .n_rows = owned->n_rows,
                              .out = qdri_stack_pointer(stack, out[0]),
                              .out_cols = owned->n_cols,
                              .saved = qdri_stack_pointer(stack, out[1]),
                              .d_out = backward ? qdri_stack_pointer(stack, task->reads[0]) : NULL,
                              .d_in = backward ? d_in : NULL,
                              .accumulate = accumulate};
    qdri_grid_set_label(stack->grid, task->name);
    const qdr_status status = call(stack, task, &what);
    qdri_grid_set_label(stack->grid, NULL);
    return status;
}
