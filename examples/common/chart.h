/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of a run: the loss over the steps, as SVG. */
#ifndef EXAMPLES_CHART_H
#define EXAMPLES_CHART_H

#include <stdint.h>

#include "program.h"

typedef struct chart_point {
    int64_t step; /* from 1 */
    double loss;
} chart_point;

typedef struct loss_chart {
    const char *title, *subtitle;
    const double *loss; /* loss[i] is that of step first_step + i + 1 */
    int64_t first_step, n_steps; /* n_steps: losses */
    const chart_point *validation;
    int64_t n_validation;
} loss_chart;

/* Checks whether a picture can be written there later; leaves no file. 0: no, `sentence` says why. */
int chart_try(const char *path, char sentence[PROBLEM_BYTES]);
/* Writes the picture to `path`, completely or not at all; writes directly to a device or a pipe. 0: it could not be
 * written, `sentence` says why. */
int chart_write(const loss_chart *chart, const char *path, char sentence[PROBLEM_BYTES]);

#endif
