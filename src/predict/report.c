/* SPDX-License-Identifier: Apache-2.0 */
/* Prints scores and reasons, as text and as JSON; writes the table with the predictions. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "predict/predict.h"

enum { OF_RUNS = 1, OF_COLLECTIVES = 2, OF_BOTH = 3 };

/* A member of a score, which is a double. Counts have no places. */
typedef struct field {
    const char *title, *key; /* title NULL: only in JSON */
    size_t member;
    int of, width, places;
    const char *unit; /* "%": printed as a percentage */
} field;

#define MEMBER(name) offsetof(score, name)
static const field fields[] = {
    {"n", "n", MEMBER(n), OF_BOTH, 6, 0, ""},
    {"skipped", "skipped", MEMBER(n_skipped), OF_BOTH, 7, 0, ""},
    {"MAPE", "mape", MEMBER(mean), OF_RUNS, 8, 1, "%"},
    {"median", "median_error", MEMBER(median), OF_COLLECTIVES, 7, 1, "%"},
    {"mean", "mean_error", MEMBER(mean), OF_COLLECTIVES, 7, 1, "%"},
    {"p90", "p90_error", MEMBER(ninetieth), OF_COLLECTIVES, 7, 1, "%"},
    {"worst", "worst_error", MEMBER(worst), OF_COLLECTIVES, 7, 1, "%"},
    {"ratio", "median_ratio", MEMBER(ratio), OF_BOTH, 6, 2, ""},
    {"groups", "groups", MEMBER(n_groups), OF_RUNS, 6, 0, ""},
    {"Spearman", "spearman", MEMBER(spearman), OF_RUNS, 8, 3, ""},
    {"Kendall", "kendall", MEMBER(kendall), OF_RUNS, 7, 3, ""},
    {"top-1", "top1", MEMBER(hit), OF_RUNS, 6, 0, "%"},
    {"regret", "mean_regret", MEMBER(regret), OF_RUNS, 7, 1, "%"},
    {"max", "max_regret", MEMBER(worst_regret), OF_RUNS, 7, 1, "%"},
    {NULL, "n_memory", MEMBER(n_memory), OF_RUNS, 0, 0, ""},
    {"mem", "memory_error", MEMBER(memory), OF_RUNS, 7, 0, "%"},
    {"no fit", "no_fit", MEMBER(refused), OF_RUNS, 7, 1, "%"},
    {NULL, "n_slow", MEMBER(n_slow), OF_RUNS, 0, 0, ""},
    {NULL, "log_loss", MEMBER(log_loss), OF_RUNS, 0, 3, ""},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

/* 1: a field of this kind of table. */
static int is_of(const table_kind *kind, const field *f)
{
    return (f->of & (kind->part ? OF_COLLECTIVES : OF_RUNS)) != 0;
}

static double value_of(const score *s, const field *f)
{
    double value;
    memcpy(&value, (const char *)s + f->member, sizeof value);
    return value;
}

/* ---- why rows were skipped ---- */

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

/* Each reason once, the most frequent first; NULL if out of memory. */
static reason *count_reasons(const report *r, size_t *n)
{
    reason *reasons = calloc((size_t)r->t->csv.n_rows, sizeof *reasons);
    *n = 0;
    for (int64_t i = 0; reasons && i < r->t->csv.n_rows; i++) {
        const char *text = r->rows[i].why_skipped;
        size_t at = 0;
        if (!*text) continue;
        while (at < *n && strcmp(reasons[at].text, text) != 0) at++;
        if (at == *n) reasons[(*n)++].text = text;
        reasons[at].n_rows++;
    }
    if (reasons) qsort(reasons, *n, sizeof *reasons, by_rows);
    return reasons;
}

/* ---- text ---- */

static void print_score(const table_kind *kind, const char *title, const char *part, const score *s)
{
    if (kind->part)
        printf("%-20.20s %-14s", title, part);
    else
        printf("%-34.34s", title);
    for (int i = 0; i < N_FIELDS; i++) {
        const field *f = &fields[i];
        const double value = s ? value_of(s, f) : NAN;
        char text[64] = "-";
        if (!is_of(kind, f) || !f->title) continue;
        if (!isnan(value)) snprintf(text, sizeof text, "%.*f%s", f->places, *f->unit ? 100 * value : value, f->unit);
        printf(" %*s", f->width, s ? text : f->title);
    }
    putchar('\n');
}

void report_print(const report *r)
{
    size_t n = 0;
    printf("# %lld %s of %s\n", (long long)r->t->csv.n_rows, r->kind->rows, r->t->csv.name);
    puts(r->kind->part ? "# errors: |predicted / measured - 1| of the times; ratio: predicted / measured, median"
                       : "# ratio: predicted / measured, median; correlations and regret: mean over groups of 4 rows "
                         "or more;\n"
                         "# regret: of the row that is predicted to be the fastest of its group; mem: median error; "
                         "no fit: rows\n"
                         "# that ran, but not in the predicted memory");
    print_score(r->kind, r->kind->title, r->kind->part, NULL);
    for (size_t i = 0; i < r->scores->n_parts; i++) {
        const score *s = &r->scores->parts[i];
        print_score(r->kind, s->first->title, s->first->part, s);
    }
    const score *all = &r->scores->all;
    print_score(r->kind, "all", "", all);
    if (!isnan(all->log_loss))
        printf(
            "# states: %.0f row%s nearest to the normal one, %.0f to slower ones; each is scored by the nearest, and "
            "choices\n# among normal ones; log loss of the shares %.3f\n",
            all->n - all->n_slow, all->n - all->n_slow > 1 ? "s are" : " is", all->n_slow, all->log_loss);
    reason *reasons = count_reasons(r, &n);
    if (n) puts("# skipped:");
    for (size_t i = 0; i < n; i++)
        printf("#   %lld row%s: %s\n", (long long)reasons[i].n_rows, reasons[i].n_rows == 1 ? "" : "s",
               reasons[i].text);
    free(reasons);
}

/* ---- JSON ---- */

static json_t *json_of_score(const table_kind *kind, const score *s)
{
    json_t *object = json_object();
    for (int i = 0; i < N_FIELDS; i++) {
        const field *f = &fields[i];
        const double value = value_of(s, f);
        if (!is_of(kind, f)) continue;
        json_object_set_new(object, f->key,
                            !isfinite(value)              ? json_null()
                            : f->places == 0 && !*f->unit ? json_integer((json_int_t)value)
                                                          : json_real(value));
    }
    return object;
}

int report_print_json(const report *r, failure *why)
{
    size_t n = 0;
    reason *reasons = count_reasons(r, &n);
    json_t *parts = json_array(), *skipped = json_array();
    for (size_t i = 0; i < r->scores->n_parts; i++) {
        const score *s = &r->scores->parts[i];
        json_t *object = json_of_score(r->kind, s);
        json_object_set_new(object, r->kind->title, json_text(s->first->title));
        if (r->kind->part) json_object_set_new(object, r->kind->part, json_text(s->first->part));
        json_array_append_new(parts, object);
    }
    for (size_t i = 0; i < n; i++)
        json_array_append_new(
            skipped, json_pack("{s:o, s:I}", "why", json_text(reasons[i].text), "rows", (json_int_t)reasons[i].n_rows));
    free(reasons);
    json_t *root = json_pack("{s:o, s:o, s:o}", "all", json_of_score(r->kind, &r->scores->all), r->kind->list, parts,
                             "skipped", skipped);
    return write_json(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9), "predict", why);
}

/* ---- rows ---- */

/* The names of the columns that the table has, or a row's cells, without results. */
static void write_cells(FILE *file, const table *t, int64_t row)
{
    for (int c = 0; c < t->n_columns; c++) {
        if (t->in_csv[c] < 0 || t->columns[c].kind == CELL_RESULT) continue;
        csv_write(file, row < 0 ? t->columns[c].name : table_text(t, row, c));
        putc(',', file);
    }
}

void report_write(FILE *file, const void *user, failure *why)
{
    const report *r = user;
    (void)why;
    write_cells(file, r->t, -1);
    fputs(r->kind->part ? "predicted_secs,why_skipped\n"
                        : "predicted_secs,predicted_memory_gib,expected_secs,state,why_skipped\n",
          file);
    for (int64_t row = 0; row < r->t->csv.n_rows; row++) {
        write_cells(file, r->t, row);
        const int is_known = !r->rows[row].why_skipped[0];
        if (is_known) fprintf(file, "%.6g", r->rows[row].predicted_secs);
        if (!r->kind->part) putc(',', file);
        if (!r->kind->part && is_known) fprintf(file, "%.6g", r->rows[row].predicted_bytes / GIB);
        if (!r->kind->part) putc(',', file);
        if (!r->kind->part && is_known) fprintf(file, "%.6g,%d", r->rows[row].expected_secs, r->rows[row].state);
        if (!r->kind->part && !is_known) putc(',', file);
        putc(',', file);
        csv_write(file, r->rows[row].why_skipped);
        putc('\n', file);
    }
}
