/* SPDX-License-Identifier: Apache-2.0 */
/* What a message must hold, computed anew in float64, apart from the kernels: for QDR_CODEC_CHECK. Pure functions, on
 * memory of a CPU. */
#ifndef QDRI_CODEC_CHECK_H
#define QDRI_CODEC_CHECK_H

#include "codec/run.h"

/* What messages have changed. Elements that are NaN or Inf do not count. */
typedef struct qdri_message_errors {
    int64_t n_messages, n_elems;
    double squares, errors; /* sums of squares: of the elements, of what they are off by */
    double of_bound; /* the largest error, as a share of what the codec allows; 0 where nothing is known of it */
} qdri_message_errors;

/* A message, and what it was made of. */
typedef struct qdri_message_copy {
    const float *exact; /* the elements, with the feedback that was added to them */
    const float *decoded;
    const void *wire;
    const float *feedback; /* what it has lost; NULL: that is not kept */
    int is_sum; /* the elements were added up again */
} qdri_message_copy;

/* The first element that is not what the codec allows; -1: there is none. Adds to *errors. text: receives what is wrong
 * with it. first: the number of its first element, for the text. */
int64_t qdri_message_wrong(const qdri_message *message, const qdri_message_copy *copy, int64_t first,
                           qdri_message_errors *errors, char *text, size_t capacity);

#endif
