/* SPDX-License-Identifier: Apache-2.0 */
/* Checks tables against their columns. */
#include "predict/table.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/options.h"

static int find_columns(table *t, failure *why)
{
    int is_known[CSV_MAX_COLUMNS] = {0};
    for (t->n_columns = 0; t->columns[t->n_columns].name; t->n_columns++) {
        const int in_csv = csv_find(&t->csv, t->columns[t->n_columns].name);
        t->in_csv[t->n_columns] = in_csv;
        if (in_csv >= 0) is_known[in_csv] = 1;
    }
    for (int in_csv = 0; in_csv < t->csv.n_columns; in_csv++)
        if (!is_known[in_csv]) {
            char shown[CSV_SHOWN_BYTES], near[SUGGESTION_BYTES];
            const char *names[TABLE_COLUMNS];
            for (int c = 0; c < t->n_columns; c++) names[c] = t->columns[c].name;
            csv_printable(csv_column(&t->csv, in_csv), shown);
            suggest(shown, names, t->n_columns, near, sizeof near);
            return fail(why, EXIT_USAGE,
                        "%.200s, line 1: column '%s' is unknown%s; rename or remove it (quadrille predict --help names "
                        "the columns, which commas separate)",
                        t->csv.name, shown, near);
        }
    return EXIT_OK;
}

/* ---- cells ---- */

int table_fail(const table *t, int64_t row, int column, failure *why, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return fail(why, EXIT_USAGE, "%.200s, line %lld, column '%s': %s", t->csv.name, (long long)t->csv.lines[row],
                t->columns[column].name, text);
}

/* The index of a word; NAN if it is none of them, which `all` then names. */
static double word_of(const char *cell, const char *const *words, char *all, size_t bytes)
{
    for (int i = 0; words[i]; i++) {
        const size_t used = strlen(all);
        if (strcmp(words[i], cell) == 0) return i;
        snprintf(all + used, bytes - used, "%s%s", i ? ", " : "one of ", words[i]);
    }
    return NAN;
}

static double number_of(const char *cell, const column_spec *spec, char *all, size_t bytes)
{
    const int is_whole = spec->kind == CELL_WHOLE;
    double value = 0;
    const int is_number = csv_number(cell, &value) > 0 && value <= spec->most;
    if (is_number && (is_whole ? value >= spec->least && value == floor(value) : value > spec->least)) return value;
    snprintf(all, bytes, "%s %.0f %s %.15g", is_whole ? "a whole number from" : "a number above", spec->least,
             is_whole ? "to" : "and up to", spec->most);
    return NAN;
}

static int read_cell(const table *t, int64_t row, int c, failure *why)
{
    char shown[CSV_SHOWN_BYTES], wanted[200] = "";
    const column_spec *spec = &t->columns[c];
    const char *cell = table_text(t, row, c);
    double *number = &t->numbers[row * t->n_columns + c];
    *number = NAN;
    if (!cell[strspn(cell, " \t")] || spec->kind == CELL_TEXT || spec->kind == CELL_RESULT) return EXIT_OK;
    *number = spec->kind == CELL_WORD ? word_of(cell, spec->words, wanted, sizeof wanted)
                                      : number_of(cell, spec, wanted, sizeof wanted);
    return isnan(*number) ? table_fail(t, row, c, why, "'%s' is not %s", csv_printable(cell, shown), wanted) : EXIT_OK;
}

int table_read(table *t, const column_spec *columns, failure *why)
{
    t->columns = columns;
    if (find_columns(t, why)) return why->code;
    t->numbers = calloc((size_t)t->csv.n_rows * (size_t)t->n_columns + 1, sizeof *t->numbers);
    if (!t->numbers)
        return fail_memory(why, "%.200s: out of memory for %lld rows", t->csv.name, (long long)t->csv.n_rows);
    for (int64_t row = 0; row < t->csv.n_rows; row++)
        for (int c = 0; c < t->n_columns; c++)
            if (read_cell(t, row, c, why)) return why->code;
    return EXIT_OK;
}

void table_free(table *t)
{
    csv_free(&t->csv);
    free(t->numbers);
    *t = (table){.numbers = NULL};
}

double table_number(const table *t, int64_t row, int column, double otherwise)
{
    const double value = t->numbers[row * t->n_columns + column];
    return isnan(value) ? otherwise : value;
}

int table_has(const table *t, int64_t row, int column) { return !isnan(table_number(t, row, column, NAN)); }

int table_need(const table *t, int64_t row, const int *columns, const char *remedy, failure *why)
{
    for (; *columns >= 0; columns++)
        if (!table_has(t, row, *columns))
            return table_fail(t, row, *columns, why, "it is empty or missing; %s", remedy);
    return EXIT_OK;
}

const char *table_text(const table *t, int64_t row, int column) { return csv_cell(&t->csv, row, t->in_csv[column]); }
