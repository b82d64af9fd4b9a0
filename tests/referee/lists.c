/* SPDX-License-Identifier: Apache-2.0 */
/* Lists from a template. */
#include "lists.h"

#include <stdlib.h>

#include "core/size.h"
#include "price/price.h"

static double vector_bytes(const qdri_pricing *p, const qdri_role *role, int n_ranks)
{
    const double parts = role->per_member ? n_ranks : 1;
    return p->sizes.of[role->m] * p->sizes.of[role->n] * parts *
           (role->is_gradient ? p->sizes.gradient_bytes : p->sizes.elem_bytes);
}

static referee_task task_of(const qdri_pricing *p, const qdri_task *task, const qdri_role *role)
{
    const qdr_plan *plan = p->plan;
    const int size[QDR_N_AXES] = {plan->x, plan->y, plan->z, plan->d};
    referee_task out = {.stream = task->stream, .n_waits = task->n_waits, .axis = -1};
    for (int i = 0; i < task->n_waits; i++) out.waits[i] = task->waits[i];
    if (role->kind != QDRI_TASK_COLLECTIVE) {
        out.secs = qdri_role_price_of(p, role).secs;
        return out;
    }
    out.axis = (int)qdr_channel_axis(role->channel);
    out.n_turns = role->coll == QDR_ALL_REDUCE ? 2 : 1;
    out.bytes = vector_bytes(p, role, size[out.axis]);
    return out;
}

static qdr_status make_list(const qdri_template *made, int kind, const qdri_pricing *p, referee_list *out)
{
    const qdri_template_list *list = &made->lists[kind];
    const qdri_sim_slowdown none = {0, 0};
    qdri_price *prices = NULL;
    qdri_sim_times times;
    out->n_tasks = list->sim.n_tasks;
    QDR_TRY(QDRI_NEW(out->n_tasks, "a list", &out->tasks));
    QDR_TRY(QDRI_NEW(out->n_tasks, "prices", &prices));
    for (int i = 0; i < out->n_tasks; i++) {
        const qdri_role *role = &made->roles[list->role[i]];
        out->tasks[i] = task_of(p, &list->sim.tasks[i], role);
        prices[i] = qdri_role_price_of(p, role).price;
    }
    qdri_simulate(&list->sim, prices, &none, &times, NULL);
    out->model_secs = times.end_secs;
    free(prices);
    return QDR_OK;
}

qdr_status referee_lists_make(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan,
                              referee_list lists[REFEREE_LISTS])
{
    const qdri_structure structure = qdri_structure_of(network, plan);
    qdri_template *made = NULL;
    qdri_pricing pricing;
    qdr_status status = qdri_template_make(&structure, &made);
    for (int kind = 0; kind < REFEREE_LISTS; kind++) lists[kind] = (referee_list){.tasks = NULL};
    if (status != QDR_OK) return status;
    qdri_pricing_make(machine, network, plan, QDRI_TEMPLATE_LAYERS, &pricing);
    for (int kind = 0; kind < REFEREE_LISTS && status == QDR_OK; kind++)
        status = make_list(made, kind, &pricing, &lists[kind]);
    qdri_template_free(made);
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
