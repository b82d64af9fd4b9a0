/* SPDX-License-Identifier: Apache-2.0 */
/* A model: checks a plan, builds its lists, prices them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/codec.h"
#include "core/dtype.h"
#include "core/group.h"
#include "core/order.h"
#include "core/size.h"
#include "core/sized.h"
#include "price/gemm.h"
#include "price/model.h"
#include "schedule/panel_search.h"

qdr_status qdr_model_create(const qdr_machine *machine, const qdr_network *network, qdr_model **model)
{
    qdr_network_counts counts = {QDR_INIT(qdr_network_counts)};
    qdr_machine own_machine;
    qdr_network own_network;
    if (!model) return QDR_FAIL(QDR_ERR_ARGUMENT, "model: the result pointer is NULL");
    *model = NULL;
    QDR_TRY(QDRI_TAKE(qdr_machine, machine, &own_machine));
    QDR_TRY(QDRI_TAKE(qdr_network, network, &own_network));
    QDR_TRY(qdr_machine_check(&own_machine, own_machine.name));
    QDR_TRY(qdr_network_params(&own_network, &counts));
    QDR_TRY(QDRI_NEW(1, "a model", model));
    (*model)->machine = own_machine;
    (*model)->network = own_network;
    return QDR_OK;
}

void qdr_model_destroy(qdr_model **model)
{
    if (!model || !*model) return;
    qdri_lists_free(&(*model)->lists);
    qdri_lists_free(&(*model)->one_layer);
    qdri_step_work_free(&(*model)->work);
    free(*model);
    *model = NULL;
}

/* ---- plans ---- */

qdr_status qdri_threads_check(const char *who, int64_t threads)
{
    if (threads >= 0 && threads <= QDRI_MOST_THREADS) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %" PRId64 " threads of a rank; use 1 to %d, or 0 for 1", who, threads,
                    QDRI_MOST_THREADS);
}

qdr_status qdri_plan_check(const qdr_model *model, const qdr_plan *plan)
{
    if (plan->x < 1 || plan->y < 1 || plan->z < 1 || plan->d < 1)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "plan: grid %dx%dx%dx%d; every axis must be ≥ 1", plan->x, plan->y, plan->z,
                        plan->d);
    const double n_ranks = (double)plan->x * plan->y * plan->z * plan->d * fmax(1, plan->pipeline);
    if (n_ranks > INT32_MAX)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "plan: %.0f ranks; at most 2147483647 are possible", n_ranks);
    if (plan->order[0] && !qdri_is_order(plan->order))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "plan: order '%.7s' must be a permutation of xyzd", plan->order);
    const qdr_network *network = &model->network;
    const int may_be_empty = model->machine.software.balanced_stages; /* the last stage may have only the head */
    if (plan->pipeline < 0 || plan->interleave < 0 || plan->pipeline > network->layers * (1 + may_be_empty))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "plan: %d stages with %d parts each for %" PRId64
                        " layers; use between 1 stage and one per layer",
                        plan->pipeline, plan->interleave, network->layers);
    QDR_TRY(qdri_codecs_check_for(&plan->codecs, plan->dtype, "plan"));
    qdri_levels levels;
    QDR_TRY(qdri_levels_read("plan", plan->z, plan->d, plan->gradient_parts, plan->optimizer_parts, &levels));
    if (plan->panels < 0 || plan->batch_parts < 0 || plan->batch_parts > QDRI_MAX_BATCH_PARTS)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "plan: %d panels and %d parts of the batch; use 1 or more panels and 1 to %d parts, or 0 to "
                        "have them chosen",
                        plan->panels, plan->batch_parts, QDRI_MAX_BATCH_PARTS);
    QDR_TRY(qdri_threads_check("plan", plan->threads));
    if (plan->overlap < 0 || plan->overlap > (QDR_OVERLAP_ALL | QDR_OVERLAP_NONE))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "plan: overlap %d is not a sum of QDR_OVERLAP_ flags", plan->overlap);
    if (plan->context_parts < 0 || (plan->context_parts > 1 && (int64_t)plan->z * plan->d % plan->context_parts))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "plan: sequences in %" PRId64
                        " parts, but z·d is %d; use a divisor of it, or 0 for whole sequences",
                        plan->context_parts, plan->z * plan->d);
    if (plan->batch < 1 || plan->micro_batch < 0 || plan->sequence < 0)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "plan: batch %" PRId64 ", micro-batch %" PRId64 ", sequence %" PRId64
                        "; the batch must be ≥ 1, the others ≥ 0",
                        plan->batch, plan->micro_batch, plan->sequence);
    if ((int)plan->recompute < 0 || plan->recompute > QDR_RECOMPUTE_LAYERS ||
        (plan->layout != QDR_REPLICATED && plan->layout != QDR_SCATTERED))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "plan: recompute %d, layout %d; use QDR_RECOMPUTE_… and QDR_REPLICATED or QDR_SCATTERED",
                        (int)plan->recompute, (int)plan->layout);
    if (!qdri_is_float(plan->dtype))
        return QDR_FAIL(QDR_ERR_DTYPE, "plan: type %d; use " QDRI_FLOAT_NAMES, (int)plan->dtype);
    if (!(qdri_machine_products(&model->machine, plan->dtype)->peak_flops > 0))
        return QDR_FAIL(QDR_ERR_DTYPE, "plan: %s has no peak for %s", model->machine.name, qdr_dtype_name(plan->dtype));
    return QDR_OK;
}

/* ---- prediction ---- */

/* The order, without codecs, does not change the tasks. */
static int have_same_lists(const qdr_plan *a, const qdr_plan *b)
{
    if (!qdri_codecs_are_same(&a->codecs, &b->codecs)) return 0;
    if (!qdri_codecs_are_none(&a->codecs) && strcmp(a->order, b->order) != 0) return 0;
    const qdri_position p = qdri_plan_position(a), q = qdri_plan_position(b);
    return p.near == q.near && p.far == q.far && a->x == b->x && a->y == b->y && a->z == b->z && a->d == b->d &&
           a->layout == b->layout && a->dtype == b->dtype && a->batch == b->batch && a->micro_batch == b->micro_batch &&
           a->sequence == b->sequence && a->overlap == b->overlap &&
           qdri_listed_recompute(a) == qdri_listed_recompute(b) && a->panels == b->panels &&
           a->batch_parts == b->batch_parts && a->pipeline == b->pipeline;
}

/* Of a checked plan, unless those of the last one are the same. */
static qdr_status make_lists(qdr_model *model, const qdr_plan *plan)
{
    if (model->listed.x && have_same_lists(&model->listed, plan)) return QDR_OK;
    const double n_layers = qdri_stages_make(&model->machine, &model->network, plan).first;
    memset(&model->listed, 0, sizeof model->listed);
    QDR_TRY(qdri_lists_make(&model->network, plan, model->machine.ranks_per_node, QDRI_FEW_LAYERS, n_layers, 1,
                            &model->lists));
    model->listed = *plan;
    return QDR_OK;
}

/* The workspace that the runtime needs for the lists, unless the machine's software has a formula of its own. A stack
 * has room for all of its lists: also for layers that run alone, and to add to gradients if the plan has one
 * micro-batch. */
static void set_workspace(const qdri_lists *lists, const qdri_pricing *pricing, qdr_plan_result *result)
{
    double *gathered = &result->memory[QDR_MEMORY_GATHERED], *rest = &result->memory[QDR_MEMORY_WORKSPACE];
    if (!qdri_lists_have_workspace(pricing)) return;
    double bytes = (double)lists->net.buffers.items[lists->net.workspace.buffer].bytes;
    if (lists->n_micro <= 1) bytes += qdri_added_bytes(pricing);
    result->memory_bytes += bytes - *gathered - *rest;
    *gathered = fmin(*gathered, bytes);
    *rest = bytes - *gathered;
}

qdr_status qdri_model_price(qdr_model *model, const qdr_plan *plan, qdri_pricing *pricing, qdri_stages *stages,
                            qdr_plan_result *result)
{
    *stages = qdri_stages_make(&model->machine, &model->network, plan);
    qdri_pricing_make(&model->machine, &model->network, plan, pricing);
    QDR_TRY(make_lists(model, plan));
    result->n_micro = model->lists.n_micro;
    for (int i = 0; i < 2; i++) {
        qdri_memory(pricing, &model->network, stages, result->n_micro, result);
        set_workspace(&model->lists, pricing, result);
        if (result->memory_bytes <= model->machine.memory_bytes || pricing->gathers_again) break;
        qdri_pricing_gather_again(pricing);
    }
    return QDR_OK;
}

/* Adds the time of a step in a state to the mean over all. */
static void add_state(const qdr_plan_result *one, double share, qdr_plan_result *mean)
{
    mean->secs += share * one->secs;
    for (int t = 0; t < QDR_N_TIME_TERMS; t++) mean->time[t] += share * one->time[t];
    for (int axis = 0; axis < QDR_N_AXES; axis++) mean->busy[axis] += share * one->busy[axis];
}

/* In all states that some runs are in. */
static qdr_status price_states(qdr_model *model, const qdr_plan *plan, const qdri_pricing *pricing,
                               const qdri_stages *stages, qdr_plan_result *result, double *after_secs)
{
    const qdr_machine *machine = &model->machine;
    double shares[QDR_MAX_STATES + 1];
    qdr_plan_result mean = *result; /* which has memory only */
    *after_secs = 0;
    qdri_state_shares(machine, plan, result->memory_bytes, shares);
    for (int i = 0; i <= machine->n_states; i++) {
        qdr_plan_result one = *result;
        qdri_pricing own = *pricing;
        if (i > 0 && !(shares[i] > 0)) continue;
        qdri_pricing_set_state(&own, i ? &machine->states[i - 1] : NULL);
        QDR_TRY(qdri_step_time(&model->lists, &own, stages, &model->work, &one, after_secs));
        add_state(&one, shares[i], &mean);
        mean.state_secs[mean.n_states] = one.secs;
        mean.state_shares[mean.n_states++] = shares[i];
    }
    *result = mean;
    return QDR_OK;
}

/* With the panels and parts of the plan, or one. */
static qdr_status predict(qdr_model *model, const qdr_plan *plan, qdr_plan_result *result, double *after_secs)
{
    qdri_pricing pricing;
    qdri_stages stages;
    qdr_network_flops flops = {QDR_INIT(qdr_network_flops)};
    QDR_TRY(qdri_plan_check(model, plan));
    QDR_TRY(qdri_model_price(model, plan, &pricing, &stages, result));
    QDR_TRY(price_states(model, plan, &pricing, &stages, result, after_secs));
    result->panels = plan->panels ? plan->panels : 1;
    result->batch_parts = qdri_net_batch_parts(&model->lists.net); /* one, where rows cannot be divided */
    const int64_t sequence = plan->sequence ? plan->sequence : model->network.context;
    const double tokens = (double)plan->batch * (double)sequence;
    const double n_ranks = (double)plan->x * plan->y * plan->z * plan->d * fmax(1, plan->pipeline);
    QDR_TRY(qdr_network_flops_per_token(&model->network, sequence * (plan->context_parts ? plan->context_parts : 1),
                                        &flops));
    result->flops = 3 * tokens * (flops.linear + flops.head + flops.attention);
    result->tokens_per_sec = tokens / result->secs;
    result->peak_share = result->flops /
                         (result->secs * n_ranks * qdri_machine_products(&model->machine, plan->dtype)->peak_flops);
    return QDR_OK;
}

double qdri_busy_secs(const qdr_plan_result *result)
{
    double secs = result->secs;
    for (int axis = 0; axis < QDR_N_AXES; axis++) secs -= result->time[QDR_TIME_X + axis];
    return secs;
}

qdr_status qdri_model_memory(qdr_model *model, qdr_plan *plan, double limit_bytes, qdr_plan_result *result)
{
    const int is_free = plan->batch_parts == 0;
    qdri_pricing pricing;
    qdri_stages stages;
    if (plan->panels == 0) plan->panels = 1;
    for (int parts = is_free ? 1 : plan->batch_parts;; parts = 2) {
        qdr_plan_result tried = {.secs = 0};
        plan->batch_parts = parts;
        QDR_TRY(qdri_plan_check(model, plan));
        QDR_TRY(qdri_model_price(model, plan, &pricing, &stages, &tried));
        if (parts == 1 || !is_free || tried.memory_bytes <= limit_bytes) *result = tried;
        if (tried.memory_bytes <= limit_bytes || !is_free || !(plan->x > 1 || plan->y > 1)) return QDR_OK;
        if (parts == 2) break;
    }
    plan->batch_parts = 1;
    return QDR_OK;
}

qdr_status qdri_model_choose(qdr_model *model, qdr_plan *plan, double limit_bytes, qdr_plan_result *result)
{
    const int sums = plan->x > 1 || plan->y > 1;
    qdr_plan_result results[QDRI_MOST_PANEL_TRIALS];
    qdri_panel_search search;
    qdri_panel_search_begin(&search, plan->panels, plan->batch_parts, sums, plan->layout == QDR_SCATTERED);
    while (qdri_panel_search_next(&search)) {
        plan->panels = search.panels;
        plan->batch_parts = search.batch_parts;
        qdr_plan_result *tried = &results[search.n_tried];
        memset(tried, 0, sizeof *tried);
        double after_secs;
        QDR_TRY(predict(model, plan, tried, &after_secs));
        qdri_panel_search_note(&search, tried->memory_bytes <= limit_bytes ? tried->secs - after_secs : INFINITY,
                               qdri_busy_secs(tried) - after_secs);
    }
    const int best = qdri_panel_search_best(&search);
    plan->panels = search.tried[best].panels;
    *result = results[best];
    plan->batch_parts = result->batch_parts; /* also if more were asked for than the rows allow */
    return QDR_OK;
}

qdr_status qdri_model_predict(qdr_model *model, const qdr_plan *plan, qdr_plan_result *result)
{
    qdr_plan whole = *plan;
    return qdri_model_choose(model, &whole, INFINITY, result);
}

qdr_status qdri_give_planned(const qdri_planned_grid *planned, qdr_plan *plan, qdr_plan_result *result)
{
    if (plan) QDR_TRY(QDRI_CLEAR(qdr_plan, plan));
    if (result) QDR_TRY(QDRI_CLEAR(qdr_plan_result, result));
    if (plan) QDRI_GIVE(qdr_plan, plan, &planned->plan);
    if (result) QDRI_GIVE(qdr_plan_result, result, &planned->result);
    return QDR_OK;
}

qdr_status qdr_model_predict(qdr_model *model, const qdr_plan *plan, qdr_plan_result *result)
{
    qdr_plan whole;
    qdr_plan_result own;
    if (!model) return QDR_FAIL(QDR_ERR_ARGUMENT, "model: it is NULL");
    QDR_TRY(QDRI_CLEAR(qdr_plan_result, result));
    QDR_TRY(QDRI_TAKE(qdr_plan, plan, &whole));
    QDR_TRY(qdri_model_choose(model, &whole, INFINITY, &own));
    QDRI_GIVE(qdr_plan_result, result, &own);
    return QDR_OK;
}

const char *qdr_time_term_name(qdr_time_term term)
{
    static const char *const names[] = {"products", "attention", "kernels", "recompute", "ends",   "optimizer",
                                        "x",        "y",         "z",       "d",         "bubble", "host"};
    _Static_assert(sizeof names / sizeof *names == QDR_N_TIME_TERMS, "a name for each");
    return term >= 0 && term < QDR_N_TIME_TERMS ? names[term] : "?";
}

const char *qdr_memory_term_name(qdr_memory_term term)
{
    static const char *const names[] = {"parameters", "gradients", "feedback", "optimizer", "activations",
                                        "gathered",   "workspace", "reserve",  "device"};
    _Static_assert(sizeof names / sizeof *names == QDR_N_MEMORY_TERMS, "a name for each");
    return term >= 0 && term < QDR_N_MEMORY_TERMS ? names[term] : "?";
}
