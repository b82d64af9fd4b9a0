/* SPDX-License-Identifier: Apache-2.0 */
/* Prints how well the times of collectives are predicted; writes the table with the predictions. */
#include <stdio.h>

#include "predict/coll.h"
#include "predict/report.h"

enum { NAME_COLUMNS = 20 };

static const char *why_skipped(const void *rows, int64_t row)
{
    const measured_coll *colls = rows;
    return colls[row].why_skipped;
}

static skipped_rows skipped_of(const coll_report *r) { return (skipped_rows){r->colls, r->table->n_rows, why_skipped}; }

/* ---- text ---- */

static void print_score(const char *machine, const char *kind, const coll_score *s)
{
    printf("%-*.*s %-14s %6lld %7lld", NAME_COLUMNS, NAME_COLUMNS, machine, kind, (long long)s->n,
           (long long)s->n_skipped);
    print_number(7, 1, 100 * s->median, "%");
    print_number(7, 1, 100 * s->mean, "%");
    print_number(7, 1, 100 * s->ninetieth, "%");
    print_number(7, 1, 100 * s->worst, "%");
    print_number(6, 2, s->median_ratio, "");
    putchar('\n');
}

static void print_rows(const coll_report *r)
{
    puts("# line   ranks  among  apart           bytes   measured, us  predicted, us   error  "
         "busbw, GB/s  predicted");
    for (int64_t i = 0; i < r->table->n_rows; i++) {
        const measured_coll *coll = &r->colls[i];
        const qdr_sample *work = &coll->work;
        if (coll->why_skipped[0]) continue;
        printf("# %4lld  %6d %6d %6d %15.0f %14.1f %14.1f %+6.1f%% %12.2f %10.2f  %s\n", (long long)r->table->lines[i],
               work->n_ranks, work->n_ranks_all, work->stride, work->bytes, 1e6 * work->secs,
               1e6 * coll->predicted_secs, 100 * (coll->predicted_secs / work->secs - 1),
               1e-9 * coll_busbw(coll, work->secs), 1e-9 * coll_busbw(coll, coll->predicted_secs), coll->machine);
    }
}

void coll_report_print(const coll_report *r)
{
    const skipped_rows skipped = skipped_of(r);
    printf("# %lld collectives of %s\n"
           "# errors: |predicted / measured - 1| of the times; ratio: predicted / measured, "
           "median\n",
           (long long)r->table->n_rows, r->table->name);
    printf("%-*s %-14s %6s %7s %7s %7s %7s %7s %6s\n", NAME_COLUMNS, "machine", "collective", "n", "skipped", "median",
           "mean", "p90", "worst", "ratio");
    for (size_t i = 0; i < r->scores->n_groups; i++) {
        const coll_score *s = &r->scores->groups[i];
        print_score(s->first->machine, qdr_coll_kind_name(s->first->work.coll), s);
    }
    print_score("all", "", &r->scores->all);
    if (r->with_rows) print_rows(r);
    print_reasons(&skipped);
    print_assumed(r->assumed);
}

/* ---- JSON ---- */

static int fill_score(json_t *object, const coll_score *s)
{
    return json_add_integer(object, "n", s->n) && json_add_integer(object, "skipped", s->n_skipped) &&
           json_add_number(object, "median_error", s->median) && json_add_number(object, "mean_error", s->mean) &&
           json_add_number(object, "p90_error", s->ninetieth) && json_add_number(object, "worst_error", s->worst) &&
           json_add_number(object, "median_ratio", s->median_ratio);
}

static int fill(json_t *root, const coll_report *r)
{
    const skipped_rows skipped = skipped_of(r);
    json_t *all = json_object();
    if (json_object_set_new(root, "all", all) != 0 || !fill_score(all, &r->scores->all)) return 0;
    json_t *groups = json_add_list(root, "groups");
    for (size_t i = 0; groups && i < r->scores->n_groups; i++) {
        const coll_score *s = &r->scores->groups[i];
        json_t *object = json_append(groups);
        if (!object || !json_add_text(object, "machine", s->first->machine) ||
            !json_add_text(object, "collective", qdr_coll_kind_name(s->first->work.coll)) || !fill_score(object, s))
            return 0;
    }
    return groups && json_add_reasons(root, &skipped) && json_add_assumed(root, r->assumed);
}

int coll_report_print_json(const coll_report *r, failure *why)
{
    json_t *root = json_object();
    const int is_whole = fill(root, r);
    return json_print(root, is_whole, why);
}

/* ---- rows ---- */

static void write_row(FILE *file, const void *rows, int64_t row)
{
    const measured_coll *coll = (const measured_coll *)rows + row;
    if (coll->why_skipped[0])
        fputs(",,", file);
    else
        fprintf(file, "%.6g,%.6g,", 1e6 * coll->predicted_secs, 1e-9 * coll_busbw(coll, coll->predicted_secs));
    csv_write(file, coll->why_skipped);
}

int coll_report_save(const coll_report *r, const char *path, failure *why)
{
    static const char *const names[] = {"predicted_time_us", "predicted_busbw_GBps", "why_skipped"};
    const added_columns added = {names, 3, write_row, r->colls};
    return table_save(r->table, &added, path, why);
}
