/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers in notes written by people: "microbatch 4; grad acc 8; 38840 tok/s/gpu; mem 35.0 GB". All texts are in lower
 * case. */
#ifndef QUADRILLE_SRC_PREDICT_TEXT_H
#define QUADRILLE_SRC_PREDICT_TEXT_H

#include <stddef.h>

/* Appends `more`, in lower case, as far as it fits. */
void text_append(char *text, size_t bytes, const char *more);
/* Replaces each run of blanks, '_', '-', '=' and ':' by one blank: "micro_batch_size=4" becomes "micro batch size
 * 4". */
void text_words(char *text);
/* 1: the text contains one of the words (a list ending with NULL). */
int text_has(const char *text, const char *const *words);
/* The number after the first of the words that begins a word of the text and is followed by a number, with at most two
 * of blank, comma, colon, '=' and '-' in between. @return what follows the number, or NULL */
const char *text_number_after(const char *text, const char *const *words, double *value);
/* The number before a unit, as in "39.3k tokens/s". @return what follows the unit, or NULL */
const char *text_number_before(const char *text, const char *unit, double *value);

#endif
