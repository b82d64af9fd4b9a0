/* SPDX-License-Identifier: Apache-2.0 */
/* The search: all plans are bounded from below by the work of their processors, those for which that may suffice by
 * their lists, in each order; the most promising ones are simulated until no remaining bound could win. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/order.h"
#include "core/size.h"
#include "core/sized.h"
#include "search/search.h"

/* A grid with everything that is chosen before the order: first of all kinds of recomputation that fit, then of one. */
typedef struct candidate {
    double bound_secs; /* by the processors' work; then the minimum over all orders */
    int number; /* equal bounds are sorted by it */
    int size[QDR_N_AXES];
    int64_t micro_batch;
    qdri_parts parts;
    unsigned char layout, recompute;
    int fitting; /* kinds of recomputation, one bit for each */
} candidate;

typedef struct candidates {
    candidate *of;
    int n, capacity;
} candidates;

/* The work of the processors, by micro-batch and layout: the same for all grids with these x and y. */
enum { MOST_MICRO_BATCHES = 64 };
typedef struct floors {
    int x, y;
    double secs[MOST_MICRO_BATCHES][2][QDRI_N_RECOMPUTES]; /* 0: not known yet */
} floors;

/* Panels help some plans more than others: they are chosen for the best ones of all, and for the best of each grid. */
enum { N_CONTENDERS = 32, LEAST_GRIDS = 16 };

typedef struct search {
    qdr_model *model;
    qdr_search_opts opts;
    qdri_search_result *result;
    qdri_planned_grid contenders[N_CONTENDERS]; /* the fastest plan of each grid, layout and partition */
    int n_contenders;
    char orders[QDRI_N_ORDERS][8];
    int n_orders;
    candidates cases, plans; /* of all kinds of recomputation; of one, by their bounds */
    floors floors;
    int64_t n_grids, n_grids_done; /* of those with the fixed sizes */
    qdr_status status;
} search;

/* ---- orders ---- */

/* Whether the options mean these partitions if the axes have this order. */
static int suits(const search *s, const int size[QDR_N_AXES], qdri_parts parts, const char *order)
{
    if (!qdri_search_has_words(&s->opts)) return 1;
    const qdri_parts given = qdri_search_given(&s->model->machine, &s->opts, size, order);
    return given.gradient == parts.gradient && given.optimizer == parts.optimizer;
}

/* Numbers of the orders that differ on this grid, where axes of one rank are ignored, and suit the partitions. */
static int distinct_orders(const search *s, const int size[QDR_N_AXES], qdri_parts parts, int numbers[QDRI_N_ORDERS])
{
    char wide[QDRI_N_ORDERS][8]; /* the other axes, in each order that was found */
    int n = 0;
    for (int i = 0; i < s->n_orders; i++) {
        int n_wide = 0, is_new = 1;
        for (int j = 0; j < QDR_N_AXES; j++)
            if (size[qdri_axis_of(s->orders[i][j])] > 1) wide[n][n_wide++] = s->orders[i][j];
        wide[n][n_wide] = '\0';
        for (int j = 0; j < n; j++) is_new &= strcmp(wide[j], wide[n]) != 0;
        if (is_new && suits(s, size, parts, s->orders[i])) numbers[n++] = i;
    }
    return n;
}

/* ---- bounds ---- */

static qdr_plan plan_of(const search *s, const candidate *c)
{
    qdr_plan plan = qdri_search_plan(&s->opts, c->size, c->micro_batch);
    qdri_search_set_parts(c->parts, &plan);
    plan.layout = (qdr_layout)c->layout;
    plan.recompute = (qdr_recompute)c->recompute;
    plan.panels = s->opts.panels ? s->opts.panels : 1;
    plan.batch_parts = s->opts.batch_parts ? s->opts.batch_parts : 1;
    return plan;
}

static double memory_limit(const search *s)
{
    return s->opts.memory_bytes > 0 ? s->opts.memory_bytes : s->model->machine.memory_bytes;
}

/* Kinds of recomputation with which a grid, layout, micro-batch and partitions may fit by the lower bound of their
 * memory, one bit for each. */
static int fitting_recomputes(search *s, candidate c, int n_orders)
{
    const qdr_plan any = plan_of(s, &c);
    const qdri_stages stages = qdri_stages_make(&s->model->machine, &s->model->network, &any);
    const double limit = memory_limit(s);
    qdri_pricing pricing;
    int fitting = 0;
    qdri_pricing_sizes(&s->model->machine, &s->model->network, &any, &pricing);
    pricing.gathers_again |= qdri_can_gather_again(&s->model->machine);
    for (int r = 0; r < QDRI_N_RECOMPUTES; r++) {
        qdr_plan_result result = {.secs = 0};
        if (!(s->opts.recomputes >> r & 1)) continue;
        c.recompute = (unsigned char)r;
        const qdr_plan plan = plan_of(s, &c);
        pricing.plan = &plan;
        qdri_memory(&pricing, &s->model->network, &stages, qdri_micro_batches(&plan, &pricing.sizes), &result);
        s->result->n_candidates += n_orders;
        if (qdri_search_bound_bytes(&result) > limit) continue;
        s->result->n_fitting += n_orders;
        fitting |= 1 << r;
    }
    return fitting;
}

/* The bounds for a grid, layout, micro-batch and partitions, whatever the order and recomputation; they point to the
 * plan. */
static qdr_status make_bounds(qdr_model *model, const qdr_plan *plan, qdri_bounds *bounds)
{
    qdri_pricing pricing;
    const double n_layers = (double)model->network.layers;
    QDR_TRY(qdri_plan_check(model, plan));
    QDR_TRY(qdri_lists_make(&model->network, plan, model->machine.ranks_per_node, 1, n_layers, 0, &model->one_layer));
    qdri_pricing_make(&model->machine, &model->network, plan, &pricing);
    qdri_bounds_make(&model->one_layer, &pricing, n_layers, &model->ways, bounds);
    return QDR_OK;
}

qdr_status qdri_model_work(qdr_model *model, const qdr_plan *plan, double secs[QDRI_N_RECOMPUTES])
{
    qdri_bounds bounds;
    qdri_sizes sizes;
    qdr_plan gathered = *plan;
    gathered.z *= gathered.d;
    gathered.d = 1;
    gathered.gradient_parts = gathered.optimizer_parts = 0;
    qdri_sizes_make(&model->network, &gathered, &sizes);
    const double n_micro = qdri_micro_batches(&gathered, &sizes);
    gathered.batch = (int64_t)sizes.sequences * gathered.z; /* of one micro-batch */
    QDR_TRY(make_bounds(model, &gathered, &bounds));
    qdri_bound_work(&bounds, n_micro, secs);
    return QDR_OK;
}

static void add(search *s, candidates *all, const candidate *c)
{
    s->status = qdri_list_grow((void **)&all->of, all->n, &all->capacity, sizeof *c, "plans");
    if (s->status == QDR_OK) all->of[all->n++] = *c;
}

/* One grid, layout, micro-batch and pair of partitions with each kind of recomputation: those that fit are bounded by
 * the processors' work. floor: that work; 0: not known yet. */
static void bound_case(search *s, candidate *c, int n_orders, double floor[QDRI_N_RECOMPUTES])
{
    const qdr_plan plan = plan_of(s, c);
    s->status = qdri_plan_check(s->model, &plan);
    c->fitting = s->status == QDR_OK ? fitting_recomputes(s, *c, n_orders) : 0;
    if (c->fitting && !(floor[0] > 0)) s->status = qdri_model_work(s->model, &plan, floor);
    if (!c->fitting || s->status != QDR_OK) return;
    c->number = s->cases.n;
    c->bound_secs = INFINITY;
    for (int r = 0; r < QDRI_N_RECOMPUTES; r++) {
        if (!(c->fitting >> r & 1)) continue;
        s->result->n_bounded += n_orders;
        c->bound_secs = fmin(c->bound_secs, floor[r]);
    }
    add(s, &s->cases, c);
}

static void tell(const search *s, double bounded)
{
    if (s->opts.progress) s->opts.progress(bounded, s->result->n_simulated, s->opts.progress_user);
}

static void count_grid(const int size[QDR_N_AXES], void *user)
{
    (void)size;
    ((search *)user)->n_grids++;
}

static void bound_next_grid(const int size[QDR_N_AXES], void *user)
{
    search *s = user;
    if (s->status != QDR_OK) return;
    tell(s, (double)s->n_grids_done++ / (double)s->n_grids);
    candidate c = {.size = {size[QDR_X], size[QDR_Y], size[QDR_Z], size[QDR_D]}};
    qdri_parts pairs[QDRI_MOST_PAIRS];
    int numbers[QDRI_N_ORDERS], n_orders[QDRI_MOST_PAIRS], n_micro_batches = 0;
    const int64_t cells = (int64_t)size[QDR_Z] * size[QDR_D];
    if (s->opts.batch < cells) return; /* some cells would have nothing to do */
    const int n_pairs = qdri_search_parts(&s->model->machine, &s->opts, size, pairs);
    const int64_t n_before = s->result->n_candidates;
    for (int i = 0; i < n_pairs; i++) n_orders[i] = distinct_orders(s, size, pairs[i], numbers);
    if (s->floors.x != size[QDR_X] || s->floors.y != size[QDR_Y])
        s->floors = (floors){.x = size[QDR_X], .y = size[QDR_Y]};
    const int one_layout = size[QDR_X] == 1 && size[QDR_Y] == 1; /* scattered over one rank is replicated */
    const int64_t all = (s->opts.batch + cells - 1) / cells, wanted = s->opts.micro_batch;
    for (int64_t micro = wanted > 0 ? wanted : 1; s->status == QDR_OK; micro *= 2) {
        c.micro_batch = micro < all ? micro : all;
        for (int layout = 0; layout < (one_layout ? 1 : 2) && s->status == QDR_OK; layout++) {
            if (!(s->opts.layouts >> layout & 1) && !one_layout) continue;
            c.layout = (unsigned char)layout;
            for (int i = 0; i < n_pairs && s->status == QDR_OK; i++) {
                c.parts = pairs[i];
                bound_case(s, &c, n_orders[i], s->floors.secs[n_micro_batches][layout]);
            }
        }
        n_micro_batches++;
        if (wanted > 0 || micro >= all) break;
    }
    s->result->n_grids += s->result->n_candidates > n_before;
}

/* ---- simulation ---- */

static int same_grid(const qdr_plan *a, const qdr_plan *b)
{
    return a->x == b->x && a->y == b->y && a->z == b->z && a->d == b->d;
}

static int same_contender(const qdr_plan *a, const qdr_plan *b)
{
    return same_grid(a, b) && a->layout == b->layout && a->gradient_parts == b->gradient_parts &&
           a->optimizer_parts == b->optimizer_parts;
}

static int same_plan(const qdr_plan *a, const qdr_plan *b)
{
    return same_contender(a, b) && a->recompute == b->recompute && a->micro_batch == b->micro_batch &&
           strcmp(a->order, b->order) == 0;
}

/* The fastest plans of different kinds, the fastest first. */
typedef struct ranking {
    qdri_planned_grid *best;
    int *n, most;
    int (*is_same)(const qdr_plan *a, const qdr_plan *b);
} ranking;

static ranking grids_of(search *s) { return (ranking){s->result->best, &s->result->n_best, s->opts.n_best, same_grid}; }

static ranking contenders_of(search *s)
{
    return (ranking){s->contenders, &s->n_contenders, N_CONTENDERS, same_contender};
}

/* The time that a plan must beat to get into a ranking. */
static double secs_to_enter(const ranking *r, const qdr_plan *plan)
{
    for (int i = 0; i < *r->n; i++)
        if (r->is_same(&r->best[i].plan, plan)) return r->best[i].result.secs;
    return *r->n < r->most ? INFINITY : r->best[*r->n - 1].result.secs;
}

/* Inserts a plan in order, if it is fast enough; replaces an earlier one of the same kind, or the last. */
static void rank_plan(const ranking *r, const qdr_plan *plan, const qdr_plan_result *found)
{
    int at = 0;
    if (!(found->secs < secs_to_enter(r, plan))) return;
    while (at < *r->n && !r->is_same(&r->best[at].plan, plan)) at++;
    if (at == *r->n && *r->n < r->most) ++*r->n;
    if (at == *r->n) at--;
    for (; at > 0 && r->best[at - 1].result.secs > found->secs; at--) r->best[at] = r->best[at - 1];
    r->best[at] = (qdri_planned_grid){*plan, *found};
}

/* The time that a plan must beat to matter. */
static double secs_to_beat(search *s, const qdr_plan *plan)
{
    const ranking grids = grids_of(s), contenders = contenders_of(s);
    return fmax(secs_to_enter(&grids, plan), secs_to_enter(&contenders, plan));
}

/* Whether a plan fits, by its lists, perhaps with its rows in two parts. Without codecs that does not depend on the
 * order: *known is kept for the others. */
static int fits(search *s, qdr_plan *plan, int *known)
{
    qdr_plan_result needed;
    if (*known < 0 || s->opts.codecs) {
        plan->batch_parts = s->opts.batch_parts;
        s->status = qdri_model_memory(s->model, plan, memory_limit(s), &needed);
        *known = s->status != QDR_OK || needed.memory_bytes > memory_limit(s) ? 0 : plan->batch_parts;
    }
    if (*known) plan->batch_parts = *known;
    return *known > 0;
}

/* Whether a plan fits that repeats less, and is otherwise the same: it takes no longer. */
static int is_dominated(search *s, candidate c)
{
    static const unsigned char less[] = {QDR_RECOMPUTE_NONE, QDR_RECOMPUTE_OPERATIONS};
    const int recompute = c.recompute;
    for (int i = 0; i < 2 && recompute != less[i] && !s->opts.codecs && s->status == QDR_OK; i++) {
        int known = -1;
        if (!(c.fitting >> less[i] & 1)) continue;
        c.recompute = less[i];
        qdr_plan plan = plan_of(s, &c);
        if (fits(s, &plan, &known)) return 1;
    }
    return 0;
}

static void simulate_orders(search *s, const candidate *c)
{
    if (is_dominated(s, *c)) return;
    int known = -1;
    int numbers[QDRI_N_ORDERS];
    const int n_orders = distinct_orders(s, c->size, c->parts, numbers);
    const qdr_plan any_order = plan_of(s, c);
    qdri_bounds bounds;
    s->status = make_bounds(s->model, &any_order, &bounds);
    for (int i = 0; i < n_orders && s->status == QDR_OK; i++) {
        qdr_plan plan = any_order;
        qdr_plan_result result;
        double bound_secs[QDRI_N_RECOMPUTES];
        memcpy(plan.order, s->orders[numbers[i]], sizeof plan.order);
        qdri_bound_secs(&bounds, plan.order, bound_secs);
        if (!s->opts.exhaustive && bound_secs[plan.recompute] >= secs_to_beat(s, &plan)) continue;
        if (!fits(s, &plan, &known)) {
            s->result->n_fitting--;
            continue;
        }
        s->status = qdri_model_predict(s->model, &plan, &result);
        s->result->n_simulated++;
        if (s->status != QDR_OK) return;
        const ranking grids = grids_of(s), contenders = contenders_of(s);
        rank_plan(&grids, &plan, &result);
        rank_plan(&contenders, &plan, &result);
    }
}

static int by_bound(const void *a, const void *b)
{
    const candidate *p = a, *q = b;
    if (p->bound_secs != q->bound_secs) return p->bound_secs > q->bound_secs ? 1 : -1;
    return (p->number > q->number) - (p->number < q->number);
}

/* Puts the last plan in order among those from n_done on. */
static void put_last(candidates *plans, int n_done)
{
    const candidate last = plans->of[plans->n - 1];
    int begin = n_done, end = plans->n - 1;
    while (begin < end) {
        const int middle = begin + (end - begin) / 2;
        if (by_bound(&plans->of[middle], &last) > 0)
            end = middle;
        else
            begin = middle + 1;
    }
    memmove(&plans->of[begin + 1], &plans->of[begin], (size_t)(plans->n - 1 - begin) * sizeof last);
    plans->of[begin] = last;
}

/* Bounds the plans of a case by their lists, and keeps them in order, after the first n_done: however bounds were
 * rounded, each plan is looked at once. */
static void bound_plans(search *s, candidate c, int n_done)
{
    const qdr_plan plan = plan_of(s, &c);
    qdri_bounds bounds;
    int numbers[QDRI_N_ORDERS];
    const int n_orders = distinct_orders(s, c.size, c.parts, numbers);
    double least[QDRI_N_RECOMPUTES], secs[QDRI_N_RECOMPUTES]; /* least: the minimum over all orders */
    s->status = make_bounds(s->model, &plan, &bounds);
    if (s->status != QDR_OK) return;
    for (int r = 0; r < QDRI_N_RECOMPUTES; r++) least[r] = INFINITY;
    for (int i = 0; i < n_orders; i++) {
        qdri_bound_secs(&bounds, s->orders[numbers[i]], secs);
        for (int r = 0; r < QDRI_N_RECOMPUTES; r++) least[r] = fmin(least[r], secs[r]);
    }
    for (int r = 0; r < QDRI_N_RECOMPUTES && s->status == QDR_OK; r++) {
        if (!(c.fitting >> r & 1)) continue;
        c.recompute = (unsigned char)r;
        c.bound_secs = least[r];
        add(s, &s->plans, &c);
        if (s->status == QDR_OK) put_last(&s->plans, n_done);
    }
}

/* In order of the bounds by lists, which are computed only when those by work are no lower. */
static void simulate_plans(search *s)
{
    const candidates *cases = &s->cases, *plans = &s->plans;
    if (cases->n) qsort(cases->of, (size_t)cases->n, sizeof *cases->of, by_bound);
    for (int at_case = 0, at_plan = 0; s->status == QDR_OK && (at_case < cases->n || at_plan < plans->n);) {
        const int is_plan = at_case == cases->n ||
                            (at_plan < plans->n && plans->of[at_plan].bound_secs < cases->of[at_case].bound_secs);
        const candidate c = is_plan ? plans->of[at_plan++] : cases->of[at_case++];
        const qdr_plan plan = plan_of(s, &c);
        tell(s, 1);
        if (!s->opts.exhaustive && c.bound_secs >= secs_to_beat(s, &plan)) continue;
        if (is_plan)
            simulate_orders(s, &c);
        else
            bound_plans(s, c, at_plan);
    }
}

/* ---- panels and parts ---- */

static int by_secs(const void *a, const void *b)
{
    const double p = ((const qdri_planned_grid *)a)->result.secs, q = ((const qdri_planned_grid *)b)->result.secs;
    return (p > q) - (p < q);
}

/* Ranks the n_wanted best grids anew. No panels make a plan faster than its processors. */
static void choose_panels(search *s, int n_wanted)
{
    qdri_planned_grid all[QDR_MAX_BEST + N_CONTENDERS];
    qdri_search_result *r = s->result;
    int n = r->n_best;
    memcpy(all, r->best, (size_t)n * sizeof *all);
    for (int i = 0; i < s->n_contenders; i++) {
        int is_new = 1;
        for (int j = 0; j < r->n_best; j++) is_new &= !same_plan(&all[j].plan, &s->contenders[i].plan);
        if (is_new) all[n++] = s->contenders[i];
    }
    qsort(all, (size_t)n, sizeof *all, by_secs);
    memset(r->best, 0, sizeof r->best);
    r->n_best = 0;
    s->opts.n_best = n_wanted;
    const ranking grids = grids_of(s);
    for (int i = 0; i < n && s->status == QDR_OK; i++) {
        qdri_planned_grid one = all[i];
        if (qdri_busy_secs(&one.result) >= secs_to_enter(&grids, &one.plan)) continue;
        one.plan.panels = s->opts.panels;
        one.plan.batch_parts = s->opts.batch_parts;
        s->status = qdri_model_choose(s->model, &one.plan, memory_limit(s), &one.result);
        if (one.result.memory_bytes > memory_limit(s)) one = all[i];
        if (s->status == QDR_OK) rank_plan(&grids, &one.plan, &one.result);
    }
}

/* ---- the functions ---- */

qdr_status qdri_model_search(qdr_model *model, const qdr_search_opts *opts, qdri_search_result *result)
{
    memset(result, 0, sizeof *result);
    QDR_TRY(qdri_search_check(opts));
    search s = {.model = model, .opts = *opts, .result = result};
    if (s.opts.n_best == 0) s.opts.n_best = 10;
    qdri_search_defaults(&s.opts);
    const int n_wanted = s.opts.n_best, n_kept = n_wanted + 6 > LEAST_GRIDS ? n_wanted + 6 : LEAST_GRIDS;
    s.opts.n_best = n_kept < QDR_MAX_BEST ? n_kept : QDR_MAX_BEST;
    s.n_orders = qdri_search_orders(&s.opts, s.orders);
    qdri_search_grids(s.opts.n_ranks, s.opts.ranks, count_grid, &s);
    qdri_search_grids(s.opts.n_ranks, s.opts.ranks, bound_next_grid, &s);
    if (s.status == QDR_OK) simulate_plans(&s);
    if (s.status == QDR_OK) choose_panels(&s, n_wanted);
    free(s.cases.of);
    free(s.plans.of);
    if (s.status != QDR_OK) memset(result, 0, sizeof *result);
    return s.status;
}

qdr_status qdr_model_search(qdr_model *model, const qdr_search_opts *opts, qdr_search_result *result)
{
    qdr_search_opts own;
    if (!model) return QDR_FAIL(QDR_ERR_ARGUMENT, "search: the model is NULL");
    const qdri_search_result *found = &model->found;
    QDR_TRY(QDRI_CLEAR(qdr_search_result, result));
    QDR_TRY(QDRI_TAKE(qdr_search_opts, opts, &own));
    QDR_TRY(qdri_model_search(model, &own, &model->found));
    const qdr_search_result made = {.n_best = found->n_best,
                                    .n_candidates = found->n_candidates,
                                    .n_fitting = found->n_fitting,
                                    .n_bounded = found->n_bounded,
                                    .n_simulated = found->n_simulated,
                                    .n_grids = found->n_grids};
    QDRI_GIVE(qdr_search_result, result, &made);
    return QDR_OK;
}

qdr_status qdr_model_best(const qdr_model *model, int index, qdr_plan *plan, qdr_plan_result *result)
{
    static const qdri_planned_grid none;
    const int n = model ? model->found.n_best : 0, exists = index >= 0 && index < n;
    QDR_TRY(qdri_give_planned(exists ? &model->found.best[index] : &none, plan, result));
    if (exists) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "search: there is no plan %d; the model's last search found %d", index, n);
}

qdr_status qdr_model_bound(qdr_model *model, const qdr_plan *plan, double *secs)
{
    qdri_bounds bounds;
    double each[QDRI_N_RECOMPUTES];
    qdr_plan own;
    if (!model || !secs) return QDR_FAIL(QDR_ERR_ARGUMENT, "bound: the model or the result pointer is NULL");
    *secs = 0;
    QDR_TRY(QDRI_TAKE(qdr_plan, plan, &own));
    QDR_TRY(make_bounds(model, &own, &bounds));
    qdri_bound_secs(&bounds, own.order[0] ? own.order : QDRI_USUAL_ORDER, each);
    *secs = each[(int)own.recompute < QDRI_N_RECOMPUTES ? own.recompute : QDR_RECOMPUTE_NONE];
    return QDR_OK;
}
