/* SPDX-License-Identifier: Apache-2.0 */
/* Comma-separated values: what is read, what is refused and with which message, and what is written. */
#include "common/csv.h"

#include <math.h>

#include "qdr_test.h"

/* The bytes lie in an allocation of their own, so that a sanitizer sees any step beyond them. */
static int parse_bytes(const char *bytes, size_t n_bytes, csv_table *table, failure *why)
{
    char *exact = malloc(n_bytes ? n_bytes : 1);
    assert_non_null(exact);
    memcpy(exact, bytes, n_bytes);
    const int code = csv_parse(exact, n_bytes, "a.csv", table, why);
    free(exact);
    return code;
}

static csv_table read_text(const char *text)
{
    csv_table table;
    failure why = {0};
    if (parse_bytes(text, strlen(text), &table, &why)) fail_msg("%s", why.sentence);
    return table;
}

static void expect_refused_bytes(const char *bytes, size_t n_bytes, const char *words)
{
    csv_table table;
    failure why = {0};
    assert_int_equal(parse_bytes(bytes, n_bytes, &table, &why), EXIT_USAGE);
    if (!strstr(why.sentence, words)) fail_msg("\"%s\" does not say \"%s\"", why.sentence, words);
    assert_memory_equal(why.sentence, "a.csv", 5);
    assert_null(table.cells);
}

static void expect_refused(const char *text, const char *words) { expect_refused_bytes(text, strlen(text), words); }

static void expect_cell(const csv_table *table, int64_t row, const char *column, const char *want)
{
    assert_string_equal(csv_cell(table, row, csv_find(table, column)), want);
}

/* ---- reading ---- */

TEST(reads_plain_and_quoted_cells)
{
    csv_table table = read_text("a,b,\"c, d\"\n1,\"x\"\"y\",\n\"\",\"two\nlines\", 3 \n");
    assert_int_equal(table.n_columns, 3);
    assert_int_equal(table.n_rows, 2);
    expect_cell(&table, 0, "a", "1");
    expect_cell(&table, 0, "b", "x\"y");
    expect_cell(&table, 0, "c, d", "");
    expect_cell(&table, 1, "a", "");
    expect_cell(&table, 1, "b", "two\nlines");
    expect_cell(&table, 1, "c, d", " 3 ");
    assert_int_equal(csv_find(&table, "none"), -1);
    assert_string_equal(csv_cell(&table, 0, -1), "");
    csv_free(&table);
}

TEST(reads_all_line_ends)
{
    static const char with_mark[] = "\357\273\277a,b\r\n\r\n1,2\n\n\n3,4\r\n\n";
    const char *texts[] = {"a,b\n1,2\n3,4", "a,b\n1,2\n3,4\n", "a,b\r\n1,2\r\n3,4\r\n", with_mark,
                           "\"a\",\"b\"\r\n\"1\",\"2\"\r\n\"3\",\"4\""};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        csv_table table = read_text(texts[i]);
        assert_int_equal(table.n_rows, 2);
        expect_cell(&table, 0, "a", "1");
        expect_cell(&table, 1, "b", "4");
        csv_free(&table);
    }
}

TEST(knows_lines)
{
    csv_table table = read_text("a\n\n\"1\n2\"\n3\n");
    assert_int_equal(table.lines[0], 3);
    assert_int_equal(table.lines[1], 5);
    csv_free(&table);
    table = read_text("\"a\nb\"\n1\n");
    assert_int_equal(table.lines[0], 3);
    csv_free(&table);
}

TEST(keeps_other_bytes)
{
    csv_table table = read_text("a,,\nna\xc3\xafve,\r,\xff\n");
    expect_cell(&table, 0, "a", "na\xc3\xafve");
    assert_string_equal(csv_cell(&table, 0, 1), "\r");
    assert_string_equal(csv_cell(&table, 0, 2), "\xff");
    csv_free(&table);
}

/* ---- refusing ---- */

TEST(refuses_what_is_no_table)
{
    expect_refused("", "it is empty");
    expect_refused("\xef\xbb\xbf", "it is empty");
    expect_refused("a,b\n1\n", "line 2, column 1: the row has 1 cells, the first line 2");
    expect_refused("a,b\n1,2\n\n1,2,3\n", "line 4, column 3: the row has 3 cells");
    expect_refused("a,b,a\n", "line 1, column 3 (a): a second column of this name");
    expect_refused("a,b\n1,x\"y\"\n", "line 2, column 2 (b): a quote inside a cell");
    expect_refused("a,b\n1,\"x\"y\n", "line 2, column 2 (b): text after a closing quote");
    expect_refused("a,b\n1,\"x\n2,3\n", "line 2, column 2 (b): a quote that the row opens is not");
    expect_refused("a\x01,b\n\",1\n", "line 2, column 1 (a?): a quote");
    expect_refused_bytes("a,b\n1,\0\n", 8, "line 2, column 2 (b): a zero byte");
}

TEST(refuses_too_much)
{
    char commas[CSV_MAX_COLUMNS + 1];
    memset(commas, ',', sizeof commas);
    expect_refused_bytes(commas, CSV_MAX_COLUMNS, "more than 256 columns");
    csv_table table;
    failure why = {0};
    assert_int_equal(parse_bytes(commas, CSV_MAX_COLUMNS - 1, &table, &why), EXIT_OK);
    csv_free(&table);
    char *row = malloc(CSV_MAX_ROW_BYTES + 16);
    assert_non_null(row);
    memset(row, 'x', CSV_MAX_ROW_BYTES + 16);
    row[1] = '\n';
    expect_refused_bytes(row, CSV_MAX_ROW_BYTES + 16, "line 2, column 1 (x): a row of more than");
    free(row);
}

/* ---- cells ---- */

TEST(reads_numbers)
{
    double value = 1;
    assert_int_equal(csv_number("", &value), 0);
    assert_int_equal(csv_number("  ", &value), 0);
    assert_true(value >= 0 && value <= 0);
    assert_int_equal(csv_number(" 1700000000.0 ", &value), 1);
    assert_true(fabs(value - 1.7e9) < 1);
    assert_int_equal(csv_number("-2e3", &value), 1);
    assert_int_equal(csv_number("1,5", &value), -1);
    assert_int_equal(csv_number("12x", &value), -1);
    assert_int_equal(csv_number("nan", &value), -1);
    assert_int_equal(csv_number("1e999", &value), -1);
}

TEST(writes_what_it_reads)
{
    static const char *const cells[] = {"",         "plain", "a,b",          "\"",    "two\nlines",
                                        " blanks ", "\r",    "\xef\xbb\xbf", "x\"\"y"};
    enum { N = sizeof cells / sizeof *cells };
    char text[512] = "";
    FILE *file = fmemopen(text, sizeof text, "w");
    assert_non_null(file);
    for (int line = 0; line < 2; line++)
        for (int i = 0; i < N; i++) {
            if (line == 0)
                fprintf(file, "c%d", i);
            else
                csv_write(file, cells[i]);
            putc(i < N - 1 ? ',' : '\n', file);
        }
    fclose(file);
    csv_table table = read_text(text);
    assert_int_equal(table.n_rows, 1);
    for (int i = 0; i < N; i++) assert_string_equal(csv_cell(&table, 0, i), cells[i]);
    csv_free(&table);
}

TEST(shows_printable_text)
{
    char shown[CSV_SHOWN_BYTES], longer[100];
    assert_string_equal(csv_printable("a\x01\xff", shown), "a??");
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(strlen(csv_printable(longer, shown)), CSV_SHOWN_BYTES - 1);
    assert_string_equal(shown + CSV_SHOWN_BYTES - 4, "...");
}
