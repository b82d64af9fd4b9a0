/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a run: JSON Lines, one object per optimizer step. */
#ifndef EXAMPLES_RUN_LOG_H
#define EXAMPLES_RUN_LOG_H

#include <stdint.h>
#include <stdio.h>

#include "options.h"

/* Begins the file anew. NULL and a sentence if it cannot be written. */
FILE *run_log_open(const char *path, char sentence[PROBLEM_BYTES]);
typedef struct run_log_line {
    int64_t step;
    double loss, tokens_per_s, lr;
    double val_loss; /* NAN: not measured */
} run_log_line;
/* {"step":…,"loss":…,"tokens_per_s":…,"lr":…} and "val_loss" where it was measured. 0: not written. */
int run_log_step(FILE *log, const run_log_line *line);
/* 0: something could not be written. */
int run_log_close(FILE *log);

#endif
