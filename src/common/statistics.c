/* SPDX-License-Identifier: Apache-2.0 */
/* Rank correlations, errors, regret. */
#include "common/statistics.h"

#include <math.h>
#include <stdlib.h>

static int compare(double x, double y) { return (x > y) - (x < y); }

/* ---- correlations: groups of runs are so small that all their pairs are looked at ---- */

/* From 1; equal values get their mean rank. */
static double rank_of(const double *values, size_t n, double value)
{
    double rank = 0.5;
    for (size_t i = 0; i < n; i++) rank += 0.5 * (1 + compare(value, values[i]));
    return rank;
}

double statistics_spearman(const double *a, const double *b, size_t n)
{
    const double mean = 0.5 * (double)(n + 1); /* of ranks */
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < n; i++) {
        const double at_a = rank_of(a, n, a[i]) - mean, at_b = rank_of(b, n, b[i]) - mean;
        ab += at_a * at_b;
        aa += at_a * at_a;
        bb += at_b * at_b;
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : NAN;
}

double statistics_kendall(const double *a, const double *b, size_t n)
{
    double difference = 0, differ_a = 0, differ_b = 0; /* concordant - discordant pairs; pairs that are no ties */
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) {
            const int order_a = compare(a[i], a[j]), order_b = compare(b[i], b[j]);
            difference += order_a * order_b;
            differ_a += order_a != 0;
            differ_b += order_b != 0;
        }
    const double most = sqrt(differ_a * differ_b);
    return most > 0 ? difference / most : NAN;
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
