/* SPDX-License-Identifier: Apache-2.0 */
/* Building and pricing the lists of a plan. */
#include "price/lists.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/size.h"

int qdri_lists_layer(const qdri_lists *lists, const qdri_task *task)
{
    /* The sums of all small gradients belong to no node; they end a backward list, as the embedding does. */
    return task->node < 0 ? QDRI_LAYER_FIRST : lists->layer_of[task->node];
}

double qdri_lists_share(const qdri_lists *lists, int layer)
{
    if (layer < 0) return 1;
    return layer % lists->n_each == (lists->n_each > 1) ? lists->share[layer / lists->n_each] : 0;
}

double qdri_micro_batches(const qdr_plan *plan, const qdri_sizes *sizes)
{
    const double cells = (double)plan->z * plan->d;
    return ceil(ceil((double)plan->batch / cells) / sizes->sequences);
}

/* The bits of a layer that change what it costs, of a sequence of `context` positions. */
static int kind_of(const qdr_network *network, int64_t context, int64_t layer)
{
    int kind = qdri_layer_kind(network, layer);
    if (network->window == 0 || network->window >= context) kind &= ~QDR_LAYER_WINDOW;
    if (network->positions) return kind & QDR_LAYER_WINDOW;
    if (kind & QDR_LAYER_UNROTATED ||
        qdri_rotary_columns(network, &network->rotary) == qdri_rotary_columns(network, &network->local_rotary))
        kind &= ~QDR_LAYER_LOCAL;
    return kind;
}

/* The network with n_each layers of each kind. */
static qdr_network few_layers(const qdr_network *network, int64_t context, qdri_lists *lists)
{
    int64_t n_of[QDRI_MOST_KINDS] = {0};
    qdr_network few = *network;
    for (int64_t i = 0; i < network->layers; i++) n_of[kind_of(network, context, i)]++;
    few.layers = few.window_layers = lists->n_kinds = 0;
    memset(few.layer_kinds, 0, sizeof few.layer_kinds);
    for (int kind = 0; kind < QDRI_MOST_KINDS; kind++) {
        if (n_of[kind] == 0) continue;
        lists->share[lists->n_kinds++] = (double)n_of[kind] / (double)network->layers;
        few.window_layers += kind & QDR_LAYER_WINDOW ? lists->n_each : 0;
        for (int i = 0; i < lists->n_each; i++) few.layer_kinds[few.layers++] = (unsigned char)kind;
    }
    return few;
}

qdr_recompute qdri_listed_recompute(const qdr_plan *plan)
{
    const int is_listed = plan->recompute == QDR_RECOMPUTE_FULL || plan->recompute == QDR_RECOMPUTE_OPERATIONS;
    return is_listed ? plan->recompute : QDR_RECOMPUTE_NONE;
}

static qdr_status describe(const qdr_network *network, const qdr_plan *plan, int ranks_per_node, qdri_lists *lists)
{
    qdri_sizes sizes;
    qdri_sizes_make(network, plan, &sizes);
    lists->n_micro = qdri_micro_batches(plan, &sizes);
    lists->is_chain = !network->parallel_residual && plan->panels == 1 && plan->batch_parts == 1;
    const int64_t context = (int64_t)sizes.context;
    const qdr_network few = few_layers(network, context, lists);
    const qdri_position position = qdri_plan_position(plan);
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts),
                                 .n_rows = (int64_t)sizes.sequences * context * plan->z * plan->d,
                                 .row_unit = context,
                                 .dtype = plan->dtype,
                                 .overlap = plan->overlap,
                                 .panels = plan->panels ? plan->panels : 1,
                                 .batch_parts = plan->batch_parts,
                                 .recompute = qdri_listed_recompute(plan)};
    QDR_TRY(
        qdri_describe(&lists->net, &few, &position, &opts, context, plan->layout, (int)few.layers, lists->layer_of));
    const qdri_coding coding = qdri_plan_coding(plan, ranks_per_node);
    qdri_net_set_coding(&lists->net, &coding);
    return qdri_net_place(&lists->net);
}

static void note_last(const qdri_lists *lists, qdri_list *list)
{
    memset(list->last_of_layer, -1, sizeof list->last_of_layer);
    list->last_of_first = list->last_of_last = -1;
    for (int i = 0; i < list->schedule.n_tasks; i++) {
        const qdri_task *task = &list->schedule.tasks[i];
        const int layer = qdri_lists_layer(lists, task), computes = task->stream == QDRI_STREAM_OF_COMPUTE;
        if (layer >= 0)
            list->last_of_layer[layer][task->stream] = i;
        else if (computes && layer == QDRI_LAYER_FIRST)
            list->last_of_first = i;
        else if (computes)
            list->last_of_last = i;
    }
}

/* Small gradients of all layers are summed together, at the end: those that are also summed over x, or y, then all. */
static void deepen_small_sums(const qdri_lists *lists, double n_stage_layers, qdri_list *list)
{
    for (int i = 0; i < list->schedule.n_tasks; i++) {
        qdri_task *task = &list->schedule.tasks[i];
        const qdr_axis axis = qdr_channel_axis(task->channel);
        int64_t each = 0; /* elements in one layer */
        if (task->node >= 0) continue;
        for (int j = 0; j < lists->net.n_parameters; j++) {
            const qdri_parameter *p = &lists->net.parameters[j];
            const int counts = !p->flat_over_z && (axis > QDR_Y || p->extra_sums >> axis & 1);
            if (counts && lists->layer_of[p->node] == 0) each += p->n_elems;
        }
        task->count += (int64_t)((n_stage_layers - lists->n_kinds * lists->n_each) * (double)each);
    }
}

static qdr_status build(qdri_lists *lists, qdri_list_kind kind, double n_stage_layers, int with_waits)
{
    const int deferred = kind == QDRI_LIST_BACKWARD_BEFORE;
    const qdri_gradient_mode mode = kind == QDRI_LIST_BACKWARD_ONLY ? QDRI_GRADIENT_OVERWRITE
                                                                    : QDRI_GRADIENT_ADD_TO_PARTIAL;
    qdri_list *list = &lists->of[kind];
    if (!qdri_is_backward(kind))
        QDR_TRY((with_waits ? qdri_net_forward : qdri_net_forward_tasks)(&lists->net, kind == QDRI_LIST_FORWARD_FIRST,
                                                                         &list->schedule));
    else
        QDR_TRY(
            (with_waits ? qdri_net_backward : qdri_net_backward_tasks)(&lists->net, mode, deferred, &list->schedule));
    deepen_small_sums(lists, n_stage_layers, list);
    note_last(lists, list);
    if (list->capacity >= list->schedule.n_tasks) return QDR_OK;
    free(list->prices);
    list->prices = NULL;
    list->capacity = 0;
    QDR_TRY(QDRI_NEW(list->schedule.n_tasks, "prices of tasks", &list->prices));
    list->capacity = list->schedule.n_tasks;
    return QDR_OK;
}

/* Clipped, as nearly all training is. */
static qdr_status build_step(qdri_lists *lists)
{
    const qdr_adamw_opts opts = {QDR_INIT(qdr_adamw_opts), .clip_norm = 1};
    return qdri_net_adamw_tasks(&lists->net, &opts, &lists->step);
}

/* A stack has room for layers that run alone, too: one with panels that adds to its output may need more than all. */
static qdr_status make_room(qdri_lists *lists)
{
    qdri_schedule *alone = &lists->of[QDRI_LIST_FORWARD].schedule; /* made again */
    for (int i = 0; i < lists->net.n_nodes; i++)
        if (lists->net.nodes[i].kind == QDRI_NODE_LINEAR && lists->layer_of[i] <= 0)
            QDR_TRY(qdri_net_layer_forward(&lists->net, i, 1, alone));
    return QDR_OK;
}

qdr_status qdri_lists_make(const qdr_network *network, const qdr_plan *plan, int ranks_per_node, int n_each,
                           double n_stage_layers, int with_waits, qdri_lists *lists)
{
    lists->n_each = n_each;
    for (int kind = 0; kind < QDRI_N_LIST_KINDS; kind++) lists->of[kind].schedule.n_tasks = 0;
    QDR_TRY(describe(network, plan, ranks_per_node, lists));
    if (with_waits && plan->panels > 1) QDR_TRY(make_room(lists));
    QDR_TRY(build_step(lists));
    QDR_TRY(build(lists, QDRI_LIST_FORWARD, n_stage_layers, with_waits));
    if (qdri_plan_has_levels(plan)) QDR_TRY(build(lists, QDRI_LIST_FORWARD_FIRST, n_stage_layers, with_waits));
    if (lists->n_micro <= 1) return build(lists, QDRI_LIST_BACKWARD_ONLY, n_stage_layers, with_waits);
    QDR_TRY(build(lists, QDRI_LIST_BACKWARD_BEFORE, n_stage_layers, with_waits));
    return build(lists, QDRI_LIST_BACKWARD_LAST, n_stage_layers, with_waits);
}

void qdri_lists_free(qdri_lists *lists)
{
    for (int kind = 0; kind < QDRI_N_LIST_KINDS; kind++) {
        qdri_schedule_free(&lists->of[kind].schedule);
        free(lists->of[kind].prices);
    }
    qdri_schedule_free(&lists->step);
    qdri_net_free(&lists->net);
    *lists = (qdri_lists){.n_kinds = 0};
}

void qdri_list_price(const qdri_lists *lists, const qdri_pricing *pricing, qdri_list_kind kind)
{
    const qdri_list *list = &lists->of[kind];
    for (int i = 0; i < list->schedule.n_tasks; i++)
        list->prices[i] = qdri_task_price_of(pricing, &list->schedule.tasks[i]);
}
