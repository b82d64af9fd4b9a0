/* SPDX-License-Identifier: Apache-2.0 */
/* Words of tables that were not recognised. */
#ifndef QUADRILLE_SRC_PREDICT_UNKNOWN_H
#define QUADRILLE_SRC_PREDICT_UNKNOWN_H

#include "common/csv.h"

enum { MAX_UNKNOWN = 256, UNKNOWN_BYTES = 48 };

/* Words of other_parallelism, in order of appearance; at most MAX_UNKNOWN. */
typedef struct unknown_words {
    struct unknown_word {
        char text[UNKNOWN_BYTES];
        int64_t n_rows;
        int64_t row; /* the last row that has the word */
    } of[MAX_UNKNOWN];
    int n;
} unknown_words;
/* Adds the unknown words of a row. */
void unknown_add(unknown_words *words, const csv_table *table, int64_t row);

#endif
