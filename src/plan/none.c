/* SPDX-License-Identifier: Apache-2.0 */
/* If nothing fits: what is missing, how many ranks would be enough, and what would help with the same number. By memory
 * alone. */
#include <string.h>

#include "plan/plan.h"

/* ---- what helps ---- */

/* A change of the options, in command-line syntax. */
typedef struct change {
    const char *words;
    void (*make)(qdr_search_opts *opts);
    int is_more; /* a stronger form of the previous change: not tried if that one helps */
} change;

static void recompute_all(qdr_search_opts *opts) { opts->recomputes = 0; }
static void free_layout(qdr_search_opts *opts) { opts->layouts = 0; }
static void part_state(qdr_search_opts *opts) { opts->optimizer_parts = -1; }
static void part_all(qdr_search_opts *opts) { opts->gradient_parts = opts->optimizer_parts = -1; }
static void free_rows(qdr_search_opts *opts) { opts->ranks[QDR_Z] = opts->ranks[QDR_D] = 0; }
static void free_axes(qdr_search_opts *opts) { memset(opts->ranks, 0, sizeof opts->ranks); }
static void one_sequence(qdr_search_opts *opts) { opts->micro_batch = opts->micro_batch > 0; } /* 0: any number */

/* Whether anything fits; 0 also if the options contradict each other. */
static int fits(const plan_answer *answer, const qdr_search_opts *opts, planned_grid *planned)
{
    planning_begin(planned);
    return qdr_model_least_memory(answer->model, opts, &planned->plan, &planned->result) == QDR_OK &&
           planned->result.memory_bytes > 0 && planned->result.memory_bytes <= answer->machine->memory_bytes;
}

/* Tries each change alone; one without effect does not help, since nothing fits without it. If none helps: the longest
 * sequence that fits, of half the length, a quarter, ... */
static void try_changes(const plan_answer *answer, plan_none *none)
{
    static const change changes[] = {{"--recompute full", recompute_all, 0}, {"--levels zero1", part_state, 0},
                                     {"--levels zero2", part_all, 1},        {"z and d left free", free_rows, 0},
                                     {"all axes left free", free_axes, 1},   {"the other --layout", free_layout, 0},
                                     {"--micro-batch 1", one_sequence, 0}};
    int has_helped = 0;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        qdr_search_opts opts = answer->options->search;
        plan_help *help = &none->helps[none->n_helps];
        if (has_helped && changes[i].is_more) continue;
        changes[i].make(&opts);
        has_helped = fits(answer, &opts, &help->planned);
        if (!has_helped) continue;
        snprintf(help->words, sizeof help->words, "%s", changes[i].words);
        none->n_helps++;
    }
    qdr_search_opts opts = answer->options->search;
    opts.sequence = opts.sequence ? opts.sequence : answer->network->context;
    while (!none->n_helps && opts.sequence > 1) {
        opts.sequence /= 2;
        if (!fits(answer, &opts, &none->helps[0].planned)) continue;
        snprintf(none->helps[0].words, sizeof none->helps[0].words, "--seq %lld", (long long)opts.sequence);
        none->n_helps = none->is_sequence = 1;
    }
}

/* ---- words ---- */

static qdr_memory_term largest_term(const qdr_plan_result *result)
{
    int most = 0;
    for (int i = 1; i < QDR_N_MEMORY_TERMS; i++)
        if (result->memory[i] > result->memory[most]) most = i;
    return (qdr_memory_term)most;
}

/* The term that no choice makes small enough; "": none. */
static void say_cause(const plan_answer *answer, const plan_none *none, char *words, size_t capacity)
{
    const planned_grid *least = &answer->found.least_memory;
    const qdr_memory_term most = largest_term(&least->result);
    const double fixed = answer->machine->software.fixed_bytes, limit = answer->machine->memory_bytes;
    const int of_rows = most == QDR_MEMORY_ACTIVATIONS || most == QDR_MEMORY_WORKSPACE;
    const int64_t n = least->plan.micro_batch;
    char sequences[40] = "one sequence";
    if (n > 1) snprintf(sequences, sizeof sequences, "%lld sequences", (long long)n);
    words[0] = '\0';
    if (fixed >= limit)
        snprintf(words, capacity, "; the reserve alone is %.2f GiB, so give more --mem", fixed / GIB);
    else if (none->n_helps && !none->is_sequence)
        return;
    else if (of_rows && least->result.memory[most] > limit)
        snprintf(words, capacity, "; the %s of %s of %lld tokens need%s %.4g GiB, so use a smaller --seq%s",
                 qdr_memory_term_name(most), sequences, (long long)plan_sequence(answer->network, &least->plan),
                 most == QDR_MEMORY_WORKSPACE ? "s" : "", least->result.memory[most] / GIB,
                 none->n_helps ? "" : " and more ranks");
    else if (none->n_helps == 0)
        snprintf(words, capacity, "; on as many, neither recompute nor levels nor more z would help");
}

static int fail_none(const plan_answer *answer, const plan_none *none, failure *why)
{
    char ranks[160], cause[200], helps[320];
    const planned_grid *least = &answer->found.least_memory;
    const qdr_memory_term most = largest_term(&least->result);
    const int p = answer->options->search.n_ranks;
    const qdr_fewest_ranks *fewest = &none->fewest;
    const qdr_plan *plan = &none->least.plan;
    if (fewest->n_ranks && fewest->tried_to >= fewest->n_ranks - 1)
        snprintf(ranks, sizeof ranks, "%d ranks are the fewest that fit (%s, recompute %s)", fewest->n_ranks,
                 grid_in_words(plan).text, recompute_word(plan->recompute));
    else if (fewest->n_ranks)
        snprintf(ranks, sizeof ranks, "at most %d ranks are needed (%s, recompute %s)", fewest->n_ranks,
                 grid_in_words(plan).text, recompute_word(plan->recompute));
    else if (fewest->tried_to >= QDR_MAX_SEARCH_RANKS)
        snprintf(ranks, sizeof ranks, "no larger number of ranks up to %d fits", QDR_MAX_SEARCH_RANKS);
    else
        snprintf(ranks, sizeof ranks, "neither %d to %d ranks fit nor a doubling of %d up to %d",
                 answer->options->search.n_ranks + 1, fewest->tried_to, answer->options->search.n_ranks,
                 QDR_MAX_SEARCH_RANKS);
    say_cause(answer, none, cause, sizeof cause);
    size_t used = 0;
    helps[0] = '\0';
    for (int i = 0; i < none->n_helps && used < sizeof helps; i++)
        used += (size_t)snprintf(helps + used, sizeof helps - used, "%s%s (%s)",
                                 i ? " or " : "; on as many, this would help: ", none->helps[i].words,
                                 grid_in_words(&none->helps[i].planned.plan).text);
    return fail(why, EXIT_NOTHING_FITS,
                "plan: no plan of %s on %d rank%s of %s fits in %.4g GiB: the smallest, %s with "
                "recompute %s, needs %.4g GiB (%s %.4g GiB); %s%s%s",
                answer->network->name, p, PLURAL(p), answer->machine->name, answer->machine->memory_bytes / GIB,
                grid_in_words(&least->plan).text, recompute_word(least->plan.recompute),
                least->result.memory_bytes / GIB, qdr_memory_term_name(most), least->result.memory[most] / GIB, ranks,
                cause, helps);
}

int plan_nothing_fits(plan_answer *answer, failure *why)
{
    static plan_none none; /* large */
    qdr_search_opts opts = answer->options->search;
    memset(&none, 0, sizeof none);
    none.fewest.size = sizeof none.fewest;
    planning_begin(&none.least);
    if (!(answer->found.least_memory.result.memory_bytes > 0))
        return fail(why, EXIT_USAGE,
                    "plan: a batch of %lld is less than the z*d cells of every grid of %d ranks with the axes of "
                    "--fix; use --batch %d or more, or fix fewer axes",
                    (long long)opts.batch, opts.n_ranks, opts.n_ranks);
    if (answer->options->batch_follows) opts.batch = 0;
    if (fail_status(why, qdr_model_fewest_ranks(answer->model, &opts, QDR_MAX_SEARCH_RANKS, &none.fewest,
                                                &none.least.plan, &none.least.result)))
        return why->code;
    try_changes(answer, &none);
    fail_none(answer, &none, why);
    /* The sentence is taken from `why`, which is not changed. */
    failure another = {0};
    if (answer->options->as_json) {
        plan_print_none_json(answer, &none, why->sentence);
    } else if (answer->options->why_not.grid.x) {
        if (plan_print_why_not(stdout, answer, &another)) fputs(another.sentence, stdout);
        putchar('\n');
    }
    return why->code;
}
