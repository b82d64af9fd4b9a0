/* SPDX-License-Identifier: Apache-2.0 */
/* How the picture of a machine is drawn: shapes on a page, placed one after the other. */
#ifndef QUADRILLE_SRC_TOPO_DRAW_H
#define QUADRILLE_SRC_TOPO_DRAW_H

#include "topo/topo.h"

enum { PAGE_WIDTH = 1180, PAGE_MARGIN = 20 };

/* file NULL: nothing is written; the same calls then measure the space needed. */
typedef struct page {
    FILE *file;
    const topo_report *report;
} page;

void page_box(const page *p, double x, double y, double width, double height, const char *style);
/* style: attributes of <text>; the rest is as for printf, escaped for XML. */
void page_text(const page *p, double x, double y, const char *style, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* A box with a tooltip. */
void page_begin_title(const page *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void page_end_title(const page *p);

/* Boxes placed from left to right, in rows. */
typedef struct flow {
    double left, top, width, gap; /* of the available space */
    double x, bottom, row_top; /* of what has been placed */
} flow;
flow flow_begin(double left, double top, double width, double gap);
/* The position of the next box. */
void flow_next(flow *f, double width, double height, double *x, double *y);

/* The colour of a link, and of the text on it. */
const char *link_colour(qdr_link link);
const char *link_ink(qdr_link link);

/* Each draws a part from `y` on and returns where it ends. */
double draw_machine(const page *p, double y);
double draw_links(const page *p, double y); /* draw_links.c */
double draw_ranks(const page *p, double y); /* draw_grid.c, and: */
double draw_layout(const page *p, double y);

#define STYLE_HEADING "font-size=\"15\" font-weight=\"bold\""
#define STYLE_SMALL "font-size=\"11\" fill=\"#555555\""
#define STYLE_TINY "font-size=\"10\" text-anchor=\"middle\""

#endif
