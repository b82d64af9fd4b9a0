/* SPDX-License-Identifier: Apache-2.0 */
/* What ends a step of training: the sums of the losses and of the gradients' norm, and AdamW. These lists have no
 * values, and all their tasks run on the compute stream. In one list with a backward pass (qdri_net_join()), each waits
 * for the sums that it reads. */
#include "core/group.h"
#include "schedule/net_parts.h"

/* ---- sums over ranks ---- */

/* Sums `numbers`, F64, over all ranks of the axis. */
static void sum(qdri_builder *builder, qdr_axis axis, const char *name, qdri_ref numbers)
{
    const int64_t n = (int64_t)(numbers.bytes / sizeof(double));
    if (n == 0) return;
    qdri_add_collective(builder, &(qdri_task){.coll = QDR_ALL_REDUCE,
                                              .reduce = QDR_SUM,
                                              .channel = qdri_statistics_channel(axis),
                                              .node = -1,
                                              .name = name,
                                              .m = 1,
                                              .n = n,
                                              .count = n,
                                              .n_writes = 1,
                                              .writes = {numbers},
                                              .dtype = QDR_F64,
                                              .out_dtype = QDR_F64});
}

/* Of a few numbers: a launch. */
static const qdri_task_work small_work = {.n_kernels = 1, .cost = QDRI_COST_OPTIMIZER};

static void add_zero(qdri_builder *builder, const char *name, qdri_ref numbers)
{
    qdri_schedule_add(builder, &(qdri_task){.kind = QDRI_TASK_KERNEL,
                                            .kernel = {.kind = QDRI_K_ZERO, .u.block = {.row_bytes = numbers.bytes}},
                                            .node = -1,
                                            .name = name,
                                            .n_writes = 1,
                                            .writes = {numbers},
                                            .work = small_work,
                                            .dtype = QDR_F64,
                                            .out_dtype = QDR_F64});
}

static qdr_status end(qdri_builder *builder, qdri_net *net)
{
    QDR_TRY(qdri_builder_end(builder));
    return qdri_net_finish(net, builder->schedule);
}

/* ---- the loss ---- */

qdri_ref qdri_net_loss_sums(const qdri_net *net)
{
    const size_t bytes = (size_t)qdri_net_batch_parts(net) * 2 * sizeof(double);
    return qdri_slice(net->loss, bytes, bytes);
}

const qdri_node *qdri_net_find_loss(const qdri_net *net)
{
    for (int i = 0; i < net->n_nodes; i++)
        if (net->nodes[i].kind == QDRI_NODE_CROSS_ENTROPY) return &net->nodes[i];
    return NULL;
}

qdr_status qdri_net_loss(qdri_net *net, qdri_schedule *schedule)
{
    const qdri_node *loss = qdri_net_find_loss(net);
    const qdri_edge *logits = &net->edges[loss->in[0]];
    const qdri_ref sums = qdri_net_loss_sums(net);
    const size_t own_bytes = (size_t)net->n_loss_parts * 2 * sizeof(double);
    qdri_task copy = {.node = -1, .name = loss->name, .dtype = QDR_F64, .out_dtype = QDR_F64};
    qdri_builder builder;
    qdri_net_begin_list(&builder, net, schedule);
    if (own_bytes < sums.bytes) add_zero(&builder, loss->name, qdri_slice(sums, own_bytes, sums.bytes - own_bytes));
    qdri_set_copy(&copy, 2, net->n_loss_parts, qdri_slice(net->loss, 0, own_bytes), qdri_slice(sums, 0, own_bytes));
    qdri_schedule_add(&builder, &copy);
    if (qdri_edge_scattered(net, logits)) sum(&builder, logits->matrix.scatter_axis, loss->name, sums);
    sum(&builder, QDR_Z, loss->name, sums);
    sum(&builder, QDR_D, loss->name, sums);
    return end(&builder, net);
}

/* ---- the norm of the gradients ---- */

/* The part of a gradient whose sum is complete on this rank, without padding. */
static qdri_ref complete_gradient(const qdri_net *net, const qdri_parameter *p)
{
    const size_t each = qdr_dtype_bytes(net->grad_dtype);
    return qdri_slice(p->gradient, (size_t)(p->state_begin - p->gradient_begin) * each,
                      (size_t)qdri_parameter_updates(p) * each);
}

/* A pass over the elements of a parameter that this rank updates. */
static qdri_task parameter_task(const qdri_net *net, const qdri_parameter *p, qdr_dtype dtype, int64_t n)
{
    const char *name = net->nodes[p->node].name;
    return (qdri_task){
        .kind = QDRI_TASK_KERNEL, .node = p->node, .name = name, .m = 1, .n = n, .dtype = dtype, .out_dtype = dtype};
}

/* With levels, the sum over d is complete on one rank each; without them, each of d has the whole. */
static int has_levels(const qdri_net *net) { return qdri_has_levels(&net->position); }

/* *squares = Σg² of this rank: the elements that it counts, in the order of the parameters. */
static void add_squares(qdri_builder *builder, const qdri_net *net, qdri_ref squares)
{
    add_zero(builder, QDRI_NORM_NAME, squares);
    for (int i = 0; i < net->n_parameters; i++) {
        const qdri_parameter *p = &net->parameters[i];
        const int64_t n = qdri_parameter_updates(p);
        if (n == 0 || !p->counted || (has_levels(net) && p->copy > 0)) continue;
        qdri_task task = parameter_task(net, p, net->grad_dtype, n);
        task.kernel = (qdri_kernel){.kind = QDRI_K_SUM_SQUARES, .u.reduce.n = n};
        task.accumulate = 1;
        task.n_reads = task.n_writes = 1;
        task.reads[0] = complete_gradient(net, p);
        task.writes[0] = squares;
        task.work = (qdri_task_work){(double)task.reads[0].bytes, 2 * (double)n, 1, QDRI_COST_OPTIMIZER};
        task.flops = task.work.flops;
        qdri_schedule_add(builder, &task);
    }
}

/* Sums the norm, where its first number is, over the ranks that have parts of it, and the rest over all ranks. */
static void sum_norm(qdri_builder *builder, const qdri_net *net, qdri_ref numbers)
{
    const qdri_ref rest = qdri_slice(numbers, sizeof(double), numbers.bytes - sizeof(double));
    for (int axis = QDR_X; axis <= QDR_Z; axis++) sum(builder, (qdr_axis)axis, QDRI_NORM_NAME, numbers);
    sum(builder, QDR_D, QDRI_NORM_NAME, has_levels(net) ? numbers : rest);
}

static qdri_ref state_slice(const qdri_net *net, size_t offset, size_t bytes)
{
    return (qdri_ref){net->caller[QDRI_CALLER_STATE].buffer, offset, bytes};
}

qdr_status qdri_net_norm(qdri_net *net, qdri_schedule *schedule)
{
    const qdri_ref squares = state_slice(net, 0, sizeof(double));
    qdri_builder builder;
    qdri_net_begin_list(&builder, net, schedule);
    add_squares(&builder, net, squares);
    sum_norm(&builder, net, squares);
    return end(&builder, net);
}

/* ---- AdamW ---- */

/* Whether a step without a finite norm is skipped: a smaller grad_scale would have helped. */
static int may_skip(const qdri_net *net) { return net->opts.dtype == QDR_F16; }

/* The elements of a parameter that this rank updates, without padding. */
static qdri_ref updated(const qdri_net *net, const qdri_parameter *p, int64_t n)
{
    const size_t each = qdr_dtype_bytes(net->opts.dtype);
    return qdri_slice(p->data, n ? (size_t)p->state_begin * each : 0, (size_t)n * each);
}

static void add_begin(qdri_builder *builder, const qdri_net *net, const qdr_adamw_opts *opts)
{
    qdri_task task = {.kind = QDRI_TASK_KERNEL,
                      .kernel = {.kind = QDRI_K_ADAMW_BEGIN,
                                 .u.adamw = {.beta1 = opts->beta1,
                                             .beta2 = opts->beta2,
                                             .clip_norm = opts->clip_norm,
                                             .grad_scale = opts->grad_scale,
                                             .skips = may_skip(net),
                                             .n_ranks = 1}},
                      .node = -1,
                      .name = QDRI_NORM_NAME,
                      .n_writes = 1,
                      .writes = {state_slice(net, 0, sizeof(qdri_adamw_numbers))},
                      .work = small_work,
                      .dtype = net->opts.dtype,
                      .out_dtype = net->opts.dtype};
    for (int axis = 0; axis < QDR_N_AXES; axis++) task.kernel.u.adamw.n_ranks *= net->position.size[axis];
    qdri_schedule_add(builder, &task);
}

static void add_update(qdri_builder *builder, const qdri_net *net, const qdr_adamw_opts *opts, const qdri_parameter *p)
{
    const int64_t n = qdri_parameter_updates(p);
    qdri_task task = parameter_task(net, p, net->opts.dtype, n);
    const int decays = p->decay || (opts->decay_positions && !p->is_vector);
    if (n == 0) return;
    task.kernel = (qdri_kernel){.kind = QDRI_K_ADAMW,
                                .u.adamw = {.n = n,
                                            .beta1 = opts->beta1,
                                            .beta2 = opts->beta2,
                                            .epsilon = opts->epsilon,
                                            .weight_decay = decays ? opts->weight_decay : 0}};
    task.n_reads = 2;
    task.reads[0] = complete_gradient(net, p);
    task.reads[1] = state_slice(net, 0, sizeof(qdri_adamw_numbers));
    task.writes[task.n_writes++] = updated(net, p, n);
    double bytes = (double)task.reads[0].bytes;
    for (int i = 0; i < QDRI_N_STATES; i++)
        if (p->state[i].buffer >= 0) task.writes[task.n_writes++] = p->state[i];
    for (int i = 0; i < task.n_writes; i++) bytes += 2 * (double)task.writes[i].bytes;
    task.work = (qdri_task_work){bytes, 12 * (double)n, 1, QDRI_COST_OPTIMIZER};
    task.flops = task.work.flops;
    qdri_schedule_add(builder, &task);
}

/* In the order in which a backward pass completes the gradients: small ones are summed together, at its end. */
static void add_updates(qdri_builder *builder, const qdri_net *net, const qdr_adamw_opts *opts)
{
    for (int small = 0; small < 2; small++)
        for (int i = net->n_parameters - 1; i >= 0; i--)
            if (small != net->parameters[i].flat_over_z) add_update(builder, net, opts, &net->parameters[i]);
}

qdr_status qdri_net_adamw_tasks(const qdri_net *net, const qdr_adamw_opts *opts, qdri_schedule *schedule)
{
    const qdri_ref numbers = state_slice(net, 0, QDRI_STEP_SUMS * sizeof(double));
    const qdri_ref squares = qdri_slice(numbers, 0, sizeof(double));
    qdri_builder builder;
    qdri_net_begin_list(&builder, net, schedule);
    if (opts->clip_norm > 0 || may_skip(net)) {
        add_squares(&builder, net, squares);
        sum_norm(&builder, net, numbers);
        add_begin(&builder, net, opts);
        add_updates(&builder, net, opts);
        return qdri_builder_end(&builder);
    }
    /* The norm is only reported: a parameter need not wait for the gradients of others. */
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        sum(&builder, (qdr_axis)axis, QDRI_NORM_NAME,
            qdri_slice(numbers, sizeof(double), numbers.bytes - sizeof(double)));
    add_begin(&builder, net, opts);
    add_updates(&builder, net, opts);
    add_squares(&builder, net, squares);
    sum_norm(&builder, net, squares);
    return qdri_builder_end(&builder);
}

qdr_status qdri_net_adamw(qdri_net *net, const qdr_adamw_opts *opts, qdri_schedule *schedule)
{
    QDR_TRY(qdri_net_adamw_tasks(net, opts, schedule));
    return qdri_net_finish(net, schedule);
}

qdr_status qdri_net_join(qdri_net *net, const qdri_schedule *pass, const qdri_schedule *step, qdri_schedule *both)
{
    qdri_builder builder;
    qdri_net_begin_list(&builder, net, both);
    for (int i = 0; i < pass->n_tasks; i++) qdri_schedule_add(&builder, &pass->tasks[i]);
    for (int i = 0; i < step->n_tasks; i++) qdri_schedule_add(&builder, &step->tasks[i]);
    return end(&builder, net);
}
