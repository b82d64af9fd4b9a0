/* SPDX-License-Identifier: Apache-2.0 */
/* CPU time and memory of this process, and numbers of all ranks. */
#ifndef EXAMPLES_METER_H
#define EXAMPLES_METER_H

#include <quadrille/grid.h>

double meter_cpu_secs(void); /* CPU time of all threads of this process */
double meter_memory_now(void); /* resident bytes of this process; 0: unknown */
double meter_memory_peak(void); /* their maximum so far */
void meter_sleep(double secs);
/* Each of n numbers of the host becomes the sum, or what `operation` says, of its values on all ranks. After an error
 * they mean nothing. Collective, blocking. */
qdr_status meter_reduce(qdr_grid *grid, qdr_reduce operation, void *numbers, int64_t n, qdr_dtype type);
/* all[r] = rank r's value, for every rank of the grid. Collective, blocking. */
qdr_status meter_all(qdr_grid *grid, double value, double *all);
/* The sum over all ranks, and the largest. Collective, blocking. */
qdr_status meter_over_ranks(qdr_grid *grid, double value, double *sum, double *most);

#endif
