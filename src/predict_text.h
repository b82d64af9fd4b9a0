/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers in notes that people wrote: "microbatch 4; grad acc 8; 38840 tok/s/gpu; mem 35.0 GB". All texts are in lower
 * case. */
#ifndef QUADRILLE_SRC_PREDICT_TEXT_H
#define QUADRILLE_SRC_PREDICT_TEXT_H

#include <stddef.h>

/* Appends `more`, in lower case, as far as there is room. */
void text_append(char *text, size_t bytes, const char *more);
/* Makes blanks of '_', '-', '=' and ':', and one of several: "micro_batch_size=4" is then "micro batch size 4". */
void text_words(char *text);
/* 1: one of the words, up to NULL, is in the text. */
int text_has(const char *text, const char *const *words);
/* The number behind the first of the words that begins a word of the text and has one, with two of blank, comma, colon,
 * '=' and '-' between them at most. @return what follows it, or NULL */
const char *text_number_after(const char *text, const char *const *words, double *value);
/* The number in front of a unit, as in "39.3k tokens/s". @return what follows the unit, or NULL */
const char *text_number_before(const char *text, const char *unit, double *value);

#endif
