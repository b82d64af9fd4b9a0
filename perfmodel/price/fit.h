/* SPDX-License-Identifier: Apache-2.0 */
/* Samples, from which constants are derived. */
#ifndef QDRI_PERFMODEL_PRICE_FIT_H
#define QDRI_PERFMODEL_PRICE_FIT_H

#include "quadrille/calibrate.h"

/* Sample and machine must have been checked. */
double qdri_sample_secs(const qdr_machine *machine, const qdr_sample *sample);
QDR_NODISCARD qdr_status qdri_sample_check(const qdr_sample *sample);

#endif
