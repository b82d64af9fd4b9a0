/* SPDX-License-Identifier: Apache-2.0 */
/* Samples, and the constants derived from them. */
#ifndef QDRI_PERFMODEL_PRICE_FIT_H
#define QDRI_PERFMODEL_PRICE_FIT_H

#include "price/nnls.h"
#include "quadrille/calibrate.h"

/* Sample and machine must have been checked. */
double qdri_sample_secs(const qdr_machine *machine, const qdr_sample *sample);
QDR_NODISCARD qdr_status qdri_sample_check(const qdr_sample *sample);

/* The weight of its relative error: a compromise between counting samples and counting seconds, of which long samples
 * have most. A step runs all groups at once; a sample of one group alone only serves to show what groups share. */
double qdri_sample_weight(const qdr_sample *sample);

/* Room for one equation per sample, and for the same number of values. */
typedef struct qdri_fit {
    const qdr_sample *samples;
    int n_samples;
    qdri_equation *equations;
    double *numbers;
} qdri_fit;

/* Peak, halves and factors of one type; unchanged if no sample has the type. */
void qdri_fit_products(const qdri_fit *fit, qdr_dtype dtype, qdr_machine *machine);
/* Steps, starts and rates of the collectives. */
void qdri_fit_collectives(const qdri_fit *fit, qdr_machine *machine);
/* The median of n > 0 numbers, which are sorted. */
double qdri_median(double *numbers, int n);

#endif
