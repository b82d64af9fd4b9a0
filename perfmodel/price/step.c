/* SPDX-License-Identifier: Apache-2.0 */
/* A step: forward and backward passes of micro-batches, stages of a pipeline, the optimizer.
 *
 * A list of few layers of each kind is simulated. From the third on, each of a kind takes as long as the one before, so
 * a list with L layers of a kind ends L - 4 of its times after this one. A stream that falls further behind the
 * processor with every layer (such as sums of gradients on a slow network) may end last instead, according to its own
 * time per layer. */
#include "price/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/size.h"

void qdri_step_work_free(qdri_step_work *work)
{
    free(work->prices);
    free(work->spans);
    free(work->next);
    *work = (qdri_step_work){.capacity = 0};
}

qdr_status qdri_step_work_reserve(qdri_step_work *work, int n_tasks)
{
    if (work->capacity >= n_tasks) return QDR_OK;
    qdri_step_work_free(work);
    QDR_TRY(QDRI_NEW(n_tasks, "a simulation", &work->prices));
    QDR_TRY(QDRI_NEW(n_tasks, "a simulation", &work->spans));
    QDR_TRY(QDRI_NEW(n_tasks, "a simulation", &work->next));
    work->capacity = n_tasks;
    return QDR_OK;
}

qdr_status qdri_list_simulate(const qdri_lists *lists, const qdri_pricing *pricing, qdri_list_kind kind,
                              qdri_step_work *work, qdri_sim_times *times)
{
    const qdri_list *list = &lists->of[kind];
    QDR_TRY(qdri_step_work_reserve(work, list->schedule.n_tasks));
    qdri_list_price(lists, pricing, kind);
    for (int i = 0; i < list->schedule.n_tasks; i++) work->prices[i] = list->prices[i].price;
    qdri_simulate(pricing->machine, &list->schedule, work->prices, work->next, times, work->spans);
    return QDR_OK;
}

/* ---- one list ---- */

typedef struct amount {
    double secs, time[QDR_N_TIME_TERMS], busy[QDR_N_AXES];
    double host_secs; /* for enqueuing */
} amount;

/* One forward or backward pass of a stage's parts: of each layer, and, in addition to the layers, of the embedding, and
 * of head and loss. The terms of each part add up to its time. */
enum { OF_LAYER, OF_FIRST, OF_LAST };
typedef struct phase {
    amount part[3];
} phase;

static void add_amount(const amount *a, double times, amount *sum)
{
    sum->secs += times * a->secs;
    for (int t = 0; t < QDR_N_TIME_TERMS; t++) sum->time[t] += times * a->time[t];
    for (int axis = 0; axis < QDR_N_AXES; axis++) sum->busy[axis] += times * a->busy[axis];
    sum->host_secs += times * a->host_secs;
}

/* Adds a time that belongs to one term. */
static void add_secs(double secs, qdr_time_term term, amount *sum)
{
    sum->secs += secs;
    sum->time[term] += secs;
}

/* The time from one layer of a kind to the next on a stream: between the two middle ones. */
static double growth_of(const qdri_lists *lists, const qdri_list *list, const qdri_step_work *work, int stream,
                        int kind)
{
    const int middle = kind * lists->n_each + 1;
    const int a = list->last_of_layer[middle][stream], b = list->last_of_layer[middle + 1][stream];
    return a < 0 || b < 0 ? 0 : fabs(work->spans[b].end_secs - work->spans[a].end_secs);
}

/* Of all layers, on average. */
static double growth(const qdri_lists *lists, const qdri_list *list, const qdri_step_work *work, int stream)
{
    double secs = 0;
    for (int kind = 0; kind < lists->n_kinds; kind++)
        secs += lists->share[kind] * growth_of(lists, list, work, stream, kind);
    return secs;
}

/* When a stream would end with n_layers, if it ends at list_secs with those of the list. */
static double extended(const qdri_lists *lists, const qdri_list *list, const qdri_step_work *work, int stream,
                       double list_secs, double n_layers)
{
    for (int kind = 0; kind < lists->n_kinds; kind++)
        list_secs += (n_layers * lists->share[kind] - lists->n_each) * growth_of(lists, list, work, stream, kind);
    return list_secs;
}

qdr_time_term qdri_task_term(const qdri_lists *lists, const qdri_task *task)
{
    if (task->kind == QDRI_TASK_COLLECTIVE)
        return (qdr_time_term)((int)QDR_TIME_X + (int)qdr_channel_axis(task->channel));
    if (qdri_lists_layer(lists, task) < 0) return QDR_TIME_ENDS;
    if (task->again) return QDR_TIME_RECOMPUTE;
    if (task->kind == QDRI_TASK_PRODUCT) return QDR_TIME_PRODUCTS;
    return lists->net.nodes[task->node].makes_scores ? QDR_TIME_ATTENTION : QDR_TIME_KERNELS;
}

int qdri_is_attention(const qdri_lists *lists, const qdri_task *task)
{
    return qdri_lists_layer(lists, task) >= 0 && lists->net.nodes[task->node].makes_scores;
}

/* Adds the times of tasks, by term, for an average layer, for the first and for the last part. */
static void add_up_tasks(const qdri_lists *lists, const qdri_list *list, phase *p)
{
    for (int i = 0; i < list->schedule.n_tasks; i++) {
        const qdri_task *task = &list->schedule.tasks[i];
        const int layer = qdri_lists_layer(lists, task);
        amount *part = &p->part[layer == QDRI_LAYER_FIRST ? OF_FIRST : layer == QDRI_LAYER_LAST ? OF_LAST : OF_LAYER];
        const double share = qdri_lists_share(lists, layer), secs = share * list->prices[i].secs;
        part->host_secs += share * list->prices[i].host_secs;
        if (task->kind == QDRI_TASK_COLLECTIVE) part->busy[qdr_channel_axis(task->channel)] += secs;
        if (task->stream == QDRI_STREAM_OF_COMPUTE) part->time[qdri_task_term(lists, task)] += secs;
    }
}

/* The time of a part beyond its work on the processor was spent waiting, or on work slowed down by transfers. */
static void add_waiting(const qdri_sim_times *times, amount *part)
{
    double all = 0, by_axis[QDR_N_AXES] = {0}, work_secs = 0;
    for (int t = 0; t < QDR_N_TIME_TERMS; t++) work_secs += part->time[t];
    const double left = part->secs - work_secs;
    for (int s = 1; s < QDRI_N_STREAMS; s++) {
        by_axis[qdr_channel_axis((qdr_channel)(s - 1))] += times->exposed[s];
        all += times->exposed[s];
    }
    if (!(all > 0)) {
        part->time[QDR_TIME_PRODUCTS] += left;
        return;
    }
    for (int axis = 0; axis < QDR_N_AXES; axis++) part->time[QDR_TIME_X + axis] += left * by_axis[axis] / all;
}

/* The time for which the transfers of n_layers use up the link that they use most. */
static double link_secs(const qdri_lists *lists, const qdri_list *list, double n_layers)
{
    double each[QDR_MAX_LINKS] = {0}, most = 0;
    for (int i = 0; i < list->schedule.n_tasks; i++) {
        const qdri_task *task = &list->schedule.tasks[i];
        const int layer = qdri_lists_layer(lists, task);
        const double times = (layer < 0 ? 1 : n_layers) * qdri_lists_share(lists, layer);
        const qdri_price *price = &list->prices[i].price;
        if (task->kind != QDRI_TASK_COLLECTIVE) continue;
        for (int l = 0; l < QDR_MAX_LINKS; l++) each[l] += times * price->work_secs * price->use[l];
    }
    for (int l = 0; l < QDR_MAX_LINKS; l++) most = fmax(most, each[l]);
    return most;
}

static qdr_status make_phase(const qdri_lists *lists, qdri_list_kind kind, double n_layers, const qdri_pricing *pricing,
                             qdri_step_work *work, phase *p)
{
    const qdri_list *list = &lists->of[kind];
    const int backward = qdri_is_backward(kind);
    amount *layer = &p->part[OF_LAYER], *first = &p->part[OF_FIRST], *last = &p->part[OF_LAST];
    qdri_sim_times times;
    memset(p, 0, sizeof *p);
    QDR_TRY(qdri_list_simulate(lists, pricing, kind, work, &times));
    layer->secs = growth(lists, list, work, QDRI_STREAM_OF_COMPUTE);
    add_up_tasks(lists, list, p);
    /* The times at the list's beginning and end, in addition to the layers. */
    const double ends = extended(lists, list, work, QDRI_STREAM_OF_COMPUTE, times.end_secs, 0);
    const int begin = backward ? list->last_of_last : list->last_of_first;
    const double at_begin = fmax(0, fmin(begin < 0 ? 0 : work->spans[begin].end_secs, ends));
    first->secs = backward ? ends - at_begin : at_begin;
    last->secs = backward ? at_begin : ends - at_begin;
    /* A stream that falls behind ends last if there are enough layers. Only sums of gradients can do so: for everything
     * else the processor waits, and what is gathered ahead of the first layers, for which it has not waited yet, says
     * nothing about later layers. */
    const double by_processor = extended(lists, list, work, QDRI_STREAM_OF_COMPUTE, times.end_secs, n_layers);
    static const qdr_channel sums[] = {QDR_CHANNEL_Z_REDUCE, QDR_CHANNEL_D_REDUCE, QDR_CHANNEL_D_NEAR,
                                       QDR_CHANNEL_D_FAR, QDR_CHANNEL_D_COPIES};
    for (int i = 0; backward && i < (int)(sizeof sums / sizeof *sums); i++) {
        const int s = QDRI_STREAM_OF_CHANNEL(sums[i]);
        const double late = extended(lists, list, work, s, times.stream_end[s], n_layers) - by_processor;
        if (growth(lists, list, work, s) > layer->secs && late > 0)
            layer->secs = fmax(layer->secs, (by_processor + late - first->secs - last->secs) / n_layers);
    }
    const double by_links = link_secs(lists, list, n_layers);
    layer->secs = fmax(layer->secs, (by_links - first->secs - last->secs) / n_layers);
    for (int i = 0; i < 3; i++) add_waiting(&times, &p->part[i]);
    return QDR_OK;
}

/* ---- a stage ---- */

/* The time of a phase on a stage, including the host that enqueues it. */
static amount stage_phase(const phase *p, const qdr_machine_software *software, double n_layers, int is_first,
                          int is_last)
{
    amount a = {.secs = 0};
    add_amount(&p->part[OF_LAYER], n_layers, &a);
    if (is_first) add_amount(&p->part[OF_FIRST], 1, &a);
    if (is_last) add_amount(&p->part[OF_LAST], 1, &a);
    const double secs = qdri_secs_with_host(software, a.secs, a.host_secs);
    a.time[QDR_TIME_HOST] += secs - a.secs;
    a.secs = secs;
    return a;
}

/* The priced lists of one micro-batch. */
typedef struct phases {
    phase forward, first_forward, before, last;
    int has_returns; /* the first forward takes longer than the others */
    double n_micro;
} phases;

/* Recomputation by other software: the forward pass of the layers again, or of their attention. */
static void add_recompute(const qdri_lists *lists, const qdri_pricing *pricing, const phase *forward, phase *backward)
{
    const qdri_list *list = &lists->of[QDRI_LIST_FORWARD];
    const amount *again = &forward->part[OF_LAYER];
    amount *layer = &backward->part[OF_LAYER];
    double secs = 0;
    if (pricing->plan->recompute == QDR_RECOMPUTE_LAYERS) {
        secs = again->secs;
        layer->host_secs += again->host_secs;
        for (int axis = 0; axis < QDR_N_AXES; axis++) layer->busy[axis] += again->busy[axis];
    } else if (pricing->plan->recompute == QDR_RECOMPUTE_ATTENTION) {
        for (int i = 0; i < list->schedule.n_tasks; i++) {
            if (!qdri_is_attention(lists, &list->schedule.tasks[i])) continue;
            const double share = qdri_lists_share(lists, qdri_lists_layer(lists, &list->schedule.tasks[i]));
            secs += share * list->prices[i].secs;
            layer->host_secs += share * list->prices[i].host_secs;
        }
    }
    add_secs(secs, QDR_TIME_RECOMPUTE, layer);
}

/* Returns overlap with the layers before, and the more layers there are, the more of the last one's, too: that of the
 * head is the largest. Without overlap each layer has its own, all before the first layer. */
static qdr_status make_first_forward(const qdri_lists *lists, double n_layers, const qdri_pricing *pricing,
                                     qdri_step_work *work, phases *all)
{
    const qdri_list *list = &lists->of[QDRI_LIST_FORWARD_FIRST];
    phase *first = &all->first_forward;
    QDR_TRY(make_phase(lists, QDRI_LIST_FORWARD_FIRST, n_layers, pricing, work, first));
    const double each = fmax(growth(lists, list, work, QDRI_STREAM_OF_CHANNEL(QDR_CHANNEL_D_NEAR)),
                             growth(lists, list, work, QDRI_STREAM_OF_CHANNEL(QDR_CHANNEL_D_FAR)));
    const int n_listed = lists->n_kinds * lists->n_each;
    if (pricing->plan->overlap && !(pricing->plan->overlap & QDR_OVERLAP_WEIGHTS)) {
        const double layer_secs = growth(lists, list, work, QDRI_STREAM_OF_COMPUTE) + each;
        add_secs(layer_secs - first->part[OF_LAYER].secs, QDR_TIME_D, &first->part[OF_LAYER]);
        add_secs(-n_listed * each, QDR_TIME_D, &first->part[OF_FIRST]);
        return QDR_OK;
    }
    const double more = first->part[OF_LAST].secs - all->forward.part[OF_LAST].secs;
    const double all_secs = first->part[OF_FIRST].secs + n_layers * first->part[OF_LAYER].secs +
                            first->part[OF_LAST].secs;
    const double room = fmin((n_layers - n_listed) * (first->part[OF_LAYER].secs - each),
                             all_secs - link_secs(lists, list, n_layers));
    if (more > 0 && room > 0) add_secs(-fmin(more, room), QDR_TIME_D, &first->part[OF_LAST]);
    return QDR_OK;
}

static qdr_status make_phases(const qdri_lists *lists, double n_layers, const qdri_pricing *pricing,
                              qdri_step_work *work, phases *all)
{
    all->n_micro = lists->n_micro;
    QDR_TRY(make_phase(lists, QDRI_LIST_FORWARD, n_layers, pricing, work, &all->forward));
    all->has_returns = qdri_has_returns(lists);
    if (all->has_returns) QDR_TRY(make_first_forward(lists, n_layers, pricing, work, all));
    QDR_TRY(make_phase(lists, qdri_last_list(lists), n_layers, pricing, work, &all->last));
    add_recompute(lists, pricing, &all->forward, &all->last);
    all->before = all->last;
    if (all->n_micro <= 1) return QDR_OK;
    QDR_TRY(make_phase(lists, QDRI_LIST_BACKWARD_BEFORE, n_layers, pricing, work, &all->before));
    add_recompute(lists, pricing, &all->forward, &all->before);
    return QDR_OK;
}

/* One forward and one backward pass of a stage. */
static amount slot_of(const phases *all, const phase *backward, const qdr_machine_software *software, double n_layers,
                      int is_first, int is_last)
{
    amount slot = stage_phase(&all->forward, software, n_layers, is_first, is_last);
    const amount back = stage_phase(backward, software, n_layers, is_first, is_last);
    add_amount(&back, 1, &slot);
    if (software->host_power > 0) add_secs(software->microbatch_secs, QDR_TIME_HOST, &slot);
    return slot;
}

/* ---- the pipeline ---- */

/* Messages between stages for one micro-batch: activations forward, their gradients back. If a stage's ranks have
 * copies, each sends a part, and the parts are gathered by the receivers (Narayanan et al. 2021, 4.1). */
static double send_secs(const qdri_pricing *pricing)
{
    const qdr_plan *plan = pricing->plan;
    const int in_stage = plan->x * plan->y * plan->z * plan->d;
    const qdri_group group = qdri_group_make(pricing->machine, 2, in_stage, in_stage * plan->pipeline);
    const qdri_ways ways = qdri_ways_make(pricing->machine, &group);
    const double whole = pricing->sizes.of[QDRI_SIZE_ROWS] * pricing->sizes.of[QDRI_SIZE_HIDDEN] *
                         pricing->sizes.elem_bytes;
    const double gather = plan->layout == QDR_SCATTERED ? 0
                                                        : qdri_coll_secs(&pricing->ways[QDR_Y], QDR_ALL_GATHER, whole);
    return 2 * (qdri_coll_secs(&ways, QDR_SEND_RECV, whole / plan->y) + gather);
}

/* Stages of a pipeline: a slot is one forward and one backward pass. */
typedef struct pipe {
    amount first, middle, last;
} pipe;

static pipe make_pipe(const phases *all, const phase *backward, const qdri_pricing *pricing, const qdri_stages *stages,
                      double memory_bytes)
{
    const qdr_machine *machine = pricing->machine;
    const qdr_machine_software *software = &machine->software;
    const double nodes = qdri_job_nodes(machine, pricing->plan);
    const int many = software->stall_nodes > 0 && nodes >= software->stall_nodes;
    const int full = software->stall_memory_share > 0 &&
                     memory_bytes > software->stall_memory_share * machine->memory_bytes;
    /* For each neighbour, per micro-batch. */
    const double stall = pricing->stall_secs + (many || full ? software->stall_secs : 0);
    pipe p = {.first = slot_of(all, backward, software, stages->first, 1, 0),
              .middle = slot_of(all, backward, software, stages->middle, 0, 0),
              .last = slot_of(all, backward, software, stages->last, 0, 1)};
    add_secs(stall, QDR_TIME_BUBBLE, &p.first);
    add_secs(2 * stall, QDR_TIME_BUBBLE, &p.middle);
    add_secs(stall, QDR_TIME_BUBBLE, &p.last);
    return p;
}

static const amount *slowest_of(const pipe *p, int n_stages)
{
    const amount *slowest = p->first.secs > p->last.secs ? &p->first : &p->last;
    return n_stages > 2 && p->middle.secs > slowest->secs ? &p->middle : slowest;
}

/* The slowest stage is always busy, except while the others fill and drain (Narayanan et al. 2021, 2.2). */
static void run_pipeline(const phases *all, const qdri_pricing *pricing, const qdri_stages *stages, double memory_bytes,
                         amount *step)
{
    const int v = pricing->plan->interleave > 1 ? pricing->plan->interleave : 1;
    const double sends = send_secs(pricing) * v;
    const pipe before = make_pipe(all, &all->before, pricing, stages, memory_bytes),
               end = make_pipe(all, &all->last, pricing, stages, memory_bytes);
    const amount *slowest = slowest_of(&before, stages->n);
    const double others = before.first.secs + before.last.secs - slowest->secs + (stages->n - 2) * before.middle.secs +
                          (stages->n - 1) * sends;
    add_amount(slowest, all->n_micro - 1, step);
    add_amount(slowest_of(&end, stages->n), 1, step);
    add_secs(all->n_micro * sends + others / v, QDR_TIME_BUBBLE, step);
}

/* ---- the optimizer ---- */

double qdri_optimizer_secs(const qdri_lists *lists, const qdri_pricing *pricing, double n_layers, double *host_secs)
{
    const int has_head = pricing->plan->pipeline <= 1;
    double secs = 0;
    *host_secs = 0;
    for (int i = 0; i < lists->step.n_tasks; i++) {
        const int layer = qdri_lists_layer(lists, &lists->step.tasks[i]);
        if (layer > 0 || (layer == QDRI_LAYER_LAST && !has_head)) continue; /* layers are alike */
        const qdri_task_price price = qdri_task_price_of(pricing, &lists->step.tasks[i]);
        const double times = layer == 0 ? n_layers : 1;
        secs += times * price.secs;
        *host_secs += times * price.host_secs;
    }
    return secs;
}

static void add_optimizer(const qdri_lists *lists, const qdri_pricing *pricing, double n_layers, amount *step)
{
    double host_secs;
    const double secs = qdri_optimizer_secs(lists, pricing, n_layers, &host_secs);
    add_secs(secs, QDR_TIME_OPTIMIZER, step);
    add_secs(qdri_secs_with_host(&pricing->machine->software, secs, host_secs) - secs, QDR_TIME_HOST, step);
}

/* What returns of parameters add to a step: to its first forward, whose stages all begin with them, or, in frameworks
 * that gather them when the step ends, all their time. */
static void add_returns(const qdri_lists *lists, const qdri_pricing *pricing, const phases *all,
                        const qdri_stages *stages, amount *step)
{
    const qdr_machine_software *software = &pricing->machine->software;
    const qdri_list *list = &lists->of[QDRI_LIST_FORWARD_FIRST];
    if (!software->returns_after_step) {
        const amount first = stage_phase(&all->first_forward, software, stages->first, 1, stages->n == 1),
                     usual = stage_phase(&all->forward, software, stages->first, 1, stages->n == 1);
        add_amount(&first, 1, step);
        add_amount(&usual, -1, step);
        return;
    }
    for (int i = 0; i < list->schedule.n_tasks; i++) {
        const qdri_task *task = &list->schedule.tasks[i];
        const int layer = qdri_lists_layer(lists, task);
        if (task->kind != QDRI_TASK_COLLECTIVE || qdri_group_kind_of(task->channel) < QDR_N_AXES) continue;
        if (layer == QDRI_LAYER_LAST && stages->n > 1) continue;
        if (layer > 0) continue; /* layers are alike */
        const double secs = list->prices[i].secs * (layer == 0 ? stages->first : 1);
        add_secs(secs, QDR_TIME_D, step);
        step->busy[QDR_D] += secs;
    }
}

qdr_status qdri_step_time(const qdri_lists *lists, const qdri_pricing *pricing, const qdri_stages *stages,
                          qdri_step_work *work, qdr_plan_result *result, double *after_secs)
{
    const qdr_machine_software *software = &pricing->machine->software;
    amount step = {.secs = 0};
    phases all;
    QDR_TRY(make_phases(lists, stages->first, pricing, work, &all));
    if (stages->n > 1) {
        run_pipeline(&all, pricing, stages, result->memory_bytes, &step);
    } else {
        const amount slot = slot_of(&all, &all.before, software, stages->first, 1, 1),
                     end = slot_of(&all, &all.last, software, stages->first, 1, 1);
        add_amount(&slot, all.n_micro - 1, &step);
        add_amount(&end, 1, &step);
    }
    add_optimizer(lists, pricing, stages->first, &step);
    add_secs(software->step_secs, QDR_TIME_HOST, &step);
    *after_secs = step.time[QDR_TIME_OPTIMIZER] + software->step_secs;
    if (all.has_returns) add_returns(lists, pricing, &all, stages, &step);
    result->secs = step.secs;
    memcpy(result->time, step.time, sizeof step.time);
    memcpy(result->busy, step.busy, sizeof result->busy);
    return QDR_OK;
}
