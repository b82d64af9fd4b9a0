/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the benchmarks that compare the library with MPI in one run. */
#ifndef QDR_TESTS_BENCH_WITH_MPI_H
#define QDR_TESTS_BENCH_WITH_MPI_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "quadrille/quadrille.h"

static inline void check(qdr_status status)
{
    if (status == QDR_OK) return;
    fprintf(stderr, "%s\n", qdr_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static inline int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values. */
static inline double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return values[n / 2];
}

#endif
