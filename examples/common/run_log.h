/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a run: JSON Lines, one object per optimizer step. */
#ifndef EXAMPLES_RUN_LOG_H
#define EXAMPLES_RUN_LOG_H

#include <quadrille/output.h>
#include <stdint.h>

#include "program.h"

/* Begins a new file, which can be read while it grows, and which contains whole lines even after Ctrl-C. An older one
 * is kept under another name, which is printed on standard error. NULL and a sentence if it cannot be written. The
 * caller commits it. */
qdr_output *run_log_open(const char *path, char sentence[PROBLEM_BYTES]);
typedef struct run_log_line {
    int64_t step;
    double loss, tokens_per_s, lr;
    double val_loss; /* NAN: not measured */
} run_log_line;
/* Writes {"step":…,"loss":…,"tokens_per_s":…,"lr":…}, and "val_loss" if it was measured. 0: not written. */
int run_log_step(qdr_output *log, const run_log_line *line);

#endif
