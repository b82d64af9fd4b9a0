/* SPDX-License-Identifier: Apache-2.0 */
/* The number of panels. */
#include "core/panels.h"

double qdri_panels_secs(const qdri_panel_cost *cost, int n)
{
    const double product = cost->product_secs / n + cost->start_secs;
    const double wire = cost->wire_secs / n + cost->start_secs;
    return product + (n - 1) * (product > wire ? product : wire) + wire;
}

int qdri_panels_choose(const qdri_panel_cost *cost)
{
    int best = 1;
    for (int n = 2; n <= QDRI_MAX_CHOSEN_PANELS && n <= cost->n_rows; n *= 2)
        if (qdri_panels_secs(cost, n) < qdri_panels_secs(cost, best)) best = n;
    return best;
}
