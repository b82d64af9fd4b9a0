/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that a model makes up: drawn, and written as text that a terminal can take. */
#ifndef EXAMPLES_SAMPLE_H
#define EXAMPLES_SAMPLE_H

#include <stdint.h>
#include <stdio.h>

typedef struct sample_text {
    FILE *out;
    uint8_t begun[4]; /* a character of several bytes whose end has not come yet */
    int n_begun;
} sample_text;

/* Writes printable ASCII, tabs, new lines and characters in UTF-8 as they are, and "?" for any other byte. A character
 * appears with its last byte. */
void sample_put(sample_text *text, uint8_t byte);
/* A character that is still not whole will never be. */
void sample_end(sample_text *text);
/* A byte drawn from softmax(logits / temperature) of the first n bytes, by a number in [0, 1). */
uint8_t sample_draw(const float *logits, int n, double temperature, double uniform);

#endif
