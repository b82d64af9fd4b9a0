/* SPDX-License-Identifier: Apache-2.0 */
/* Prints scores, and what was skipped or assumed; writes the table with what was predicted. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict.h"

enum { SHOWN_REASONS = 30, NAME_COLUMNS = 34 };

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

/* Why rows were skipped, the most frequent first; NULL where memory is short. */
static reason *count_reasons(const report *r, size_t *n)
{
    reason *reasons = calloc((size_t)r->table->n_rows + 1, sizeof *reasons);
    *n = 0;
    for (int64_t i = 0; reasons && i < r->table->n_rows; i++) {
        const char *text = r->runs[i].why_skipped;
        size_t at = 0;
        if (!*text) continue;
        while (at < *n && strcmp(reasons[at].text, text) != 0) at++;
        if (at == *n) reasons[(*n)++].text = text;
        reasons[at].n_rows++;
    }
    if (reasons) qsort(reasons, *n, sizeof *reasons, by_rows);
    return reasons;
}

static void print_reasons(const report *r)
{
    size_t n = 0;
    reason *reasons = count_reasons(r, &n);
    if (n) puts("# skipped:");
    for (size_t i = 0; i < n && i < SHOWN_REASONS; i++)
        printf("#   %lld row%s: %s\n", (long long)reasons[i].n_rows,
               reasons[i].n_rows == 1 ? "" : "s", reasons[i].text);
    if (n > SHOWN_REASONS)
        printf("#   … and %zu reasons more; see why_skipped of -o\n", n - SHOWN_REASONS);
    free(reasons);
}

/* Entries for several models of one source, with one reason, make one line. */
static int belong_together(const assumption *a, const assumption *b)
{
    return a->model && b->model && a->used == b->used && strcmp(a->source, b->source) == 0 &&
           strcmp(a->reason, b->reason) == 0;
}

static void print_assumed(const report *r)
{
    char text[512], place[200];
    int n = 0;
    for (size_t i = 0, end; i < r->assumed->n; i = end) {
        const assumption *entry = &r->assumed->entries[i];
        int64_t n_rows = entry->n_rows;
        for (end = i + 1; end < r->assumed->n && belong_together(entry, entry + (end - i)); end++)
            n_rows += r->assumed->entries[end].n_rows;
        if (!entry->used) continue;
        if (!n++) puts("# assumed (values: --json):");
        printf("#   %s%s%.100s: %s (%s; %lld row%s)\n",
               assumed_place(r->assumed, entry, place, sizeof place), entry->model ? ", " : "",
               end - i > 1    ? "each model"
               : entry->model ? entry->model
                              : "",
               assumed_text(entry, end - i == 1, text, sizeof text), entry->reason,
               (long long)n_rows, n_rows == 1 ? "" : "s");
    }
}

/* ---- the table ---- */

/* A number, or '-' where there is none. */
static void print_number(int width, int places, double value, const char *unit)
{
    char text[64] = "-";
    if (!isnan(value)) snprintf(text, sizeof text, "%.*f%s", places, value, unit);
    printf(" %*s", width, text);
}

static void print_score(const char *name, const score *s)
{
    printf("%-*.*s %6lld %7lld", NAME_COLUMNS, NAME_COLUMNS, name, (long long)s->n,
           (long long)s->n_skipped);
    print_number(8, 1, 100 * s->mape, "%");
    print_number(6, 2, s->median_ratio, "");
    printf(" %6lld", (long long)s->n_groups);
    print_number(8, 3, s->spearman, "");
    print_number(7, 3, s->kendall, "");
    print_number(6, 0, 100 * s->hit, "%");
    print_number(7, 1, 100 * s->mean_regret, "%");
    print_number(7, 1, 100 * s->worst_regret, "%");
    print_number(7, 0, 100 * s->memory_error, "%");
    print_number(7, 1, s->n ? 100 * s->refused : NAN, "%");
    putchar('\n');
}

static void print_groups(const report *r)
{
    for (size_t i = 0; i < r->scores->n_groups; i++) {
        const score *s = &r->scores->groups[i];
        const measured_run *run = s->first;
        char name[256];
        if (s->n < MIN_GROUP) continue;
        snprintf(name, sizeof name, "%.24s %.16s n%.0f %lldx%lld b%lld s%lld", run->source,
                 run->model, run->n_gpus, (long long)run->network.layers,
                 (long long)run->network.hidden, (long long)run->plan.batch,
                 (long long)run->plan.sequence);
        printf("# group %s\n", name);
        print_score("", s);
    }
}

void report_print(const report *r)
{
    printf("# %lld rows of %s\n"
           "# ratio: predicted / measured, median; correlations and regret: mean over groups of %d "
           "rows or more;\n"
           "# regret: of the row that is predicted to be the fastest of its group; mem: median "
           "error; no fit: rows\n"
           "# that ran, but not in the predicted memory\n",
           (long long)r->table->n_rows, r->table->name, MIN_GROUP);
    printf("%-*s %6s %7s %8s %6s %6s %8s %7s %6s %7s %7s %7s %7s\n", NAME_COLUMNS, "source", "n",
           "skipped", "MAPE", "ratio", "groups", "Spearman", "Kendall", "top-1", "regret", "max",
           "mem", "no fit");
    for (size_t i = 0; i < r->scores->n_sources; i++)
        print_score(r->scores->sources[i].first->source, &r->scores->sources[i]);
    print_score("all", &r->scores->all);
    if (r->with_groups) print_groups(r);
    print_reasons(r);
    print_assumed(r);
}

/* ---- JSON ---- */

/* Adds to an object; 0 where that failed. What is no number becomes null. */
static int add_number(json_t *object, const char *key, double value)
{
    return json_object_set_new(object, key, isfinite(value) ? json_real(value) : json_null()) == 0;
}

static int add_integer(json_t *object, const char *key, int64_t value)
{
    return json_object_set_new(object, key, json_integer(value)) == 0;
}

/* Texts of tables need not be UTF-8. */
static int add_text(json_t *object, const char *key, const char *text)
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

static int fill_score(json_t *object, const score *s)
{
    return add_integer(object, "n", s->n) && add_integer(object, "skipped", s->n_skipped) &&
           add_number(object, "mape", s->mape) &&
           add_number(object, "median_ratio", s->median_ratio) &&
           add_integer(object, "groups", s->n_groups) &&
           add_number(object, "spearman", s->spearman) &&
           add_number(object, "kendall", s->kendall) && add_number(object, "top1", s->hit) &&
           add_number(object, "mean_regret", s->mean_regret) &&
           add_number(object, "max_regret", s->worst_regret) &&
           add_integer(object, "n_memory", s->n_memory) &&
           add_number(object, "memory_error", s->memory_error) &&
           add_number(object, "no_fit", s->n ? s->refused : NAN);
}

/* Appends an empty object to a list, which keeps it. */
static json_t *append(json_t *list)
{
    json_t *object = json_object();
    return json_array_append_new(list, object) == 0 ? object : NULL;
}

static int fill_sources(json_t *list, const scores *all)
{
    for (size_t i = 0; i < all->n_sources; i++) {
        json_t *object = append(list);
        if (!object || !add_text(object, "source", all->sources[i].first->source) ||
            !fill_score(object, &all->sources[i]))
            return 0;
    }
    return 1;
}

static int fill_groups(json_t *list, const scores *all)
{
    for (size_t i = 0; i < all->n_groups; i++) {
        const score *s = &all->groups[i];
        if (s->n < MIN_GROUP) continue;
        json_t *object = append(list);
        if (!object || !add_text(object, "source", s->first->source) ||
            !add_text(object, "model", s->first->model) ||
            !add_number(object, "n_gpus", s->first->n_gpus) ||
            !add_integer(object, "layers", s->first->network.layers) ||
            !add_integer(object, "hidden", s->first->network.hidden) ||
            !add_integer(object, "batch", s->first->plan.batch) ||
            !add_integer(object, "sequence", s->first->plan.sequence) || !fill_score(object, s))
            return 0;
    }
    return 1;
}

static int fill_reasons(json_t *list, const report *r)
{
    size_t n = 0;
    reason *reasons = count_reasons(r, &n);
    int good = reasons != NULL;
    for (size_t i = 0; i < n && good; i++) {
        json_t *object = append(list);
        good = object && add_text(object, "why", reasons[i].text) &&
               add_integer(object, "rows", reasons[i].n_rows);
    }
    free(reasons);
    return good;
}

static int fill_assumed(json_t *list, const assumptions *all)
{
    char text[512];
    for (size_t i = 0; i < all->n; i++) {
        const assumption *entry = &all->entries[i];
        if (!entry->used) continue;
        json_t *object = append(list);
        if (!object || !add_text(object, "source", entry->source) ||
            (entry->model && !add_text(object, "model", entry->model)) ||
            !add_text(object, "values", assumed_text(entry, 1, text, sizeof text)) ||
            !add_text(object, "reason", entry->reason) ||
            !add_integer(object, "rows", entry->n_rows))
            return 0;
    }
    return 1;
}

/* A list in the object; the object keeps it. */
static json_t *add_list(json_t *object, const char *key)
{
    json_t *list = json_array();
    return json_object_set_new(object, key, list) == 0 ? list : NULL;
}

static int fill(json_t *root, const report *r)
{
    json_t *all = json_object();
    if (json_object_set_new(root, "all", all) != 0 || !fill_score(all, &r->scores->all)) return 0;
    json_t *sources = add_list(root, "sources"), *groups = add_list(root, "groups"),
           *reasons = add_list(root, "skipped"), *assumed = add_list(root, "assumed");
    return sources && groups && reasons && assumed && fill_sources(sources, r->scores) &&
           fill_groups(groups, r->scores) && fill_reasons(reasons, r) &&
           fill_assumed(assumed, r->assumed);
}

int report_print_json(const report *r, failure *why)
{
    json_t *root = json_object();
    if (!fill(root, r) || json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) != 0)
        fail(why, EXIT_FAILED, "predict: the scores could not be written as JSON");
    else
        putchar('\n');
    json_decref(root);
    return why->code;
}

/* ---- rows ---- */

static const char *const added[] = {"predicted_time_s", "predicted_tflops_per_gpu",
                                    "predicted_mem_GB", "why_skipped"};
enum { N_ADDED = 4 };

static int is_added(const char *column)
{
    for (int i = 0; i < N_ADDED; i++)
        if (strcmp(column, added[i]) == 0) return 1;
    return 0;
}

static void write_names(FILE *file, const csv_table *table)
{
    for (int c = 0; c < table->n_columns; c++) {
        if (is_added(csv_column(table, c))) continue;
        csv_write(file, csv_column(table, c));
        putc(',', file);
    }
    for (int i = 0; i < N_ADDED; i++) fprintf(file, "%s%c", added[i], i < N_ADDED - 1 ? ',' : '\n');
}

static void write_row(FILE *file, const csv_table *table, int64_t row, const measured_run *run)
{
    for (int c = 0; c < table->n_columns; c++) {
        if (is_added(csv_column(table, c))) continue;
        csv_write(file, csv_cell(table, row, c));
        putc(',', file);
    }
    if (run->why_skipped[0])
        fputs(",,,", file);
    else
        fprintf(file, "%.6g,%.6g,%.6g,", run->predicted_secs, run->predicted_tflops,
                run->predicted_bytes / 0x1p30);
    csv_write(file, run->why_skipped);
    putc('\n', file);
}

int report_save(const report *r, const char *path, failure *why)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return fail(why, EXIT_USAGE, "--output %.300s: %s; name a file in a folder that exists",
                    path, strerror(errno));
    write_names(file, r->table);
    for (int64_t row = 0; row < r->table->n_rows; row++)
        write_row(file, r->table, row, &r->runs[row]);
    const int has_failed = ferror(file);
    if (fclose(file) != 0 || has_failed)
        return fail(why, EXIT_FAILED, "--output %.300s: it could not be written; make room", path);
    return EXIT_OK;
}
