/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the reports on runs and on collectives: why rows were skipped, what was assumed, JSON, and tables with
 * appended columns. */
#ifndef QUADRILLE_SRC_PREDICT_REPORT_H
#define QUADRILLE_SRC_PREDICT_REPORT_H

#include <jansson.h>

#include "common/csv.h"
#include "predict/assumed.h"

/* Why each row was skipped, in the order of the rows; "": not skipped. */
typedef const char *(*why_skipped_fn)(const void *rows, int64_t row);
typedef struct skipped_rows {
    const void *rows;
    int64_t n_rows;
    why_skipped_fn why;
} skipped_rows;

/* ---- text ---- */

/* Each reason once, the most frequent first. */
void print_reasons(const skipped_rows *skipped);
/* The entries that rows used. */
void print_assumed(const assumptions *all);
/* Prints a blank and a number, or '-' if it is NAN. */
void print_number(int width, int places, double value, const char *unit);

/* ---- JSON: all return 0 if out of memory ---- */

/* Adds a number to an object; NAN and infinity become null. */
int json_add_number(json_t *object, const char *key, double value);
int json_add_integer(json_t *object, const char *key, int64_t value);
/* Texts of tables need not be UTF-8. */
int json_add_text(json_t *object, const char *key, const char *text);
/* Adds an empty list to the object, or an empty object to the list, which owns it; NULL if out of memory. */
json_t *json_add_list(json_t *object, const char *key);
json_t *json_append(json_t *list);
/* The lists "skipped" and "assumed". */
int json_add_reasons(json_t *object, const skipped_rows *skipped);
int json_add_assumed(json_t *object, const assumptions *all);
/* Prints `root` if `is_whole`, else fails; releases it. */
int json_print(json_t *root, int is_whole, failure *why);

/* ---- tables ---- */

/* Columns that are appended to those of a table, replacing existing ones with these names. */
typedef struct added_columns {
    const char *const *names;
    int n;
    /* Writes n cells, separated by commas. */
    void (*write)(FILE *file, const void *rows, int64_t row);
    const void *rows;
} added_columns;
int table_save(const csv_table *table, const added_columns *added, const char *path, failure *why);

#endif
