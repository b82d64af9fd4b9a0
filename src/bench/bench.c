/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille bench`: what grids cost on this machine. Options common to all benchmarks, and the loop over grids. */
#include "bench/bench.h"

#include <jansson.h>
#include <math.h>
#include <quadrille/levels.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/layer_case.h"
#include "common/process.h"
#include "common/ranks.h"
#include "common/statistics.h"

/* Text is left-aligned, numbers are right-aligned. */
static void print_words(const bench_column *column, int is_first, const char *words)
{
    const int width = column->kind == VALUE_TEXT ? -column->width : column->width;
    printf("%s%*s", is_first ? "" : " ", width, words);
}

/* The settings (are_settings), or the values that differ from row to row. */
static json_t *json_row(const bench_table *table, const bench_value *values, int are_settings)
{
    json_t *object = json_object();
    for (const bench_column *column = table->columns; column->name; column++, values++) {
        if (are_settings != !column->title) continue;
        json_t *value = values->text                  ? json_string(values->text)
                        : isnan(values->number)       ? json_null()
                        : column->kind == VALUE_WHOLE ? json_integer((json_int_t)values->number)
                                                      : json_real(values->number);
        json_object_set_new(object, column->name, value);
    }
    return object;
}

static void dump(json_t *object, size_t flags)
{
    if (object) json_dumpf(object, stdout, JSON_PRESERVE_ORDER | flags);
    json_decref(object);
}

/* Prints a row, after the heading if it is the first. values: one for each column. */
static void print_row(bench_table *table, const bench_value *values)
{
    const int is_first = table->n_rows++ == 0;
    switch (table->format) {
    case FORMAT_TABLE:
        if (is_first) {
            fputs(table->title, stdout);
            if (strcmp(table->device, "cpu") != 0) printf("# device: %s\n", table->device);
            for (int line = 0; line < 2; line++) {
                int n = 0;
                for (const bench_column *column = table->columns; column->name; column++)
                    if (column->title) print_words(column, n++ == 0, line ? column->unit : column->title);
                putchar('\n');
            }
        }
        int n = 0;
        for (const bench_column *column = table->columns; column->name; column++, values++)
            if (column->title) {
                char words[64];
                const int n_digits = column->kind == VALUE_WHOLE ? 0 : column->n_digits;
                const double scale = column->kind == VALUE_WHOLE ? 1 : column->scale;
                snprintf(words, sizeof words, "%.*f", n_digits, scale * values->number);
                print_words(column, n++ == 0, values->text ? values->text : isnan(values->number) ? "-" : words);
            }
        putchar('\n');
        break;
    case FORMAT_CSV:
        for (const bench_column *column = table->columns; is_first && column->name; column++)
            printf("%s,%s", column->name, column[1].name ? "" : "device\n");
        for (const bench_column *column = table->columns; column->name; column++, values++) {
            if (values->text)
                fputs(values->text, stdout);
            else if (!isnan(values->number))
                printf("%.*g", column->kind == VALUE_WHOLE ? 17 : 9, values->number);
            putchar(',');
        }
        puts(table->device);
        break;
    case FORMAT_JSON:
        if (is_first) putchar('{');
        if (is_first) {
            json_t *settings = json_row(table, values, 1);
            json_object_set_new(settings, "device", json_string(table->device));
            dump(settings, JSON_EMBED);
        }
        puts(is_first ? ", \"rows\": [" : ",");
        dump(json_row(table, values, 0), 0);
        break;
    }
    fflush(stdout);
}

#define MAX_GRIDS 4096
#define MAX_COLUMNS 40

/* ---- the loop over grids ---- */

/* Passed to every rank of a benchmark. */
typedef struct bench_start {
    const bench_kind *kind;
    const bench_options *options;
} bench_start;

void bench_choose_columns(const bench_column *columns, bench_wants wants, const void *user, bench_column *chosen)
{
    for (; columns->name; columns++)
        if (wants(columns->name, user)) *chosen++ = *columns;
    *chosen = *columns;
}

void bench_row(bench_run *run, const bench_column *columns, const bench_value *values)
{
    bench_value shown[MAX_COLUMNS] = {{0}};
    const bench_column *column = run->table.columns;
    for (; column->name; columns++, values++)
        if (strcmp(columns->name, column->name) == 0) shown[column++ - run->table.columns] = *values;
    if (qdr_context_rank(run->ctx) == 0) print_row(&run->table, shown);
}

qdr_status bench_make_grid(qdr_context *ctx, const char *levels, grid_size size, qdr_grid **grid)
{
    qdr_grid_opts opts = {QDR_OPTS_INIT, .x = size.x, .y = size.y, .z = size.z, .d = size.d};
    const qdr_status status = levels ? qdr_levels_read(ctx, levels, &opts) : QDR_OK;
    return status < 0 ? status : qdr_grid_create(ctx, &opts, grid);
}

int bench_leave_out(bench_run *run, grid_size size)
{
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
    bench_run run = {.ctx = ctx, .table = {.columns = start->kind->columns, .format = options->format}};
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

/* ---- the command ---- */

static const command *const benches[] = {&command_bench_ckpt,
                                         &command_bench_codec,
                                         &command_bench_coll,
                                         &command_bench_gemm,
                                         &command_bench_layer,
                                         &command_bench_linear,
                                         NULL};

/* Runs only if no benchmark was named. */
static int run(int argc, char **argv)
{
    failure why = {0};
    if (argc < 2)
        fail(&why, EXIT_USAGE,
             "bench: no benchmark is named; use ckpt, codec, coll, gemm, layer or linear (see quadrille bench --help)");
    else
        fail(&why, EXIT_USAGE,
             "bench: unknown benchmark '%s'; use ckpt, codec, coll, gemm, layer or linear (see quadrille bench --help)",
             argv[1]);
    return fail_print_once(&why);
}

static const option_spec specs[] = {BENCH_SPECS};

const command command_bench = {
    .name = "bench",
    .summary = "measure checkpoints, codecs, collectives, products and layers",
    .usage = "quadrille bench BENCHMARK [OPTION]...",
    .text = "Each benchmark prints the median, minimum and 90th percentile of the times of the slowest rank for\n"
            "each grid and, if there is one, a lower bound on the time. Ranks are started by mpiexec, or are\n"
            "threads with --local. --device cuda measures GPUs.",
    .parts = benches,
    .options = specs,
    .examples = "  quadrille bench coll --local 4 --kind all --axis x --grid 4x1x1x1\n"
                "  quadrille bench gemm --local 2 --grid all -m 4096 -n 4096 -k 1024 --backward\n"
                "  mpiexec.mpich -n 4 quadrille bench layer --grid 2x2x1x1 --threads 1 --csv\n"
                "  quadrille bench layer --device cuda --local 2 --dtype bf16 --hidden 4096 --heads 32\n",
    .run = run,
};

qdr_status bench_all_ranks(qdr_context *ctx, bench_fold fold, double *values, int64_t n)
{
    const size_t bytes = (size_t)n * sizeof *values;
    double *mine = malloc(2 * bytes), *theirs = mine ? mine + n : NULL;
    qdr_status status = qdr_agree(ctx, mine ? QDR_OK : QDR_ERR_MEMORY);
    if (mine && status >= 0) memcpy(mine, values, bytes);
    for (int rank = 0; mine && status >= 0 && rank < qdr_context_size(ctx); rank++) {
        memcpy(theirs, mine, bytes);
        status = qdr_broadcast(ctx, rank, theirs, bytes);
        for (int64_t i = 0; status >= 0 && i < n; i++) {
            const double with = fold == FOLD_SUM ? values[i] + theirs[i] : fmax(values[i], theirs[i]);
            values[i] = rank == 0 ? theirs[i] : with;
        }
    }
    free(mine);
    return status;
}

static qdr_status time_by_host(const bench_subject *subject, int series, double *secs)
{
    const double began = process_secs();
    const qdr_status status = subject->call(subject->user, series);
    *secs = process_secs() - began;
    return status;
}

static qdr_status time_by_stream(const bench_subject *subject, int series, double *secs)
{
    int64_t began_ns = 0, ended_ns = 0;
    qdr_status status = subject->call(subject->user, series);
    if (status >= 0) status = qdr_stream_stamp(subject->stream, &began_ns);
    for (int i = 0; i < subject->n_calls && status >= 0; i++) status = subject->call(subject->user, series);
    if (status >= 0) status = qdr_stream_stamp(subject->stream, &ended_ns);
    const qdr_status ended = qdr_stream_synchronize(subject->stream); /* the times are written until then */
    *secs = 1e-9 * (double)(ended_ns - began_ns) / subject->n_calls;
    return status >= 0 ? ended : status;
}

int bench_measure(qdr_context *ctx, const bench_options *options, const bench_subject *subject, int n_series,
                  int n_more, bench_samples *samples, failure *why)
{
    const int64_t n = options->n_iterations;
    *samples = (bench_samples){.n = n};
    samples->secs = calloc((size_t)(n * (n_series + n_more)), sizeof *samples->secs);
    samples->work = calloc((size_t)n, sizeof *samples->work);
    if (!samples->secs || !samples->work)
        fail_memory(why, "bench: out of memory for the times of %lld iterations", (long long)n);
    if (fail_together(why, ctx) || !samples->secs) return why->code;
    for (int64_t i = -options->n_warmup; i < n; i++)
        for (int series = 0; series < n_series; series++) {
            double secs = 0;
            qdr_status status = subject->before ? subject->before(subject->user, series) : QDR_OK;
            if (status >= 0) status = qdr_barrier(ctx);
            if (status >= 0) status = (subject->stream ? time_by_stream : time_by_host)(subject, series, &secs);
            if (status < 0) return fail_status(why, status);
            if (i >= 0) samples->secs[series * n + i] = secs;
            if (subject->after) subject->after(subject->user, series, i);
        }
    return fail_status(why, bench_all_ranks(ctx, FOLD_MAX, samples->secs, n * n_series));
}

void bench_free(bench_samples *samples)
{
    free(samples->secs);
    free(samples->work);
    *samples = (bench_samples){0};
}

/* Statistics of the times in `work`, which is sorted. */
static bench_times times_of_work(const bench_samples *samples)
{
    double *work = samples->work;
    const double median = statistics_median(work, (size_t)samples->n);
    return (bench_times){median, work[0], statistics_percentile(work, (size_t)samples->n, 0.9)};
}

static const double *series_of(const bench_samples *samples, int series) { return samples->secs + series * samples->n; }

bench_times bench_times_of(const bench_samples *samples, int series)
{
    memcpy(samples->work, series_of(samples, series), (size_t)samples->n * sizeof *samples->work);
    return times_of_work(samples);
}

double bench_ratio(const bench_samples *samples, int a, int b)
{
    const double *above = series_of(samples, a), *below = series_of(samples, b);
    for (int64_t i = 0; i < samples->n; i++) samples->work[i] = above[i] / below[i];
    return times_of_work(samples).median;
}

double bench_difference(const bench_samples *samples, int a, int b)
{
    const double *more = series_of(samples, a), *less = series_of(samples, b);
    for (int64_t i = 0; i < samples->n; i++) samples->work[i] = more[i] - less[i];
    return times_of_work(samples).median;
}

void bench_add(const bench_samples *samples, int a, int b, int sum)
{
    for (int64_t i = 0; i < samples->n; i++)
        samples->secs[sum * samples->n + i] = series_of(samples, a)[i] + series_of(samples, b)[i];
}
