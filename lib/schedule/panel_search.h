/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of row panels and of parts of the batch, by the price of what would be run: the combinations to be tried,
 * and the best of them. The planner and the runtime use the same. */
#ifndef QDRI_SCHEDULE_PANEL_SEARCH_H
#define QDRI_SCHEDULE_PANEL_SEARCH_H

enum { QDRI_MOST_CHOSEN_PANELS = 16, QDRI_MOST_CHOSEN_PARTS = 2, QDRI_MOST_PANEL_TRIALS = 10 };

typedef struct qdri_panel_trial {
    int panels, batch_parts;
    double secs;
} qdri_panel_trial;

typedef struct qdri_panel_search {
    int panels, batch_parts; /* to be tried, after qdri_panel_search_next() */
    int fixed_panels, fixed_parts; /* 0: chosen */
    int n_worse; /* consecutive numbers of panels that were not better */
    double least_secs, floor_secs;
    int n_tried;
    qdri_panel_trial tried[QDRI_MOST_PANEL_TRIALS];
} qdri_panel_search;

/* panels, batch_parts: what is fixed; 0: chosen. sums: activations are summed or gathered over several ranks, else
 * there is nothing to gain. scattered: rows are, so that they cannot be divided into parts. */
void qdri_panel_search_begin(qdri_panel_search *search, int panels, int batch_parts, int sums, int scattered);
/* @return 0: all have been tried */
int qdri_panel_search_next(qdri_panel_search *search);
/* Reports the time of the combination being tried. floor_secs: none with as many panels, or more, can take less; 0:
 * unknown. */
void qdri_panel_search_note(qdri_panel_search *search, double secs, double floor_secs);
/* The number of the first trial, with the fewest parts and panels, whose time is close to the least: more of them must
 * gain something, since what they cost besides is not in the price. */
int qdri_panel_search_best(const qdri_panel_search *search);

#endif
