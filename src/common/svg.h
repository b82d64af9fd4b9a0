/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures: shapes, text, keys and axes, and colours with the same meaning everywhere. The examples use it, too.
 *
 * Nothing is drawn if the file is NULL: the same calls then measure the space needed. */
#ifndef QUADRILLE_SRC_COMMON_SVG_H
#define QUADRILLE_SRC_COMMON_SVG_H

#include <stdio.h>

#define SVG_PRODUCT "#1f5fa8"
#define SVG_WORK "#9cc3e6" /* other computation */
#define SVG_HIDDEN "#4a9a4a" /* a collective that overlaps with computation */
#define SVG_EXPOSED "#d9541e" /* a collective that computation waits for */
#define SVG_LATE "#f4b183"
#define SVG_FILE "#8064a2" /* a file that is read or written */
#define SVG_COPY "#c3b3d9" /* what will be written is copied */

/* A lane without work: fill and style. */
#define SVG_LANE "black", "fill-opacity=\"0.05\""

/* Attributes of text. */
#define SVG_TITLE "font-size=\"17\" font-weight=\"bold\""
#define SVG_HEADING "font-size=\"15\" font-weight=\"bold\""
#define SVG_STRONG "font-weight=\"bold\""
#define SVG_GREY "fill=\"#666666\""
#define SVG_SMALL "font-size=\"11\" fill=\"#555555\""
#define SVG_MIDDLE "text-anchor=\"middle\""
#define SVG_END "text-anchor=\"end\""

/* A picture on white. */
void svg_begin(FILE *file, double width, double height);
void svg_end(FILE *file);
/* fill: a colour; style: more attributes, or "". */
void svg_box(FILE *file, double x, double y, double width, double height, const char *fill, const char *style);
void svg_line(FILE *file, double x1, double y1, double x2, double y2, const char *style);
/* The text is as for printf; XML's special characters are escaped. */
void svg_text(FILE *file, double x, double y, const char *style, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* What is drawn between the two has a tooltip. */
void svg_begin_tip(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));
void svg_end_tip(FILE *file);

/* Boxes placed from left to right, in rows. */
typedef struct svg_flow {
    double left, top, width, gap; /* of the available space */
    double x, bottom, row_top; /* of what has been placed */
} svg_flow;
svg_flow svg_flow_begin(double left, double top, double width, double gap);
/* The position of the next box. */
void svg_flow_next(svg_flow *flow, double width, double height, double *x, double *y);

/* An item of a key: `top` of the flow is where its text stands. */
void svg_key_item(FILE *file, svg_flow *key, const char *colour, double height, const char *text);
/* The items of the first four colours. */
void svg_key_tasks(FILE *file, svg_flow *key);

/* 1, 2 or 5 times a power of ten, so that about n of them fill the range. */
double svg_tick(double range, int n);

/* A unit, such as that of times. */
typedef struct svg_unit {
    const char *name;
    double size;
} svg_unit;
svg_unit svg_unit_of(double secs);

/* A horizontal axis from 0: a line and a number at each tick. */
typedef struct svg_axis {
    double left, width; /* on the page */
    double most, step; /* at the right end; between ticks */
    svg_unit unit; /* of the numbers */
    double top, bottom; /* of the lines; numbers are below, with is_framed also above */
    int is_framed;
} svg_axis;
void svg_draw_axis(FILE *file, const svg_axis *axis);

#endif
