/* SPDX-License-Identifier: Apache-2.0 */
/* Prices of roles: products and collectives have their own files, everything else is limited by memory. The bytes moved
 * count each operand once; additional traffic of a library is part of the machine's constants. */
#include "price/price.h"

#include <math.h>
#include <string.h>

#include "core/order.h"
#include "network/stages.h"
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
    const int size[QDR_N_AXES] = {plan->x, plan->y, plan->z, plan->d};
    const int n_ranks = plan->x * plan->y * plan->z * plan->d;
    const int stages = plan->pipeline > 0 ? plan->pipeline : 1;
    int stride[QDR_N_AXES];
    qdri_pricing_sizes(machine, network, plan, n_layers, pricing);
    qdri_order_strides(size, plan->order[0] ? plan->order : QDRI_USUAL_ORDER, stride);
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        const qdri_group group = qdri_group_make(machine, size[axis], stride[axis], n_ranks * stages);
        pricing->ways[axis] = qdri_ways_make(machine, &group);
        pricing->coll_host_secs[axis] = coll_host_secs(machine, &group);
    }
    part_gradients(pricing, stride[QDR_D], n_ranks * stages);
    if (qdri_is_staged(machine, plan)) qdri_pricing_gather_again(pricing);
}

/* ---- kernels ---- */

/* Work of an element-wise role: elements and flops per element of m·n. */
typedef struct work {
    double elems, flops; /* per element */
    int n_kernels;
} work;

static qdri_role_price kernel_price(const qdri_pricing *p, double bytes, double flops, int n_kernels)
{
    qdri_role_price result = {.n_kernels = n_kernels};
    result.price.latency_secs = n_kernels * p->machine->software.launch_secs;
    result.price.work_secs = qdri_kernel_secs(p->machine, bytes, flops);
    result.secs = result.price.latency_secs + result.price.work_secs;
    return result;
}

static qdri_role_price elementwise(const qdri_pricing *p, double n_elems, work w)
{
    return kernel_price(p, n_elems * w.elems * p->sizes.elem_bytes, n_elems * w.flops, w.n_kernels);
}

/* The small sums over an axis inside an operation, during which nothing else runs. */
static void add_statistics(const qdri_pricing *p, qdr_axis axis, qdr_coll_kind kind, double n_elems,
                           qdri_role_price *price)
{
    const double bytes = n_elems * (p->sizes.elem_bytes > 4 ? 8 : 4);
    const double secs = qdri_coll_secs(&p->ways[axis], kind, bytes);
    price->price.latency_secs += secs;
    price->secs += secs;
    price->n_kernels += secs > 0;
}

static qdri_role_price norm(const qdri_pricing *p, double rows, int backward)
{
    const double elems = rows * p->sizes.of[QDRI_SIZE_HIDDEN];
    const int fused = p->machine->software.fused_biases;
    qdri_role_price price = backward ? elementwise(p, elems, (work){5, 14, 2})
                                     : elementwise(p, elems, (work){fused ? 2 : 3, 8, 1});
    if (backward)
        add_statistics(p, QDR_X, QDR_ALL_REDUCE, 2 * rows, &price);
    else
        add_statistics(p, QDR_X, QDR_ALL_GATHER, 3 * rows * p->plan->x, &price);
    return price;
}

static qdri_role_price loss(const qdri_pricing *p, double rows, int backward)
{
    const double logits = rows * p->sizes.of[QDRI_SIZE_VOCAB];
    const double moved = p->machine->software.logit_bytes;
    const double bytes = moved > 0 ? moved / 2 : 2 * p->sizes.elem_bytes;
    qdri_role_price price = kernel_price(p, logits * bytes, logits * (backward ? 4 : 5), moved > 0 ? 6 : 1);
    if (backward) return price;
    add_statistics(p, QDR_Y, QDR_ALL_REDUCE, rows, &price);
    add_statistics(p, QDR_Y, QDR_ALL_REDUCE, 2 * rows, &price);
    return price;
}

/* ---- attention ---- */

static double score_product_secs(const qdri_pricing *p, double n_heads, int values)
{
    const double context = p->sizes.context, head = p->sizes.of[QDRI_SIZE_QUERIES] / p->sizes.heads;
    const qdri_product product = {.m = context,
                                  .n = values ? head : context,
                                  .k = values ? context : head,
                                  .n_products = n_heads,
                                  .dtype = p->plan->dtype,
                                  .mode = values ? QDRI_MODE_NN : QDRI_MODE_NT,
                                  .out_bytes = p->sizes.elem_bytes};
    return qdri_product_secs(p->machine, &product);
}

/* Scores are written and read: products of whole squares, with softmax between them. */
static qdri_role_price unfused_attention(const qdri_pricing *p, double rows, int backward)
{
    const double n_heads = rows / p->sizes.context * p->sizes.heads;
    const double scores = n_heads * p->sizes.context * p->sizes.context;
    const double moved = p->machine->software.score_bytes;
    const double share = backward ? 0.55 : 0.45; /* softmax reads once more in backward */
    const int times = backward ? 2 : 1;
    qdri_role_price price = kernel_price(p, scores * share * moved, 0, backward ? 6 : 4);
    const double secs = times * (score_product_secs(p, n_heads, 0) + score_product_secs(p, n_heads, 1));
    price.price.work_secs += secs;
    price.secs += secs;
    return price;
}

static qdri_role_price fused_attention(const qdri_pricing *p, double rows, int backward)
{
    const qdr_machine_products *type = qdri_machine_products(p->machine, p->plan->dtype);
    const double flops = 4 * rows * p->sizes.seen * p->sizes.of[QDRI_SIZE_QUERIES] * (backward ? 2.5 : 1);
    const double bytes = rows * p->sizes.elem_bytes * (p->sizes.of[QDRI_SIZE_QKV] + p->sizes.of[QDRI_SIZE_QUERIES]) *
                         (backward ? 2 : 1);
    qdri_role_price price = kernel_price(p, bytes, 0, backward ? 3 : 1);
    const double secs = flops / (type->peak_flops * p->machine->attention_efficiency);
    if (secs <= price.price.work_secs) return price;
    price.secs += secs - price.price.work_secs;
    price.price.work_secs = secs;
    return price;
}

static qdri_role_price attention(const qdri_pricing *p, double rows, int backward, int gathers)
{
    qdri_role_price price = p->machine->attention_efficiency > 0 ? fused_attention(p, rows, backward)
                                                                 : unfused_attention(p, rows, backward);
    if (!gathers) return price;
    const double key_columns = p->sizes.of[QDRI_SIZE_QKV] - p->sizes.of[QDRI_SIZE_QUERIES];
    const double bytes = rows * key_columns * p->plan->y * p->sizes.elem_bytes;
    const double secs = qdri_coll_secs(&p->ways[QDR_Y], backward ? QDR_REDUCE_SCATTER : QDR_ALL_GATHER, bytes);
    price.price.latency_secs += secs;
    price.secs += secs;
    price.n_kernels++;
    return price;
}

static qdri_role_price operation(const qdri_pricing *p, const qdri_role *role)
{
    const int backward = role->kind == QDRI_TASK_BACKWARD;
    const double rows = p->sizes.of[role->m];
    const int gathers = role->gathers_keys;
    switch (role->node_kind) {
    case QDRI_NODE_NORM: return norm(p, rows, backward);
    case QDRI_NODE_ATTENTION: return attention(p, rows, backward, gathers);
    case QDRI_NODE_GELU:
        return elementwise(p, rows * p->sizes.of[QDRI_SIZE_FFN], backward ? (work){3, 20, 1} : (work){2, 12, 1});
    case QDRI_NODE_RESIDUAL: return elementwise(p, rows * p->sizes.of[QDRI_SIZE_HIDDEN], (work){3, 1, 1});
    case QDRI_NODE_CROSS_ENTROPY: return loss(p, rows, backward);
    case QDRI_NODE_USER:
        if (role->is_gate)
            return elementwise(p, rows * p->sizes.of[QDRI_SIZE_FFN], backward ? (work){5, 20, 1} : (work){3, 12, 1});
        return elementwise(p, rows * p->sizes.of[QDRI_SIZE_QKV], (work){2, 6, 1});
    case QDRI_NODE_LINEAR:
    case QDRI_NODE_EMBEDDING:
    case QDRI_N_NODE_KINDS: break;
    }
    return (qdri_role_price){.secs = 0};
}

/* ---- products, collectives, and others ---- */

static qdri_role_price product(const qdri_pricing *p, const qdri_role *role)
{
    const qdri_product what = {.m = p->sizes.of[role->m],
                               .n = p->sizes.of[role->n],
                               .k = p->sizes.of[role->k],
                               .n_products = 1,
                               .dtype = p->plan->dtype,
                               .mode = role->trans_a   ? QDRI_MODE_TN
                                       : role->trans_b ? QDRI_MODE_NT
                                                       : QDRI_MODE_NN,
                               .out_bytes = role->is_gradient ? p->sizes.gradient_bytes : p->sizes.elem_bytes,
                               .accumulate = role->accumulate};
    qdri_role_price price = kernel_price(
        p, role->is_gradient ? what.m * what.n * p->machine->software.weight_gradient_bytes : 0, 0, 1);
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

static qdri_role_price collective(const qdri_pricing *p, const qdri_role *role)
{
    const qdr_axis axis = qdr_channel_axis(role->channel);
    const qdri_ways *ways = &p->ways[axis];
    const double n_elems = p->sizes.of[role->m] * p->sizes.of[role->n] * (role->per_member ? ways->n_ranks : 1);
    const double gradient = p->machine->software.gradient_bytes;
    const double elem_bytes = !role->is_gradient ? p->sizes.elem_bytes
                              : gradient > 0     ? gradient
                                                 : p->sizes.gradient_bytes;
    const double bytes = n_elems * ratio_of(p->plan, axis) * elem_bytes;
    qdri_role_price price = {.n_kernels = 1};
    const double bucket = p->machine->software.bucket_bytes;
    const int in_bucket = bucket > bytes && axis == QDR_D && role->is_gradient;
    const double share = in_bucket ? bytes / bucket : 1; /* of the sum of one whole bucket */
    if (axis == QDR_D && role->is_gradient) {
        price.price = sum_over_d(p, in_bucket ? bucket : bytes, &price.bytes_sent);
    } else {
        price.price = qdri_coll_price(ways, role->coll, bytes);
        price.bytes_sent = bytes_sent(&price.price, ways);
    }
    price.bytes_sent *= share;
    price.price.latency_secs *= share;
    price.price.work_secs *= share;
    price.secs = price.price.latency_secs + price.price.work_secs;
    return price;
}

static qdri_role_price addition(const qdri_pricing *p, const qdri_role *role, double n_elems)
{
    const double bytes = role->is_gradient ? p->sizes.gradient_bytes : p->sizes.elem_bytes;
    return kernel_price(p, n_elems * bytes * (role->accumulate ? 3 : 2), n_elems, 1);
}

static qdri_role_price price_of(const qdri_pricing *p, const qdri_role *role)
{
    const double n_elems = p->sizes.of[role->m] * p->sizes.of[role->n];
    switch (role->kind) {
    case QDRI_TASK_PRODUCT: return product(p, role);
    case QDRI_TASK_COLLECTIVE: return collective(p, role);
    case QDRI_TASK_FORWARD:
    case QDRI_TASK_BACKWARD: return operation(p, role);
    case QDRI_TASK_BIAS_ADD:
        if (p->machine->software.fused_biases) break;
        return elementwise(p, n_elems, (work){2, 1, 1});
    case QDRI_TASK_COLUMN_SUM:
    case QDRI_TASK_POSITION_SUM: return elementwise(p, n_elems, (work){1, 1, 1});
    case QDRI_TASK_ADD: return addition(p, role, n_elems);
    case QDRI_TASK_EMBED:
    case QDRI_TASK_POSITION_ADD:
    case QDRI_TASK_SUM_PARTS: return elementwise(p, n_elems, (work){2, 1, 1});
    case QDRI_TASK_EMBED_SUM: return elementwise(p, n_elems, (work){3, 1, 1});
    }
    return (qdri_role_price){.secs = 0};
}

qdri_role_price qdri_role_price_of(const qdri_pricing *p, const qdri_role *role)
{
    qdri_role_price price = price_of(p, role);
    price.host_secs = price.n_kernels * p->machine->software.host_secs;
    if (role->kind == QDRI_TASK_COLLECTIVE && role->overlap_class == QDRI_CLASS_ROWS && price.secs > 0)
        price.host_secs += p->coll_host_secs[qdr_channel_axis(role->channel)];
    return price;
}

qdr_time_term qdri_role_term(const qdri_role *role)
{
    if (role->whose != QDRI_OF_LAYER) return QDR_TIME_ENDS;
    if (role->kind == QDRI_TASK_PRODUCT) return QDR_TIME_PRODUCTS;
    const int runs = role->kind == QDRI_TASK_FORWARD || role->kind == QDRI_TASK_BACKWARD;
    return runs && role->node_kind == QDRI_NODE_ATTENTION ? QDR_TIME_ATTENTION : QDR_TIME_KERNELS;
}
