/* SPDX-License-Identifier: Apache-2.0 */
/* How the picture of a machine is drawn: shapes placed one after the other. */
#ifndef QUADRILLE_SRC_TOPO_DRAW_H
#define QUADRILLE_SRC_TOPO_DRAW_H

#include "common/svg.h"
#include "topo/topo.h"

enum { PAGE_WIDTH = 1180, PAGE_MARGIN = 20 };

/* file NULL: the space needed is measured. */
typedef struct page {
    FILE *file;
    const topo_report *report;
} page;

/* The colour of a link, and of the text on it: draw_links.c. */
const char *link_colour(qdr_link link);
const char *link_ink(qdr_link link);

/* Each draws a part from `y` on and returns where it ends. */
double draw_machine(const page *p, double y);
double draw_links(const page *p, double y); /* draw_links.c */
double draw_ranks(const page *p, double y); /* draw_grid.c, and: */
double draw_layout(const page *p, double y);

#define STYLE_TINY "font-size=\"10\" text-anchor=\"middle\""

#endif
