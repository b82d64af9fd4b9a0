/* SPDX-License-Identifier: Apache-2.0 */
/* Samples, and how constants are derived from them. */
#ifndef QDRI_PERFMODEL_PRICE_FIT_H
#define QDRI_PERFMODEL_PRICE_FIT_H

#include "quadrille/calibrate.h"

/* Sample and machine must have been checked. */
double qdri_sample_secs(const qdr_machine *machine, const qdr_sample *sample);
QDR_NODISCARD qdr_status qdri_sample_check(const qdr_sample *sample);

/* ---- nnls.c: non-negative fits of few constants to many samples ---- */

enum { QDRI_MAX_UNKNOWNS = 8 };

/* One equation: Σ coefficient·unknown = secs. */
typedef struct qdri_equation {
    double coefficient[QDRI_MAX_UNKNOWNS];
    double secs; /* > 0 */
    double weight; /* of its error; > 0 */
} qdri_equation;

/* Unknowns ≥ 0 with the smallest sum of weight·|relative error|, by iteratively reweighted least squares (Schlossmacher
 * 1973), in each iteration the best over all sets of unknowns that are not zero (Lawson, Hanson 1974, ch. 23, by trying
 * all). An unknown that is in no equation becomes 0. */
void qdri_nnls(const qdri_equation *equations, int n_equations, int n_unknowns, double *unknowns);

#endif
