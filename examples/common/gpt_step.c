/* SPDX-License-Identifier: Apache-2.0 */
#include "gpt_step.h"

#include "program.h"

static qdr_status enqueue(const gpt_step *step, int adds, int is_last)
{
    qdr_stack *stack = step->model->stack;
    const int flags = (adds ? QDR_ACCUMULATE : 0) | (is_last ? 0 : QDR_DEFER_SYNC);
    TRY(qdr_stack_forward(stack));
    if (is_last) return qdr_adamw_backward(step->optimizer, flags, step->loss_scale);
    return qdr_stack_backward(stack, flags, step->loss_scale);
}

static qdr_status record(const gpt_step *step, int adds, int is_last, qdr_graph **graph)
{
    qdr_context *ctx = qdr_grid_context(step->model->grid);
    TRY(qdr_graph_begin(ctx));
    const qdr_status status = enqueue(step, adds, is_last);
    const qdr_status ended = qdr_graph_end(ctx, graph);
    return status < 0 ? status : ended;
}

qdr_status gpt_step_run(gpt_step *step, int adds, int is_last)
{
    qdr_graph **graph = &step->graphs[adds][is_last];
    if (!step->is_recorded || !step->has_run[adds][is_last]++) return enqueue(step, adds, is_last);
    if (!*graph) TRY(qdr_agree(qdr_grid_context(step->model->grid), record(step, adds, is_last, graph)));
    return qdr_graph_launch(*graph, NULL);
}

void gpt_step_destroy(gpt_step *step)
{
    for (int i = 0; i < 4; i++) {
        qdr_graph_destroy(&step->graphs[i / 2][i % 2]);
        step->has_run[i / 2][i % 2] = 0;
    }
}
