/* SPDX-License-Identifier: Apache-2.0 */
/* Searches: for the best plans, and for known methods to compare them with. */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

/* ---- levels ---- */

/* Of numbers that do not divide p, the nearest that do. */
static int refuse_parts(const qdr_search_opts *opts, failure *why)
{
    const int p = opts->n_ranks, both[] = {opts->gradient_parts, opts->optimizer_parts};
    for (int i = 0; i < 2; i++) {
        int below = both[i], above = both[i];
        if (both[i] <= 0 || p % both[i] == 0) continue;
        while (below > p || p % below) below--;
        while (above < p && p % above) above++;
        return fail(why, EXIT_USAGE,
                    "plan: --levels: no grid of %d ranks allows %s in %d parts, which must be a multiple of z that "
                    "divides z*d; the nearest are %d and %d",
                    p, i ? "optimizer state" : "gradients", both[i], below, above < p ? above : p);
    }
    return fail(why, EXIT_USAGE,
                "plan: --levels: on no grid of %d ranks that the options allow are the parts of gradients a multiple "
                "of z, those of optimizer state a multiple of these, and z*d one of those; use fewer parts of "
                "gradients or more of optimizer state, such as all",
                p);
}

void plan_levels_note(const plan_answer *answer, char note[LEVELS_NOTE_BYTES])
{
    qdr_plan plan = answer->rows[0].planned.plan;
    *note = '\0';
    if (levels_have_units(&answer->options->parts))
        plan_set_levels(&answer->options->parts, answer->machine, &plan, note);
}

static int search(qdr_model *model, const qdr_search_opts *opts, found_plans *found, failure *why)
{
    const int has_numbers = opts->gradient_parts > 0 || opts->optimizer_parts > 0;
    const int has_enough = opts->batch >= opts->n_ranks; /* sequences for all cells of any grid */
    planned_grid *least = &found->least_memory;
    memset(found, 0, sizeof *found);
    found->counts.size = sizeof found->counts;
    fail_status(why, qdr_model_search(model, opts, &found->counts));
    for (int i = 0; i < found->counts.n_best && !why->code; i++) {
        planning_begin(&found->best[i]);
        fail_status(why, qdr_model_best(model, i, &found->best[i].plan, &found->best[i].result));
    }
    planning_begin(least);
    if (found->counts.n_best == 0 && !why->code)
        fail_status(why, qdr_model_least_memory(model, opts, &least->plan, &least->result));
    if (why->code) return why->code;
    return found->counts.n_candidates == 0 && has_numbers && has_enough ? refuse_parts(opts, why) : EXIT_OK;
}

/* ---- codecs ---- */

static int by_secs(const void *a, const void *b)
{
    const planned_grid *p = a, *q = b;
    return (p->result.secs > q->result.secs) - (p->result.secs < q->result.secs);
}

static int is_same_grid(const qdr_plan *a, const qdr_plan *b)
{
    return a->x == b->x && a->y == b->y && a->z == b->z && a->d == b->d;
}

/* Of the plans found without codecs and with all of them, each with those that pay on it: the best of each grid. */
static int keep_best(qdr_model *model, double limit_bytes, const qdr_search_opts *opts, const found_plans *coded,
                     found_plans *found, failure *why)
{
    planned_grid all[2 * QDR_MAX_BEST];
    const double limit = opts->memory_bytes > 0 ? opts->memory_bytes : limit_bytes;
    const int most = opts->n_best ? opts->n_best : 10, n = found->counts.n_best + coded->counts.n_best;
    memcpy(all, found->best, (size_t)found->counts.n_best * sizeof *all);
    memcpy(all + found->counts.n_best, coded->best, (size_t)coded->counts.n_best * sizeof *all);
    for (int i = 0; i < n; i++)
        if (fail_status(why,
                        qdr_model_choose_codecs(model, opts->codecs, opts->memory_bytes, &all[i].plan, &all[i].result)))
            return why->code;
    qsort(all, (size_t)n, sizeof *all, by_secs);
    found->counts.n_best = 0;
    for (int i = 0; i < n && found->counts.n_best < most; i++) {
        int is_known = all[i].result.memory_bytes > limit;
        for (int j = 0; j < found->counts.n_best; j++) is_known |= is_same_grid(&all[i].plan, &found->best[j].plan);
        if (!is_known) found->best[found->counts.n_best++] = all[i];
    }
    return EXIT_OK;
}

int plan_search_codecs(const plan_answer *answer, const qdr_search_opts *opts, found_plans *found, failure *why)
{
    static found_plans coded; /* static because it is large */
    qdr_search_opts with = *opts;
    if (search(answer->model, opts, found, why) || !answer->options->codec.is_auto) return why->code;
    with.codecs = &answer->options->codec.codecs;
    if (search(answer->model, &with, &coded, why)) return why->code;
    return keep_best(answer->model, answer->machine->memory_bytes, &with, &coded, found, why);
}

/* ---- known methods ---- */

typedef struct method {
    const char *name;
    int size[QDR_N_AXES];
    levels parts;
} method;

/* The best plan of its grid and levels, among those that fit if any does, or else among those that need least; with
 * fewer sequences than cells, one sequence per cell. */
static int find_method(plan_answer *answer, const method *known, failure *why)
{
    const int *size = known->size;
    const int64_t cells = (int64_t)size[QDR_Z] * size[QDR_D];
    found_plans found;
    plan_row *row = &answer->rows[answer->n_rows];
    qdr_search_opts opts = answer->options->search;
    memcpy(opts.ranks, size, sizeof opts.ranks);
    opts.n_best = 1;
    levels_search(&known->parts, answer->machine, &opts);
    snprintf(row->name, sizeof row->name, "%s", known->name);
    row->is_known_method = 1;
    row->has_enough = opts.batch >= cells;
    if (!row->has_enough) opts.batch = cells;
    if (plan_search_codecs(answer, &opts, &found, why)) return why->code;
    if (found.counts.n_best == 0) {
        opts.memory_bytes = found.least_memory.result.memory_bytes;
        if (plan_search_codecs(answer, &opts, &found, why) || found.counts.n_best == 0) return why->code;
    }
    answer->n_rows++;
    row->planned = found.best[0];
    if (row->has_enough) return EXIT_OK;
    row->planned.plan.batch = answer->options->search.batch;
    return fail_status(why, qdr_model_predict(answer->model, &row->planned.plan, &row->planned.result));
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

double plan_lacks_bytes(const plan_answer *answer, const plan_row *row)
{
    const double bytes = row->planned.result.memory_bytes - answer->machine->memory_bytes;
    return bytes > 0 ? bytes : 0;
}

int plan_find(plan_answer *answer, failure *why)
{
    found_plans *found = &answer->found;
    const qdr_search_opts *asked = &answer->options->search;
    if (plan_search_codecs(answer, asked, found, why) || found->counts.n_best == 0) return why->code;
    answer->n_rows = answer->found.counts.n_best;
    for (int i = 0; i < answer->n_rows; i++) {
        answer->rows[i].planned = answer->found.best[i];
        answer->rows[i].has_enough = 1;
        snprintf(answer->rows[i].name, sizeof answer->rows[i].name, "%d", i + 1);
    }
    return find_methods(answer, why);
}
