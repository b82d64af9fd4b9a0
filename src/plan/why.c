/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences: why one plan is faster than another, and what does not fit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

/* How each term of the time appears in a sentence: "0.3 s less …". */
static const char *const phrases[QDR_N_TIME_TERMS] = {
    "in products",
    "in attention",
    "in other kernels",
    "recomputing",
    "in embedding, head and loss",
    "in the optimizer",
    "waiting for x",
    "waiting for y",
    "waiting for z",
    "waiting for d",
    "in the pipeline's bubble",
    "waiting for the host",
};

enum { MOST_TERMS = 5 };

typedef struct difference {
    int term;
    double secs;
} difference;

static int by_size(const void *a, const void *b)
{
    const difference *p = a, *q = b;
    return (fabs(p->secs) < fabs(q->secs)) - (fabs(p->secs) > fabs(q->secs));
}

/* "0.41 s less waiting for x, 0.02 s less in the optimizer, but 0.1 s more in products": the terms in which a differs
 * most from b. */
static void print_difference(FILE *file, const qdr_plan_result *a, const qdr_plan_result *b)
{
    difference all[QDR_N_TIME_TERMS];
    const int sign = a->secs > b->secs ? 1 : -1;
    for (int i = 0; i < QDR_N_TIME_TERMS; i++) all[i] = (difference){i, a->time[i] - b->time[i]};
    qsort(all, QDR_N_TIME_TERMS, sizeof *all, by_size);
    int n = 0, n_against = 0;
    for (int with = 1; with >= 0; with--)
        for (int i = 0; i < MOST_TERMS; i++) {
            const int same = all[i].secs * sign > 0;
            if (same != with || fabs(all[i].secs) < 0.02 * fabs(all[0].secs)) continue;
            const char *joint = n == 0 ? "" : !with && n_against == 0 ? ", but " : ", ";
            fprintf(file, "%s%s %s %s", joint, time_in_words(fabs(all[i].secs)).text, all[i].secs > 0 ? "more" : "less",
                    phrases[all[i].term]);
            n++;
            n_against += !with;
        }
}

static void print_choices(FILE *file, const qdr_plan *plan)
{
    fprintf(file, "%s (%s, %s, recompute %s, micro-batch %lld)", grid_in_words(plan).text,
            plan->order[0] ? plan->order : "xyzd", layout_word(plan->layout), recompute_word(plan->recompute),
            (long long)plan->micro_batch);
}

/* The model cannot resolve smaller differences: its error is some per cent. */
#define LEAST_PERCENT 0.1

static double percent_more(double secs, double than) { return 100 * (secs / than - 1); }

void plan_print_why(FILE *file, const plan_answer *answer)
{
    const qdr_search_result *found = &answer->found;
    const qdr_planned_grid *first = &found->best[0], *second = &found->best[1];
    if (found->n_best < 2) {
        fprintf(file,
                answer->options->search.n_best == 1 ? "%s is the fastest; --top 2 says why it beats the second."
                                                    : "%s is the only grid that fits.",
                grid_in_words(&first->plan).text);
        return;
    }
    const double more = percent_more(second->result.secs, first->result.secs);
    if (more < LEAST_PERCENT) {
        fprintf(file, "%s and %s are equally fast according to the model.", grid_in_words(&first->plan).text,
                grid_in_words(&second->plan).text);
        return;
    }
    fprintf(file, "%s beats %s by %.2g %%: ", grid_in_words(&first->plan).text, grid_in_words(&second->plan).text,
            more);
    print_difference(file, &first->result, &second->result);
    fputc('.', file);
}

void plan_print_counts(FILE *file, const plan_answer *answer)
{
    const qdr_search_result *found = &answer->found;
    fprintf(file, "%lld plans, of which %lld fit in %.4g GiB; %lld were bounded, %lld simulated.",
            (long long)found->n_candidates, (long long)found->n_fitting, answer->machine->memory_bytes / GIB,
            (long long)found->n_bounded, (long long)found->n_simulated);
}

/* ---- why not ---- */

static int is_plural(int memory_term)
{
    return memory_term == QDR_MEMORY_PARAMETERS || memory_term == QDR_MEMORY_GRADIENTS ||
           memory_term == QDR_MEMORY_ACTIVATIONS;
}

/* By how much a plan exceeds the memory, and its largest terms. */
static void print_memory(FILE *file, const plan_answer *answer, const qdr_planned_grid *planned)
{
    const double limit = answer->machine->memory_bytes;
    difference all[QDR_N_MEMORY_TERMS];
    for (int i = 0; i < QDR_N_MEMORY_TERMS; i++) all[i] = (difference){i, planned->result.memory[i]};
    qsort(all, QDR_N_MEMORY_TERMS, sizeof *all, by_size);
    print_choices(file, &planned->plan);
    fprintf(file, " needs the least memory of all plans of this grid, and still %.4g GiB too much: %.4g of %.4g GiB",
            (planned->result.memory_bytes - limit) / GIB, planned->result.memory_bytes / GIB, limit / GIB);
    for (int i = 0; i < 3; i++)
        fprintf(file, "%s %s %.4g GiB", i ? "," : ", of which", qdr_memory_term_name((qdr_memory_term)all[i].term),
                all[i].secs / GIB);
    if (all[0].secs > limit)
        fprintf(file, "; %s alone %s %.4g GiB too large", qdr_memory_term_name((qdr_memory_term)all[0].term),
                is_plural(all[0].term) ? "are" : "is", (all[0].secs - limit) / GIB);
    fputc('.', file);
}

static void print_slower(FILE *file, const plan_answer *answer, const qdr_planned_grid *planned)
{
    const qdr_planned_grid *best = &answer->found.best[0];
    print_choices(file, &planned->plan);
    fprintf(file, " takes %s", time_in_words(planned->result.secs).text);
    if (answer->found.n_best == 0) {
        fputs(" and fits, but the given options exclude it.", file);
        return;
    }
    if (planned->result.secs <= best->result.secs) {
        fputs(": nothing is faster.", file);
        return;
    }
    if (percent_more(planned->result.secs, best->result.secs) < LEAST_PERCENT) {
        fputs(", and according to the model nothing is faster, not even ", file);
        print_choices(file, &best->plan);
        fputc('.', file);
        return;
    }
    fprintf(file, ", %.3g %% more than ", percent_more(planned->result.secs, best->result.secs));
    print_choices(file, &best->plan);
    fprintf(file, ", which takes %s: ", time_in_words(best->result.secs).text);
    print_difference(file, &planned->result, &best->result);
    fputc('.', file);
}

int plan_print_why_not(FILE *file, plan_answer *answer, grid_size size, failure *why)
{
    qdr_search_result found;
    qdr_search_opts opts = answer->options->search;
    const int axes[QDR_N_AXES] = {size.x, size.y, size.z, size.d};
    memcpy(opts.size, axes, sizeof opts.size);
    opts.n_best = 1;
    if (plan_search(answer->model, &opts, &found, why)) return why->code;
    if (found.n_candidates == 0)
        fprintf(file,
                "%dx%dx%dx%d has %lld cells for a batch of %lld: some would have nothing to "
                "do.",
                size.x, size.y, size.z, size.d, (long long)size.z * size.d, (long long)opts.batch);
    else if (found.n_best == 0)
        print_memory(file, answer, &found.least_memory);
    else
        print_slower(file, answer, &found.best[0]);
    return EXIT_OK;
}
