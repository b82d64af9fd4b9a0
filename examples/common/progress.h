/* SPDX-License-Identifier: Apache-2.0 */
/* What a run says while it runs: a line that rewrites itself on a terminal, and plain lines now and then elsewhere. */
#ifndef EXAMPLES_PROGRESS_H
#define EXAMPLES_PROGRESS_H

#include <stdint.h>

typedef struct progress {
    int64_t n_steps;
    int terminal; /* standard error is one */
    double began, drawn; /* seconds; when the line was drawn last */
} progress;

progress progress_begin(int64_t n_steps);
/* After a step. val_loss: the newest, NAN before the first. `milestone`: worth a line of its own. */
void progress_step(progress *line, int64_t step, double loss, double val_loss, double tokens_per_s, int milestone);
/* Leaves the terminal's line. */
void progress_end(const progress *line);
/* "1:05", "2:00:00". */
const char *progress_clock(double secs, char text[24]);
/* "96", "51200", "0.83 M". */
const char *progress_count(double n, char text[24]);
#define PLURAL(n) ((n) == 1 ? "" : "s")

#endif
