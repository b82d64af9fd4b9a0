/* SPDX-License-Identifier: Apache-2.0 */
/* A benchmark on all grids that are asked for, and the table that it prints. */
#include <jansson.h>
#include <math.h>
#include <quadrille/levels.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "common/layer_case.h"
#include "common/ranks.h"

enum { MAX_GRIDS = 4096 };

/* ---- printing ---- */

/* The settings (are_settings), or the values that differ from row to row. */
static json_t *json_row(const bench_cell *cells, const bench_cell *end, int are_settings)
{
    json_t *object = json_object();
    for (const bench_cell *cell = cells; cell < end; cell++) {
        const bench_value *value = &cell->value;
        if (value->is_left_out || are_settings != !cell->title) continue;
        json_object_set_new(object, cell->name,
                            value->text            ? json_string(value->text)
                            : isnan(value->number) ? json_null()
                            : value->is_whole      ? json_integer((json_int_t)value->number)
                                                   : json_real(value->number));
    }
    return object;
}

static void dump(json_t *object, size_t flags)
{
    if (object) json_dumpf(object, stdout, JSON_PRESERVE_ORDER | flags);
    json_decref(object);
}

/* Of the table: line 0 and 1 of the heading, or the values (2). Text is left-aligned, numbers are right-aligned. */
static void print_line(const bench_cell *cells, const bench_cell *end, int line)
{
    const char *blank = "";
    for (const bench_cell *cell = cells; cell < end; cell++) {
        const bench_value *value = &cell->value;
        char number[64] = "-";
        if (value->is_left_out || !cell->title) continue;
        if (!isnan(value->number))
            snprintf(number, sizeof number, "%.*f", value->n_digits, value->scale * value->number);
        const char *words = line == 0 ? cell->title : line == 1 ? cell->unit : value->text ? value->text : number;
        printf("%s%*s", blank, value->text ? -cell->width : cell->width, words);
        blank = " ";
    }
    putchar('\n');
}

static void print_csv(const bench_cell *cells, const bench_cell *end, int is_heading)
{
    for (const bench_cell *cell = cells; cell < end; cell++) {
        const bench_value *value = &cell->value;
        if (value->is_left_out) continue;
        if (is_heading || value->text)
            fputs(is_heading ? cell->name : value->text, stdout);
        else if (!isnan(value->number))
            printf("%.*g", value->is_whole ? 17 : 9, value->number);
        putchar(',');
    }
}

/* Prints a row, after the heading if it is the first. */
static void print_row(bench_table *table, const bench_cell *cells, const bench_cell *end)
{
    const int is_first = table->n_rows++ == 0;
    switch (table->format) {
    case FORMAT_TABLE:
        if (is_first) {
            fputs(table->title, stdout);
            if (strcmp(table->device, "cpu") != 0) printf("# device: %s\n", table->device);
        }
        for (int line = is_first ? 0 : 2; line < 3; line++) print_line(cells, end, line);
        break;
    case FORMAT_CSV:
        if (is_first) print_csv(cells, end, 1), puts("device");
        print_csv(cells, end, 0);
        puts(table->device);
        break;
    case FORMAT_JSON:
        if (is_first) {
            json_t *settings = json_row(cells, end, 1);
            json_object_set_new(settings, "device", json_string(table->device));
            putchar('{');
            dump(settings, JSON_EMBED);
        }
        puts(is_first ? ", \"rows\": [" : ",");
        dump(json_row(cells, end, 0), 0);
        break;
    }
    fflush(stdout);
}

void bench_row(bench_run *run, const bench_cell *cells, int n_cells)
{
    if (qdr_context_rank(run->ctx) == 0) print_row(&run->table, cells, cells + n_cells);
}

/* ---- the loop over grids ---- */

/* Passed to every rank of a benchmark. */
typedef struct bench_start {
    const bench_kind *kind;
    const bench_options *options;
} bench_start;

int bench_make_grid(bench_run *run, const bench_options *options, const char *levels, grid_size size, qdr_grid **grid,
                    failure *why)
{
    qdr_grid_opts opts = {QDR_INIT(qdr_grid_opts), .x = size.x, .y = size.y, .z = size.z, .d = size.d};
    qdr_status status = levels ? qdr_levels_read(run->ctx, levels, &opts) : QDR_OK;
    if (status >= 0) status = qdr_grid_create(run->ctx, &opts, grid);
    if (status != QDR_ERR_ARGUMENT || !levels || options->grid.x >= 0) return fail_status(why, status);
    run->n_left_out++;
    if (qdr_context_rank(run->ctx) == 0)
        fprintf(stderr, "quadrille: note: %s is left out: %s\n", grid_words(size).text, qdr_last_error());
    return EXIT_OK;
}

static int run_rank(qdr_context *ctx, void *user)
{
    static _Thread_local grid_size sizes[MAX_GRIDS];
    const bench_start *start = user;
    const bench_options *options = start->options;
    const int n_ranks = qdr_context_size(ctx);
    bench_run run = {.ctx = ctx, .table = {.format = options->format}};
    run.table.device = is_on_gpu(ctx) ? "cuda" : "cpu";
    failure why = {0};
    start->kind->write_title(options, n_ranks, run.table.title, sizeof run.table.title);
    if (options->grid.x > 0) grid_check_ranks("bench", options->grid, n_ranks, &why);
    sizes[0] = options->grid.x ? options->grid : (grid_size){1, 1, 1, n_ranks};
    const int n_sizes = options->grid.x < 0 ? list_grids(n_ranks, sizes, MAX_GRIDS) : 1;
    for (int i = 0; i < n_sizes && !why.code; i++) start->kind->run_grid(&run, options, sizes[i], &why);
    if (run.n_left_out == n_sizes)
        fail(&why, EXIT_USAGE, "%s: the options suit no grid of %d ranks", start->kind->command->name, n_ranks);
    if (!why.code && qdr_context_rank(ctx) == 0 && run.table.format == FORMAT_JSON) puts("\n]}");
    if (run.n_wrong)
        fail(&why, EXIT_MISMATCH, "%s: %lld results are wrong, see the rows above", start->kind->command->name,
             (long long)run.n_wrong);
    return why.code ? fail_print_rank(&why, ctx) : EXIT_OK;
}

int bench_main(const bench_kind *kind, bench_options *options, int argc, char **argv)
{
    failure why = {0};
    if (options_read(argc, argv, kind->command->options, options, NULL, &why) ||
        (kind->check && kind->check(options, &why)))
        return fail_print_once(&why);
    bench_start start = {kind, options};
    return run_on_ranks(options->n_local, options->n_threads, options->device, run_rank, &start);
}
