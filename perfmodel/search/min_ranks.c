/* SPDX-License-Identifier: Apache-2.0 */
/* The least memory, and the smallest number of ranks that fits. Plans are bounded from below in closed form, and the
 * lists of those with the lowest bounds say what they need. Most numbers of ranks are skipped by a bound that decreases
 * with them: parameters and their state partitioned over all ranks, and the minimum of the rest over all x and y. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/codec.h"
#include "core/size.h"
#include "core/sized.h"
#include "search/search.h"

/* Number of memory computations after which a scan gives up, where lists count as many as they take time; that is about
 * 0.3 s. */
enum { MOST_CASES = 1500000, CASES_OF_LISTS = 1500, N_LAYOUTS = 2 };

/* A plan and the lower bound of its memory. */
typedef struct bounded {
    qdr_plan plan;
    double bytes;
} bounded;

typedef struct hunt {
    qdr_model *model;
    qdr_search_opts opts;
    double limit;
    double state_bytes; /* of parameters, gradients and optimizer, over all ranks */
    double most_bytes; /* plans that need more are not wanted */
    bounded *cases;
    int n, capacity;
    int64_t n_cases;
    qdr_status status;
} hunt;

/* ---- one grid ---- */

/* Bounds all requested layouts and kinds of recomputation, and what neither z nor d changes; NULL: not wanted, and the
 * plans are kept. */
static void bound_cases(hunt *h, qdr_plan *plan, int gathers_again, double *least_rest)
{
    const qdr_network *network = &h->model->network;
    const qdri_stages stages = qdri_stages_make(&h->model->machine, network, plan);
    const int one_layout = plan->x == 1 && plan->y == 1;
    for (int layout = 0; layout < (one_layout ? 1 : N_LAYOUTS); layout++) {
        qdri_pricing pricing;
        if (!(h->opts.layouts >> layout & 1) && !one_layout) continue;
        plan->layout = (qdr_layout)layout;
        qdri_pricing_sizes(&h->model->machine, network, plan, &pricing);
        pricing.gathers_again |= gathers_again || qdri_can_gather_again(&h->model->machine);
        for (int r = 0; r < QDRI_N_RECOMPUTES && h->status == QDR_OK; r++) {
            qdr_plan_result result = {.secs = 0};
            if (!(h->opts.recomputes >> r & 1)) continue;
            plan->recompute = (qdr_recompute)r;
            qdri_memory(&pricing, network, &stages, 1, &result);
            h->n_cases++;
            if (least_rest) {
                const double *memory = result.memory;
                *least_rest = fmin(*least_rest, memory[QDR_MEMORY_ACTIVATIONS] + memory[QDR_MEMORY_WORKSPACE] +
                                                    memory[QDR_MEMORY_RESERVE] + memory[QDR_MEMORY_DEVICE]);
                continue;
            }
            if (qdri_search_bound_bytes(&result) > h->most_bytes) continue;
            h->status = qdri_list_grow((void **)&h->cases, h->n, &h->capacity, sizeof *h->cases, "plans");
            if (h->status == QDR_OK) h->cases[h->n++] = (bounded){*plan, qdri_search_bound_bytes(&result)};
        }
    }
}

/* One sequence at a time needs the least memory. */
static void bound_grid(const int size[QDR_N_AXES], void *user)
{
    hunt *h = user;
    const int64_t cells = (int64_t)size[QDR_Z] * size[QDR_D];
    const int64_t all = (h->opts.batch + cells - 1) / cells;
    const int64_t wanted = h->opts.micro_batch > 0 ? h->opts.micro_batch : 1;
    if (h->opts.batch < cells) return;
    qdr_plan plan = qdri_search_plan(&h->opts, size, wanted < all ? wanted : all);
    plan.panels = h->opts.panels;
    plan.batch_parts = h->opts.batch_parts;
    qdri_parts pairs[QDRI_MOST_PAIRS];
    const int n_pairs = qdri_search_parts(&h->model->machine, &h->opts, size, pairs);
    for (int i = 0; i < n_pairs; i++) {
        qdri_search_set_parts(pairs[i], &plan);
        bound_cases(h, &plan, 0, NULL);
    }
}

/* ---- by lists ---- */

static int by_bytes(const void *a, const void *b)
{
    const bounded *p = a, *q = b;
    return (p->bytes > q->bytes) - (p->bytes < q->bytes);
}

/* Keeps a plan in the order of axes in which it needs least: only codecs make a difference. */
static void measure(hunt *h, const qdr_plan *plan, qdri_planned_grid *least)
{
    char orders[QDRI_N_ORDERS][8];
    const int n_orders = qdri_codecs_are_none(&plan->codecs) ? 1 : qdri_search_orders(&h->opts, orders);
    for (int i = 0; i < n_orders && h->status == QDR_OK; i++) {
        qdri_planned_grid one = {.plan = *plan};
        if (n_orders > 1) memcpy(one.plan.order, orders[i], sizeof one.plan.order);
        h->status = qdri_model_memory(h->model, &one.plan, h->limit, &one.result);
        h->n_cases += CASES_OF_LISTS;
        const double bytes = least->result.memory_bytes;
        if (h->status == QDR_OK && (!(bytes > 0) || one.result.memory_bytes < bytes)) *least = one;
    }
}

/* The least memory of the kept plans; any that needs at most `enough` will do. */
static void find_least(hunt *h, double enough, qdri_planned_grid *least)
{
    memset(least, 0, sizeof *least);
    if (h->n) qsort(h->cases, (size_t)h->n, sizeof *h->cases, by_bytes);
    for (int i = 0; i < h->n && h->status == QDR_OK; i++) {
        const double bytes = least->result.memory_bytes;
        if (bytes > 0 && (bytes <= enough || h->cases[i].bytes >= bytes)) break;
        measure(h, &h->cases[i].plan, least);
    }
    h->n = 0;
}

/* ---- bounds ---- */

/* A lower bound for the memory that neither z nor d changes: for one sequence, with everything dropped that may be
 * dropped. */
static double rest_of(hunt *h, int x, int y)
{
    qdr_plan plan = qdri_search_plan(&h->opts, (const int[QDR_N_AXES]){x, y, 1, 1}, 1);
    double least = INFINITY;
    bound_cases(h, &plan, 1, &least);
    return least;
}

/* The largest size in [first, 2·first) that an axis may have; 0: none. */
static int largest_from(int first, int fixed)
{
    if (!fixed) return 2 * first - 1;
    return fixed >= first && fixed < 2 * first ? fixed : 0;
}

/* The minimum of the rest over all grids of at most this many ranks: a larger axis never needs more memory. But size 1
 * differs from 2, where copies are kept, and is an interval of its own. */
static double least_rest(hunt *h, int most)
{
    double least = INFINITY;
    for (int x = 1; x <= most; x *= 2)
        for (int y = 1; y <= most / x; y *= 2) {
            const int largest_x = largest_from(x, h->opts.ranks[QDR_X]),
                      largest_y = largest_from(y, h->opts.ranks[QDR_Y]);
            if (largest_x && largest_y) least = fmin(least, rest_of(h, largest_x, largest_y));
        }
    return least;
}

/* The first number of ranks for which the bound allows a plan. */
static int first_possible(hunt *h, int from, int most)
{
    for (int64_t at = from, end = 1; at <= most; at = end) {
        while (end <= at) end *= 2;
        const double left = h->limit - least_rest(h, (int)end - 1);
        const double needed = left > 0 ? ceil(h->state_bytes / left) : INFINITY;
        if (needed < (double)end) return needed > (double)at ? (int)needed : (int)at;
    }
    return most + 1;
}

/* ---- numbers of ranks ---- */

static void set_ranks(hunt *h, int n_ranks, const qdr_search_opts *asked)
{
    h->opts.n_ranks = n_ranks;
    h->opts.batch = asked->batch ? asked->batch : n_ranks;
}

/* Whether a plan for this number of ranks fits, which is *least then: grids whose x and y leave no memory are skipped.
 * */
static int any_fits(hunt *h, qdri_planned_grid *least)
{
    int x[QDRI_MAX_DIVISORS], y[QDRI_MAX_DIVISORS], z[QDRI_MAX_DIVISORS];
    const int fixed_d = h->opts.ranks[QDR_D], n = h->opts.n_ranks, n_x = qdri_search_sizes(n, h->opts.ranks[QDR_X], x);
    const double state = h->state_bytes / n;
    h->most_bytes = h->limit;
    h->n_cases += 8; /* the cost of finding divisors */
    for (int i = 0; i < n_x; i++) {
        const int n_y = qdri_search_sizes(n / x[i], h->opts.ranks[QDR_Y], y);
        for (int j = 0; j < n_y; j++) {
            if (rest_of(h, x[i], y[j]) + state > h->limit) continue;
            const int cells = n / x[i] / y[j], n_z = qdri_search_sizes(cells, h->opts.ranks[QDR_Z], z);
            for (int k = 0; k < n_z; k++) {
                if (fixed_d && cells / z[k] != fixed_d) continue;
                bound_grid((const int[QDR_N_AXES]){x[i], y[j], z[k], cells / z[k]}, h);
            }
        }
    }
    find_least(h, h->limit, least);
    return least->result.memory_bytes > 0 && least->result.memory_bytes <= h->limit;
}

/* Some number of ranks that fits, not necessarily the smallest: doublings, then the largest power of two. */
static int some_ranks(hunt *h, const qdr_search_opts *asked, int first, int most)
{
    qdri_planned_grid any;
    for (int64_t n = 2 * (int64_t)asked->n_ranks; n <= most; n *= 2) {
        set_ranks(h, (int)n, asked);
        if (n >= first && any_fits(h, &any)) return (int)n;
    }
    int last = 1;
    while (last <= most / 2) last *= 2;
    set_ranks(h, last, asked);
    return last >= first && any_fits(h, &any) ? last : 0;
}

static void find_fewest(hunt *h, const qdr_search_opts *asked, int most, qdri_fewest_ranks *fewest)
{
    int step = 1, n_fixed = 0;
    qdri_planned_grid any;
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        if (asked->ranks[axis]) step *= asked->ranks[axis];
        n_fixed += asked->ranks[axis] > 0;
    }
    fewest->tried_to = most;
    if (n_fixed == QDR_N_AXES) return; /* no other number of ranks has this grid */
    const int first = first_possible(h, asked->n_ranks + 1, most);
    fewest->n_ranks = first <= most ? some_ranks(h, asked, first, most) : 0;
    const int end = fewest->n_ranks ? fewest->n_ranks : most + 1;
    h->n_cases = 0;
    fewest->tried_to = first - 1;
    for (int64_t n = ((int64_t)first + step - 1) / step * step; n < end; n += step) {
        if (h->n_cases > MOST_CASES || h->status != QDR_OK) return;
        set_ranks(h, (int)n, asked);
        fewest->tried_to = (int)n - 1;
        if (!any_fits(h, &any)) continue;
        fewest->n_ranks = (int)n;
        return;
    }
    fewest->tried_to = end - 1;
}

/* ---- public functions ---- */

static qdr_status begin(hunt *h, qdr_model *model, const qdr_search_opts *opts)
{
    QDR_TRY(qdri_search_check(opts));
    *h = (hunt){.model = model, .opts = *opts, .most_bytes = INFINITY};
    qdri_search_defaults(&h->opts);
    h->limit = opts->memory_bytes > 0 ? opts->memory_bytes : model->machine.memory_bytes;
    const qdr_plan any = qdri_search_plan(&h->opts, (const int[QDR_N_AXES]){1, 1, 1, 1}, opts->micro_batch);
    return qdri_plan_check(model, &any);
}

static qdr_status end(hunt *h, qdri_planned_grid *least)
{
    if (h->status == QDR_OK) find_least(h, 0, least);
    free(h->cases);
    if (h->status != QDR_OK) memset(least, 0, sizeof *least);
    return h->status;
}

qdr_status qdri_model_least_memory(qdr_model *model, const qdr_search_opts *opts, qdri_planned_grid *least)
{
    hunt h;
    memset(least, 0, sizeof *least);
    QDR_TRY(begin(&h, model, opts));
    qdri_search_grids(opts->n_ranks, opts->ranks, bound_grid, &h);
    return end(&h, least);
}

qdr_status qdr_model_least_memory(qdr_model *model, const qdr_search_opts *opts, qdr_plan *plan,
                                  qdr_plan_result *result)
{
    qdr_search_opts own;
    qdri_planned_grid least = {.result = {.secs = 0}};
    if (!model || !plan) return QDR_FAIL(QDR_ERR_ARGUMENT, "search: the model or the plan pointer is NULL");
    QDR_TRY(qdri_give_planned(&least, plan, result));
    QDR_TRY(QDRI_TAKE(qdr_search_opts, opts, &own));
    QDR_TRY(qdri_model_least_memory(model, &own, &least));
    return qdri_give_planned(&least, plan, result);
}

/* The state without padding, which increases the memory of a single rank. */
static double state_bytes(const hunt *h)
{
    hunt plain = *h;
    qdri_pricing pricing;
    qdr_plan_result result;
    plain.opts.batch = 1;
    const qdr_plan plan = qdri_search_plan(&plain.opts, (const int[QDR_N_AXES]){1, 1, 1, 1}, 1);
    const qdri_stages stages = qdri_stages_make(&h->model->machine, &h->model->network, &plan);
    qdri_pricing_sizes(&h->model->machine, &h->model->network, &plan, &pricing);
    qdri_memory(&pricing, &h->model->network, &stages, 1, &result);
    return (1 - 1e-6) * (result.memory[QDR_MEMORY_PARAMETERS] + result.memory[QDR_MEMORY_GRADIENTS] +
                         result.memory[QDR_MEMORY_OPTIMIZER]);
}

qdr_status qdri_model_fewest_ranks(qdr_model *model, const qdr_search_opts *opts, int most, qdri_fewest_ranks *fewest)
{
    hunt h;
    memset(fewest, 0, sizeof *fewest);
    if (most < 1 || most > QDR_MAX_SEARCH_RANKS)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "search: up to %d ranks; use 1 to %d", most, QDR_MAX_SEARCH_RANKS);
    QDR_TRY(begin(&h, model, opts));
    h.state_bytes = state_bytes(&h);
    find_fewest(&h, opts, most, fewest);
    if (fewest->n_ranks > 0 && h.status == QDR_OK) {
        set_ranks(&h, fewest->n_ranks, opts);
        qdri_search_grids(fewest->n_ranks, opts->ranks, bound_grid, &h);
    }
    const qdr_status status = end(&h, &fewest->least);
    if (status != QDR_OK) memset(fewest, 0, sizeof *fewest);
    return status;
}

qdr_status qdr_model_fewest_ranks(qdr_model *model, const qdr_search_opts *opts, int most, qdr_fewest_ranks *fewest,
                                  qdr_plan *plan, qdr_plan_result *result)
{
    qdr_search_opts own;
    qdri_fewest_ranks found = {.n_ranks = 0};
    if (!model) return QDR_FAIL(QDR_ERR_ARGUMENT, "search: the model is NULL");
    QDR_TRY(QDRI_CLEAR(qdr_fewest_ranks, fewest));
    QDR_TRY(qdri_give_planned(&found.least, plan, result));
    QDR_TRY(QDRI_TAKE(qdr_search_opts, opts, &own));
    QDR_TRY(qdri_model_fewest_ranks(model, &own, most, &found));
    const qdr_fewest_ranks made = {.n_ranks = found.n_ranks, .tried_to = found.tried_to};
    QDRI_GIVE(qdr_fewest_ranks, fewest, &made);
    return qdri_give_planned(&found.least, plan, result);
}
