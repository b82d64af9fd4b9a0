/* SPDX-License-Identifier: Apache-2.0 */
/* Clock, processor time and memory of this process, and numbers of all ranks side by side. */
#ifndef EXAMPLES_METER_H
#define EXAMPLES_METER_H

#include <quadrille/grid.h>

double meter_secs(void); /* a clock that only goes forward */
double meter_cpu_secs(void); /* processor time used by all threads of this process */
double meter_memory_now(void); /* bytes of this process in memory; 0: not known here */
double meter_memory_peak(void); /* the most it ever was */
void meter_sleep(double secs);
/* all[r] = rank r's value, for every rank of the grid. Collective, blocking. */
qdr_status meter_all(qdr_grid *grid, double value, double *all);
double meter_median(double *values, int64_t n); /* sorts them */

#endif
