/* SPDX-License-Identifier: Apache-2.0 */
/* Arbitrary bytes as a table: refused with one message, or read; what is read can be written, and read again with the
 * same cells. */
#include "common/csv.h"
#include "fuzz.h"

static void check_sentence(const char *sentence)
{
    require(strncmp(sentence, "fuzz", 4) == 0);
    check_printable(sentence);
}

static void write_table(FILE *file, const csv_table *table)
{
    for (int64_t row = -1; row < table->n_rows; row++)
        for (int c = 0; c < table->n_columns; c++) {
            const char *cell = row < 0 ? csv_column(table, c) : csv_cell(table, row, c);
            /* An empty line is no row. */
            if (table->n_columns == 1 && !*cell)
                fputs("\"\"", file);
            else
                csv_write(file, cell);
            putc(c < table->n_columns - 1 ? ',' : '\n', file);
        }
}

static void check_again(const csv_table *table)
{
    csv_table again;
    failure why = {0};
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&text, &n_bytes);
    require(file != NULL);
    write_table(file, table);
    require(fclose(file) == 0);
    require(csv_parse(text, n_bytes, "again", &again, &why) == EXIT_OK);
    require(again.n_rows == table->n_rows && again.n_columns == table->n_columns);
    for (int64_t row = 0; row < table->n_rows; row++)
        for (int c = 0; c < table->n_columns; c++)
            require(strcmp(csv_cell(table, row, c), csv_cell(&again, row, c)) == 0);
    csv_free(&again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    csv_table table;
    failure why = {0};
    const int code = csv_parse((const char *)bytes, n_bytes, "fuzz", &table, &why);
    require(code == why.code && (code != 0) == (why.sentence[0] != 0));
    if (code) {
        check_sentence(why.sentence);
        return 0;
    }
    for (int64_t row = 0; row < table.n_rows; row++) {
        double value;
        require(csv_number(csv_cell(&table, row, 0), &value) <= 1);
        require(table.lines[row] > 1 && (row == 0 || table.lines[row] > table.lines[row - 1]));
    }
    check_again(&table);
    csv_free(&table);
    return 0;
}
