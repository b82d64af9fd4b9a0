/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a benchmark as a readable table, as comma-separated values, or as JSON. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "bench/bench.h"

/* ---- the table ---- */

/* Text is left-aligned, numbers are right-aligned. */
static void print_words(const bench_column *column, int is_first, const char *words)
{
    const int width = column->kind == VALUE_TEXT ? -column->width : column->width;
    printf("%s%*s", is_first ? "" : " ", width, words);
}

/* ---- JSON ---- */

static json_t *json_of(const bench_column *column, const bench_value *value)
{
    if (value->text) return json_string(value->text);
    if (isnan(value->number)) return json_null();
    return column->kind == VALUE_WHOLE ? json_integer((json_int_t)value->number) : json_real(value->number);
}

/* The settings (are_settings), or the values that differ from row to row. */
static json_t *json_row(const bench_table *table, const bench_value *values, int are_settings)
{
    json_t *object = json_object();
    for (const bench_column *column = table->columns; column->name; column++, values++)
        if (are_settings == !column->title) json_object_set_new(object, column->name, json_of(column, values));
    return object;
}

static void dump(json_t *object, size_t flags)
{
    if (object) json_dumpf(object, stdout, JSON_PRESERVE_ORDER | flags);
    json_decref(object);
}

/* ---- all formats ---- */

void bench_print_row(bench_table *table, const bench_value *values)
{
    const int is_first = table->n_rows++ == 0;
    switch (table->format) {
    case FORMAT_TABLE:
        if (is_first) {
            fputs(table->title, stdout);
            for (int line = 0; line < 2; line++) {
                int n = 0;
                for (const bench_column *column = table->columns; column->name; column++)
                    if (column->title) print_words(column, n++ == 0, line ? column->unit : column->title);
                putchar('\n');
            }
        }
        int n = 0;
        for (const bench_column *column = table->columns; column->name; column++, values++)
            if (column->title) {
                char words[64];
                const int n_digits = column->kind == VALUE_WHOLE ? 0 : column->n_digits;
                const double scale = column->kind == VALUE_WHOLE ? 1 : column->scale;
                snprintf(words, sizeof words, "%.*f", n_digits, scale * values->number);
                print_words(column, n++ == 0, values->text ? values->text : isnan(values->number) ? "-" : words);
            }
        putchar('\n');
        break;
    case FORMAT_CSV:
        for (const bench_column *column = table->columns; is_first && column->name; column++)
            printf("%s%s", column->name, column[1].name ? "," : "\n");
        for (const bench_column *column = table->columns; column->name; column++, values++) {
            if (column != table->columns) putchar(',');
            if (values->text)
                fputs(values->text, stdout);
            else if (!isnan(values->number))
                printf("%.*g", column->kind == VALUE_WHOLE ? 17 : 9, values->number);
        }
        putchar('\n');
        break;
    case FORMAT_JSON:
        if (is_first) putchar('{');
        if (is_first) dump(json_row(table, values, 1), JSON_EMBED);
        puts(is_first ? ", \"rows\": [" : ",");
        dump(json_row(table, values, 0), 0);
        break;
    }
    fflush(stdout);
}

void bench_print_end(const bench_table *table)
{
    if (table->format == FORMAT_JSON) puts("\n]}");
}
