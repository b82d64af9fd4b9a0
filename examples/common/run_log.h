/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a run: JSON Lines, one object per optimizer step. */
#ifndef EXAMPLES_RUN_LOG_H
#define EXAMPLES_RUN_LOG_H

#include <stdint.h>
#include <stdio.h>

#include "options.h"

/* Begins the file anew. NULL and a sentence if it cannot be written. */
FILE *run_log_open(const char *path, char sentence[PROBLEM_BYTES]);
/* {"step":…,"loss":…,"tokens_per_s":…} and "val_loss" where it is a number (NAN: not measured). 0:
 * not written. */
int run_log_step(FILE *log, int64_t step, double loss, double tokens_per_s, double val_loss);
/* 0: something could not be written. */
int run_log_close(FILE *log);

#endif
