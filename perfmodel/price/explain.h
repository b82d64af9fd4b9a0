/* SPDX-License-Identifier: Apache-2.0 */
/* The derivation of a plan's time and memory, as text. */
#ifndef QDRI_PERFMODEL_PRICE_EXPLAIN_H
#define QDRI_PERFMODEL_PRICE_EXPLAIN_H

#include <stdio.h>

#include "price/model.h"

/* A plan with everything from which its result was computed. */
typedef struct qdri_explained {
    const qdr_model *model;
    const qdr_plan *plan;
    const qdri_lists *lists;
    qdri_pricing pricing;
    double n_layers; /* of a stage */
    qdr_plan_result result;
    FILE *file;
} qdri_explained;

/* The terms of a step's time, and of memory. */
void qdri_explain_time(const qdri_explained *all);
void qdri_explain_memory(const qdri_explained *all);

/* "12.3 ms" */
typedef struct qdri_secs_text {
    char text[24];
} qdri_secs_text;
qdri_secs_text qdri_secs_in_words(double secs);

#endif
