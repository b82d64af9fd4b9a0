/* SPDX-License-Identifier: Apache-2.0 */
/* Plans in a running program. Rank 0 queries the model, which uses no ranks, and sends the result to the others: if
 * each of them searched, they might read different machine files. */
#include "quadrille/auto.h"

#include <string.h>

#include "core/codec.h"
#include "core/environment.h"
#include "core/group.h"
#include "core/sized.h"
#include "grid/internal.h"

#define GIB 1073741824.0

qdr_status qdr_machine_here(qdr_machine *machine)
{
    return qdr_machine_load(qdr_environment_value("QDR_MACHINE"), machine);
}

/* ---- what this runtime supports ---- */

qdr_status qdr_plan_check(const qdr_plan *given, int n_ranks)
{
    qdr_obstacle obstacle = {QDR_INIT(qdr_obstacle)};
    qdr_plan own;
    QDR_TRY(QDRI_TAKE(qdr_plan, given, &own));
    const qdr_plan *plan = &own;
    if (plan->x < 1 || plan->y < 1 || plan->z < 1 || plan->d < 1)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "plan: grid %dx%dx%dx%d; every axis must be ≥ 1", plan->x, plan->y, plan->z,
                        plan->d);
    const int64_t all = (int64_t)plan->x * plan->y * plan->z * plan->d;
    if (n_ranks && all != n_ranks)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "plan: grid %dx%dx%dx%d has %" PRId64
                        " ranks, but there are %d; start that many, or plan again with -n %d",
                        plan->x, plan->y, plan->z, plan->d, all, n_ranks, n_ranks);
    if (!qdr_plan_runs(NULL, plan, &obstacle)) return QDR_FAIL(QDR_ERR_UNSUPPORTED, "plan: %s", obstacle.why);
    qdri_levels levels;
    QDR_TRY(qdri_levels_read("plan", plan->z, plan->d, plan->gradient_parts, plan->optimizer_parts, &levels));
    if (!qdri_codecs_are_none(&plan->codecs)) QDR_TRY(qdri_codecs_check(&plan->codecs, "plan"));
    return QDR_OK;
}

qdr_status qdr_plan_grid_opts(const qdr_plan *given, qdr_grid_opts *opts)
{
    qdr_plan plan;
    QDR_TRY(QDRI_CLEAR(qdr_grid_opts, opts));
    QDR_TRY(QDRI_TAKE(qdr_plan, given, &plan));
    const qdr_grid_opts own = {.x = plan.x,
                               .y = plan.y,
                               .z = plan.z,
                               .d = plan.d,
                               .order = plan.order[0] ? given->order : NULL,
                               .gradient_parts = plan.gradient_parts,
                               .optimizer_parts = plan.optimizer_parts};
    QDRI_GIVE(qdr_grid_opts, opts, &own);
    return QDR_OK;
}

/* ---- the search ---- */

/* What rank 0 sends to the others. */
typedef struct answer {
    char machine[QDR_MAX_NAME];
    int n_grids;
    int64_t n_candidates, n_fitting;
    qdr_plan plans[2];
    qdr_plan_result results[2];
} answer;

static qdr_status nothing_fits(qdr_model *model, const qdr_search_opts *opts, const qdr_search_result *found,
                               const char *network, const qdr_machine *machine)
{
    qdr_plan least = {QDR_INIT(qdr_plan)};
    qdr_plan_result needs = {QDR_INIT(qdr_plan_result)};
    const double limit = opts->memory_bytes > 0 ? opts->memory_bytes : machine->memory_bytes;
    if (found->n_candidates == 0 && (opts->gradient_parts > 0 || opts->optimizer_parts > 0))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "plan: no grid of %d ranks for a batch of %" PRId64
                        " allows gradients in %d parts and optimizer state in %d; use multiples of z that divide z*d",
                        opts->n_ranks, opts->batch, opts->gradient_parts, opts->optimizer_parts);
    if (found->n_candidates == 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "plan: no grid of %d ranks has a sequence of the batch of %" PRId64
                        " for each of its z*d cells; use a larger batch or fewer ranks",
                        opts->n_ranks, opts->batch);
    QDR_TRY(qdr_model_least_memory(model, opts, &least, &needs));
    return QDR_FAIL(QDR_ERR_MEMORY,
                    "plan: no plan of %s on %d rank%s of %s fits in %.4g GiB: the smallest, %dx%dx%dx%d, needs %.4g "
                    "GiB; use more ranks, or a smaller micro-batch or network",
                    network, opts->n_ranks, opts->n_ranks == 1 ? "" : "s", machine->name, limit / GIB, least.x, least.y,
                    least.z, least.d, needs.memory_bytes / GIB);
}

static qdr_status search(const qdr_context *ctx, const qdr_network *network, const qdr_machine *machine,
                         const qdr_search_opts *wanted, answer *mine)
{
    const int n_ranks = qdr_context_size(ctx);
    qdr_search_opts opts = {QDR_INIT(qdr_search_opts), .dtype = QDR_F32};
    qdr_search_result found = {QDR_INIT(qdr_search_result)};
    qdr_machine here;
    qdr_network its_network;
    qdr_model *model = NULL;
    qdr_status status;
    QDR_TRY(QDRI_TAKE(qdr_network, network, &its_network));
    if (wanted) QDR_TRY(QDRI_TAKE(qdr_search_opts, wanted, &opts));
    if (opts.n_ranks && opts.n_ranks != n_ranks)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "plan: a search for %d ranks, but the context has %d; leave n_ranks 0",
                        opts.n_ranks, n_ranks);
    opts.n_ranks = n_ranks;
    opts.n_best = 2;
    if (opts.threads == 0) opts.threads = qdr_context_threads(ctx);
    QDR_TRY(machine ? QDRI_TAKE(qdr_machine, machine, &here) : qdri_context_machine(ctx, &here));
    QDR_TRY_OUT(status, qdr_model_create(&here, &its_network, &model));
    QDR_TRY_OUT(status, qdr_model_search(model, &opts, &found));
    if (found.n_best == 0) QDR_TRY_OUT(status, nothing_fits(model, &opts, &found, its_network.name, &here));
    memcpy(mine->machine, here.name, sizeof mine->machine);
    mine->n_grids = found.n_best < 2 ? 1 : 2;
    mine->n_candidates = found.n_candidates;
    mine->n_fitting = found.n_fitting;
    for (int i = 0; i < mine->n_grids; i++) {
        mine->plans[i].size = sizeof *mine->plans;
        mine->results[i].size = sizeof *mine->results;
        QDR_TRY_OUT(status, qdr_model_best(model, i, &mine->plans[i], &mine->results[i]));
    }
out:
    qdr_model_destroy(&model);
    return status;
}

static qdr_status give(const answer *all, qdr_auto_plan *chosen)
{
    qdr_plan *const plans[] = {chosen->plan, chosen->second_plan};
    qdr_plan_result *const results[] = {chosen->result, chosen->second_result};
    for (int i = 0; i < 2; i++) {
        if (plans[i]) QDR_TRY(QDRI_CLEAR(qdr_plan, plans[i]));
        if (results[i]) QDR_TRY(QDRI_CLEAR(qdr_plan_result, results[i]));
        if (plans[i]) QDRI_GIVE(qdr_plan, plans[i], &all->plans[i]);
        if (results[i]) QDRI_GIVE(qdr_plan_result, results[i], &all->results[i]);
    }
    memcpy(chosen->machine, all->machine, sizeof chosen->machine);
    chosen->n_grids = all->n_grids;
    chosen->n_candidates = all->n_candidates;
    chosen->n_fitting = all->n_fitting;
    return QDR_OK;
}

qdr_status qdr_plan_auto(qdr_context *ctx, const qdr_network *network, const qdr_machine *machine,
                         const qdr_search_opts *opts, qdr_auto_plan *chosen)
{
    qdr_auto_plan own;
    answer all;
    if (!ctx) return QDR_FAIL(QDR_ERR_ARGUMENT, "plan: the context is NULL");
    memset(&all, 0, sizeof all); /* padding, too: it is sent */
    qdr_status status = QDRI_TAKE(qdr_auto_plan, chosen, &own);
    if (status == QDR_OK) status = give(&all, &own);
    if (status == QDR_OK) QDRI_GIVE(qdr_auto_plan, chosen, &own);
    if (status == QDR_OK && qdr_context_rank(ctx) == 0) status = search(ctx, network, machine, opts, &all);
    QDR_TRY(qdr_agree(ctx, status));
    QDR_TRY(qdr_broadcast(ctx, 0, &all, sizeof all));
    QDR_TRY(give(&all, &own));
    QDRI_GIVE(qdr_auto_plan, chosen, &own);
    return QDR_OK;
}
