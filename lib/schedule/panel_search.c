/* SPDX-License-Identifier: Apache-2.0 */
/* All powers of two, unless two in a row gained nothing. */
#include "schedule/panel_search.h"

#define LEAST_GAIN 0.015

void qdri_panel_search_begin(qdri_panel_search *search, int panels, int batch_parts, int sums, int scattered)
{
    *search = (qdri_panel_search){.fixed_panels = panels || sums ? panels : 1,
                                  .fixed_parts = batch_parts || (sums && !scattered) ? batch_parts : 1};
}

/* Whether a time is as good as the least one. */
static int is_close(double secs, double least_secs) { return secs * (1 - LEAST_GAIN) <= least_secs; }

int qdri_panel_search_next(qdri_panel_search *search)
{
    if (search->n_tried == 0) {
        search->panels = search->fixed_panels ? search->fixed_panels : 1;
        search->batch_parts = search->fixed_parts ? search->fixed_parts : 1;
        return 1;
    }
    if (is_close(search->tried[0].secs, search->floor_secs)) return 0;
    if (!search->fixed_panels && search->panels < QDRI_MOST_CHOSEN_PANELS && search->n_worse < 2) {
        search->panels *= 2;
        return 1;
    }
    if (search->fixed_parts || search->batch_parts >= QDRI_MOST_CHOSEN_PARTS) return 0;
    search->panels = search->fixed_panels ? search->fixed_panels : 1;
    search->batch_parts *= 2;
    search->n_worse = 0;
    return 1;
}

void qdri_panel_search_note(qdri_panel_search *search, double secs, double floor_secs)
{
    const int is_first = search->n_tried == 0;
    search->tried[search->n_tried++] = (qdri_panel_trial){search->panels, search->batch_parts, secs};
    if (is_first) search->floor_secs = floor_secs; /* those of more panels are higher: their products are smaller */
    search->n_worse = is_first || secs < search->least_secs ? 0 : search->n_worse + 1;
    if (is_first || secs < search->least_secs) search->least_secs = secs;
}

int qdri_panel_search_best(const qdri_panel_search *search)
{
    int i = 0;
    while (!is_close(search->tried[i].secs, search->least_secs)) i++;
    return i;
}
