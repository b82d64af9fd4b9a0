/* SPDX-License-Identifier: Apache-2.0 */
/* Output while a program runs: a line that is updated on a terminal, and occasional lines otherwise. */
#ifndef EXAMPLES_PROGRESS_H
#define EXAMPLES_PROGRESS_H

#include <stdint.h>

typedef struct progress {
    int64_t first, n_steps; /* first: steps that were done before */
    int terminal; /* standard error is one */
    double every; /* seconds between lines; 0: none but milestones */
    double began, drawn; /* seconds; drawn: when the line was last drawn */
} progress;

/* every: seconds between lines where standard error is no terminal; 0: only milestones have one. */
progress progress_begin(int64_t first, int64_t n_steps, double every);
/* What is told of a step; NAN: it is not known. */
typedef struct progress_numbers {
    double loss, val_loss, tokens_per_s; /* val_loss: the latest */
    double peak_share, exposed; /* shares of the peak and of the time */
    double memory; /* bytes */
} progress_numbers;
/* Called after a step. `milestone`: print a line of its own. */
void progress_step(progress *line, int64_t step, const progress_numbers *numbers, int milestone);
/* Called while a validation on n_steps windows runs, after `done` of them. */
void progress_validation(progress *line, int64_t done);
/* Ends the terminal's line. */
void progress_end(const progress *line);
/* Removes what stands on the terminal's line. */
void progress_clear(const progress *line);
/* "1:05", "2:00:00". */
const char *progress_clock(double secs, char text[24]);
/* "0.1 MB", "12.3 MB", "5.68 GB". */
const char *progress_bytes(double bytes, char text[24]);
/* "96", "51200", "0.83 M". */
const char *progress_count(double n, char text[24]);

#endif
