/* SPDX-License-Identifier: Apache-2.0 */
/* How well predicted numbers agree with measured ones. */
#ifndef QUADRILLE_SRC_COMMON_STATISTICS_H
#define QUADRILLE_SRC_COMMON_STATISTICS_H

#include <stddef.h>

/* Spearman's rank correlation of n pairs; equal values get their mean rank. NAN if all values of one side are equal, or
 * n < 2. */
double statistics_spearman(const double *a, const double *b, size_t n);
/* Kendall's tau-b: (concordant - discordant) / √((pairs - ties of a)·(pairs - ties of b)). NAN as above. */
double statistics_kendall(const double *a, const double *b, size_t n);
/* Mean of |predicted - measured| / measured; NAN if n is 0. */
double statistics_mape(const double *predicted, const double *measured, size_t n);
/* The median (mean of the two middle numbers if n is even); NAN if n is 0. Sorts the values. */
double statistics_median(double *values, size_t n);
/* The value below which a share of n > 0 sorted values lie, interpolated. */
double statistics_percentile(const double *sorted, size_t n, double share);

/* The cost of trusting the prediction. If it has several fastest rows, the mean over them. */
typedef struct statistics_choice {
    double hit; /* 1: the row predicted to be fastest is the fastest */
    double regret; /* its measured time / the least of all - 1 */
} statistics_choice;
statistics_choice statistics_choose(const double *predicted, const double *measured, size_t n);

#endif
