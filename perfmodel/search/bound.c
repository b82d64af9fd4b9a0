/* SPDX-License-Identifier: Apache-2.0 */
/* Lower bounds. The cost of an axis depends on the order only through the set of faster axes, so for all 24 orders at
 * most eight sums per axis are needed. */
#include "search/search.h"

#include <math.h>
#include <string.h>

#include "core/codec.h"
#include "core/order.h"

/* How often a task of the lists, which have one layer of each kind, occurs. */
static double times_of(const qdri_bounds *b, const qdri_task *task)
{
    const int layer = qdri_lists_layer(b->lists, task);
    return (layer < 0 ? 1 : b->n_layers) * qdri_lists_share(b->lists, layer);
}

/* Those with the same price are counted together. */
static void add_transfer(qdri_transfers *all, const qdri_task *task, qdri_list_kind kind, double times)
{
    int i = 0;
    for (; i < all->n; i++) {
        const qdri_task *other = all->of[i].task;
        if (other->coll == task->coll && other->count == task->count && other->split_unit == task->split_unit &&
            other->dtype == task->dtype && other->overlap_class == task->overlap_class && other->stream == task->stream)
            break;
    }
    if (i == QDRI_MOST_TRANSFERS) return;
    if (i == all->n) all->of[all->n++] = (qdri_transfer){.task = task};
    all->of[i].times[kind] += times;
}

/* Rows that are gathered while a layer is repeated: dY of its last product, and X, for dW alone. */
static int is_beside_chain(const qdri_bounds *b, const qdri_task *task, qdri_list_kind kind)
{
    const qdri_net *net = &b->lists->net;
    if (net->opts.recompute != QDR_RECOMPUTE_FULL || !qdri_is_backward(kind) || task->node < 0) return 0;
    const qdri_node *node = &net->nodes[task->node];
    return task->overlap_class == QDRI_CLASS_ROWS && task->coll == QDR_ALL_GATHER && node->segment &&
           node->again_at < 0;
}

static void add_list(qdri_bounds *b, qdri_list_kind kind)
{
    const qdri_schedule *list = &b->lists->of[kind].schedule;
    const int is_coded = !qdri_codecs_are_none(&b->pricing.plan->codecs); /* which depends on the order */
    for (int i = 0; i < list->n_tasks; i++) {
        const qdri_task *task = &list->tasks[i];
        if (task->kind == QDRI_TASK_COLLECTIVE) {
            if (is_coded || is_beside_chain(b, task, kind)) continue;
            add_transfer(&b->transfers[qdri_group_kind_of(task->channel)], task, kind, times_of(b, task));
            continue;
        }
        if (task->stream != QDRI_STREAM_OF_COMPUTE) continue;
        const double secs = times_of(b, task) * qdri_task_price_of(&b->pricing, task).secs;
        b->sums[kind].processor += secs;
        if (!task->parameter_gradient) b->sums[kind].chain += secs;
    }
}

/* What lists with nothing repeated lack: the tasks of nodes that are made again, but for norms, which repeat less. */
static void add_again(qdri_bounds *b, qdri_net *net, qdr_recompute recompute)
{
    const qdri_schedule *list = &b->lists->of[QDRI_LIST_FORWARD].schedule;
    net->opts.recompute = recompute;
    if (qdri_net_choose_lives(net) != QDR_OK) return; /* nothing can be repeated */
    for (int i = 0; i < list->n_tasks; i++) {
        const qdri_task *task = &list->tasks[i];
        if (task->kind == QDRI_TASK_COLLECTIVE || task->stream != QDRI_STREAM_OF_COMPUTE || task->node < 0) continue;
        if (net->nodes[task->node].again_at < 0 || net->nodes[task->node].kind == QDRI_NODE_NORM) continue;
        b->again_secs[recompute] += times_of(b, task) * qdri_task_price_of(&b->pricing, task).secs;
    }
}

void qdri_bounds_make(qdri_lists *lists, const qdri_pricing *pricing, double n_layers, qdri_grid_ways *ways,
                      qdri_bounds *b)
{
    const qdri_position grid = qdri_plan_position(pricing->plan);
    double host_secs; /* the bound is the device's */
    if (memcmp(&ways->position, &grid, sizeof grid) != 0) {
        ways->position = grid;
        memset(ways->known, 0, sizeof ways->known);
    }
    b->ways = ways;
    for (int group = 0; group < QDRI_N_GROUPS; group++) b->transfers[group].n = 0;
    memset(b->sums, 0, sizeof b->sums);
    memset(b->known, 0, sizeof b->known);
    memset(b->again_secs, 0, sizeof b->again_secs);
    b->lists = lists;
    b->pricing = *pricing;
    b->n_layers = n_layers;
    /* Transfers are bounded separately; in groups of one rank they take no time. */
    for (int group = 0; group < QDRI_N_GROUPS; group++) b->pricing.ways[group] = (qdri_ways){.n_ranks = 1};
    for (int kind = 0; kind < QDRI_N_LIST_KINDS; kind++) add_list(b, (qdri_list_kind)kind);
    if (qdri_listed_recompute(pricing->plan) == QDR_RECOMPUTE_NONE) {
        add_again(b, &lists->net, QDR_RECOMPUTE_OPERATIONS);
        add_again(b, &lists->net, QDR_RECOMPUTE_FULL);
    }
    b->optimizer_secs = qdri_optimizer_secs(lists, &b->pricing, n_layers, &host_secs);
}

/* ---- transfers ---- */

static const qdri_ways *ways_of(const qdri_bounds *b, int kind, int faster, int stride)
{
    qdri_grid_ways *all = b->ways;
    const int *size = all->position.size;
    if (!(all->known[kind] >> faster & 1)) {
        const qdri_group group = qdri_group_on(b->pricing.machine, &all->position, kind, stride,
                                               size[QDR_X] * size[QDR_Y] * size[QDR_Z] * size[QDR_D]);
        all->of[kind][faster] = qdri_ways_make(b->pricing.machine, &group);
        all->known[kind] = (unsigned short)(all->known[kind] | 1 << faster);
    }
    return &all->of[kind][faster];
}

/* The sums of a kind of group for a set of faster axes, one bit for each. */
static const qdri_axis_sums *group_sums(qdri_bounds *b, int kind_of_group, int faster, int stride)
{
    qdri_axis_sums *sums = b->group[kind_of_group][faster];
    if (b->known[kind_of_group] >> faster & 1) return sums;
    b->known[kind_of_group] = (unsigned short)(b->known[kind_of_group] | 1 << faster);
    b->pricing.ways[kind_of_group] = *ways_of(b, kind_of_group, faster, stride);
    const qdri_transfers *all = &b->transfers[kind_of_group];
    const int n_links = b->pricing.machine->n_links;
    memset(sums, 0, QDRI_N_LIST_KINDS * sizeof *sums);
    for (int i = 0; i < all->n; i++) {
        const qdri_task *task = all->of[i].task;
        const qdri_task_price price = qdri_task_price_of(&b->pricing, task);
        for (int kind = 0; kind < QDRI_N_LIST_KINDS; kind++) {
            const double all_secs = all->of[i].times[kind] * price.secs;
            const double work_secs = all->of[i].times[kind] * price.price.work_secs;
            for (int l = 0; l < n_links; l++) sums[kind].link[l] += work_secs * price.price.use[l];
            if (task->overlap_class == QDRI_CLASS_GRADIENTS)
                sums[kind].gradients += all_secs;
            else if (task->overlap_class == QDRI_CLASS_WEIGHTS)
                sums[kind].weights += all_secs;
            else
                sums[kind].rows += all_secs;
        }
    }
    b->pricing.ways[kind_of_group] = (qdri_ways){.n_ranks = 1};
    return sums;
}

/* ---- the bound ---- */

/* Sums over all axes in an order. */
typedef struct order_sums {
    double rows[QDRI_N_LIST_KINDS]; /* over all axes */
    double stream[QDRI_N_LIST_KINDS]; /* the longest stream of transfers */
    double link[QDRI_N_LIST_KINDS][QDR_MAX_LINKS]; /* of all streams, which share it */
    double returns; /* of parameters, one after the other */
} order_sums;

static double list_secs(const qdri_bounds *b, const order_sums *all, qdri_list_kind kind)
{
    const int has_chain = b->lists->is_chain;
    const double chain = has_chain ? b->sums[kind].chain + all->rows[kind] : 0;
    double secs = fmax(fmax(b->sums[kind].processor, chain), all->stream[kind]);
    for (int l = 0; l < b->pricing.machine->n_links; l++) secs = fmax(secs, all->link[kind][l]);
    return secs;
}

/* What returns add to the first forward, or to the end of a step. */
static double returns_secs(const qdri_bounds *b, const order_sums *all, double forward)
{
    if (b->pricing.machine->software.returns_after_step) return all->returns;
    return fmax(0, list_secs(b, all, QDRI_LIST_FORWARD_FIRST) - forward);
}

/* A step, of which `rest` takes no part in passes. */
static void step_secs(const qdri_bounds *b, const order_sums *all, double rest, double secs[QDRI_N_RECOMPUTES])
{
    const double forward = list_secs(b, all, QDRI_LIST_FORWARD);
    if (qdri_has_returns(b->lists)) rest += returns_secs(b, all, forward);
    if (b->lists->n_micro <= 1)
        rest += list_secs(b, all, QDRI_LIST_BACKWARD_ONLY);
    else
        rest += (b->lists->n_micro - 1) * list_secs(b, all, QDRI_LIST_BACKWARD_BEFORE) +
                list_secs(b, all, QDRI_LIST_BACKWARD_LAST);
    /* What is repeated adds to a layer's time. */
    for (int r = 0; r < QDRI_N_RECOMPUTES; r++) secs[r] = b->lists->n_micro * (forward + b->again_secs[r]) + rest;
}

void qdri_bound_work(const qdri_bounds *b, double n_micro, double secs[QDRI_N_RECOMPUTES])
{
    const order_sums none = {.rows = {0}};
    step_secs(b, &none, 0, secs);
    for (int r = 0; r < QDRI_N_RECOMPUTES; r++) secs[r] *= n_micro;
}

static void add_sums(const qdri_axis_sums *sums, order_sums *all, int kind_of_group)
{
    for (int kind = 0; kind < QDRI_N_LIST_KINDS; kind++) {
        all->rows[kind] += sums[kind].rows;
        all->stream[kind] = fmax(all->stream[kind], fmax(sums[kind].weights, sums[kind].gradients));
        for (int l = 0; l < QDR_MAX_LINKS; l++) all->link[kind][l] += sums[kind].link[l];
    }
    if (kind_of_group >= QDR_N_AXES) all->returns += sums[QDRI_LIST_FORWARD_FIRST].weights;
}

void qdri_bound_secs(qdri_bounds *b, const char *order, double secs[QDRI_N_RECOMPUTES])
{
    const qdr_plan *plan = b->pricing.plan;
    const int size[QDR_N_AXES] = {plan->x, plan->y, plan->z, plan->d};
    order_sums all;
    int faster = 0, stride = 1;
    memset(&all, 0, sizeof all);
    for (int i = 0; i < QDR_N_AXES; i++) {
        const int axis = qdri_axis_of(order[i]);
        for (int kind = 0; kind < QDRI_N_GROUPS && size[axis] > 1; kind++)
            if (kind == axis ||
                (kind >= QDR_N_AXES && b->transfers[kind].n && (int)qdr_channel_axis(qdri_group_channel(kind)) == axis))
                add_sums(group_sums(b, kind, faster, stride), &all, kind);
        faster |= size[axis] > 1 ? 1 << axis : 0;
        stride *= size[axis];
    }
    step_secs(b, &all, b->optimizer_secs, secs);
}
