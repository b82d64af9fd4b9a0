/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of comma-separated values (RFC 4180): cells in memory, and writing them. The first line names the columns;
 * lines end in LF or CR LF; a byte order mark and empty lines are skipped. Bytes beyond ASCII are kept as they are. */
#ifndef QUADRILLE_SRC_CSV_H
#define QUADRILLE_SRC_CSV_H

#include <stdint.h>
#include <stdio.h>

#include "failure.h"

enum {
    CSV_MAX_COLUMNS = 256,
    CSV_MAX_ROW_BYTES = 1 << 20, /* of a row, with the lines that its quotes hold */
    CSV_MAX_BYTES = 1 << 28,
    CSV_SHOWN_BYTES = 48,
    CSV_NAMES_BYTES = 5 * (CSV_SHOWN_BYTES + 4) + 32
};

typedef struct csv_table {
    const char *name; /* the caller's; begins sentences */
    char *text; /* all cells, each with its end */
    size_t text_bytes;
    size_t *cells; /* where they begin in text: the names of the columns, then row by row */
    int64_t n_cells, capacity;
    int64_t *lines; /* on which rows begin */
    int64_t lines_capacity;
    int64_t n_rows;
    int n_columns;
} csv_table;

/* Reads a table from memory, of which it keeps nothing. Any bytes are safe. Returns 0 or EXIT_USAGE, EXIT_FAILED where
 * memory is short; sentences name the line and the column. */
int csv_parse(const char *bytes, size_t n_bytes, const char *name, csv_table *table, failure *why);
/* All bytes of a file, which are to be freed; "-" is standard input. */
int csv_read(const char *path, char **bytes, size_t *n_bytes, failure *why);
/* What sentences call it. */
const char *csv_name(const char *path);
void csv_free(csv_table *table);

/* The column of a name, or of one that differs in blanks around it or in case; -1: there is none. */
int csv_find(const csv_table *table, const char *column);
/* The first names, for a sentence: "'a', 'b' and 7 more". */
const char *csv_names(const csv_table *table, char names[CSV_NAMES_BYTES]);
const char *csv_column(const csv_table *table, int column);
/* A cell; "" in column -1. */
const char *csv_cell(const csv_table *table, int64_t row, int column);
/* A number in a cell, with blanks around it: 1, or 0 where the cell is empty, or -1 where it holds something else,
 * infinite numbers among it. */
int csv_number(const char *cell, double *value);
/* `text` with what is not printable ASCII as '?', cut to fit. */
const char *csv_printable(const char *text, char shown[CSV_SHOWN_BYTES]);

/* One cell, quoted where it has to be. */
void csv_write(FILE *file, const char *cell);

#endif
