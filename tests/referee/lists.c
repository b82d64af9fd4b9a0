/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of a plan, of a few layers. */
#include "lists.h"

#include <stdlib.h>
#include <string.h>

#include "core/size.h"
#include "price/lists.h"

static referee_task task_of(const qdr_plan *plan, const qdri_task *task, const qdri_task_price *price)
{
    const int size[QDR_N_AXES] = {plan->x, plan->y, plan->z, plan->d};
    const int near = plan->gradient_parts ? plan->gradient_parts / plan->z : 1;
    const int far = plan->gradient_parts ? plan->optimizer_parts / plan->gradient_parts : 1;
    referee_task out = {.stream = task->stream, .n_waits = task->n_waits, .axis = -1};
    for (int i = 0; i < task->n_waits; i++) out.waits[i] = task->waits[i];
    if (task->kind != QDRI_TASK_COLLECTIVE) {
        out.secs = price->secs;
        return out;
    }
    out.axis = (int)qdr_channel_axis(task->channel);
    out.n_members = size[out.axis];
    out.step = 1;
    if (task->channel == QDR_CHANNEL_D_NEAR) out.n_members = near;
    if (task->channel == QDR_CHANNEL_D_FAR) out.n_members = far, out.step = near;
    if (task->channel == QDR_CHANNEL_D_COPIES) out.n_members = plan->d / near / far, out.step = near * far;
    out.n_turns = task->coll == QDR_ALL_REDUCE ? 2 : 1;
    out.bytes = (double)task->count * (qdri_task_counts_part(task) ? out.n_members : 1) *
                (double)qdr_dtype_bytes(task->dtype);
    return out;
}

static qdr_status make_list(const qdri_list *list, const qdr_plan *plan, referee_list *out)
{
    const qdr_machine even = {.processor_slowdown = 0}; /* nothing slows anything down */
    qdri_price *prices = NULL;
    int *next = NULL;
    qdri_sim_times times;
    out->n_tasks = list->schedule.n_tasks;
    if (out->n_tasks == 0) return QDR_OK;
    QDR_TRY(QDRI_NEW(out->n_tasks, "a list", &out->tasks));
    qdr_status status = QDRI_NEW(out->n_tasks, "prices", &prices);
    if (status == QDR_OK) status = QDRI_NEW(out->n_tasks, "prices", &next);
    for (int i = 0; i < out->n_tasks && status == QDR_OK; i++) {
        out->tasks[i] = task_of(plan, &list->schedule.tasks[i], &list->prices[i]);
        prices[i] = list->prices[i].price;
    }
    if (status == QDR_OK) {
        qdri_simulate(&even, &list->schedule, prices, next, &times, NULL);
        out->model_secs = times.end_secs;
    }
    free(prices);
    free(next);
    return status;
}

/* One list of a step: with one micro-batch, or with two of the same size. */
static qdr_status make_kind(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan,
                            qdri_list_kind kind, referee_list *out)
{
    qdr_plan step = *plan;
    qdri_lists made;
    qdri_pricing pricing;
    memset(&made, 0, sizeof made);
    if (kind == QDRI_LIST_BACKWARD_BEFORE || kind == QDRI_LIST_BACKWARD_LAST) {
        step.micro_batch = plan->batch / plan->z / plan->d;
        step.batch = 2 * plan->batch;
    }
    qdri_pricing_make(machine, network, &step, &pricing);
    qdr_status status = qdri_lists_make(network, &step, machine->ranks_per_node, QDRI_FEW_LAYERS, QDRI_FEW_LAYERS, 1,
                                        &made);
    if (status == QDR_OK) {
        qdri_list_price(&made, &pricing, kind);
        status = make_list(&made.of[kind], &step, out);
    }
    qdri_lists_free(&made);
    return status;
}

qdr_status referee_lists_make(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan,
                              referee_list lists[REFEREE_LISTS])
{
    qdr_status status = QDR_OK;
    for (int kind = 0; kind < REFEREE_LISTS; kind++) lists[kind] = (referee_list){.tasks = NULL};
    for (int kind = 0; kind < REFEREE_LISTS && status == QDR_OK; kind++)
        status = make_kind(machine, network, plan, (qdri_list_kind)kind, &lists[kind]);
    if (status != QDR_OK) referee_lists_free(lists);
    return status;
}

void referee_lists_free(referee_list lists[REFEREE_LISTS])
{
    for (int kind = 0; kind < REFEREE_LISTS; kind++) {
        free(lists[kind].tasks);
        lists[kind].tasks = NULL;
    }
}
