/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of comma-separated values (RFC 4180): reading them into memory, and writing them. The first line names the
 * columns; lines end in LF or CR LF; a byte order mark and empty lines are skipped. Non-ASCII bytes are kept
 * unchanged. */
#ifndef QUADRILLE_SRC_COMMON_CSV_H
#define QUADRILLE_SRC_COMMON_CSV_H

#include <stdint.h>
#include <stdio.h>

#include "common/failure.h"

enum {
    CSV_MAX_COLUMNS = 256,
    CSV_MAX_ROW_BYTES = 1 << 20, /* of a row, including line breaks inside quotes */
    CSV_MAX_BYTES = 1 << 28,
    CSV_SHOWN_BYTES = 48
};

typedef struct csv_table {
    const char *name; /* the caller's; error messages begin with it */
    char *text; /* all cells, each terminated by a zero */
    size_t text_bytes;
    size_t *cells; /* their offsets in text: the names of the columns, then the rows */
    int64_t n_cells, capacity;
    int64_t *lines; /* line numbers on which the rows begin */
    int64_t lines_capacity;
    int64_t n_rows;
    int n_columns;
} csv_table;

/* Reads a table from memory, which the caller keeps. Safe for arbitrary bytes. Returns 0, EXIT_USAGE, or EXIT_FAILED if
 * out of memory; messages name the line and the column. */
int csv_parse(const char *bytes, size_t n_bytes, const char *name, csv_table *table, failure *why);
/* Reads all bytes of a file, to be freed by the caller; "-" is standard input. */
int csv_read(const char *path, char **bytes, size_t *n_bytes, failure *why);
/* The name used in messages. */
const char *csv_name(const char *path);
void csv_free(csv_table *table);

/* Index of the column with this name, ignoring case and surrounding blanks; -1: none. */
int csv_find(const csv_table *table, const char *column);
const char *csv_column(const csv_table *table, int column);
/* A cell; "" if column is -1. */
const char *csv_cell(const csv_table *table, int64_t row, int column);
/* Reads a number with optional surrounding blanks. Returns 1; 0 if the cell is empty; -1 if it holds anything else,
 * including infinity. */
int csv_number(const char *cell, double *value);
/* `text` with '?' for everything but printable ASCII, truncated to fit. */
const char *csv_printable(const char *text, char shown[CSV_SHOWN_BYTES]);

/* Writes one cell, quoted if necessary. */
void csv_write(FILE *file, const char *cell);

#endif
