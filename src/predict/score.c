/* SPDX-License-Identifier: Apache-2.0 */
/* How well rows are predicted: all, those of one title and part, and groups that differ only in how they were run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/statistics.h"
#include "predict/predict.h"

/* ---- order ---- */

static int order_parts(const measured *a, const measured *b)
{
    const int order = strcmp(a->title, b->title);
    return order ? order : strcmp(a->part, b->part);
}

static int order_groups(const measured *a, const measured *b)
{
    const int order = order_parts(a, b);
    return order ? order : strcmp(a->group, b->group);
}

static int by_group(const void *left, const void *right)
{
    const measured *const *a = left, *const *b = right;
    const int order = order_groups(*a, *b);
    return order ? order : (*a > *b) - (*a < *b);
}

static int by_n(const void *left, const void *right)
{
    const score *a = left, *b = right;
    const int order = (b->n > a->n) - (b->n < a->n);
    return order ? order : order_parts(a->first, b->first);
}

/* Numbers of the predicted rows. */
typedef struct numbers {
    double *predicted, *measured, *spare;
    size_t n;
} numbers;

/* Also leaves the times of the predicted rows in `all`. */
static score score_rows(const measured *const *rows, size_t n, numbers *all)
{
    score s = {.first = rows[0], .spearman = NAN, .kendall = NAN, .hit = NAN, .regret = NAN, .worst_regret = NAN};
    all->n = 0;
    for (size_t i = 0; i < n; i++) {
        if (rows[i]->why_skipped[0]) continue;
        all->predicted[all->n] = rows[i]->predicted_secs;
        all->measured[all->n++] = rows[i]->secs;
    }
    s.n = (double)all->n;
    s.n_skipped = (double)(n - all->n);
    s.mean = statistics_mape(all->predicted, all->measured, all->n);
    for (size_t i = 0; i < all->n; i++) all->spare[i] = all->predicted[i] / all->measured[i];
    s.ratio = statistics_median(all->spare, all->n);
    for (size_t i = 0; i < all->n; i++) all->spare[i] = fabs(all->spare[i] - 1);
    s.median = statistics_median(all->spare, all->n); /* also sorts them */
    s.ninetieth = all->n ? all->spare[(size_t)(0.9 * (double)(all->n - 1) + 0.5)] : NAN;
    s.worst = all->n ? all->spare[all->n - 1] : NAN;
    size_t n_memory = 0;
    double n_open = 0; /* rows that may be in several states */
    for (size_t i = 0; i < n; i++) {
        const measured *row = rows[i];
        if (row->why_skipped[0]) continue;
        s.refused += (row->predicted_bytes > row->machine_bytes) / s.n;
        s.n_slow += row->state > 0;
        n_open += row->state_share < 1;
        s.log_loss -= log(fmax(row->state_share, 1e-3));
        if (row->memory_bytes > 0)
            all->spare[n_memory++] = fabs(row->predicted_bytes - row->memory_bytes) / row->memory_bytes;
    }
    if (!all->n) s.refused = NAN;
    s.log_loss /= n_open; /* NAN: none is */
    s.n_memory = (double)n_memory;
    s.memory = statistics_median(all->spare, n_memory);
    return s;
}

/* ---- groups ---- */

static score score_group(const measured *const *rows, size_t n, numbers *all)
{
    score s = score_rows(rows, n, all);
    if (all->n < MIN_GROUP) return s;
    s.n_groups = 1;
    s.spearman = statistics_spearman(all->predicted, all->measured, all->n);
    s.kendall = statistics_kendall(all->predicted, all->measured, all->n);
    /* A slow state is no choice. */
    all->n = 0;
    for (size_t i = 0; i < n; i++) {
        if (rows[i]->why_skipped[0] || rows[i]->state) continue;
        all->predicted[all->n] = rows[i]->predicted_secs;
        all->measured[all->n++] = rows[i]->secs;
    }
    if (all->n < 2) return s;
    const statistics_choice choice = statistics_choose(all->predicted, all->measured, all->n);
    s.hit = choice.hit;
    s.regret = s.worst_regret = choice.regret;
    return s;
}

/* The mean of one member, a double, over the groups that have it, or the largest. */
static double over(const score *groups, size_t n, size_t member, int want_most)
{
    double sum = 0, most = -INFINITY, n_known = 0;
    for (size_t i = 0; i < n; i++) {
        double value;
        memcpy(&value, (const char *)&groups[i] + member, sizeof value);
        if (isnan(value)) continue;
        sum += value;
        most = fmax(most, value);
        n_known++;
    }
    if (!(n_known > 0)) return NAN;
    return want_most ? most : sum / n_known;
}

static void add_groups(const score *groups, size_t n, score *s)
{
    s->n_groups = (double)n;
    s->spearman = over(groups, n, offsetof(score, spearman), 0);
    s->kendall = over(groups, n, offsetof(score, kendall), 0);
    s->hit = over(groups, n, offsetof(score, hit), 0);
    s->regret = over(groups, n, offsetof(score, regret), 0);
    s->worst_regret = over(groups, n, offsetof(score, worst_regret), 1);
}

/* ---- all scores ---- */

int scores_make(const measured *rows, int64_t n_rows, scores *out, failure *why)
{
    const size_t n = (size_t)n_rows;
    const measured **order = calloc(n, sizeof *order);
    double *memory = calloc(3 * n, sizeof *memory);
    *out = (scores){.parts = calloc(n, sizeof(score)), .groups = calloc(n, sizeof(score))};
    if (order && memory && out->parts && out->groups) {
        numbers all = {.predicted = memory, .measured = memory + n, .spare = memory + 2 * n};
        for (size_t i = 0; i < n; i++) order[i] = &rows[i];
        qsort(order, n, sizeof *order, by_group);
        /* Rows of a group are adjacent, and so are the groups of a part. */
        for (size_t part = 0, end; part < n; part = end) {
            const size_t first = out->n_groups;
            for (end = part; end < n && order_parts(order[part], order[end]) == 0;) {
                const size_t begin = end;
                while (end < n && order_groups(order[begin], order[end]) == 0) end++;
                const score group = score_group(order + begin, end - begin, &all);
                if (group.n_groups > 0) out->groups[out->n_groups++] = group;
            }
            score *s = &out->parts[out->n_parts++];
            *s = score_rows(order + part, end - part, &all);
            add_groups(out->groups + first, out->n_groups - first, s);
        }
        out->all = score_rows(order, n, &all);
        add_groups(out->groups, out->n_groups, &out->all);
        qsort(out->parts, out->n_parts, sizeof *out->parts, by_n);
    } else {
        fail_memory(why, "predict: out of memory for the scores of %zu rows", n);
    }
    free(order);
    free(memory);
    return why->code;
}

void scores_free(scores *out)
{
    free(out->parts);
    free(out->groups);
    *out = (scores){.n_groups = 0};
}
