/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes comma-separated values. */
#include "common/csv.h"

#include <math.h>
#include <quadrille_private/input.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/grow.h"

/* ---- reader state ---- */

typedef struct reader {
    const char *at, *end;
    int64_t line; /* line number of `at` */
    int64_t row_line; /* line on which the row began */
    int column; /* of the cell, from 0 */
    csv_table *table;
    failure *why;
} reader;

const char *csv_printable(const char *text, char shown[CSV_SHOWN_BYTES])
{
    size_t i = 0;
    for (; text[i] && i < CSV_SHOWN_BYTES - 1; i++) shown[i] = (char)(text[i] >= ' ' && text[i] <= '~' ? text[i] : '?');
    if (text[i]) memcpy(shown + i - 3, "...", 3);
    shown[i] = '\0';
    return shown;
}

/* Names the cell as "column 3", with the column's name if the first line has been read. */
static int fail_cell(const reader *r, const char *what)
{
    const csv_table *table = r->table;
    char shown[CSV_SHOWN_BYTES], name[CSV_SHOWN_BYTES + 8] = "";
    if (table->n_columns && r->column < table->n_columns)
        snprintf(name, sizeof name, " (%s)", csv_printable(csv_column(table, r->column), shown));
    return fail(r->why, EXIT_USAGE, "%s, line %lld, column %d%s: %s", table->name, (long long)r->line, r->column + 1,
                name, what);
}

static int room(void **items, int64_t n, int64_t *capacity, size_t bytes_each, failure *why)
{
    if (grow(items, n, capacity, 1024, bytes_each)) return EXIT_OK;
    return fail_memory(why, "csv: out of memory for %lld cells", (long long)(n + 1));
}

/* ---- cells ---- */

static void put(csv_table *table, char letter) { table->text[table->text_bytes++] = letter; }

static int at_line_end(const reader *r)
{
    return r->at == r->end || *r->at == '\n' || (*r->at == '\r' && r->end - r->at > 1 && r->at[1] == '\n');
}

static int read_quoted(reader *r)
{
    for (r->at++; r->at < r->end; r->at++) {
        if (*r->at == '"') {
            if (r->end - r->at < 2 || r->at[1] != '"') break;
            r->at++;
        }
        r->line += *r->at == '\n';
        put(r->table, *r->at);
    }
    if (r->at == r->end) {
        r->line = r->row_line;
        return fail_cell(r, "a quote that the row opens is not closed; close it with \"");
    }
    r->at++;
    if (at_line_end(r) || *r->at == ',') return EXIT_OK;
    return fail_cell(r, "text after a closing quote; write a quote inside quotes as \"\"");
}

static int read_plain(reader *r)
{
    for (; !at_line_end(r) && *r->at != ','; r->at++) {
        if (*r->at == '"')
            return fail_cell(r, "a quote inside a cell that does not begin with one; quote the "
                                "cell and write it as \"\"");
        put(r->table, *r->at);
    }
    return EXIT_OK;
}

static int read_cell(reader *r)
{
    csv_table *table = r->table;
    if (r->column == CSV_MAX_COLUMNS) return fail_cell(r, "more than 256 columns");
    if (room((void **)&table->cells, table->n_cells, &table->capacity, sizeof *table->cells, r->why))
        return r->why->code;
    const size_t begin = table->text_bytes;
    if (r->at < r->end && *r->at == '"' ? read_quoted(r) : read_plain(r)) return r->why->code;
    if (memchr(table->text + begin, '\0', table->text_bytes - begin))
        return fail_cell(r, "a zero byte; is this a text file?");
    put(table, '\0');
    table->cells[table->n_cells++] = begin;
    return EXIT_OK;
}

/* ---- rows ---- */

/* Reads all cells up to the end of the line. */
static int read_cells(reader *r)
{
    const char *begin = r->at;
    r->row_line = r->line;
    for (r->column = 0;; r->column++) {
        if (read_cell(r)) return r->why->code;
        if (r->at - begin > CSV_MAX_ROW_BYTES) return fail_cell(r, "a row of more than 1 MiB; is a quote missing?");
        if (r->at == r->end || *r->at != ',') break;
        r->at++;
    }
    if (r->at < r->end) r->at += *r->at == '\r' ? 2 : 1;
    r->line++;
    return EXIT_OK;
}

static int read_all(reader *r)
{
    csv_table *table = r->table;
    if (r->end - r->at >= 3 && memcmp(r->at, "\xef\xbb\xbf", 3) == 0) r->at += 3;
    if (r->at == r->end)
        return fail(r->why, EXIT_USAGE, "%s: it is empty; the first line must name the columns", table->name);
    if (read_cells(r)) return r->why->code;
    const int64_t next = r->line;
    table->n_columns = r->column + 1;
    r->line = r->row_line;
    for (r->column = 0; r->column < table->n_columns; r->column++)
        if (*csv_column(table, r->column) && csv_find(table, csv_column(table, r->column)) < r->column)
            return fail_cell(r, "a second column of this name; rename one of them");
    r->line = next;
    while (r->at < r->end) {
        if (at_line_end(r)) {
            r->at += *r->at == '\r' ? 2 : 1;
            r->line++;
            continue;
        }
        if (room((void **)&table->lines, table->n_rows, &table->lines_capacity, sizeof *table->lines, r->why) ||
            read_cells(r))
            return r->why->code;
        if (r->column + 1 != table->n_columns)
            return fail(r->why, EXIT_USAGE,
                        "%s, line %lld, column %d: the row has %d cells, the first line %d; quote cells with commas",
                        table->name, (long long)r->row_line, r->column + 1, r->column + 1, table->n_columns);
        table->lines[table->n_rows++] = r->row_line;
    }
    return EXIT_OK;
}

int csv_parse(const char *bytes, size_t n_bytes, const char *name, csv_table *table, failure *why)
{
    *table = (csv_table){.name = name};
    if (n_bytes > CSV_MAX_BYTES)
        return fail(why, EXIT_USAGE, "%s: %zu bytes, but the limit is 256 MiB; split it", name, n_bytes);
    /* Every cell but the last is followed by a separator, which its terminating zero overwrites. */
    table->text = malloc(n_bytes + 2);
    if (!table->text) return fail_memory(why, "%s: out of memory for %zu bytes", name, n_bytes);
    reader r = {.at = bytes, .end = bytes + n_bytes, .line = 1, .table = table, .why = why};
    const int code = read_all(&r);
    if (code) csv_free(table);
    return code;
}

void csv_free(csv_table *table)
{
    free(table->text);
    free(table->cells);
    free(table->lines);
    *table = (csv_table){.name = NULL};
}

/* ---- files ---- */

const char *csv_name(const char *path) { return strcmp(path, "-") == 0 ? "standard input" : path; }

int csv_read(const char *path, char **bytes, size_t *n_bytes, failure *why)
{
    const qdr_status status = qdr_input_read_text(path, CSV_MAX_BYTES, bytes, n_bytes);
    if (status == QDR_OK) return EXIT_OK;
    return fail(why, status == QDR_ERR_MEMORY ? EXIT_FAILED : EXIT_USAGE, "%s; name a file that can be read",
                qdr_last_error());
}

/* ---- cells of a table ---- */

const char *csv_column(const csv_table *table, int column) { return table->text + table->cells[column]; }

int csv_find(const csv_table *table, const char *column)
{
    for (int i = 0; i < table->n_columns; i++)
        if (strcmp(csv_column(table, i), column) == 0) return i;
    /* Equal except for case and surrounding blanks. */
    const size_t bytes = strlen(column);
    for (int i = 0; i < table->n_columns; i++) {
        const char *name = csv_column(table, i) + strspn(csv_column(table, i), " \t");
        if (strncasecmp(name, column, bytes) == 0 && !name[bytes + strspn(name + bytes, " \t")]) return i;
    }
    return -1;
}

const char *csv_cell(const csv_table *table, int64_t row, int column)
{
    return column < 0 ? "" : table->text + table->cells[(row + 1) * table->n_columns + column];
}

int csv_number(const char *cell, double *value)
{
    char *end;
    *value = 0;
    cell += strspn(cell, " \t");
    if (!*cell) return 0;
    const double parsed = strtod(cell, &end);
    if (end == cell || end[strspn(end, " \t")] || !isfinite(parsed)) return -1;
    *value = parsed;
    return 1;
}

void csv_write(FILE *file, const char *cell)
{
    const size_t bytes = strlen(cell);
    if (!strpbrk(cell, ",\"\r\n") &&
        !(bytes && (cell[0] == ' ' || cell[bytes - 1] == ' ' || (unsigned char)cell[0] == 0xef))) {
        fputs(cell, file);
        return;
    }
    putc('"', file);
    for (; *cell; cell++) {
        if (*cell == '"') putc('"', file);
        putc(*cell, file);
    }
    putc('"', file);
}
