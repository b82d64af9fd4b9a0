/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing how W is stored: the file of choices, and the measurements. */
#ifndef QDRI_LINEAR_TUNE_H
#define QDRI_LINEAR_TUNE_H

#include "linear/internal.h"
#include "schedule/tune.h"

/* tune.c */
/* A name for the processor and the library that computes products, in characters that any file can contain. */
QDR_NODISCARD qdr_status qdri_tune_machine(const qdr_context *ctx, char name[QDRI_TUNE_MACHINE_BYTES]);

/* For the rank that reads and writes the file, which is read as a whole and replaced as a whole. */
/* The path given by QDR_TUNE; NULL: none. */
const char *qdri_tune_path(void);
/* The file's text, to be freed; empty if there is no file yet. */
QDR_NODISCARD qdr_status qdri_tune_load(const char *path, char **text, size_t *bytes);
/* Replaces the file atomically, or leaves it unchanged. */
QDR_NODISCARD qdr_status qdri_tune_store(const char *path, const qdri_tune_table *table);

/* tune_measure.c */
/* Counted memory of rows × cols elements, filled with random numbers: with zeros, a GPU is faster than with real data.
 * Free it in any case. Blocking. */
QDR_NODISCARD qdr_status qdri_take_random(qdr_stream *stream, int64_t rows, int64_t cols, qdr_dtype dtype,
                                          void **memory);
/* Times of the three products of the key's sizes with W as [out, in] and [in, out], each with the fastest of the
 * device's algorithms, while all ranks compute: medians over rounds, and the maximum over ranks. Sets secs and
 * algorithms. Collective; equal on all ranks. */
QDR_NODISCARD qdr_status qdri_tune_measure(qdr_stack *stack, qdri_tune_choice *choice);

#endif
