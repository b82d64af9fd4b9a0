/* SPDX-License-Identifier: Apache-2.0 */
/* Plans in a running program. Rank 0 queries the model, which uses no ranks, and sends the result to the others: if
 * each of them searched, they might read different machine files. */
#include "quadrille/auto.h"

#include <stdlib.h>
#include <string.h>

#include "core/codec.h"
#include "core/environment.h"
#include "core/group.h"
#include "core/order.h"
#include "core/size.h"
#include "grid/internal.h"

#define GIB 1073741824.0

qdr_status qdr_machine_here(qdr_machine *machine)
{
    return qdr_machine_load(qdr_environment_value("QDR_MACHINE"), machine);
}

/* ---- what this runtime supports ---- */

qdr_status qdr_plan_check(const qdr_plan *plan, int n_ranks)
{
    qdr_obstacle obstacle;
    if (!plan) return QDR_FAIL(QDR_ERR_ARGUMENT, "plan: it is NULL");
    if (plan->version != QDR_OPTS_INIT)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "plan: version is %u; begin the plan with QDR_OPTS_INIT", plan->version);
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

qdr_grid_opts qdr_plan_grid_opts(const qdr_plan *plan)
{
    if (!plan) return (qdr_grid_opts){.version = QDR_OPTS_INIT, .x = 1, .y = 1, .z = 1, .d = 1};
    return (qdr_grid_opts){.version = QDR_OPTS_INIT,
                           .x = plan->x,
                           .y = plan->y,
                           .z = plan->z,
                           .d = plan->d,
                           .order = plan->order[0] ? plan->order : NULL,
                           .gradient_parts = plan->gradient_parts,
                           .optimizer_parts = plan->optimizer_parts};
}

/* ---- the search ---- */

static qdr_status nothing_fits(const qdr_search_opts *opts, const qdr_search_result *found, const char *network,
                               const qdr_machine *machine)
{
    const qdr_planned_grid *least = &found->least_memory;
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
    return QDR_FAIL(QDR_ERR_MEMORY,
                    "plan: no plan of %s on %d rank%s of %s fits in %.4g GiB: the smallest, %dx%dx%dx%d, needs %.4g "
                    "GiB; use more ranks, or a smaller micro-batch or network",
                    network, opts->n_ranks, opts->n_ranks == 1 ? "" : "s", machine->name, limit / GIB, least->plan.x,
                    least->plan.y, least->plan.z, least->plan.d, least->result.memory_bytes / GIB);
}

static qdr_status search(const qdr_context *ctx, const qdr_network *network, const qdr_machine *machine,
                         const qdr_search_opts *wanted, qdr_auto_plan *result)
{
    const int n_ranks = qdr_context_size(ctx);
    qdr_search_opts opts = {.version = QDR_OPTS_INIT, .dtype = QDR_F32};
    qdr_machine here;
    qdr_search_result *found = NULL;
    qdr_model *model = NULL;
    qdr_status status;
    if (!network) return QDR_FAIL(QDR_ERR_ARGUMENT, "plan: the network is NULL");
    if (wanted) opts = *wanted;
    if (opts.n_ranks && opts.n_ranks != n_ranks)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "plan: a search for %d ranks, but the context has %d; leave n_ranks 0",
                        opts.n_ranks, n_ranks);
    if (opts.recomputes && !(opts.recomputes >> QDR_RECOMPUTE_NONE & 1))
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "plan: this runtime keeps all activations; allow QDR_RECOMPUTE_NONE");
    opts.n_ranks = n_ranks;
    opts.recomputes = 1 << QDR_RECOMPUTE_NONE;
    opts.n_best = 2;
    if (!machine) {
        QDR_TRY(qdri_context_machine(ctx, &here));
        machine = &here;
    }
    QDR_TRY_OUT(status, QDRI_NEW(1, "a search", &found));
    QDR_TRY_OUT(status, qdr_model_create(machine, network, &model));
    QDR_TRY_OUT(status, qdr_model_search(model, &opts, found));
    if (found->n_best == 0) QDR_TRY_OUT(status, nothing_fits(&opts, found, network->name, machine));
    memcpy(result->machine, machine->name, sizeof result->machine);
    result->best = found->best[0];
    result->n_grids = found->n_best < 2 ? 1 : 2;
    if (found->n_best > 1) result->second = found->best[1];
    result->n_candidates = found->n_candidates;
    result->n_fitting = found->n_fitting;
out:
    qdr_model_destroy(&model);
    free(found);
    return status;
}

qdr_status qdr_plan_auto(qdr_context *ctx, const qdr_network *network, const qdr_machine *machine,
                         const qdr_search_opts *opts, qdr_auto_plan *result)
{
    if (!ctx) return QDR_FAIL(QDR_ERR_ARGUMENT, "plan: the context is NULL");
    qdr_auto_plan mine;
    memset(&mine, 0, sizeof mine); /* padding, too: it is sent */
    qdr_status status = QDR_OK;
    if (result) memset(result, 0, sizeof *result);
    if (!result)
        status = QDR_FAIL(QDR_ERR_ARGUMENT, "plan: the result pointer is NULL");
    else if (qdr_context_rank(ctx) == 0)
        status = search(ctx, network, machine, opts, &mine);
    QDR_TRY(qdr_agree(ctx, status));
    QDR_TRY(qdr_broadcast(ctx, 0, &mine, sizeof mine));
    *result = mine; /* NOLINT(clang-analyzer-core.NullDereference): agreed on, not NULL */
    return QDR_OK;
}
