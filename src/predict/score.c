/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of rows that differ only in how they were run, and how well they are predicted. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/statistics.h"
#include "predict/predict.h"

/* ---- order ---- */

static int order_numbers(double a, double b) { return (a > b) - (a < b); }

static int order_groups(const measured_run *a, const measured_run *b)
{
    int order = strcmp(a->source, b->source);
    if (!order) order = strcmp(a->model, b->model);
    if (!order) order = order_numbers(a->n_gpus, b->n_gpus);
    if (!order) order = order_numbers((double)a->network.layers, (double)b->network.layers);
    if (!order) order = order_numbers((double)a->network.hidden, (double)b->network.hidden);
    if (!order) order = order_numbers((double)a->plan.batch, (double)b->plan.batch);
    if (!order) order = order_numbers((double)a->plan.sequence, (double)b->plan.sequence);
    return order;
}

static int by_group(const void *left, const void *right)
{
    const measured_run *const *a = left, *const *b = right;
    const int order = order_groups(*a, *b);
    return order ? order : (*a > *b) - (*a < *b);
}

static int by_n(const void *left, const void *right)
{
    const score *a = left, *b = right;
    const int order = order_numbers((double)b->n, (double)a->n);
    return order ? order : strcmp(a->first->source, b->first->source);
}

/* ---- sums ---- */

/* Numbers of the scored rows, in parallel arrays. */
typedef struct numbers {
    double *predicted, *measured, *spare;
    size_t n;
} numbers;

static void gather(const measured_run *const *runs, size_t n, numbers *all)
{
    all->n = 0;
    for (size_t i = 0; i < n; i++) {
        if (runs[i]->why_skipped[0]) continue;
        all->predicted[all->n] = runs[i]->predicted_secs;
        all->measured[all->n++] = runs[i]->secs;
    }
}

static void score_memory(const measured_run *const *runs, size_t n, numbers *all, score *s)
{
    size_t n_memory = 0;
    for (size_t i = 0; i < n; i++) {
        const measured_run *run = runs[i];
        if (run->why_skipped[0]) continue;
        s->refused += (run->predicted_bytes > run->machine_bytes) / (double)s->n;
        if (run->memory_bytes > 0)
            all->spare[n_memory++] = fabs(run->predicted_bytes - run->memory_bytes) / run->memory_bytes;
    }
    s->n_memory = (int64_t)n_memory;
    s->memory_error = statistics_median(all->spare, n_memory);
}

/* The scores that do not depend on groups. */
static score score_rows(const measured_run *const *runs, size_t n, numbers *all)
{
    score s = {.first = runs[0], .spearman = NAN, .kendall = NAN, .hit = NAN, .mean_regret = NAN, .worst_regret = NAN};
    gather(runs, n, all);
    s.n = (int64_t)all->n;
    s.n_skipped = (int64_t)(n - all->n);
    s.mape = statistics_mape(all->predicted, all->measured, all->n);
    for (size_t i = 0; i < all->n; i++) all->spare[i] = all->predicted[i] / all->measured[i];
    s.median_ratio = statistics_median(all->spare, all->n);
    score_memory(runs, n, all, &s);
    return s;
}

static score score_group(const measured_run *const *runs, size_t n, numbers *all)
{
    score s = score_rows(runs, n, all);
    if (s.n < MIN_GROUP) return s;
    const statistics_choice choice = statistics_choose(all->predicted, all->measured, all->n);
    s.n_groups = 1;
    s.spearman = statistics_spearman(all->predicted, all->measured, all->n);
    s.kendall = statistics_kendall(all->predicted, all->measured, all->n);
    s.hit = choice.hit;
    s.mean_regret = s.worst_regret = choice.regret;
    return s;
}

/* The mean over the groups that have the value, or the maximum. */
static double over_groups(const score *groups, size_t n, size_t offset, int want_most)
{
    double sum = 0, most = -INFINITY, n_there = 0;
    for (size_t i = 0; i < n; i++) {
        double value;
        memcpy(&value, (const char *)&groups[i] + offset, sizeof value);
        if (isnan(value)) continue;
        sum += value;
        most = fmax(most, value);
        n_there++;
    }
    if (!(n_there > 0)) return NAN;
    return want_most ? most : sum / n_there;
}

/* -2 marks a correlation for which memory ran out. */
static int all_known(const scores *out)
{
    for (size_t i = 0; i < out->n_groups; i++)
        if (out->groups[i].spearman < -1.5 || out->groups[i].kendall < -1.5) return 0;
    return 1;
}

static void add_groups(const score *groups, size_t n, score *s)
{
    for (size_t i = 0; i < n; i++) s->n_groups += groups[i].n_groups;
    s->spearman = over_groups(groups, n, offsetof(score, spearman), 0);
    s->kendall = over_groups(groups, n, offsetof(score, kendall), 0);
    s->hit = over_groups(groups, n, offsetof(score, hit), 0);
    s->mean_regret = over_groups(groups, n, offsetof(score, mean_regret), 0);
    s->worst_regret = over_groups(groups, n, offsetof(score, worst_regret), 1);
}

/* ---- all scores ---- */

/* Rows of a group are adjacent, and so are the groups of a source. */
static void score_all(const measured_run *const *runs, size_t n, numbers *spare, scores *out)
{
    for (size_t source = 0, source_end; source < n; source = source_end) {
        const size_t first_group = out->n_groups;
        for (source_end = source; source_end < n && strcmp(runs[source]->source, runs[source_end]->source) == 0;) {
            const size_t begin = source_end;
            while (source_end < n && order_groups(runs[begin], runs[source_end]) == 0) source_end++;
            out->groups[out->n_groups++] = score_group(runs + begin, source_end - begin, spare);
        }
        score *s = &out->sources[out->n_sources++];
        *s = score_rows(runs + source, source_end - source, spare);
        add_groups(out->groups + first_group, out->n_groups - first_group, s);
    }
    out->all = score_rows(runs, n, spare);
    add_groups(out->groups, out->n_groups, &out->all);
    qsort(out->sources, out->n_sources, sizeof *out->sources, by_n);
}

int scores_make(const measured_run *runs, int64_t n_runs, scores *out, failure *why)
{
    const size_t n = (size_t)n_runs;
    const measured_run **order = malloc(n * sizeof *order);
    double *memory = malloc(3 * n * sizeof *memory);
    *out = (scores){.groups = malloc(n * sizeof *out->groups), .sources = malloc(n * sizeof *out->sources)};
    if (order && memory && out->groups && out->sources) {
        numbers spare = {memory, memory + n, memory + 2 * n, 0};
        for (size_t i = 0; i < n; i++) order[i] = &runs[i];
        qsort(order, n, sizeof *order, by_group);
        score_all(order, n, &spare, out);
    }
    if (!order || !memory || !out->groups || !out->sources || !all_known(out))
        fail(why, EXIT_NOTHING_FITS, "predict: out of memory for the scores of %zu rows", n);
    free(order);
    free(memory);
    return why->code;
}

void scores_free(scores *out)
{
    free(out->sources);
    free(out->groups);
    *out = (scores){.n_groups = 0};
}
