/* SPDX-License-Identifier: Apache-2.0 */
/* Rank correlations, errors, regret. */
#include "common/statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double no_memory = -2;

/* One pair; `index` is where it was. */
typedef struct pair {
    double a, b;
    size_t index;
} pair;

static int compare(double x, double y) { return (x > y) - (x < y); }

static int by_a(const void *left, const void *right)
{
    const pair *x = left, *y = right;
    const int order = compare(x->a, y->a);
    return order ? order : compare(x->b, y->b);
}

static pair *make_pairs(const double *a, const double *b, size_t n)
{
    pair *pairs = malloc((n ? n : 1) * sizeof *pairs);
    for (size_t i = 0; pairs && i < n; i++) pairs[i] = (pair){a[i], b ? b[i] : 0, i};
    return pairs;
}

/* ---- Spearman ---- */

/* Ranks from 1; equal values get their mean rank. @return 0: out of memory */
static int set_ranks(const double *values, size_t n, double *ranks)
{
    pair *pairs = make_pairs(values, NULL, n);
    if (!pairs) return 0;
    qsort(pairs, n, sizeof *pairs, by_a);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && pairs[end].a <= pairs[i].a;) end++;
        for (size_t j = i; j < end; j++) ranks[pairs[j].index] = 0.5 * (double)(i + 1 + end);
    }
    free(pairs);
    return 1;
}

static double pearson(const double *a, const double *b, size_t n)
{
    const double mean = 0.5 * (double)(n + 1); /* of ranks */
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < n; i++) {
        ab += (a[i] - mean) * (b[i] - mean);
        aa += (a[i] - mean) * (a[i] - mean);
        bb += (b[i] - mean) * (b[i] - mean);
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : NAN;
}

double statistics_spearman(const double *a, const double *b, size_t n)
{
    if (n < 2) return NAN;
    double *ranks = malloc(2 * n * sizeof *ranks);
    double answer = no_memory;
    if (ranks && set_ranks(a, n, ranks) && set_ranks(b, n, ranks + n)) answer = pearson(ranks, ranks + n, n);
    free(ranks);
    return answer;
}

/* ---- Kendall ---- */

/* Sorts by b and counts the number of exchanges of neighbours that this takes. */
static double merge_sort(pair *pairs, pair *spare, size_t n)
{
    const size_t half = n / 2;
    size_t i = 0, j = half, k = 0;
    if (n < 2) return 0;
    double swaps = merge_sort(pairs, spare, half) + merge_sort(pairs + half, spare, n - half);
    while (i < half && j < n) {
        if (pairs[j].b < pairs[i].b) {
            swaps += (double)(half - i);
            spare[k++] = pairs[j++];
        } else {
            spare[k++] = pairs[i++];
        }
    }
    while (i < half) spare[k++] = pairs[i++];
    memcpy(pairs, spare, k * sizeof *pairs);
    return swaps;
}

/* Pairs of equal values that are adjacent: of a, of b, or of both. */
typedef enum equality { EQUAL_A, EQUAL_B, EQUAL_BOTH } equality;

static double count_ties(const pair *pairs, size_t n, equality which)
{
    double ties = 0;
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n; end++)
            if ((which != EQUAL_B && compare(pairs[i].a, pairs[end].a) != 0) ||
                (which != EQUAL_A && compare(pairs[i].b, pairs[end].b) != 0))
                break;
        ties += 0.5 * (double)(end - i) * (double)(end - i - 1);
    }
    return ties;
}

/* Knight 1966: after sorting by (a, b), the number of discordant pairs is the number of exchanges that sorting by b
 * takes. */
double statistics_kendall(const double *a, const double *b, size_t n)
{
    if (n < 2) return NAN;
    pair *pairs = make_pairs(a, b, n), *spare = malloc(n * sizeof *spare);
    double answer = no_memory;
    if (pairs && spare) {
        const double all = 0.5 * (double)n * (double)(n - 1);
        qsort(pairs, n, sizeof *pairs, by_a);
        const double ties_a = count_ties(pairs, n, EQUAL_A), ties_both = count_ties(pairs, n, EQUAL_BOTH);
        const double discordant = merge_sort(pairs, spare, n);
        const double ties_b = count_ties(pairs, n, EQUAL_B);
        const double concordant = all - ties_a - ties_b + ties_both - discordant;
        const double most = sqrt((all - ties_a) * (all - ties_b));
        answer = most > 0 ? (concordant - discordant) / most : NAN;
    }
    free(pairs);
    free(spare);
    return answer;
}

/* ---- errors ---- */

double statistics_mape(const double *predicted, const double *measured, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += fabs(predicted[i] - measured[i]) / measured[i];
    return n ? sum / (double)n : NAN;
}

static int by_value(const void *left, const void *right)
{
    return compare(*(const double *)left, *(const double *)right);
}

double statistics_median(double *values, size_t n)
{
    if (!n) return NAN;
    qsort(values, n, sizeof *values, by_value);
    return 0.5 * (values[(n - 1) / 2] + values[n / 2]);
}

double statistics_percentile(const double *sorted, size_t n, double share)
{
    const double at = share * (double)(n - 1);
    const size_t below = (size_t)at;
    return sorted[below] + (below + 1 < n ? (at - (double)below) * (sorted[below + 1] - sorted[below]) : 0);
}

statistics_choice statistics_choose(const double *predicted, const double *measured, size_t n)
{
    statistics_choice choice = {NAN, NAN};
    double least = INFINITY, fastest = INFINITY, sum = 0, hits = 0, chosen = 0;
    for (size_t i = 0; i < n; i++) {
        least = fmin(least, predicted[i]);
        fastest = fmin(fastest, measured[i]);
    }
    for (size_t i = 0; i < n; i++) {
        if (predicted[i] > least) continue;
        chosen++;
        sum += measured[i];
        hits += measured[i] <= fastest;
    }
    if (chosen > 0) choice = (statistics_choice){hits / chosen, sum / chosen / fastest - 1};
    return choice;
}
