/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by all pictures: colours with the same meaning everywhere, text, and time axes. */
#ifndef QUADRILLE_SRC_COMMON_SVG_H
#define QUADRILLE_SRC_COMMON_SVG_H

#include <stdio.h>

#define SVG_PRODUCT "#1f5fa8"
#define SVG_WORK "#9cc3e6" /* other computation */
#define SVG_HIDDEN "#4a9a4a" /* a collective that overlaps with computation */
#define SVG_EXPOSED "#d9541e" /* a collective that computation waits for */
#define SVG_LATE "#f4b183"

/* The head of a picture on white. */
void svg_begin(FILE *file, int width, double height);
/* Text from the user, escaped for XML. */
void svg_put_text(FILE *file, const char *text);

/* The unit of a time axis. */
typedef struct svg_unit {
    const char *name;
    double secs;
} svg_unit;
svg_unit svg_unit_of(double secs);
/* 1, 2 or 5 times a power of ten, so that `secs` have about n_ticks. */
double svg_tick_secs(double secs, int n_ticks);

#endif
