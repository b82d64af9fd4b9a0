/* SPDX-License-Identifier: Apache-2.0 */
/* Prints scores of runs; writes the table with the predictions. */
#include <math.h>
#include <stdio.h>

#include "predict/predict.h"
#include "predict/report.h"

enum { NAME_COLUMNS = 34 };

static const char *why_skipped(const void *rows, int64_t row)
{
    const measured_run *runs = rows;
    return runs[row].why_skipped;
}

static skipped_rows skipped_of(const report *r) { return (skipped_rows){r->runs, r->table->n_rows, why_skipped}; }

/* ---- the table ---- */

static void print_score(const char *name, const score *s)
{
    printf("%-*.*s %6lld %7lld", NAME_COLUMNS, NAME_COLUMNS, name, (long long)s->n, (long long)s->n_skipped);
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
        snprintf(name, sizeof name, "%.24s %.16s n%.0f %lldx%lld b%lld s%lld", run->source, run->model, run->n_gpus,
                 (long long)run->network.layers, (long long)run->network.hidden, (long long)run->plan.batch,
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
    printf("%-*s %6s %7s %8s %6s %6s %8s %7s %6s %7s %7s %7s %7s\n", NAME_COLUMNS, "source", "n", "skipped", "MAPE",
           "ratio", "groups", "Spearman", "Kendall", "top-1", "regret", "max", "mem", "no fit");
    for (size_t i = 0; i < r->scores->n_sources; i++)
        print_score(r->scores->sources[i].first->source, &r->scores->sources[i]);
    print_score("all", &r->scores->all);
    if (r->with_groups) print_groups(r);
    const skipped_rows skipped = skipped_of(r);
    print_reasons(&skipped);
    print_assumed(r->assumed);
    for (int i = 0; i < r->unknown->n; i++)
        printf("# not understood: '%s' (%lld row%s)\n", r->unknown->of[i].text, (long long)r->unknown->of[i].n_rows,
               r->unknown->of[i].n_rows == 1 ? "" : "s");
}

/* ---- JSON ---- */

static int fill_score(json_t *object, const score *s)
{
    return json_add_integer(object, "n", s->n) && json_add_integer(object, "skipped", s->n_skipped) &&
           json_add_number(object, "mape", s->mape) && json_add_number(object, "median_ratio", s->median_ratio) &&
           json_add_integer(object, "groups", s->n_groups) && json_add_number(object, "spearman", s->spearman) &&
           json_add_number(object, "kendall", s->kendall) && json_add_number(object, "top1", s->hit) &&
           json_add_number(object, "mean_regret", s->mean_regret) &&
           json_add_number(object, "max_regret", s->worst_regret) &&
           json_add_integer(object, "n_memory", s->n_memory) &&
           json_add_number(object, "memory_error", s->memory_error) &&
           json_add_number(object, "no_fit", s->n ? s->refused : NAN);
}

static int fill_sources(json_t *list, const scores *all)
{
    for (size_t i = 0; i < all->n_sources; i++) {
        json_t *object = json_append(list);
        if (!object || !json_add_text(object, "source", all->sources[i].first->source) ||
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
        json_t *object = json_append(list);
        if (!object || !json_add_text(object, "source", s->first->source) ||
            !json_add_text(object, "model", s->first->model) || !json_add_number(object, "n_gpus", s->first->n_gpus) ||
            !json_add_integer(object, "layers", s->first->network.layers) ||
            !json_add_integer(object, "hidden", s->first->network.hidden) ||
            !json_add_integer(object, "batch", s->first->plan.batch) ||
            !json_add_integer(object, "sequence", s->first->plan.sequence) || !fill_score(object, s))
            return 0;
    }
    return 1;
}

static int fill_unknown(json_t *root, const unknown_words *unknown)
{
    json_t *list = json_add_list(root, "not_understood");
    for (int i = 0; list && i < unknown->n; i++) {
        json_t *object = json_append(list);
        if (!object || !json_add_text(object, "word", unknown->of[i].text) ||
            !json_add_integer(object, "rows", unknown->of[i].n_rows))
            return 0;
    }
    return list != NULL;
}

static int fill(json_t *root, const report *r)
{
    const skipped_rows skipped = skipped_of(r);
    json_t *all = json_object();
    if (json_object_set_new(root, "all", all) != 0 || !fill_score(all, &r->scores->all)) return 0;
    json_t *sources = json_add_list(root, "sources"), *groups = json_add_list(root, "groups");
    return sources && groups && fill_sources(sources, r->scores) && fill_groups(groups, r->scores) &&
           json_add_reasons(root, &skipped) && json_add_assumed(root, r->assumed) && fill_unknown(root, r->unknown);
}

int report_print_json(const report *r, failure *why)
{
    json_t *root = json_object();
    const int is_whole = fill(root, r);
    return json_print(root, is_whole, why);
}

/* ---- rows ---- */

static void write_row(FILE *file, const void *rows, int64_t row)
{
    const measured_run *run = (const measured_run *)rows + row;
    if (run->why_skipped[0])
        fputs(",,,", file);
    else
        fprintf(file, "%.6g,%.6g,%.6g,", run->predicted_secs, run->predicted_tflops, run->predicted_bytes / 0x1p30);
    csv_write(file, run->why_skipped);
}

int report_save(const report *r, const char *path, failure *why)
{
    static const char *const names[] = {"predicted_time_s", "predicted_tflops_per_gpu", "predicted_mem_GB",
                                        "why_skipped"};
    const added_columns added = {names, 4, write_row, r->runs};
    return table_save(r->table, &added, path, why);
}
