/* SPDX-License-Identifier: Apache-2.0 */
/* Tables whose columns are all known: each cell is checked before the first row is used. */
#ifndef QUADRILLE_SRC_PREDICT_TABLE_H
#define QUADRILLE_SRC_PREDICT_TABLE_H

#include "common/csv.h"

typedef enum cell_kind {
    CELL_TEXT = 0,
    CELL_WHOLE, /* from `least` to `most` */
    CELL_REAL, /* above `least`, up to `most` */
    CELL_WORD, /* one of `words`; its number is the word's index */
    CELL_RESULT /* written by the command, not read */
} cell_kind;

typedef struct column_spec {
    const char *name;
    cell_kind kind;
    double least, most;
    const char *const *words; /* ending with NULL */
} column_spec;

enum { TABLE_COLUMNS = 48 };
typedef struct table {
    csv_table csv;
    const column_spec *columns; /* ending with a NULL name */
    int n_columns;
    int in_csv[TABLE_COLUMNS]; /* the number of each of `columns` in csv; -1: absent */
    double *numbers; /* of all columns, row after row; NAN: text, or an empty cell */
} table;

/* Reads all cells of t->csv. Fails with EXIT_USAGE and the line and column of the first mistake. */
int table_read(table *t, const column_spec *columns, failure *why);
void table_free(table *t);

/* The number in a cell, or `otherwise` if it is empty or there is no such column. */
double table_number(const table *t, int64_t row, int column, double otherwise);
int table_has(const table *t, int64_t row, int column);
/* Fails if a cell of these columns, a list ending with -1, is empty. */
int table_need(const table *t, int64_t row, const int *columns, const char *remedy, failure *why);
/* "" if there is no such column. */
const char *table_text(const table *t, int64_t row, int column);
/* Fails because of a cell: "TABLE, line 3, column 'tp': …" */
int table_fail(const table *t, int64_t row, int column, failure *why, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

#endif
