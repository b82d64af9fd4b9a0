/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of tasks: operands come from the task, numbers that describe the operation from its node. */
#include "core/block.h"
#include "linear/internal.h"
#include "ops/steps.h"

typedef struct step {
    const qdr_stack *stack;
    const qdri_task *task;
    const qdri_node *node;
    qdr_stream *stream;
    union { /* of the node, restricted to the task's rows */
        qdr_layer_norm norm;
        qdr_attention attention;
        qdr_cross_entropy loss;
    } u;
} step;

static void *reads(const step *s, int i) { return qdri_stack_pointer(s->stack, s->task->reads[i]); }
static void *writes(const step *s, int i) { return qdri_stack_pointer(s->stack, s->task->writes[i]); }
static int64_t elems(const step *s) { return s->task->m * s->task->n; }
static qdr_status run(const step *s, qdri_kernel kernel) { return qdri_kernel_run(s->stream, &kernel); }

/* ---- rows and columns ---- */

static qdr_status run_rows(const step *s, qdri_kernel_kind kind, const void *x, void *y, void *p)
{
    const qdri_task *task = s->task;
    qdri_kernel kernel = {.kind = kind, .dtype = task->dtype};
    kernel.u.rows.n_rows = task->m;
    kernel.u.rows.n_cols = task->n;
    kernel.u.rows.row0 = task->k;
    kernel.u.rows.context = task->context;
    kernel.u.rows.x = x;
    kernel.u.rows.y = y;
    kernel.u.rows.p = p;
    kernel.u.rows.accumulate = task->accumulate;
    return run(s, kernel);
}

static qdr_status bias_add(step *s) { return run_rows(s, QDRI_K_BIAS_ADD, NULL, writes(s, 0), reads(s, 0)); }
static qdr_status column_sum(step *s) { return run_rows(s, QDRI_K_COLUMN_SUM, reads(s, 0), NULL, writes(s, 0)); }
static qdr_status position_add(step *s) { return run_rows(s, QDRI_K_POSITION_ADD, NULL, writes(s, 0), reads(s, 0)); }
static qdr_status position_sum(step *s) { return run_rows(s, QDRI_K_POSITION_SUM, reads(s, 0), NULL, writes(s, 0)); }

static qdr_status add(step *s)
{
    const qdri_task *task = s->task;
    const size_t bytes = (size_t)elems(s) * qdr_dtype_bytes(task->dtype);
    if (!task->accumulate) return qdri_copy(s->stream, writes(s, 0), reads(s, 0), bytes);
    return run(s, qdri_sum_of_two(elems(s), task->dtype, writes(s, 0), reads(s, 0), writes(s, 0)));
}

static qdr_status zero(step *s)
{
    for (int i = 0; i < s->task->n_writes; i++)
        QDR_TRY(qdri_fill_zero(s->stream, writes(s, i), s->task->writes[i].bytes));
    return QDR_OK;
}

static qdr_status sum_parts(step *s)
{
    qdri_kernel kernel = {.kind = QDRI_K_SUM_PARTS, .dtype = s->task->dtype};
    kernel.u.parts.n = elems(s);
    kernel.u.parts.n_parts = (int)s->task->k;
    kernel.u.parts.x = reads(s, 0);
    kernel.u.parts.y = writes(s, 0);
    return run(s, kernel);
}

static qdri_kernel embedding(const step *s, qdri_kernel_kind kind)
{
    const qdri_layer *table = &s->node->u.layer;
    qdri_kernel kernel = {.kind = kind, .dtype = s->task->dtype};
    kernel.u.embed.n_rows = s->task->m;
    kernel.u.embed.n_cols = s->task->n;
    kernel.u.embed.begin = table->vocab_begin;
    kernel.u.embed.end = table->vocab_end;
    kernel.u.embed.vocab = qdri_blocks_width(s->stack->net.parameters[table->weight].rows);
    kernel.u.embed.tokens = reads(s, 0);
    kernel.u.embed.accumulate = s->task->accumulate;
    return kernel;
}

static qdr_status embed(step *s)
{
    qdri_kernel kernel = embedding(s, QDRI_K_EMBED_FORWARD);
    kernel.u.embed.e = reads(s, 1);
    kernel.u.embed.y = writes(s, 0);
    return run(s, kernel);
}

static qdr_status embed_sum(step *s)
{
    qdri_kernel kernel = embedding(s, QDRI_K_EMBED_BACKWARD);
    kernel.u.embed.dy = reads(s, 1);
    kernel.u.embed.de = writes(s, 0);
    QDR_TRY(run(s, kernel));
    return qdri_zero_tail(s->stack, s->task, s->task->k * s->task->n, s->stream);
}

/* ---- operations ---- */

static qdr_status residual(step *s)
{
    return run(s, qdri_sum_of_two(elems(s), s->task->dtype, reads(s, 0), reads(s, 1), writes(s, 0)));
}

static qdr_status gelu(step *s)
{
    return run(s, qdri_gelu_forward(elems(s), s->task->dtype, reads(s, 0), writes(s, 0)));
}

static qdr_status gelu_backward(step *s)
{
    return run(
        s, qdri_gelu_backward(elems(s), s->task->dtype, reads(s, 0), reads(s, 1), writes(s, 0), s->task->accumulate));
}

static const qdr_layer_norm *norm_of(step *s)
{
    s->u.norm = s->node->u.norm;
    s->u.norm.n_rows = s->task->m;
    return &s->u.norm;
}

static qdr_status norm_moments(step *s) { return run(s, qdri_norm_moments(norm_of(s), reads(s, 0), writes(s, 0))); }

static qdr_status norm_merge(step *s)
{
    return run(s, qdri_norm_merge(norm_of(s), (int)s->task->k, reads(s, 0), writes(s, 0)));
}

static qdr_status norm_apply(step *s)
{
    return run(s, qdri_norm_apply(norm_of(s), reads(s, 0), reads(s, 1), reads(s, 2), reads(s, 3), writes(s, 0)));
}

static qdri_norm_inputs norm_inputs(const step *s)
{
    return (qdri_norm_inputs){.dy = reads(s, 0), .x = reads(s, 1), .stats = reads(s, 2), .gamma = reads(s, 3)};
}

static qdr_status norm_sums(step *s)
{
    const qdri_norm_inputs in = norm_inputs(s);
    return run(s, qdri_norm_sums(norm_of(s), &in, writes(s, 0), writes(s, 1), writes(s, 2), s->task->accumulate));
}

static qdr_status norm_backward(step *s)
{
    const qdri_norm_inputs in = norm_inputs(s);
    return run(s, qdri_norm_backward(norm_of(s), &in, reads(s, 4), writes(s, 0), s->task->accumulate));
}

static const qdr_attention *attention_of(step *s)
{
    s->u.attention = s->node->u.attention.local;
    s->u.attention.n_rows = s->task->m;
    return &s->u.attention;
}

static qdr_status attention(step *s)
{
    return run(s, qdri_attention_forward(attention_of(s), reads(s, 0), writes(s, 0), writes(s, 1), writes(s, 2)));
}

static qdr_status attention_backward(step *s)
{
    return run(s, qdri_attention_backward(attention_of(s), reads(s, 0), reads(s, 1), reads(s, 2), reads(s, 3),
                                          writes(s, 0), writes(s, 1)));
}

static qdr_status keys_pack(step *s)
{
    return qdri_keys_copy_own(attention_of(s), &s->node->u.attention.keys, reads(s, 0), writes(s, 0), 0, s->stream);
}

static qdr_status keys_assemble(step *s)
{
    return qdri_keys_assemble(attention_of(s), &s->node->u.attention.keys, reads(s, 0), reads(s, 1), writes(s, 0),
                              s->stream);
}

static qdr_status keys_spread(step *s)
{
    return qdri_keys_spread(attention_of(s), &s->node->u.attention.keys, reads(s, 0), writes(s, 0), writes(s, 1),
                            writes(s, 2), s->stream);
}

static qdr_status keys_unpack(step *s)
{
    return qdri_keys_copy_own(attention_of(s), &s->node->u.attention.keys, writes(s, 0), reads(s, 0), 1, s->stream);
}

static const qdr_cross_entropy *loss_of(step *s)
{
    s->u.loss = s->node->u.cross_entropy;
    s->u.loss.n_rows = s->task->m;
    return &s->u.loss;
}

static qdr_status loss_max(step *s) { return run(s, qdri_loss_max(loss_of(s), reads(s, 0), writes(s, 0))); }

static qdr_status loss_sums(step *s)
{
    return run(s, qdri_loss_sums(loss_of(s), reads(s, 0), reads(s, 1), reads(s, 2), writes(s, 0)));
}

static qdr_status loss(step *s)
{
    return run(s, qdri_loss(loss_of(s), reads(s, 0), reads(s, 1), reads(s, 2), writes(s, 0), writes(s, 1)));
}

static qdr_status loss_backward(step *s)
{
    return run(
        s, qdri_loss_backward(loss_of(s), reads(s, 0), reads(s, 1), reads(s, 2), s->stack->loss_scale, writes(s, 0)));
}

/* ---- by kind ---- */

static qdr_status (*const steps[QDRI_N_TASK_KINDS])(step *s) = {
    [QDRI_TASK_BIAS_ADD] = bias_add,
    [QDRI_TASK_COLUMN_SUM] = column_sum,
    [QDRI_TASK_ADD] = add,
    [QDRI_TASK_ZERO] = zero,
    [QDRI_TASK_SUM_PARTS] = sum_parts,
    [QDRI_TASK_EMBED] = embed,
    [QDRI_TASK_EMBED_SUM] = embed_sum,
    [QDRI_TASK_POSITION_ADD] = position_add,
    [QDRI_TASK_POSITION_SUM] = position_sum,
    [QDRI_TASK_RESIDUAL] = residual,
    [QDRI_TASK_GELU] = gelu,
    [QDRI_TASK_GELU_BACKWARD] = gelu_backward,
    [QDRI_TASK_NORM_MOMENTS] = norm_moments,
    [QDRI_TASK_NORM_MERGE] = norm_merge,
    [QDRI_TASK_NORM_APPLY] = norm_apply,
    [QDRI_TASK_NORM_SUMS] = norm_sums,
    [QDRI_TASK_NORM_BACKWARD] = norm_backward,
    [QDRI_TASK_ATTENTION] = attention,
    [QDRI_TASK_ATTENTION_BACKWARD] = attention_backward,
    [QDRI_TASK_KEYS_PACK] = keys_pack,
    [QDRI_TASK_KEYS_ASSEMBLE] = keys_assemble,
    [QDRI_TASK_KEYS_SPREAD] = keys_spread,
    [QDRI_TASK_KEYS_UNPACK] = keys_unpack,
    [QDRI_TASK_LOSS_MAX] = loss_max,
    [QDRI_TASK_LOSS_SUMS] = loss_sums,
    [QDRI_TASK_LOSS] = loss,
    [QDRI_TASK_LOSS_BACKWARD] = loss_backward,
};

qdr_status qdri_run_kernel(const qdr_stack *stack, const qdri_task *task, qdr_stream *stream)
{
    step s = {
        .stack = stack, .task = task, .node = task->node < 0 ? NULL : &stack->net.nodes[task->node], .stream = stream};
    return steps[task->kind](&s);
}
