/* SPDX-License-Identifier: Apache-2.0 */
/* The global gradient norm, and AdamW on this rank's shards. */
#include <math.h>
#include <stdlib.h>

#include "core/size.h"
#include "core/sized.h"
#include "linear/describe.h"
#include "optim/optim.h"

static qdr_context *context_of(const qdr_stack *stack) { return qdr_grid_context(qdr_stack_grid(stack)); }

static qdri_dev *dev_of(const qdr_stack *stack) { return qdri_context_dev(context_of(stack)); }

static qdr_stream *stream_of(const qdr_stack *stack) { return qdr_context_stream(context_of(stack)); }

/* Fails unless the stack is built and bound. */
static qdr_status check_memory(const qdr_stack *stack, const char *who)
{
    if (!stack) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the stack is NULL", who);
    for (int i = 0; i < stack->net.n_parameters; i++) {
        const qdri_parameter *p = &stack->net.parameters[i];
        const char *name = qdri_parameter_of(stack, i)->name;
        if (stack->owner)
            return QDR_FAIL(QDR_ERR_STATE,
                            "%s: %s belongs to another stack, with which this one shares it; use that stack", who,
                            name);
        if (p->n_elems && (!qdri_stack_pointer(stack, p->data) || !qdri_stack_pointer(stack, p->gradient)))
            return QDR_FAIL(
                QDR_ERR_STATE,
                "%s: %s has no memory yet; call qdr_stack_build(), and qdr_stack_bind() if the caller owns the memory",
                who, name);
    }
    return QDR_OK;
}

/* Fails if gradients lack a deferred sum, which is the same on all ranks. */
static qdr_status check_gradients(const qdr_stack *stack, const char *who)
{
    for (int i = 0; i < stack->net.n_parameters; i++) {
        const qdri_attached_parameter *p = qdri_parameter_of(stack, i);
        if (p->deferred)
            return QDR_FAIL(QDR_ERR_STATE,
                            "%s: the gradient of %s lacks sums that QDR_DEFER_SYNC left out; call "
                            "the last backward of a step without it",
                            who, p->name);
    }
    return QDR_OK;
}

/* The context's stream runs the list on memory of the optimizer, or of qdr_grad_norm(). */
static qdr_status execute(qdr_stack *stack, void *memory, const qdri_schedule *list, const qdri_schedule *pass)
{
    stack->caller_memory[QDRI_CALLER_STATE] = memory;
    return qdri_execute_step(stack, list, pass);
}

qdr_status qdr_grad_norm(qdr_stack *stack, double *norm)
{
    if (!norm) return QDR_FAIL(QDR_ERR_ARGUMENT, "gradient norm: norm is NULL");
    *norm = 0;
    if (!stack) return QDR_FAIL(QDR_ERR_ARGUMENT, "gradient norm: the stack is NULL");
    const qdr_context *ctx = context_of(stack);
    qdr_stream *stream = stream_of(stack);
    qdri_facts facts = {0};
    void *sum = NULL;
    double squared = 0;
    qdri_schedule list = {.tasks = NULL};
    qdri_describe_backward(&facts, stack);
    qdr_status status = check_memory(stack, "gradient norm");
    if (status == QDR_OK) status = qdri_context_check_runs(ctx, "gradient norm");
    if (status == QDR_OK) status = qdri_mem_alloc(dev_of(stack), sizeof(double), &sum);
    if (status == QDR_OK) status = qdri_net_norm(&stack->net, &list);
    if (status == QDR_OK) status = qdri_stack_reserve_events(stack, list.n_tasks);
    QDR_TRY_OUT(status, qdri_context_agree_same(ctx, status, &facts, "gradient norm", QDRI_SAME_CALL));
    QDR_TRY_OUT(status, check_gradients(stack, "gradient norm"));
    QDR_TRY_OUT(status, execute(stack, sum, &list, NULL));
    QDR_TRY_OUT(status, qdri_copy(stream, &squared, sum, sizeof squared));
    QDR_TRY_OUT(status, qdri_stream_synchronize(stream));
    *norm = sqrt(squared);
out:
    qdri_facts_free(&facts);
    qdri_schedule_free(&list);
    qdri_mem_free(dev_of(stack), &sum);
    return status;
}

/* ---- AdamW ---- */

/* A step that begins with a backward pass. */
typedef struct joined_step {
    qdri_schedule list;
    int n_codings; /* of the stack when it was made */
} joined_step;

struct qdr_adamw {
    qdri_life life;
    qdr_stack *stack;
    qdr_adamw_opts opts;
    void *memory; /* as the net has placed it */
    qdri_schedule step;
    joined_step joined[QDRI_N_BACKWARDS]; /* with the stack's backward lists; empty: deferred */
    int has_rate; /* on the device, or being copied there */
    double rate; /* the last one set */
};

qdr_status qdr_adamw_size(const qdr_stack *stack, size_t *bytes)
{
    if (!stack || !bytes) return QDR_FAIL(QDR_ERR_ARGUMENT, "adamw: the stack or the size pointer is NULL");
    *bytes = stack->net.state_bytes;
    if (stack->built) return QDR_OK;
    return QDR_FAIL(QDR_ERR_STATE, "adamw: the stack is not built; call qdr_stack_build first");
}

const qdr_stack *qdri_adamw_stack(const qdr_adamw *optimizer) { return optimizer->stack; }

const qdr_adamw_opts *qdri_adamw_options(const qdr_adamw *optimizer) { return &optimizer->opts; }

void qdri_adamw_get_states(const qdr_adamw *optimizer, qdri_adamw_state *states)
{
    char *memory = optimizer->memory;
    for (int i = 0; i < optimizer->stack->net.n_parameters; i++) {
        const qdri_ref *of = optimizer->stack->net.parameters[i].state;
        states[i] = (qdri_adamw_state){.m = memory + of[QDRI_STATE_M].offset, .v = memory + of[QDRI_STATE_V].offset};
        if (of[QDRI_STATE_MASTER].buffer >= 0) states[i].master = memory + of[QDRI_STATE_MASTER].offset;
    }
}

const qdri_schedule *qdri_adamw_list(const qdr_adamw *optimizer) { return &optimizer->step; }

static int beta_is_wrong(double beta) { return !(beta >= 0 && beta < 1); }

static int below_zero(double value) { return !(value >= 0) || isinf(value); }

static void adamw_end(qdri_life *life)
{
    qdr_adamw *old = (qdr_adamw *)life;
    qdri_life *stack = qdri_stack_life(old->stack);
    qdri_mem_free(dev_of(old->stack), &old->memory);
    qdri_schedule_free(&old->step);
    for (int i = 0; i < QDRI_N_BACKWARDS; i++) qdri_schedule_free(&old->joined[i].list);
    free(old);
    qdri_life_drop(stack);
}

/* The list of a pass and the step. It is made with the optimizer, so that no rank can lack memory for it later, and
 * again, in the same memory, when codecs have changed. */
static qdr_status join(qdr_adamw *optimizer, int pass)
{
    qdr_stack *stack = optimizer->stack;
    joined_step *joined = &optimizer->joined[pass];
    if (joined->n_codings == stack->net.n_codings && joined->list.n_tasks) return QDR_OK;
    joined->n_codings = stack->net.n_codings;
    return qdri_net_join(&stack->net, &stack->lists.backward[pass], &optimizer->step, &joined->list);
}

static qdr_status create(qdr_stack *stack, const qdr_adamw_opts *opts, qdr_adamw **optimizer)
{
    if (beta_is_wrong(opts->beta1) || beta_is_wrong(opts->beta2))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "adamw: beta1 %g and beta2 %g; both must lie in [0, 1) (0: 0.9 and 0.95)",
                        opts->beta1, opts->beta2);
    if (below_zero(opts->epsilon) || below_zero(opts->weight_decay) || below_zero(opts->clip_norm))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "adamw: epsilon %g, weight_decay %g, clip_norm %g; all must be finite, ≥ 0",
                        opts->epsilon, opts->weight_decay, opts->clip_norm);
    if (below_zero(opts->grad_scale))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "adamw: grad_scale %g; use the factor that the loss was scaled by, such as 1024 (0: 1)",
                        opts->grad_scale);
    QDR_TRY(qdri_check_switch("adamw", "decay_positions", opts->decay_positions));
    QDR_TRY(check_memory(stack, "adamw"));
    QDR_TRY(QDRI_NEW(1, "an optimizer", optimizer));
    qdr_adamw *made = *optimizer;
    qdri_life_begin(&made->life, adamw_end);
    qdri_life_keep(qdri_stack_life(stack));
    made->stack = stack;
    made->opts = *opts;
    if (opts->beta1 == 0) made->opts.beta1 = 0.9;
    if (opts->beta2 == 0) made->opts.beta2 = 0.95;
    if (opts->epsilon == 0) made->opts.epsilon = 1e-8;
    if (opts->grad_scale == 0) made->opts.grad_scale = 1;
    QDR_TRY(qdri_net_adamw(&stack->net, &made->opts, &made->step));
    for (int i = 0; i < QDRI_N_BACKWARDS; i += 2) QDR_TRY(join(made, i)); /* those that are not deferred */
    QDR_TRY(qdri_stack_reserve_events(stack, stack->net.most_tasks));
    QDR_TRY(qdri_mem_alloc_for(dev_of(stack), "optimizer state", stack->net.state_bytes, &made->memory));
    return qdri_fill_zero(stream_of(stack), made->memory, stack->net.state_bytes);
}

qdr_status qdr_adamw_create(qdr_stack *stack, const qdr_adamw_opts *opts, qdr_adamw **optimizer)
{
    QDR_TRY(QDRI_CLEAR_POINTER("adamw", optimizer));
    if (!stack) return QDR_FAIL(QDR_ERR_ARGUMENT, "adamw: the stack is NULL");
    qdri_facts facts = {0};
    qdr_adamw_opts own = {QDR_INIT(qdr_adamw_opts)};
    qdr_status status = opts ? QDRI_TAKE(qdr_adamw_opts, opts, &own) : QDR_OK;
    if (status == QDR_OK) status = create(stack, &own, optimizer);
    if (status == QDR_OK) {
        static const char who[] = "qdr_adamw_opts";
        const qdr_adamw_opts *mine = &(*optimizer)->opts;
        qdri_facts_add_real(&facts, who, "beta1", mine->beta1);
        qdri_facts_add_real(&facts, who, "beta2", mine->beta2);
        qdri_facts_add_real(&facts, who, "epsilon", mine->epsilon);
        qdri_facts_add_real(&facts, who, "weight_decay", mine->weight_decay);
        qdri_facts_add_real(&facts, who, "clip_norm", mine->clip_norm);
        qdri_facts_add_real(&facts, who, "grad_scale", mine->grad_scale);
        qdri_facts_add_int(&facts, who, "decay_positions", mine->decay_positions);
    }
    status = qdri_context_agree_same(context_of(stack), status, &facts, "adamw", QDRI_SAME_CALL);
    qdri_facts_free(&facts);
    if (status != QDR_OK) qdr_adamw_destroy(optimizer);
    return status;
}

void qdr_adamw_destroy(qdr_adamw **optimizer)
{
    if (!optimizer || !*optimizer) return;
    qdr_adamw *old = *optimizer;
    *optimizer = NULL;
    qdri_context_end_record(context_of(old->stack));
    const qdr_status status = qdri_stream_synchronize(stream_of(old->stack));
    (void)status; /* the context reports failures */
    qdri_life_drop(&old->life);
}

qdr_status qdr_adamw_set_rate(qdr_adamw *optimizer, double lr)
{
    if (!optimizer) return QDR_FAIL(QDR_ERR_ARGUMENT, "adamw: the optimizer is NULL");
    if (below_zero(lr)) return QDR_FAIL(QDR_ERR_ARGUMENT, "adamw: the learning rate is %g; it must be finite, ≥ 0", lr);
    qdri_kernel kernel = {.kind = QDRI_K_ADAMW_RATE, .dtype = qdr_stack_dtype(optimizer->stack)};
    kernel.u.adamw.numbers = optimizer->memory;
    kernel.u.adamw.lr = lr == 0 ? 0 : lr; /* -0 is 0, where bits are compared */
    QDR_TRY(qdri_kernel_run(stream_of(optimizer->stack), &kernel));
    optimizer->rate = lr;
    /* A recorded rate is only set when the recording runs. */
    if (!qdri_context_is_recording(context_of(optimizer->stack))) optimizer->has_rate = 1;
    return QDR_OK;
}

/* Checks that the gradients and the stack's memory exist. */
static qdr_status step_check(const qdr_adamw *optimizer)
{
    if (!optimizer) return QDR_FAIL(QDR_ERR_ARGUMENT, "adamw: the optimizer is NULL");
    QDR_TRY(check_memory(optimizer->stack, "adamw"));
    return check_gradients(optimizer->stack, "adamw");
}

static qdr_status enqueue_step(qdr_adamw *optimizer, const qdri_schedule *list, const qdri_schedule *pass)
{
    QDR_TRY(qdri_context_record_needs(context_of(optimizer->stack), &optimizer->life));
    QDR_TRY(execute(optimizer->stack, optimizer->memory, list, pass));
    qdri_stack_set_updated(optimizer->stack);
    return QDR_OK;
}

/* With QDR_CHECK=1; otherwise the host waits for no other rank. */
static qdr_status compare_step(const qdr_adamw *optimizer, qdr_status mine, double lr)
{
    const qdr_context *ctx = context_of(optimizer->stack);
    if (!qdri_context_is_checked(ctx)) return mine;
    qdri_facts facts = {0};
    qdri_facts_add(&facts, "the call", "", "a step of AdamW");
    qdri_facts_add_real(&facts, "the step", "learning rate", lr);
    const qdr_status status = qdri_context_compare_call(ctx, mine, &facts, "adamw", QDRI_SAME_CALL);
    qdri_facts_free(&facts);
    return status;
}

qdr_status qdr_adamw_step(qdr_adamw *optimizer, double lr)
{
    if (!optimizer) return step_check(optimizer);
    QDR_TRY(compare_step(optimizer, step_check(optimizer), lr));
    QDR_TRY(qdr_adamw_set_rate(optimizer, lr));
    return enqueue_step(optimizer, &optimizer->step, NULL);
}

static qdr_status check_rate(const qdr_adamw *optimizer)
{
    if (optimizer->has_rate) return QDR_OK;
    return QDR_FAIL(QDR_ERR_STATE,
                    "adamw: no learning rate was set outside of a recording; call qdr_adamw_set_rate() first");
}

qdr_status qdr_adamw_step_as_set(qdr_adamw *optimizer)
{
    QDR_TRY(step_check(optimizer));
    QDR_TRY(check_rate(optimizer));
    QDR_TRY(compare_step(optimizer, QDR_OK, optimizer->rate));
    return enqueue_step(optimizer, &optimizer->step, NULL);
}

static qdr_status check_joined(const qdr_adamw *optimizer, int flags)
{
    QDR_TRY(check_rate(optimizer));
    if (!(flags & QDR_DEFER_SYNC)) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "adamw: a step needs complete gradients; leave out QDR_DEFER_SYNC, or call qdr_stack_backward()");
}

qdr_status qdr_adamw_backward(qdr_adamw *optimizer, int flags, double loss_scale)
{
    const qdri_schedule *pass = NULL;
    if (!optimizer) return step_check(optimizer);
    qdr_stack *stack = optimizer->stack;
    QDR_TRY(compare_step(optimizer, check_joined(optimizer, flags), optimizer->rate));
    QDR_TRY(qdri_stack_begin_backward(stack, flags, loss_scale, &pass));
    const int number = (int)(pass - stack->lists.backward);
    QDR_TRY(qdri_give_up(stack, join(optimizer, number)));
    return enqueue_step(optimizer, &optimizer->joined[number].list, pass);
}

static qdr_status read_numbers(const qdr_adamw *optimizer, qdri_adamw_numbers *numbers)
{
    qdr_stream *stream = stream_of(optimizer->stack);
    QDR_TRY(qdri_context_check_runs(context_of(optimizer->stack), "adamw"));
    QDR_TRY(qdri_copy(stream, numbers, optimizer->memory, sizeof *numbers));
    return qdri_stream_synchronize(stream);
}

qdr_status qdr_adamw_norm(qdr_adamw *optimizer, double *norm)
{
    if (!optimizer || !norm) return QDR_FAIL(QDR_ERR_ARGUMENT, "adamw: the optimizer or the norm pointer is NULL");
    *norm = 0;
    qdri_adamw_numbers numbers;
    QDR_TRY(read_numbers(optimizer, &numbers));
    if (numbers.n_begun == 0)
        return QDR_FAIL(QDR_ERR_STATE, "adamw: no step was taken yet; call qdr_adamw_step() first");
    *norm = sqrt(numbers.norm_squared) / optimizer->opts.grad_scale;
    return QDR_OK;
}

qdr_status qdr_adamw_skipped(qdr_adamw *optimizer, int64_t *n_steps)
{
    if (!optimizer || !n_steps) return QDR_FAIL(QDR_ERR_ARGUMENT, "adamw: the optimizer or the count pointer is NULL");
    *n_steps = 0;
    qdri_adamw_numbers numbers;
    QDR_TRY(read_numbers(optimizer, &numbers));
    *n_steps = (int64_t)(numbers.n_begun - numbers.n_steps);
    return QDR_OK;
}

qdr_status qdri_adamw_get_steps(const qdr_adamw *optimizer, int64_t *n_begun, int64_t *n_steps)
{
    qdri_adamw_numbers numbers;
    *n_begun = *n_steps = 0;
    QDR_TRY(read_numbers(optimizer, &numbers));
    *n_begun = (int64_t)numbers.n_begun;
    *n_steps = (int64_t)numbers.n_steps;
    return QDR_OK;
}

qdr_status qdri_adamw_set_steps(qdr_adamw *optimizer, int64_t n_begun, int64_t n_steps)
{
    qdri_adamw_numbers numbers;
    qdr_stream *stream = stream_of(optimizer->stack);
    QDR_TRY(read_numbers(optimizer, &numbers));
    numbers.n_begun = (double)n_begun;
    numbers.n_steps = (double)n_steps;
    QDR_TRY(qdri_copy(stream, optimizer->memory, &numbers, sizeof numbers));
    return qdri_stream_synchronize(stream);
}
