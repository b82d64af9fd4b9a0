/* SPDX-License-Identifier: Apache-2.0 */
/* The text to train on: read by rank 0, given to all ranks, cut into training and validation parts and into windows. */
#ifndef EXAMPLES_CORPUS_H
#define EXAMPLES_CORPUS_H

#include <quadrille/context.h>

#include "options.h"

typedef struct corpus {
    uint8_t *bytes; /* malloc */
    int64_t n_bytes;
    int64_t n_train; /* the first 90 %; the rest is for validation */
    char name[96]; /* for people */
} corpus;

/* Reads `path`; NULL: the King James Bible where the package bible-kjv is installed, else the texts under
 * /usr/share/common-licenses. Both parts must hold a window of context + 1 bytes. Collective; ranks agree.
 * @retval QDR_ERR_IO, QDR_ERR_ARGUMENT  `sentence` says why */
qdr_status corpus_read(qdr_context *ctx, const char *path, int64_t context, corpus *text, char sentence[PROBLEM_BYTES]);
void corpus_free(corpus *text);

/* Where sequence `number`, counted from the first step on, begins: windows that follow each other through the training
 * part, shuffled; each pass over the text has another order and another first byte. Seed and number alone decide, so
 * batches do not depend on the grid. */
int64_t corpus_train_window(const corpus *text, int64_t context, uint64_t seed, int64_t number);
/* Windows that follow each other through the whole validation part; at least 1. */
int64_t corpus_validation_windows(const corpus *text, int64_t context);
/* Where window `index` of `n` begins: evenly spaced over the validation part. */
int64_t corpus_validation_window(const corpus *text, int64_t context, int64_t index, int64_t n);
/* A number in [0, 1) from two counters. */
double corpus_uniform(uint64_t seed, uint64_t counter);

#endif
