/* SPDX-License-Identifier: Apache-2.0 */
/* Samples and the constants that follow from them. */
#ifndef QDRI_PERFMODEL_FIT_H
#define QDRI_PERFMODEL_FIT_H

#include "least.h"
#include "quadrille/calibrate.h"

/* A sample and a machine that were checked. */
double qdri_sample_secs(const qdr_machine *machine, const qdr_sample *sample);
QDR_NODISCARD qdr_status qdri_sample_check(const qdr_sample *sample);

/* Of its relative error: between counting samples and counting seconds, of which long ones have most. Steps run all
 * groups at once; one alone only shows what these share. */
double qdri_sample_weight(const qdr_sample *sample);

/* Room for an equation each, and for as many numbers. */
typedef struct qdri_fit {
    const qdr_sample *samples;
    int n_samples;
    qdri_equation *equations;
    double *numbers;
} qdri_fit;

/* Peak, halves and factors of one type; it stays as it is where no sample has the type. */
void qdri_fit_products(const qdri_fit *fit, qdr_dtype dtype, qdr_machine *machine);
/* Steps, starts and rates of the collectives. */
void qdri_fit_collectives(const qdri_fit *fit, qdr_machine *machine);
/* Of n numbers, which are put in order. n > 0. */
double qdri_median(double *numbers, int n);

#endif
