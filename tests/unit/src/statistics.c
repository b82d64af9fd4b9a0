/* SPDX-License-Identifier: Apache-2.0 */
/* Rank correlations, errors and regret: values worked out by hand, and pairs counted one by one. */
#include "common/statistics.h"

#include <math.h>

#include "qdr_test.h"

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12)) fail_msg("%.15g is not %.15g", got, want);
}

TEST(correlations_by_hand)
{
    const double up[] = {1, 2, 3, 4, 5}, down[] = {50, 40, 30, 20, 10};
    const double swapped[] = {2, 1, 4, 3, 5};
    assert_near(statistics_spearman(up, up, 5), 1);
    assert_near(statistics_kendall(up, up, 5), 1);
    assert_near(statistics_spearman(up, down, 5), -1);
    assert_near(statistics_kendall(up, down, 5), -1);
    /* Σd² = 4: 1 - 6·4/(5·24); 2 of 10 pairs are discordant */
    assert_near(statistics_spearman(up, swapped, 5), 0.8);
    assert_near(statistics_kendall(up, swapped, 5), 0.6);
}

TEST(ties_by_hand)
{
    const double a[] = {1, 2, 2, 3}, b[] = {1, 3, 2, 4};
    /* Ranks 1, 2.5, 2.5, 4 and 1, 3, 2, 4: Σab = Σaa = 4.5, Σbb = 5. Five pairs concordant, one tied in a. */
    assert_near(statistics_spearman(a, b, 4), 4.5 / sqrt(4.5 * 5));
    assert_near(statistics_kendall(a, b, 4), 5 / sqrt(5.0 * 6));
    assert_near(statistics_kendall(b, a, 4), 5 / sqrt(5.0 * 6));
    const double both[] = {7, 7, 1, 2}; /* 2 and 3 alone differ: (7, 1), (7, 2) … */
    assert_near(statistics_kendall(both, both, 4), 1);
    assert_near(statistics_spearman(both, both, 4), 1);
}

TEST(nothing_to_correlate)
{
    const double same[] = {3, 3, 3}, others[] = {1, 2, 3};
    assert_true(isnan(statistics_spearman(same, others, 3)));
    assert_true(isnan(statistics_spearman(others, same, 3)));
    assert_true(isnan(statistics_kendall(same, others, 3)));
    assert_true(isnan(statistics_kendall(others, same, 3)));
    assert_true(isnan(statistics_kendall(others, others, 1)));
    assert_true(isnan(statistics_spearman(others, others, 1)));
    assert_true(isnan(statistics_spearman(others, others, 0)));
}

/* ---- against their definitions ---- */

enum { MOST = 40 };

static int sign(double x) { return (x > 0) - (x < 0); }

static double kendall_of_pairs(const double *a, const double *b, int n)
{
    double sum = 0, untied_a = 0, untied_b = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) {
            sum += sign(a[i] - a[j]) * sign(b[i] - b[j]);
            untied_a += sign(a[i] - a[j]) != 0;
            untied_b += sign(b[i] - b[j]) != 0;
        }
    return sum / sqrt(untied_a * untied_b);
}

/* The rank of a value is half its equals and all that are less. */
static double spearman_of_ranks(const double *a, const double *b, int n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < n; i++) {
        double rank_a = 0, rank_b = 0; /* less their mean, twice */
        for (int j = 0; j < n; j++) {
            rank_a += sign(a[i] - a[j]);
            rank_b += sign(b[i] - b[j]);
        }
        ab += rank_a * rank_b;
        aa += rank_a * rank_a;
        bb += rank_b * rank_b;
    }
    return ab / sqrt(aa * bb);
}

TEST(random_pairs_with_ties)
{
    uint64_t seed = test_seed();
    for (int round = 0; round < 2000; round++) {
        double a[MOST], b[MOST];
        const int n = (int)test_between(&seed, 2, MOST);
        const int n_values = (int)test_between(&seed, 1, MOST);
        for (int i = 0; i < n; i++) {
            a[i] = (double)test_between(&seed, -n_values, n_values);
            b[i] = (double)test_between(&seed, -n_values, n_values);
        }
        const double tau = kendall_of_pairs(a, b, n), rho = spearman_of_ranks(a, b, n);
        if (isnan(tau)) {
            assert_true(isnan(statistics_kendall(a, b, (size_t)n)));
            assert_true(isnan(statistics_spearman(a, b, (size_t)n)));
        } else {
            assert_near(statistics_kendall(a, b, (size_t)n), tau);
            assert_near(statistics_spearman(a, b, (size_t)n), rho);
        }
    }
}

/* ---- errors and choices ---- */

TEST(errors_by_hand)
{
    const double predicted[] = {1.1, 1.8, 4}, measured[] = {1, 2, 5};
    double values[] = {5, 1, 3, 2};
    assert_near(statistics_mape(predicted, measured, 3), (0.1 + 0.1 + 0.2) / 3);
    assert_true(isnan(statistics_mape(predicted, measured, 0)));
    assert_near(statistics_median(values, 4), 2.5);
    assert_near(values[0], 1);
    assert_near(statistics_median(values, 3), 2);
    assert_true(isnan(statistics_median(values, 0)));
}

TEST(choices_by_hand)
{
    const double measured[] = {4, 2, 3, 2};
    statistics_choice choice = statistics_choose((const double[]){9, 8, 7, 8}, measured, 4);
    assert_near(choice.hit, 0);
    assert_near(choice.regret, 0.5);
    choice = statistics_choose((const double[]){9, 8, 9, 9}, measured, 4);
    assert_near(choice.hit, 1);
    assert_near(choice.regret, 0);
    /* Both 4 and 2 may be taken. */
    choice = statistics_choose((const double[]){1, 1, 9, 9}, measured, 4);
    assert_near(choice.hit, 0.5);
    assert_near(choice.regret, 0.5);
    assert_true(isnan(statistics_choose(measured, measured, 0).regret));
}
