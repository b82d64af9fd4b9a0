/* SPDX-License-Identifier: Apache-2.0 */
/* Searches: for the best plans, for known methods to compare them with, and for what would help
 * where nothing fits. */
#include <math.h>
#include <string.h>

#include "plan.h"

/* ---- levels that are numbers ---- */

static int nests(int inner, int parts, int outer)
{
    return parts <= 0 || (parts % inner == 0 && outer % parts == 0);
}

/* Sorts the answers of another search in; the grids are different ones. */
static void merge(qdr_search_result *all, const qdr_search_result *more, int n_best)
{
    for (int i = 0; i < more->n_best; i++) {
        const qdr_planned_grid *new = &more->best[i];
        int at = all->n_best;
        if (at == n_best && new->result.secs >= all->best[at - 1].result.secs) break;
        if (at < n_best) all->n_best++;
        if (at == n_best) at--;
        for (; at > 0 && all->best[at - 1].result.secs > new->result.secs; at--)
            all->best[at] = all->best[at - 1];
        all->best[at] = *new;
    }
    all->n_candidates += more->n_candidates;
    all->n_fitting += more->n_fitting;
    all->n_bounded += more->n_bounded;
    all->n_simulated += more->n_simulated;
    const double least = all->least_memory.result.memory_bytes,
                 new_least = more->least_memory.result.memory_bytes;
    if (new_least > 0 && (!(least > 0) || new_least < least))
        all->least_memory = more->least_memory;
}

/* One search for each z and d that the parts suit. */
static int search_nested(qdr_model *model, const qdr_search_opts *opts, qdr_search_result *found,
                         failure *why)
{
    const int p = opts->n_ranks, gradient = opts->gradient_parts, state = opts->optimizer_parts;
    int fixed = 1, n_suitable = 0;
    for (int axis = QDR_X; axis <= QDR_Y; axis++) fixed *= opts->size[axis] ? opts->size[axis] : 1;
    memset(found, 0, sizeof *found);
    for (int z = 1; z <= p; z++) {
        if (p % z || (opts->size[QDR_Z] && opts->size[QDR_Z] != z)) continue;
        for (int d = 1; d <= p / z; d++) {
            if (p / z % d || p / z / d % fixed || (opts->size[QDR_D] && opts->size[QDR_D] != d))
                continue;
            if (!nests(z, gradient, z * d) || !nests(gradient > 0   ? gradient
                                                     : gradient < 0 ? z * d
                                                                    : z,
                                                     state, z * d))
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
                "plan: --levels: no grid of %d ranks has gradients in %d parts and optimizer state "
                "in %d: parts must be multiples of z that divide z*d",
                p, gradient, state);
}

int plan_search(qdr_model *model, const qdr_search_opts *opts, qdr_search_result *found,
                failure *why)
{
    if (opts->gradient_parts > 0 || opts->optimizer_parts > 0)
        return search_nested(model, opts, found, why);
    return fail_status(why, qdr_model_search(model, opts, found));
}

/* ---- known methods ---- */

/* The ranks of a node, or fewer that divide all. */
static int ranks_of_node(const plan_answer *answer)
{
    const int p = answer->options->search.n_ranks;
    int n = answer->machine->ranks_per_node < p ? answer->machine->ranks_per_node : p;
    while (p % n) n--;
    return n;
}

/* The best plan of one grid, of those that fit if one does; with fewer sequences than cells, one
 * each. */
static int find_method(plan_answer *answer, const char *name, const int size[QDR_N_AXES],
                       failure *why)
{
    qdr_search_result found;
    plan_row *row = &answer->rows[answer->n_rows];
    qdr_search_opts opts = answer->options->search;
    memcpy(opts.size, size, sizeof opts.size);
    opts.n_best = 1;
    opts.gradient_parts = opts.optimizer_parts = 0;
    snprintf(row->name, sizeof row->name, "%s", name);
    row->is_known_method = 1;
    if (plan_search(answer->model, &opts, &found, why)) return why->code;
    row->fits = found.n_best > 0;
    if (found.n_best == 0) {
        opts.memory_bytes = 0x1p100;
        if (plan_search(answer->model, &opts, &found, why)) return why->code;
    }
    answer->n_rows++;
    if (found.n_best > 0) {
        row->planned = found.best[0];
        return EXIT_OK;
    }
    const int fixed_layout = opts.layouts == 1 << QDR_SCATTERED;
    row->planned.plan = (qdr_plan){.version = QDR_OPTS_INIT,
                                   .x = size[QDR_X],
                                   .y = size[QDR_Y],
                                   .z = size[QDR_Z],
                                   .d = size[QDR_D],
                                   .layout = fixed_layout ? QDR_SCATTERED : QDR_REPLICATED,
                                   .dtype = opts.dtype,
                                   .batch = opts.batch,
                                   .micro_batch = 1,
                                   .sequence = opts.sequence,
                                   .overlap = opts.overlap};
    if (fail_status(why,
                    qdr_model_predict(answer->model, &row->planned.plan, &row->planned.result)))
        return why->code;
    row->fits = row->planned.result.memory_bytes <= answer->machine->memory_bytes;
    return EXIT_OK;
}

static void number_rows(plan_answer *answer)
{
    answer->n_rows = answer->found.n_best;
    for (int i = 0; i < answer->n_rows; i++) {
        answer->rows[i].planned = answer->found.best[i];
        answer->rows[i].fits = 1;
        snprintf(answer->rows[i].name, sizeof answer->rows[i].name, "%d", i + 1);
    }
}

int plan_find(plan_answer *answer, failure *why)
{
    const int p = answer->options->search.n_ranks, t = ranks_of_node(answer);
    if (plan_search(answer->model, &answer->options->search, &answer->found, why)) return why->code;
    if (answer->found.n_best == 0) return EXIT_OK;
    number_rows(answer);
    find_method(answer, "FSDP", (const int[]){1, 1, p, 1}, why);
    find_method(answer, "Megatron-1D", (const int[]){1, t, 1, p / t}, why);
    return find_method(answer, "DDP", (const int[]){1, 1, 1, p}, why);
}

/* ---- nothing fits ---- */

/* A change of the options, in the words of the command line. */
typedef struct help {
    const char *words;
    int (*change)(qdr_search_opts *opts); /* 0: it is none */
    int is_more; /* of the same as the one before: where that helps, not needed */
} help;

static int set(int *value, int wanted)
{
    const int is_new = *value != wanted;
    *value = wanted;
    return is_new;
}

static int recompute_all(qdr_search_opts *opts) { return set(&opts->recomputes, 0); }
static int free_layout(qdr_search_opts *opts) { return set(&opts->layouts, 0); }
static int part_state(qdr_search_opts *opts) { return set(&opts->optimizer_parts, -1); }

static int part_all(qdr_search_opts *opts)
{
    return set(&opts->gradient_parts, -1) | set(&opts->optimizer_parts, -1);
}

static int free_rows(qdr_search_opts *opts)
{
    return set(&opts->size[QDR_Z], 0) | set(&opts->size[QDR_D], 0);
}

static int free_axes(qdr_search_opts *opts)
{
    return set(&opts->size[QDR_X], 0) | set(&opts->size[QDR_Y], 0) | free_rows(opts);
}

static int one_sequence(qdr_search_opts *opts)
{
    const int is_new = opts->micro_batch > 1;
    if (is_new) opts->micro_batch = 1;
    return is_new;
}

/* Whether anything fits; 0 also where the options do not suit one another. */
static int fits(qdr_model *model, const qdr_search_opts *opts, qdr_planned_grid *planned)
{
    qdr_search_result found;
    qdr_search_opts one = *opts;
    failure nothing = {0};
    one.n_best = 1;
    if (plan_search(model, &one, &found, &nothing) || found.n_best == 0) return 0;
    *planned = found.best[0];
    return 1;
}

/* Tries each change alone; those that are none cannot help. */
static void try_helps(plan_answer *answer, char *words, size_t capacity)
{
    static const help helps[] = {
        {"--recompute full", recompute_all, 0}, {"--levels zero1", part_state, 0},
        {"--levels zero2", part_all, 1},        {"z and d left free", free_rows, 0},
        {"all axes left free", free_axes, 1},   {"the other --layout", free_layout, 0},
        {"--micro-batch 1", one_sequence, 0}};
    int has_helped = 0;
    size_t used = 0;
    words[0] = '\0';
    for (size_t i = 0; i < sizeof helps / sizeof *helps; i++) {
        qdr_search_opts opts = answer->options->search;
        qdr_planned_grid planned;
        if (has_helped && helps[i].is_more) continue;
        has_helped = helps[i].change(&opts) && fits(answer->model, &opts, &planned);
        if (!has_helped) continue;
        used += (size_t)snprintf(words + used, capacity - used, "%s%s (%s)", used ? " or " : "",
                                 helps[i].words, grid_in_words(&planned.plan).text);
        if (used >= capacity) return;
    }
}

/* The least multiple of the ranks on which something fits, found by doubling and halving; 0: none
 * is. A batch that was not given grows with the ranks. */
static int64_t least_ranks(plan_answer *answer, qdr_planned_grid *planned)
{
    qdr_search_opts opts = answer->options->search;
    const int64_t p = opts.n_ranks, batch = opts.batch;
    const int grows = batch == p;
    int64_t too_few = 1, enough = 1;
    qdr_planned_grid tried;
    for (int found = 0; !found;) {
        too_few = enough;
        enough *= 2;
        if (enough * p > QDR_MAX_SEARCH_RANKS) return 0;
        opts.n_ranks = (int)(enough * p);
        opts.batch = grows ? enough * p : batch;
        found = fits(answer->model, &opts, planned);
    }
    while (enough - too_few > 1) {
        const int64_t middle = (enough + too_few) / 2;
        opts.n_ranks = (int)(middle * p);
        opts.batch = grows ? middle * p : batch;
        if (fits(answer->model, &opts, &tried)) {
            enough = middle;
            *planned = tried;
        } else {
            too_few = middle;
        }
    }
    return enough * p;
}

/* "activations 12.3 GiB", the largest term. */
static qdr_memory_term largest_term(const qdr_plan_result *result)
{
    int most = 0;
    for (int i = 1; i < QDR_N_MEMORY_TERMS; i++)
        if (result->memory[i] > result->memory[most]) most = i;
    return (qdr_memory_term)most;
}

static int fail_few_sequences(const plan_answer *answer, failure *why)
{
    const qdr_search_opts *opts = &answer->options->search;
    return fail(why, EXIT_USAGE,
                "plan: a batch of %lld is less than the z*d cells of every grid of %d ranks with "
                "the axes of --fix; use --batch %d or more, or fix less",
                (long long)opts->batch, opts->n_ranks, opts->n_ranks);
}

int plan_nothing_fits(plan_answer *answer, failure *why)
{
    char helps[320], larger[160] = "no number of ranks up to 1048576 that was tried fits";
    qdr_planned_grid planned;
    const qdr_planned_grid *least = &answer->found.least_memory;
    const int p = answer->options->search.n_ranks;
    if (answer->found.n_candidates == 0) return fail_few_sequences(answer, why);
    const int64_t n_ranks = least_ranks(answer, &planned);
    const qdr_memory_term most = largest_term(&least->result);
    if (n_ranks)
        snprintf(larger, sizeof larger,
                 "%lld ranks are the fewest found that fit (%s, recompute %s)", (long long)n_ranks,
                 grid_in_words(&planned.plan).text, recompute_word(planned.plan.recompute));
    try_helps(answer, helps, sizeof helps);
    return fail(why, EXIT_NOTHING_FITS,
                "plan: no plan of %s on %d rank%s of %s fits in %.4g GiB: the smallest, %s with "
                "recompute %s, needs %.4g GiB (%s %.4g GiB); %s; %s%s",
                answer->network->name, p, p == 1 ? "" : "s", answer->machine->name,
                answer->machine->memory_bytes / GIB, grid_in_words(&least->plan).text,
                recompute_word(least->plan.recompute), least->result.memory_bytes / GIB,
                qdr_memory_term_name(most), least->result.memory[most] / GIB, larger,
                *helps ? "on as many, this would help: "
                       : "on as many, neither recompute nor "
                         "levels nor more z would help",
                helps);
}
