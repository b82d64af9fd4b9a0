/* SPDX-License-Identifier: Apache-2.0 */
/* Arbitrary bytes as a table of runs: refused with one message, or read, with every number in its range. */
#include "predict/table.h"

#include <math.h>

#include "fuzz.h"

static const column_spec columns[] = {
    [0] = {.name = "source"},
    [1] = {.name = "gpus", .kind = CELL_WHOLE, .least = 1, .most = 1e6},
    [2] = {.name = "step_secs", .kind = CELL_REAL, .most = 1e9},
    [3] = {.name = "recompute", .kind = CELL_WORD, .words = (const char *const[]){"none", "attention", "full", NULL}},
    [4] = {.name = "why_skipped", .kind = CELL_RESULT},
    [5] = {.name = NULL},
};

static void check_row(const table *t, int64_t row)
{
    static const int needed[] = {1, 2, -1};
    failure why = {0};
    const double gpus = table_number(t, row, 1, 1), secs = table_number(t, row, 2, 1),
                 word = table_number(t, row, 3, 0);
    require(gpus >= 1 && gpus <= 1e6 && gpus == floor(gpus));
    require(secs > 0 && secs <= 1e9);
    require(word >= 0 && word <= 2 && word == floor(word));
    require(!table_has(t, row, 0) && !table_has(t, row, 4));
    require((table_need(t, row, needed, "fill it in", &why) != EXIT_OK) ==
            (!table_has(t, row, 1) || !table_has(t, row, 2)));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    table t = {.n_columns = 0};
    failure why = {0};
    if (!csv_parse((const char *)bytes, n_bytes, "fuzz", &t.csv, &why) && !table_read(&t, columns, &why))
        for (int64_t row = 0; row < t.csv.n_rows; row++) check_row(&t, row);
    require((why.code != EXIT_OK) == (why.sentence[0] != '\0'));
    if (why.code) check_printable(why.sentence);
    table_free(&t);
    return 0;
}
