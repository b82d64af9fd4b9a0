/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the reports on runs and on collectives. */
#include "predict/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/files.h"

enum { SHOWN_REASONS = 30 };

/* ---- reasons ---- */

typedef struct reason {
    const char *text;
    int64_t n_rows;
} reason;

static int by_rows(const void *left, const void *right)
{
    const reason *a = left, *b = right;
    const int order = (a->n_rows < b->n_rows) - (a->n_rows > b->n_rows);
    return order ? order : strcmp(a->text, b->text);
}

/* The most frequent first; NULL if out of memory. */
static reason *count_reasons(const skipped_rows *skipped, size_t *n)
{
    reason *reasons = calloc((size_t)skipped->n_rows + 1, sizeof *reasons);
    *n = 0;
    for (int64_t i = 0; reasons && i < skipped->n_rows; i++) {
        const char *text = skipped->why(skipped->rows, i);
        size_t at = 0;
        if (!*text) continue;
        while (at < *n && strcmp(reasons[at].text, text) != 0) at++;
        if (at == *n) reasons[(*n)++].text = text;
        reasons[at].n_rows++;
    }
    if (reasons) qsort(reasons, *n, sizeof *reasons, by_rows);
    return reasons;
}

void print_reasons(const skipped_rows *skipped)
{
    size_t n = 0;
    reason *reasons = count_reasons(skipped, &n);
    if (n) puts("# skipped:");
    for (size_t i = 0; i < n && i < SHOWN_REASONS; i++)
        printf("#   %lld row%s: %s\n", (long long)reasons[i].n_rows, reasons[i].n_rows == 1 ? "" : "s",
               reasons[i].text);
    if (n > SHOWN_REASONS) printf("#   … and %zu reasons more; see why_skipped of -o\n", n - SHOWN_REASONS);
    free(reasons);
}

/* ---- assumptions ---- */

/* Entries for several models of one source with the same reason share one line. */
static int belong_together(const assumption *a, const assumption *b)
{
    return a->model && b->model && a->used == b->used && strcmp(a->source, b->source) == 0 &&
           strcmp(a->reason, b->reason) == 0;
}

/* The values taken from known models. */
static void print_named(const assumptions *all, int n)
{
    char text[512], shown[CSV_SHOWN_BYTES];
    for (size_t i = 0; i < all->n_models; i++) {
        const assumption *entry = &all->models[i];
        if (!entry->used) continue;
        if (!n++) puts("# assumed (values: --json):");
        printf("#   %s: %s (%s; %lld row%s)\n", csv_printable(entry->model, shown),
               assumed_text(entry, 1, text, sizeof text), entry->reason, (long long)entry->n_rows,
               entry->n_rows == 1 ? "" : "s");
    }
}

void print_assumed(const assumptions *all)
{
    char text[512], place[200];
    int n = 0;
    for (size_t i = 0, end; i < all->n; i = end) {
        const assumption *entry = &all->entries[i];
        int64_t n_rows = entry->n_rows;
        for (end = i + 1; end < all->n && belong_together(entry, entry + (end - i)); end++)
            n_rows += all->entries[end].n_rows;
        if (!entry->used) continue;
        if (!n++) puts("# assumed (values: --json):");
        printf("#   %s%s%.100s: %s (%s; %lld row%s)\n", assumed_place(all, entry, place, sizeof place),
               entry->model ? ", " : "",
               end - i > 1    ? "each model"
               : entry->model ? entry->model
                              : "",
               assumed_text(entry, end - i == 1, text, sizeof text), entry->reason, (long long)n_rows,
               n_rows == 1 ? "" : "s");
    }
    print_named(all, n);
}

void print_number(int width, int places, double value, const char *unit)
{
    char text[64] = "-";
    if (!isnan(value)) snprintf(text, sizeof text, "%.*f%s", places, value, unit);
    printf(" %*s", width, text);
}

/* ---- JSON ---- */

int json_add_number(json_t *object, const char *key, double value)
{
    return json_object_set_new(object, key, isfinite(value) ? json_real(value) : json_null()) == 0;
}

int json_add_integer(json_t *object, const char *key, int64_t value)
{
    return json_object_set_new(object, key, json_integer(value)) == 0;
}

int json_add_text(json_t *object, const char *key, const char *text)
{
    char shown[512];
    json_t *value = json_string(text);
    if (!value) {
        size_t i = 0;
        for (; text[i] && i + 1 < sizeof shown; i++)
            shown[i] = (char)(text[i] >= ' ' && text[i] <= '~' ? text[i] : '?');
        shown[i] = '\0';
        value = json_string(shown);
    }
    return json_object_set_new(object, key, value) == 0;
}

json_t *json_append(json_t *list)
{
    json_t *object = json_object();
    return json_array_append_new(list, object) == 0 ? object : NULL;
}

json_t *json_add_list(json_t *object, const char *key)
{
    json_t *list = json_array();
    return json_object_set_new(object, key, list) == 0 ? list : NULL;
}

int json_add_reasons(json_t *object, const skipped_rows *skipped)
{
    size_t n = 0;
    json_t *list = json_add_list(object, "skipped");
    reason *reasons = count_reasons(skipped, &n);
    int good = list && reasons;
    for (size_t i = 0; i < n && good; i++) {
        json_t *one = json_append(list);
        good = one && json_add_text(one, "why", reasons[i].text) && json_add_integer(one, "rows", reasons[i].n_rows);
    }
    free(reasons);
    return good;
}

static int add_entries(json_t *list, const assumption *entries, size_t n)
{
    char text[512];
    for (size_t i = 0; i < n; i++) {
        const assumption *entry = &entries[i];
        if (!entry->used) continue;
        json_t *one = json_append(list);
        if (!one || !json_add_text(one, "source", entry->source) ||
            (entry->model && !json_add_text(one, "model", entry->model)) ||
            !json_add_text(one, "values", assumed_text(entry, 1, text, sizeof text)) ||
            !json_add_text(one, "reason", entry->reason) || !json_add_integer(one, "rows", entry->n_rows))
            return 0;
    }
    return 1;
}

int json_add_assumed(json_t *object, const assumptions *all)
{
    json_t *list = json_add_list(object, "assumed");
    return list && add_entries(list, all->entries, all->n) && add_entries(list, all->models, all->n_models);
}

int json_print(json_t *root, int is_whole, failure *why)
{
    if (!is_whole || json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) != 0)
        fail(why, EXIT_FAILED, "predict: the scores could not be written as JSON");
    else
        putchar('\n');
    json_decref(root);
    return why->code;
}

/* ---- tables ---- */

static int is_added(const added_columns *added, const char *column)
{
    for (int i = 0; i < added->n; i++)
        if (strcmp(column, added->names[i]) == 0) return 1;
    return 0;
}

static void write_kept(FILE *file, const csv_table *table, const added_columns *added, int64_t row)
{
    for (int c = 0; c < table->n_columns; c++) {
        if (is_added(added, csv_column(table, c))) continue;
        csv_write(file, row < 0 ? csv_column(table, c) : csv_cell(table, row, c));
        putc(',', file);
    }
}

int table_save(const csv_table *table, const added_columns *added, const char *path, failure *why)
{
    qdr_output *output;
    if (fail_status(why, qdr_output_open("--out", path, QDR_OUTPUT_REPLACE, &output))) return why->code;
    FILE *file = qdr_output_file(output);
    write_kept(file, table, added, -1);
    for (int i = 0; i < added->n; i++) fprintf(file, "%s%c", added->names[i], i < added->n - 1 ? ',' : '\n');
    for (int64_t row = 0; row < table->n_rows; row++) {
        write_kept(file, table, added, row);
        added->write(file, added->rows, row);
        putc('\n', file);
    }
    return files_end(&output, 1, why);
}
