/* SPDX-License-Identifier: Apache-2.0 */
/* Non-negative least squares with few unknowns: tries all subsets of them. */
#include "price/fit.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { ROUNDS = 30 };
#define LEAST_ERROR 1e-3 /* relative; smaller errors get no higher weight */

/* AᵀA, Aᵀb and bᵀb of equations that were divided by their seconds. Columns are normalised to length 1. */
typedef struct normal {
    int n;
    double a[QDRI_MAX_UNKNOWNS][QDRI_MAX_UNKNOWNS], b[QDRI_MAX_UNKNOWNS], bb;
    double scale[QDRI_MAX_UNKNOWNS]; /* 0: the unknown is in no equation */
} normal;

/* One step of Gauss-Jordan elimination. 0: the column depends on earlier ones. */
static int eliminate(double m[QDRI_MAX_UNKNOWNS][QDRI_MAX_UNKNOWNS + 1], int n, int column)
{
    const double pivot = m[column][column];
    if (fabs(pivot) < 1e-10) return 0;
    for (int j = 0; j <= n; j++) m[column][j] /= pivot;
    for (int row = 0; row < n; row++) {
        const double times = m[row][column];
        for (int j = 0; row != column && j <= n; j++) m[row][j] -= times * m[column][j];
    }
    return 1;
}

/* Solves for the unknowns in a set (bits), with the others 0. Returns 0 if that is not possible, or if one is
 * negative. */
static int solve_set(const normal *sums, unsigned set, double *x)
{
    double m[QDRI_MAX_UNKNOWNS][QDRI_MAX_UNKNOWNS + 1];
    int index[QDRI_MAX_UNKNOWNS], n = 0;
    for (int i = 0; i < sums->n; i++) {
        x[i] = 0;
        if (set >> i & 1) index[n++] = i;
    }
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) m[i][j] = sums->a[index[i]][index[j]];
        m[i][n] = sums->b[index[i]];
    }
    for (int i = 0; i < n; i++)
        if (!eliminate(m, n, i)) return 0;
    for (int i = 0; i < n; i++) {
        if (!(m[i][n] >= 0)) return 0;
        x[index[i]] = m[i][n];
    }
    return 1;
}

static void solve(const normal *sums, double *unknowns)
{
    double best = DBL_MAX, x[QDRI_MAX_UNKNOWNS];
    unsigned missing = 0;
    for (int i = 0; i < sums->n; i++) missing |= (unsigned)(sums->scale[i] == 0) << i;
    for (unsigned set = 0; set < 1U << sums->n; set++) {
        if (set & missing || !solve_set(sums, set, x)) continue;
        double left = sums->bb; /* the residual */
        for (int i = 0; i < sums->n; i++) {
            left -= 2 * x[i] * sums->b[i];
            for (int j = 0; j < sums->n; j++) left += x[i] * sums->a[i][j] * x[j];
        }
        if (!(left < best)) continue;
        best = left;
        for (int i = 0; i < sums->n; i++) unknowns[i] = x[i] * sums->scale[i];
    }
}

void qdri_nnls(const qdri_equation *equations, int n_equations, int n_unknowns, double *unknowns)
{
    memset(unknowns, 0, (size_t)n_unknowns * sizeof *unknowns);
    for (int round = 0; round < ROUNDS; round++) {
        normal sums;
        memset(&sums, 0, sizeof sums);
        sums.n = n_unknowns;
        for (int i = 0; i < n_equations; i++) {
            const qdri_equation *e = &equations[i];
            double secs = 0;
            for (int j = 0; j < n_unknowns; j++) secs += e->coefficient[j] * unknowns[j];
            const double error = fabs(secs / e->secs - 1);
            const double weight = e->weight * (round ? 1 / fmax(error, LEAST_ERROR) : 1);
            const double share = weight / (e->secs * e->secs);
            for (int j = 0; j < n_unknowns; j++) {
                for (int k = 0; k < n_unknowns; k++) sums.a[j][k] += share * e->coefficient[j] * e->coefficient[k];
                sums.b[j] += share * e->coefficient[j] * e->secs;
            }
            sums.bb += weight;
        }
        for (int i = 0; i < n_unknowns; i++) sums.scale[i] = sums.a[i][i] > 0 ? 1 / sqrt(sums.a[i][i]) : 0;
        for (int i = 0; i < n_unknowns; i++) {
            for (int j = 0; j < n_unknowns; j++) sums.a[i][j] *= sums.scale[i] * sums.scale[j];
            sums.b[i] *= sums.scale[i];
        }
        solve(&sums, unknowns);
    }
}
