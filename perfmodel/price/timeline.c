/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline of one layer: the middle one of the few in a template. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/size.h"
#include "price/explain.h"

typedef struct timeline {
    const qdri_template *template;
    const qdri_pricing *pricing;
    qdri_role_price roles[QDRI_MAX_ROLES];
    qdri_price *prices;
    qdri_sim_span *spans;
    qdr_timeline_fn each;
    void *user;
    double *secs;
} timeline;

static double end_of(const timeline *t, int task) { return task < 0 ? 0 : t->spans[task].end_secs; }

static qdr_timeline_span span_of(const qdri_task *task, qdr_timeline_pass pass)
{
    qdr_timeline_span span = {.pass = pass, .channel = -1, .name = task->name};
    span.kind = qdri_task_name(task);
    span.is_product = task->kind == QDRI_TASK_PRODUCT;
    if (task->stream != QDRI_STREAM_OF_COMPUTE) span.channel = task->stream - 1;
    return span;
}

/* The part of a task between begin and end. */
static void show(const timeline *t, const qdri_task *task, const qdri_sim_span *when, double begin, double end,
                 qdr_timeline_pass pass)
{
    qdr_timeline_span span = span_of(task, pass);
    span.begin_secs = fmax(when->start_secs, begin) - begin;
    span.end_secs = fmin(when->end_secs, end) - begin;
    if (span.end_secs > span.begin_secs) t->each(&span, t->user);
}

static void run(timeline *t, qdri_list_kind kind)
{
    const qdri_template_list *list = &t->template->lists[kind];
    const qdri_sim_slowdown slowdown = qdri_sim_slowdown_of(t->pricing->machine);
    qdri_sim_times times;
    for (int i = 0; i < list->sim.n_tasks; i++) t->prices[i] = t->roles[list->role[i]].price;
    qdri_simulate(&list->sim, t->prices, &slowdown, &times, t->spans);
}

/* On the processor, from the end of the preceding layer to that of the middle one. */
static void show_pass(timeline *t, qdri_list_kind kind, qdr_timeline_pass pass)
{
    const qdri_template_list *list = &t->template->lists[kind];
    const int before = pass == QDR_PASS_BACKWARD ? 2 : 0; /* in layer 1 */
    run(t, kind);
    const double begin = end_of(t, list->last_of_layer[before][QDRI_STREAM_OF_COMPUTE]),
                 end = end_of(t, list->last_of_layer[1][QDRI_STREAM_OF_COMPUTE]);
    t->secs[pass] = end - begin;
    for (int i = 0; i < list->sim.n_tasks; i++) show(t, &list->schedule.tasks[i], &t->spans[i], begin, end, pass);
}

/* Repeats only the work of attention, one task after the other. */
static void show_attention_again(timeline *t)
{
    const qdri_template_list *list = &t->template->lists[QDRI_LIST_FORWARD];
    const int last = list->last_of_layer[1][QDRI_STREAM_OF_COMPUTE];
    const int before = list->last_of_layer[0][QDRI_STREAM_OF_COMPUTE];
    double *now = &t->secs[QDR_PASS_RECOMPUTE];
    for (int i = before + 1; i <= last; i++) {
        const qdri_role *role = &t->template->roles[list->role[i]];
        if (role->kind != QDRI_TASK_FORWARD || role->node_kind != QDRI_NODE_ATTENTION) continue;
        const qdri_sim_span when = {*now, *now + t->roles[list->role[i]].secs};
        show(t, &list->schedule.tasks[i], &when, 0, INFINITY, QDR_PASS_RECOMPUTE);
        *now = when.end_secs;
    }
}

static qdr_status show_all(timeline *t)
{
    const int one = qdri_micro_batches(t->pricing->plan, &t->pricing->sizes) <= 1;
    int most = 0;
    for (int i = 0; i < QDRI_N_LIST_KINDS; i++)
        if (t->template->lists[i].sim.n_tasks > most) most = t->template->lists[i].sim.n_tasks;
    QDR_TRY(QDRI_NEW(most, "a time-line", &t->prices));
    QDR_TRY(QDRI_NEW(most, "a time-line", &t->spans));
    for (int r = 0; r < t->template->n_roles; r++) t->roles[r] = qdri_role_price_of(t->pricing, &t->template->roles[r]);
    show_pass(t, QDRI_LIST_FORWARD, QDR_PASS_FORWARD);
    if (t->pricing->plan->recompute == QDR_RECOMPUTE_FULL) show_pass(t, QDRI_LIST_FORWARD, QDR_PASS_RECOMPUTE);
    if (t->pricing->plan->recompute == QDR_RECOMPUTE_ATTENTION) show_attention_again(t);
    show_pass(t, one ? QDRI_LIST_BACKWARD_ONLY : QDRI_LIST_BACKWARD_LAST, QDR_PASS_BACKWARD);
    return QDR_OK;
}

qdr_status qdr_model_timeline(qdr_model *model, const qdr_plan *plan, qdr_timeline_fn each, void *user,
                              double secs[QDR_N_PASSES])
{
    timeline t = {.each = each, .user = user, .secs = secs};
    qdri_pricing pricing;
    if (!model || !plan || !each || !secs)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "timeline: the model, the plan, the function to call or the result "
                                          "pointer is NULL");
    memset(secs, 0, QDR_N_PASSES * sizeof *secs);
    QDR_TRY(qdri_plan_check(model, plan));
    QDR_TRY(qdri_model_template(model, plan, &t.template));
    qdr_plan_result result;
    qdri_model_price(model, plan, &pricing, &result);
    t.pricing = &pricing;
    const qdr_status status = show_all(&t);
    free(t.prices);
    free(t.spans);
    return status;
}
