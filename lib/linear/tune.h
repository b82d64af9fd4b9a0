/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing how W is stored: the file of choices, and the measurement. */
#ifndef QDRI_LINEAR_TUNE_H
#define QDRI_LINEAR_TUNE_H

#include "core/tune.h"
#include "linear/internal.h"

/* tune.c */
/* Processor and library of products, in characters that any file can hold. */
QDR_NODISCARD qdr_status qdri_tune_machine(const qdr_context *ctx, char name[QDRI_TUNE_MACHINE_BYTES]);

/* tune_file.c, for the rank that reads and writes */
/* The file that QDR_TUNE names; NULL: none. */
const char *qdri_tune_path(void);
/* The file's text, for free(); none where there is no file yet. */
QDR_NODISCARD qdr_status qdri_tune_load(const char *path, char **text, size_t *bytes);
/* Replaces the file at once, or leaves it as it was. */
QDR_NODISCARD qdr_status qdri_tune_store(const char *path, const qdri_tune_table *table);

/* tune_measure.c */
/* Seconds of the three products of the key's sizes with W as [out, in] and [in, out], each by the fastest of the
 * device's algorithms, all ranks at once: medians over rounds, the most of the ranks. Fills secs and algorithms.
 * Collective; equal on all ranks. */
QDR_NODISCARD qdr_status qdri_tune_measure(qdr_stack *stack, qdri_tune_choice *choice);

#endif
