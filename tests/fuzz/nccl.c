/* SPDX-License-Identifier: Apache-2.0 */
/* Arbitrary bytes as the output of nccl-tests: refused with one message, or converted to a readable table. */
#include "predict/nccl.h"
#include "common/csv.h"
#include "fuzz.h"

static void check_table(const char *text, size_t n_bytes)
{
    csv_table table;
    failure why = {0};
    require(csv_parse(text, n_bytes, "fuzz", &table, &why) == EXIT_OK);
    require(table.n_columns == 4 && csv_find(&table, "time_us") == 3);
    for (int64_t row = 0; row < table.n_rows; row++) {
        double value;
        require(*csv_cell(&table, row, 0) && csv_number(csv_cell(&table, row, 1), &value) == 1);
    }
    csv_free(&table);
}

static void read_as(const uint8_t *bytes, size_t n_bytes, const nccl_told *told)
{
    failure why = {0};
    char *text = NULL;
    size_t text_bytes = 0;
    const int code = nccl_table((const char *)bytes, n_bytes, told, &text, &text_bytes, &why);
    require(code == why.code && (code != 0) == (why.sentence[0] != 0));
    if (!code) check_table(text, text_bytes);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    const nccl_told nothing = {.name = "fuzz"}, all = {"fuzz", "all_gather", 4, 8};
    require(nccl_is_output((const char *)bytes, n_bytes) >= 0);
    read_as(bytes, n_bytes, &nothing);
    read_as(bytes, n_bytes, &all);
    return 0;
}
