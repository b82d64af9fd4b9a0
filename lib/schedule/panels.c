/* SPDX-License-Identifier: Apache-2.0 */
/* The number of panels. */
#include "schedule/panels.h"

double qdri_panels_secs(const qdri_panel_cost *cost, int n)
{
    const double product = cost->product_secs / n + cost->start_secs;
    const double wire = (n > 1 ? cost->cut_wire_secs : cost->wire_secs) / n + cost->start_secs;
    return product + (n - 1) * (product > wire ? product : wire) + wire;
}

static double sum_secs(const qdri_panel_cost *costs, int n_costs, int n)
{
    double secs = 0;
    for (int i = 0; i < n_costs; i++) secs += qdri_panels_secs(&costs[i], n);
    return secs;
}

int qdri_panels_choose(const qdri_panel_cost *costs, int n_costs)
{
    int best = 1;
    for (int n = 2; n <= QDRI_MAX_CHOSEN_PANELS && n_costs > 0 && n <= costs->n_rows; n *= 2)
        if (sum_secs(costs, n_costs, n) < sum_secs(costs, n_costs, best)) best = n;
    return best;
}
