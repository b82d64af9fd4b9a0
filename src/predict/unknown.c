/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the words of other_parallelism that were not recognised. */
#include "predict/unknown.h"

#include <string.h>

#include "predict/text.h"
#include "predict/ways.h"

static void count(unknown_words *words, const char *text, int64_t row)
{
    int i = 0;
    while (i < words->n && strcmp(words->of[i].text, text) != 0) i++;
    if (i == MAX_UNKNOWN || (i < words->n && words->of[i].row == row)) return;
    struct unknown_word *word = &words->of[i];
    if (i == words->n) {
        words->n++;
        word->n_rows = 0;
        memcpy(word->text, text, strlen(text) + 1);
    }
    word->n_rows++;
    word->row = row;
}

void unknown_add(unknown_words *words, const csv_table *table, int64_t row)
{
    char way[1024] = "", word[UNKNOWN_BYTES], shown[CSV_SHOWN_BYTES];
    const char *at = way;
    text_append(way, sizeof way, csv_cell(table, row, csv_find(table, "other_parallelism")));
    text_words(way);
    while ((at = ways_unknown(at, word, sizeof word)) != NULL) count(words, csv_printable(word, shown), row);
}
