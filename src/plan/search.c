/* SPDX-License-Identifier: Apache-2.0 */
/* Searches: for the best plans, and for known methods to compare them with. */
#include <string.h>

#include "plan/plan.h"

/* ---- levels given as numbers ---- */

static int nests(int inner, int parts, int outer) { return parts <= 0 || (parts % inner == 0 && outer % parts == 0); }

/* Merges the results of another search, which has different grids. */
static void merge(qdr_search_result *all, const qdr_search_result *more, int n_best)
{
    for (int i = 0; i < more->n_best; i++) {
        const qdr_planned_grid *new = &more->best[i];
        int at = all->n_best;
        if (at == n_best && new->result.secs >= all->best[at - 1].result.secs) break;
        if (at < n_best) all->n_best++;
        if (at == n_best) at--;
        for (; at > 0 && all->best[at - 1].result.secs > new->result.secs; at--) all->best[at] = all->best[at - 1];
        all->best[at] = *new;
    }
    all->n_candidates += more->n_candidates;
    all->n_fitting += more->n_fitting;
    all->n_bounded += more->n_bounded;
    all->n_simulated += more->n_simulated;
    const double least = all->least_memory.result.memory_bytes, new_least = more->least_memory.result.memory_bytes;
    if (new_least > 0 && (!(least > 0) || new_least < least)) all->least_memory = more->least_memory;
}

/* One search for each z and d that allow these parts. */
static int search_nested(qdr_model *model, const qdr_search_opts *opts, qdr_search_result *found, failure *why)
{
    const int p = opts->n_ranks, gradient = opts->gradient_parts, state = opts->optimizer_parts;
    int fixed = 1, n_suitable = 0;
    for (int axis = QDR_X; axis <= QDR_Y; axis++) fixed *= opts->size[axis] ? opts->size[axis] : 1;
    memset(found, 0, sizeof *found);
    for (int z = 1; z <= p; z++) {
        if (p % z || (opts->size[QDR_Z] && opts->size[QDR_Z] != z)) continue;
        for (int d = 1; d <= p / z; d++) {
            if (p / z % d || p / z / d % fixed || (opts->size[QDR_D] && opts->size[QDR_D] != d)) continue;
            if (!nests(z, gradient, z * d) || !nests(gradient > 0 ? gradient : gradient < 0 ? z * d : z, state, z * d))
                continue;
            qdr_search_opts some = *opts;
            qdr_search_result more;
            some.size[QDR_Z] = z;
            some.size[QDR_D] = d;
            if (fail_status(why, qdr_model_search(model, &some, &more))) return why->code;
            merge(found, &more, opts->n_best ? opts->n_best : 10);
            n_suitable++;
        }
    }
    if (n_suitable) return EXIT_OK;
    return fail(why, EXIT_USAGE,
                "plan: --levels: no grid of %d ranks allows gradients in %d parts and optimizer state in %d: parts "
                "must be multiples of z that divide z*d",
                p, gradient, state);
}

void plan_search_levels(const levels *parts, qdr_search_opts *opts)
{
    opts->gradient_parts = parts->gradient;
    opts->optimizer_parts = parts->optimizer;
    opts->any_levels = parts->is_any;
}

int plan_search(qdr_model *model, const qdr_search_opts *opts, qdr_search_result *found, failure *why)
{
    if (opts->gradient_parts > 0 || opts->optimizer_parts > 0) return search_nested(model, opts, found, why);
    return fail_status(why, qdr_model_search(model, opts, found));
}

/* ---- known methods ---- */

typedef struct method {
    const char *name;
    int size[QDR_N_AXES];
    levels parts;
} method;

/* The best plan of its grid and levels, among those that fit if any does; with fewer sequences than cells, one sequence
 * per cell. */
static int find_method(plan_answer *answer, const method *known, failure *why)
{
    const int *size = known->size;
    qdr_search_result found;
    plan_row *row = &answer->rows[answer->n_rows];
    qdr_search_opts opts = answer->options->search;
    memcpy(opts.size, size, sizeof opts.size);
    opts.n_best = 1;
    plan_search_levels(&known->parts, &opts);
    snprintf(row->name, sizeof row->name, "%s", known->name);
    row->is_known_method = 1;
    if (plan_search(answer->model, &opts, &found, why)) return why->code;
    row->fits = found.n_best > 0;
    if (found.n_best == 0) {
        opts.memory_bytes = 0x1p100;
        if (plan_search(answer->model, &opts, &found, why)) return why->code;
    }
    answer->n_rows++;
    row->has_enough = answer->options->search.batch >= (int64_t)size[QDR_Z] * size[QDR_D];
    if (found.n_best > 0) {
        row->planned = found.best[0];
        return EXIT_OK;
    }
    row->planned.plan = (qdr_plan){.version = QDR_OPTS_INIT,
                                   .x = size[QDR_X],
                                   .y = size[QDR_Y],
                                   .z = size[QDR_Z],
                                   .d = size[QDR_D],
                                   .order = "xyzd",
                                   .layout = opts.layouts == 1 << QDR_SCATTERED ? QDR_SCATTERED : QDR_REPLICATED,
                                   .dtype = opts.dtype,
                                   .batch = opts.batch,
                                   .micro_batch = 1,
                                   .sequence = opts.sequence,
                                   .overlap = opts.overlap};
    plan_set_levels(&known->parts, answer->machine, &row->planned.plan);
    if (fail_status(why, qdr_model_predict(answer->model, &row->planned.plan, &row->planned.result))) return why->code;
    row->fits = row->planned.result.memory_bytes <= answer->machine->memory_bytes;
    return EXIT_OK;
}

/* Over how many of t ranks of a node three levels part weights: those that its innermost links join, or the smallest
 * number if these join all or do not divide t. */
static int innermost(const qdr_machine *machine, int t)
{
    const int unit = machine->links[0].n_ranks;
    if (unit > 1 && unit < t && t % unit == 0) return unit;
    for (int parts = 2; parts < t; parts++)
        if (t % parts == 0) return parts;
    return t;
}

static int find_methods(plan_answer *answer, failure *why)
{
    const int p = answer->options->search.n_ranks;
    /* The number of ranks of a node, or a smaller one that divides the number of ranks. */
    int t = answer->machine->ranks_per_node < p ? answer->machine->ranks_per_node : p;
    while (p % t) t--;
    const int w = innermost(answer->machine, t);
    const method known[MAX_KNOWN_METHODS] = {
        {.name = "FSDP", .size = {1, 1, p, 1}},
        {.name = "Megatron-1D", .size = {1, t, 1, p / t}},
        {.name = "DDP", .size = {1, 1, 1, p}},
        {.name = "ZeRO-1", .size = {1, 1, 1, p}, .parts = {.optimizer = -1}},
        {.name = "HSDP", .size = {1, 1, t, p / t}},
        {.name = "Three-level", .size = {1, 1, w, p / w}, .parts = {.gradient = t, .optimizer = -1}},
    };
    for (int i = 0; i < MAX_KNOWN_METHODS; i++)
        if (find_method(answer, &known[i], why)) return why->code;
    return EXIT_OK;
}

int plan_find(plan_answer *answer, failure *why)
{
    qdr_search_result *found = &answer->found;
    const qdr_search_opts *asked = &answer->options->search;
    /* The least memory of any plan is known immediately. */
    if (fail_status(why, qdr_model_least_memory(answer->model, asked, &found->least_memory))) return why->code;
    if (found->least_memory.result.memory_bytes > answer->machine->memory_bytes) return EXIT_OK;
    if (plan_search(answer->model, asked, found, why) || found->n_best == 0) return why->code;
    answer->n_rows = answer->found.n_best;
    for (int i = 0; i < answer->n_rows; i++) {
        answer->rows[i].planned = answer->found.best[i];
        answer->rows[i].fits = answer->rows[i].has_enough = 1;
        snprintf(answer->rows[i].name, sizeof answer->rows[i].name, "%d", i + 1);
    }
    return find_methods(answer, why);
}
