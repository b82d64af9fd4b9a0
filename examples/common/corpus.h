/* SPDX-License-Identifier: Apache-2.0 */
/* The text to train on: read by rank 0, sent to all ranks, divided into training and validation parts and into
 * windows. */
#ifndef EXAMPLES_CORPUS_H
#define EXAMPLES_CORPUS_H

#include <quadrille/context.h>

#include "program.h"

typedef struct corpus {
    uint8_t *bytes; /* allocated with malloc */
    int64_t n_bytes;
    int64_t n_train; /* the first 90 %; the rest is for validation */
    char name[96]; /* for messages */
} corpus;

/* Reads `path`; NULL: the King James Bible if the package bible-kjv is installed, else the texts under
 * /usr/share/common-licenses. Both parts must contain a window of context + 1 bytes. Context 0: all of it, at
 * least two bytes, is for validation. Collective; ranks agree.
 * @retval QDR_ERR_IO, QDR_ERR_ARGUMENT  `sentence` says why */
qdr_status corpus_read(qdr_context *ctx, const char *path, int64_t context, corpus *text, char sentence[PROBLEM_BYTES]);
void corpus_free(corpus *text);

/* The position where sequence `number`, counted from the first step, begins: consecutive windows of the training part,
 * shuffled; each pass over the text has a different order and a different first byte. It depends only on seed and
 * number, so batches do not depend on the grid. */
int64_t corpus_train_window(const corpus *text, int64_t context, uint64_t seed, int64_t number);
/* How many windows fit into the validation part one after the other; at least 1. */
int64_t corpus_validation_windows(const corpus *text, int64_t context);
/* The position of window `index` of `n`: evenly spaced over the validation part, from its first byte to its last. Even
 * as many as fit leave bytes between them out, unless the part has a multiple of the context plus one. */
int64_t corpus_validation_window(const corpus *text, int64_t context, int64_t index, int64_t n);
/* The CRC-32 of the text, that of zlib and gzip. */
uint32_t corpus_crc(const corpus *text);
/* A number in [0, 1) determined by two counters. */
double corpus_uniform(uint64_t seed, uint64_t counter);

#endif
