/* SPDX-License-Identifier: Apache-2.0 */
/* The number of row panels into which a product and the communication after (or before) it are divided. */
#ifndef QDRI_SCHEDULE_PANELS_H
#define QDRI_SCHEDULE_PANELS_H

#include <stdint.h>

/* What a product and its communication cost alone. */
typedef struct qdri_panel_cost {
    double product_secs;
    double wire_secs, cut_wire_secs; /* undivided, and the total of all panels if there are several */
    double start_secs; /* cost of one more panel: latency, and the loss by a smaller product */
    int64_t n_rows;
} qdri_panel_cost;

enum { QDRI_MAX_CHOSEN_PANELS = 16 };

/* Time of n panels in a two-stage pipeline: the first stage of one panel, the longer stage of the others, and the
 * second stage of the last one. */
double qdri_panels_secs(const qdri_panel_cost *cost, int n);
/* The power of two, at most QDRI_MAX_CHOSEN_PANELS and n_rows, for which the sum over all costs of one product
 * (communication before and after it) is least; 1 if panels gain nothing. */
int qdri_panels_choose(const qdri_panel_cost *costs, int n_costs);

#endif
