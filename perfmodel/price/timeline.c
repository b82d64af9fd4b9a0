/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline of one layer: a middle one of the few in a plan's lists, of the first kind. */
#include <math.h>
#include <string.h>

#include "core/sized.h"
#include "price/model.h"

typedef struct timeline {
    const qdri_lists *lists;
    const qdri_pricing *pricing;
    qdri_step_work *work;
    qdr_timeline_fn each;
    void *user;
    double *secs;
} timeline;

static double end_of(const timeline *t, int task) { return task < 0 ? 0 : t->work->spans[task].end_secs; }

/* The part of a task between begin and end. */
static void show(const timeline *t, const qdri_task *task, const qdri_sim_span *when, double begin, double end,
                 qdr_timeline_pass pass)
{
    qdr_timeline_span span = {.pass = task->again ? QDR_PASS_RECOMPUTE : pass,
                              .kind = qdri_task_name(task),
                              .name = task->name,
                              .is_product = task->kind == QDRI_TASK_PRODUCT,
                              .channel = -1,
                              .begin_secs = fmax(when->start_secs, begin) - begin,
                              .end_secs = fmin(when->end_secs, end) - begin};
    if (task->kind == QDRI_TASK_COLLECTIVE)
        span.channel = (int)task->channel;
    else if (task->stream != QDRI_STREAM_OF_COMPUTE)
        span.channel = task->stream - 1;
    if (span.end_secs > span.begin_secs) t->each(&span, t->user);
}

/* On the processor, from the end of the preceding layer to that of the middle one. */
static qdr_status show_pass(timeline *t, qdri_list_kind kind, qdr_timeline_pass pass)
{
    const qdri_list *list = &t->lists->of[kind];
    const int before = pass == QDR_PASS_BACKWARD ? 2 : 0; /* in layer 1 */
    qdri_sim_times times;
    QDR_TRY(qdri_list_simulate(t->lists, t->pricing, kind, t->work, &times));
    const double begin = end_of(t, list->last_of_layer[before][QDRI_STREAM_OF_COMPUTE]),
                 end = end_of(t, list->last_of_layer[1][QDRI_STREAM_OF_COMPUTE]);
    t->secs[pass] = end - begin;
    for (int i = 0; i < list->schedule.n_tasks; i++)
        show(t, &list->schedule.tasks[i], &t->work->spans[i], begin, end, pass);
    return QDR_OK;
}

/* Repeats only the work of attention, one task after the other. */
static void show_attention_again(timeline *t)
{
    const qdri_list *list = &t->lists->of[QDRI_LIST_FORWARD];
    double *now = &t->secs[QDR_PASS_RECOMPUTE];
    for (int i = 0; i < list->schedule.n_tasks; i++) {
        const qdri_task *task = &list->schedule.tasks[i];
        if (qdri_lists_layer(t->lists, task) != 1 || !qdri_is_attention(t->lists, task)) continue;
        const qdri_sim_span when = {*now, *now + list->prices[i].secs};
        show(t, task, &when, 0, INFINITY, QDR_PASS_RECOMPUTE);
        *now = when.end_secs;
    }
}

qdr_status qdr_model_timeline(qdr_model *model, const qdr_plan *plan, qdr_timeline_fn each, void *user,
                              double secs[QDR_N_PASSES])
{
    qdri_pricing pricing;
    qdri_stages stages;
    qdr_plan chosen;
    if (!model || !each || !secs)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "timeline: the model, the function to call or the result pointer is NULL");
    memset(secs, 0, QDR_N_PASSES * sizeof *secs);
    QDR_TRY(QDRI_TAKE(qdr_plan, plan, &chosen));
    QDR_TRY(qdri_plan_check(model, &chosen));
    qdr_plan_result result;
    QDR_TRY(qdri_model_choose(model, &chosen, INFINITY, &result));
    QDR_TRY(qdri_model_price(model, &chosen, &pricing, &stages, &result));
    timeline t = {&model->lists, &pricing, &model->work, each, user, secs};
    const qdri_list_kind forward = qdri_has_returns(t.lists) ? QDRI_LIST_FORWARD_FIRST : QDRI_LIST_FORWARD;
    QDR_TRY(show_pass(&t, forward, QDR_PASS_FORWARD));
    if (chosen.recompute == QDR_RECOMPUTE_LAYERS) QDR_TRY(show_pass(&t, QDRI_LIST_FORWARD, QDR_PASS_RECOMPUTE));
    if (chosen.recompute == QDR_RECOMPUTE_ATTENTION) show_attention_again(&t);
    return show_pass(&t, qdri_last_list(t.lists), QDR_PASS_BACKWARD);
}
