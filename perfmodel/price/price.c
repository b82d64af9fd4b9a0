/* SPDX-License-Identifier: Apache-2.0 */
/* Prices of tasks: products and collectives have their own files, everything else is limited by memory. The bytes moved
 * count each operand once; additional traffic of a library is part of the machine's constants. */
#include "price/price.h"

#include <math.h>
#include <string.h>

#include "core/order.h"
#include "price/gemm.h"

double qdri_kernel_secs(const qdr_machine *machine, double bytes, double flops)
{
    const double moving = bytes / (machine->memory_bytes_per_sec * machine->memory_efficiency);
    const double computing = machine->kernel_flops > 0 ? flops / machine->kernel_flops : 0;
    return fmax(moving, computing);
}

/* Host time for a collective of activations. */
static double coll_host_secs(const qdr_machine *machine, const qdri_group *group)
{
    const qdr_machine_software *software = &machine->software;
    const int spans = machine->n_links > 1 && qdri_group_crosses(group, machine->n_links - 1);
    return fmax(software->collective_host_secs, spans ? software->collective_rank_secs * group->n_ranks : 0);
}

static int can_gather_again(const qdr_machine *machine) { return machine->software.staged_rank_secs > 0; }

void qdri_pricing_gather_again(qdri_pricing *pricing)
{
    const double each = pricing->machine->software.staged_rank_secs;
    if (!can_gather_again(pricing->machine)) return;
    pricing->gathers_again = 1;
    for (int axis = 0; axis < QDR_N_AXES; axis++) pricing->coll_host_secs[axis] = each * pricing->ways[axis].n_ranks;
}

void qdri_pricing_before_last(qdri_pricing *pricing) { pricing->d_far = (qdri_ways){.n_ranks = 1}; }

static void part_gradients(qdri_pricing *pricing, int stride, int n_ranks_all)
{
    const qdr_plan *plan = pricing->plan;
    const int parts = plan->gradient_parts > plan->z ? plan->gradient_parts / plan->z : 1;
    const qdri_group near = qdri_group_make(pricing->machine, parts, stride, n_ranks_all);
    const qdri_group far = qdri_group_make(pricing->machine, plan->d / parts, stride * parts, n_ranks_all);
    pricing->d_parts = parts;
    pricing->d_near = qdri_ways_make(pricing->machine, &near);
    pricing->d_far = qdri_ways_make(pricing->machine, &far);
}

void qdri_pricing_place(const qdr_machine *machine, const qdr_plan *plan, qdri_pricing *pricing)
{
    const int size[QDR_N_AXES] = {plan->x, plan->y, plan->z, plan->d};
    const int n_ranks = plan->x * plan->y * plan->z * plan->d;
    const int stages = plan->pipeline > 0 ? plan->pipeline : 1;
    int stride[QDR_N_AXES];
    pricing->machine = machine;
    pricing->plan = plan;
    pricing->seen_share = 1;
    pricing->gathers_again = machine->software.gathers_again ||
                             (can_gather_again(machine) && qdri_is_staged(machine, plan));
    qdri_order_strides(size, plan->order[0] ? plan->order : QDRI_USUAL_ORDER, stride);
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        const qdri_group group = qdri_group_make(machine, size[axis], stride[axis], n_ranks * stages);
        pricing->ways[axis] = qdri_ways_make(machine, &group);
        pricing->coll_host_secs[axis] = coll_host_secs(machine, &group);
    }
    part_gradients(pricing, stride[QDR_D], n_ranks * stages);
    if (qdri_is_staged(machine, plan)) qdri_pricing_gather_again(pricing);
}

void qdri_pricing_sizes(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan, double n_layers,
                        qdri_pricing *pricing)
{
    pricing->machine = machine;
    pricing->plan = plan;
    pricing->gathers_again = machine->software.gathers_again ||
                             (can_gather_again(machine) && qdri_is_staged(machine, plan));
    qdri_sizes_make(network, plan, n_layers, &pricing->sizes);
}

void qdri_pricing_make(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan, double n_layers,
                       qdri_pricing *pricing)
{
    qdri_pricing_place(machine, plan, pricing);
    qdri_sizes_make(network, plan, n_layers, &pricing->sizes);
    pricing->seen_share = 2 * pricing->sizes.seen / (pricing->sizes.context + 1);
}

/* ---- kernels ---- */

/* What kernels do, whatever the machine takes for it. */
typedef struct kernel_work {
    double bytes, flops;
    int n_kernels; /* launched */
} kernel_work;

static qdri_task_price kernel_price(const qdri_pricing *p, kernel_work work)
{
    qdri_task_price result = {.n_kernels = work.n_kernels};
    result.price.latency_secs = work.n_kernels * p->machine->software.launch_secs;
    result.price.work_secs = qdri_kernel_secs(p->machine, work.bytes, work.flops);
    result.secs = result.price.latency_secs + result.price.work_secs;
    return result;
}

/* Moves `times` the m·n elements of the task, with one flop each. */
static kernel_work elementwise(const qdri_task *task, int times)
{
    const double n_elems = (double)task->m * (double)task->n;
    return (kernel_work){n_elems * times * (double)qdr_dtype_bytes(task->dtype), n_elems, 1};
}

/* What the task itself states. */
static kernel_work stated(const qdri_task *task, int n_kernels)
{
    return (kernel_work){task->bytes_moved, task->flops, n_kernels};
}

/* A framework that fuses biases reads the input of a norm once. A norm is one launch forward and two backward, all of
 * them with the first step. */
static kernel_work norm(const qdr_machine_software *software, const qdri_task *task)
{
    const int fused = software->fused_biases;
    switch (task->kind) {
    case QDRI_TASK_NORM_MOMENTS: return fused ? (kernel_work){0, 0, 0} : stated(task, 1);
    case QDRI_TASK_NORM_APPLY: return stated(task, fused);
    case QDRI_TASK_NORM_SUMS: return stated(task, 2);
    default: return stated(task, 0);
    }
}

/* Forward, the logits are read twice, but counted as one launch. */
static kernel_work loss(const qdr_machine_software *software, const qdri_task *task)
{
    const double moved = software->logit_bytes * (double)task->m * (double)task->n / 2;
    const int is_sums = task->kind == QDRI_TASK_LOSS_SUMS, is_backward = task->kind == QDRI_TASK_LOSS_BACKWARD;
    if (task->kind == QDRI_TASK_LOSS) return (kernel_work){0, 0, 0};
    if (!(moved > 0)) return stated(task, is_sums ? 0 : 1);
    return (kernel_work){is_backward ? moved : moved / 2, task->flops, is_sums ? 0 : 6};
}

/* Of tasks other than products, collectives and attention. */
static kernel_work work_of(const qdr_machine_software *software, const qdri_task *task)
{
    switch (task->kind) {
    case QDRI_TASK_CALLER_FORWARD:
    case QDRI_TASK_CALLER_BACKWARD:
    case QDRI_TASK_GELU:
    case QDRI_TASK_GELU_BACKWARD:
    case QDRI_TASK_RESIDUAL: return stated(task, 1);
    case QDRI_TASK_NORM_MOMENTS:
    case QDRI_TASK_NORM_MERGE:
    case QDRI_TASK_NORM_APPLY:
    case QDRI_TASK_NORM_SUMS:
    case QDRI_TASK_NORM_BACKWARD: return norm(software, task);
    case QDRI_TASK_LOSS_MAX:
    case QDRI_TASK_LOSS_SUMS:
    case QDRI_TASK_LOSS:
    case QDRI_TASK_LOSS_BACKWARD: return loss(software, task);
    case QDRI_TASK_BIAS_ADD: return software->fused_biases ? (kernel_work){0, 0, 0} : elementwise(task, 2);
    case QDRI_TASK_COLUMN_SUM:
    case QDRI_TASK_POSITION_SUM: return elementwise(task, 1);
    case QDRI_TASK_ADD: return elementwise(task, task->accumulate ? 3 : 2);
    case QDRI_TASK_EMBED:
    case QDRI_TASK_POSITION_ADD:
    case QDRI_TASK_SUM_PARTS: return elementwise(task, 2);
    case QDRI_TASK_EMBED_SUM: return elementwise(task, 3);
    default: return (kernel_work){0, 0, 0}; /* key heads are small beside the attention */
    }
}

/* ---- attention ---- */

static double score_product_secs(const qdri_pricing *p, const qdri_task *task, double n_heads, int values)
{
    const double context = (double)task->context, head = (double)task->n / (double)task->heads;
    const qdri_product product = {.m = context,
                                  .n = values ? head : context,
                                  .k = values ? context : head,
                                  .n_products = n_heads,
                                  .dtype = p->plan->dtype,
                                  .mode = values ? QDRI_MODE_NN : QDRI_MODE_NT,
                                  .out_bytes = (double)qdr_dtype_bytes(task->dtype)};
    return qdri_product_secs(p->machine, &product);
}

/* Scores are written and read: products of whole squares, with softmax between them. */
static qdri_task_price unfused_attention(const qdri_pricing *p, const qdri_task *task, int backward)
{
    const double context = (double)task->context, n_heads = (double)task->m / context * (double)task->heads;
    const double scores = n_heads * context * context;
    const double share = backward ? 0.55 : 0.45; /* softmax reads once more in backward */
    const int times = backward ? 2 : 1;
    const kernel_work softmax = {scores * share * p->machine->software.score_bytes, 0, backward ? 6 : 4};
    qdri_task_price price = kernel_price(p, softmax);
    const double secs = times * (score_product_secs(p, task, n_heads, 0) + score_product_secs(p, task, n_heads, 1));
    price.price.work_secs += secs;
    price.secs += secs;
    return price;
}

/* seen_share: as in qdri_pricing */
static kernel_work attention_work(const qdri_task *task, double seen_share)
{
    const int backward = task->kind == QDRI_TASK_ATTENTION_BACKWARD;
    const double rows = (double)task->m, seen = seen_share * ((double)task->context + 1) / 2;
    return (kernel_work){rows * (double)qdr_dtype_bytes(task->dtype) * (double)(task->k + task->n) * (backward ? 2 : 1),
                         4 * rows * seen * (double)task->n * (backward ? 2.5 : 1), backward ? 3 : 1};
}

static qdri_task_price fused_attention(const qdri_pricing *p, const qdri_task *task)
{
    const qdr_machine_products *type = qdri_machine_products(p->machine, p->plan->dtype);
    const kernel_work work = attention_work(task, p->seen_share);
    qdri_task_price price = kernel_price(p, (kernel_work){work.bytes, 0, work.n_kernels});
    const double secs = work.flops / (type->peak_flops * p->machine->attention_efficiency);
    if (secs <= price.price.work_secs) return price;
    price.secs += secs - price.price.work_secs;
    price.price.work_secs = secs;
    return price;
}

static qdri_task_price attention(const qdri_pricing *p, const qdri_task *task)
{
    if (task->heads == 0) return (qdri_task_price){.secs = 0};
    return p->machine->attention_efficiency > 0
               ? fused_attention(p, task)
               : unfused_attention(p, task, task->kind == QDRI_TASK_ATTENTION_BACKWARD);
}

/* ---- products, collectives, and others ---- */

static int is_gradient(const qdri_task *task)
{
    return task->overlap_class == QDRI_CLASS_GRADIENTS || (task->kind == QDRI_TASK_PRODUCT && task->trans_a);
}

static qdri_mode mode_of(const qdri_task *task)
{
    return task->trans_a ? QDRI_MODE_TN : task->trans_b ? QDRI_MODE_NT : QDRI_MODE_NN;
}

static qdri_task_price product(const qdri_pricing *p, const qdri_task *task)
{
    const qdri_product what = {.m = (double)task->m,
                               .n = (double)task->n,
                               .k = (double)task->k,
                               .n_products = 1,
                               .dtype = p->plan->dtype,
                               .mode = mode_of(task),
                               .out_bytes = (double)qdr_dtype_bytes(task->out_dtype),
                               .accumulate = task->accumulate != 0};
    const double more_bytes = is_gradient(task) ? what.m * what.n * p->machine->software.weight_gradient_bytes : 0;
    qdri_task_price price = kernel_price(p, (kernel_work){more_bytes, 0, 1});
    const double secs = qdri_product_secs(p->machine, &what);
    price.price.work_secs += secs;
    price.secs += secs;
    return price;
}

static double ratio_of(const qdr_plan *plan, qdr_axis axis)
{
    return plan->axis_bytes_ratio[axis] > 0 ? plan->axis_bytes_ratio[axis] : 1;
}

/* One after the other. Shares of links are averaged over the time. */
static qdri_price in_turn(const qdri_price *a, const qdri_price *b)
{
    qdri_price both = {.latency_secs = a->latency_secs + b->latency_secs, .work_secs = a->work_secs + b->work_secs};
    if (!(both.work_secs > 0)) return both;
    const double share = a->work_secs / both.work_secs;
    both.slowdown = share * a->slowdown + (1 - share) * b->slowdown;
    both.flow_bytes_per_sec = share * a->flow_bytes_per_sec + (1 - share) * b->flow_bytes_per_sec;
    for (int l = 0; l < QDR_MAX_LINKS; l++) both.use[l] = share * a->use[l] + (1 - share) * b->use[l];
    return both;
}

/* By one rank, over all its flows. */
static double bytes_sent(const qdri_price *price, const qdri_ways *ways)
{
    return price->work_secs * price->flow_bytes_per_sec * ways->n_flows;
}

/* If optimizer state is partitioned over d, gradients are reduce-scattered there; the return of parameters is priced
 * with the optimizer. */
static qdri_price sum_over_d(const qdri_pricing *p, double bytes, double *sent)
{
    const int wanted = p->plan->gradient_parts > p->plan->z ? p->plan->gradient_parts : p->plan->z;
    const qdr_coll_kind rest = p->plan->optimizer_parts > wanted ? QDR_REDUCE_SCATTER : QDR_ALL_REDUCE;
    if (p->d_parts <= 1) {
        const qdri_price all = qdri_coll_price(&p->ways[QDR_D], rest, bytes);
        *sent = bytes_sent(&all, &p->ways[QDR_D]);
        return all;
    }
    const qdri_price near = qdri_coll_price(&p->d_near, QDR_REDUCE_SCATTER, bytes),
                     far = qdri_coll_price(&p->d_far, rest, bytes / p->d_parts);
    *sent = bytes_sent(&near, &p->d_near) + bytes_sent(&far, &p->d_far);
    return in_turn(&near, &far);
}

/* Of the whole vector. */
static double coll_elems(const qdri_task *task, int n_ranks)
{
    return (double)task->count * (qdri_task_counts_part(task) ? n_ranks : 1);
}

static qdri_task_price collective(const qdri_pricing *p, const qdri_task *task)
{
    const qdr_axis axis = qdr_channel_axis(task->channel);
    const qdri_ways *ways = &p->ways[axis];
    const double n_elems = coll_elems(task, ways->n_ranks);
    const int sums_gradients = is_gradient(task);
    const double gradient = p->machine->software.gradient_bytes;
    const double elem_bytes = sums_gradients && gradient > 0 ? gradient : (double)qdr_dtype_bytes(task->dtype);
    const double bytes = n_elems * ratio_of(p->plan, axis) * elem_bytes;
    qdri_task_price price = {.n_kernels = 1};
    const double bucket = p->machine->software.bucket_bytes;
    const int in_bucket = bucket > bytes && axis == QDR_D && sums_gradients;
    const double share = in_bucket ? bytes / bucket : 1; /* of the sum of one whole bucket */
    if (axis == QDR_D && sums_gradients) {
        price.price = sum_over_d(p, in_bucket ? bucket : bytes, &price.bytes_sent);
    } else {
        price.price = qdri_coll_price(ways, task->coll, bytes);
        price.bytes_sent = bytes_sent(&price.price, ways);
    }
    price.bytes_sent *= share;
    price.price.latency_secs *= share;
    price.price.work_secs *= share;
    price.secs = price.price.latency_secs + price.price.work_secs;
    return price;
}

/* A collective on the compute stream, during which nothing else runs there: all its time is latency. */
static qdri_task_price waited_for(const qdri_pricing *p, const qdri_task *task)
{
    qdri_task_price price = collective(p, task);
    price.n_kernels = price.secs > 0;
    price.price = (qdri_price){.latency_secs = price.secs};
    return price;
}

static qdri_task_price price_of(const qdri_pricing *p, const qdri_task *task)
{
    switch (task->kind) {
    case QDRI_TASK_PRODUCT: return product(p, task);
    case QDRI_TASK_COLLECTIVE:
        return task->stream == QDRI_STREAM_OF_COMPUTE ? waited_for(p, task) : collective(p, task);
    case QDRI_TASK_ATTENTION:
    case QDRI_TASK_ATTENTION_BACKWARD: return attention(p, task);
    default: return kernel_price(p, work_of(&p->machine->software, task));
    }
}

qdri_task_price qdri_task_price_of(const qdri_pricing *p, const qdri_task *task)
{
    qdri_task_price price = price_of(p, task);
    price.host_secs = price.n_kernels * p->machine->software.host_secs;
    if (task->kind == QDRI_TASK_COLLECTIVE && task->overlap_class == QDRI_CLASS_ROWS && price.secs > 0)
        price.host_secs += p->coll_host_secs[qdr_channel_axis(task->channel)];
    return price;
}

/* ---- the work of a task, to be measured ---- */

static int collective_sample(const qdri_task *task, const int size[QDR_N_AXES], const char *order, qdr_sample *sample)
{
    const qdr_axis axis = qdr_channel_axis(task->channel);
    int stride[QDR_N_AXES];
    qdri_order_strides(size, order, stride);
    sample->kind = QDR_SAMPLE_COLLECTIVE;
    sample->coll = task->coll;
    sample->n_ranks = size[axis];
    sample->stride = stride[axis];
    sample->n_ranks_all = size[QDR_X] * size[QDR_Y] * size[QDR_Z] * size[QDR_D];
    sample->bytes = coll_elems(task, size[axis]) * (double)qdr_dtype_bytes(task->dtype);
    return sample->n_ranks > 1 && sample->bytes > 0;
}

static int product_sample(const qdri_task *task, qdr_sample *sample)
{
    sample->kind = QDR_SAMPLE_PRODUCT;
    sample->mode = (qdr_product_mode)mode_of(task);
    sample->m = (double)task->m;
    sample->n = (double)task->n;
    sample->k = (double)task->k;
    return sample->m * sample->n * sample->k > 0;
}

int qdri_task_sample(const qdri_task *task, const int size[QDR_N_AXES], const char *order, qdr_sample *sample)
{
    static const qdr_machine_software plain = {.launch_secs = 0};
    *sample = (qdr_sample){.version = QDR_OPTS_INIT, .dtype = task->dtype};
    if (task->kind == QDRI_TASK_COLLECTIVE) return collective_sample(task, size, order, sample);
    if (task->kind == QDRI_TASK_PRODUCT) return product_sample(task, sample);
    if (task->kind == QDRI_TASK_CALLER_FORWARD || task->kind == QDRI_TASK_CALLER_BACKWARD) return 0;
    const int is_attention = task->kind == QDRI_TASK_ATTENTION || task->kind == QDRI_TASK_ATTENTION_BACKWARD;
    const kernel_work work = is_attention ? attention_work(task, 1) : work_of(&plain, task);
    sample->kind = is_attention ? QDR_SAMPLE_ATTENTION : QDR_SAMPLE_KERNEL;
    sample->bytes = work.bytes;
    sample->flops = work.flops;
    sample->n_kernels = work.n_kernels;
    return work.bytes > 0;
}
