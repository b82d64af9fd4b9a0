/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks that are fused with the preceding product. Which ones depends only on the list and the device, not on waits: a
 * list computes the same bits however much of it overlaps. */
#include "linear/internal.h"

/* Whether n_rows rows of n_cols columns at `ref` are exactly what the product writes. */
static int is_result(const qdri_task *product, qdri_ref ref, int64_t n_rows, int64_t n_cols)
{
    return ref.buffer == product->writes[0].buffer && ref.offset == product->writes[0].offset && n_rows == product->m &&
           n_cols == product->n;
}

static int runs_gelu(const qdri_task *task, qdri_kernel_kind kind)
{
    return qdri_task_runs(task, kind) && task->kernel.u.activation.function == QDR_GELU_TANH &&
           !task->kernel.u.activation.gated;
}

/* 1: the task is fused with the product, and *gemm includes it. */
static int take(const qdr_stack *stack, const qdri_task *product, const qdri_task *next, qdri_gemm *gemm)
{
    const qdri_ref from = next->reads[0], to = next->writes[0];
    const int reads_result = is_result(product, from, next->m, next->n);
    qdri_gemm with = *gemm;
    if (gemm->gelu || gemm->gelu_of) return 0;
    if (qdri_task_runs(next, QDRI_K_BIAS_ADD) && is_result(product, to, next->m, next->n)) {
        with.bias = qdri_stack_pointer(stack, from);
    } else if (runs_gelu(next, QDRI_K_ACTIVATION_FORWARD) && reads_result && to.buffer != product->reads[0].buffer &&
               to.buffer != product->reads[1].buffer) { /* overwrites nothing that the product reads */
        with.gelu = qdri_stack_pointer(stack, to);
    } else if (runs_gelu(next, QDRI_K_ACTIVATION_BACKWARD) && reads_result && to.buffer == from.buffer &&
               to.offset == from.offset) { /* in place: nothing else can see the product's result */
        with.gelu_of = qdri_stack_pointer(stack, next->reads[1]);
    } else {
        return 0;
    }
    if (with.gelu || with.gelu_of) with.algorithm = 0; /* other algorithms were timed without GELU */
    if (!qdri_dev_fuses(qdri_context_dev(qdr_grid_context(stack->grid)), &with)) return 0;
    *gemm = with;
    return 1;
}

int qdri_fuse(const qdr_stack *stack, const qdri_schedule *schedule, int number, qdri_gemm *gemm)
{
    const qdri_task *product = &schedule->tasks[number];
    int last = number;
    if (product->zero_tail) return last;
    while (last + 1 < schedule->n_tasks && schedule->tasks[last + 1].stream == product->stream &&
           take(stack, product, &schedule->tasks[last + 1], gemm))
        last++;
    return last;
}
