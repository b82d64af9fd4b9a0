/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille predict`: tests the model on measured runs. */
#include "predict.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "command.h"

enum { OPTION_MACHINE, OPTION_OUTPUT, OPTION_SET, OPTION_ASSUME, OPTION_GROUPS, OPTION_JSON };

static const option_spec specs[] = {
    {"machine", 'm', "M",
     "of all rows: a machine's name or file; default: by the column 'machine'"},
    {"output", 'o', "FILE", "write the table with what was predicted behind each row"},
    {"set", 0, "KEY=VALUE",
     "a constant of the machines used, or of one (NAME:KEY=VALUE); can be repeated"},
    {"assume", 0, "FILE", "what rows leave out; default: assumed_shapes of the installed data"},
    {"groups", 0, NULL, "print each group too"},
    {"json", 0, NULL, "print JSON"},
    {"help", 'h', NULL, "print this"},
    {NULL, 0, NULL, NULL},
};

typedef struct predict_options {
    const char *path, *output, *assume;
    char keys[MAX_SETTINGS][64];
    int as_json, with_groups;
    predictor predictor;
} predict_options;

static int take_setting(const char *text, predict_options *options, failure *why)
{
    predictor *all = &options->predictor;
    const char *equals = strchr(text, '=');
    double value = 0;
    const size_t bytes = equals ? (size_t)(equals - text) : 0;
    if (!equals || !bytes || bytes >= sizeof options->keys[0] ||
        csv_number(equals + 1, &value) != 1)
        return fail(why, EXIT_USAGE,
                    "--set '%.80s': KEY=VALUE is needed, such as --set bf16.most=0.8", text);
    if (all->n_settings == MAX_SETTINGS)
        return fail(why, EXIT_USAGE, "--set: more than %d of them; write a machine file",
                    MAX_SETTINGS);
    char *key = options->keys[all->n_settings];
    memcpy(key, text, bytes);
    key[bytes] = '\0';
    all->settings[all->n_settings++] = (setting){key, value};
    return EXIT_OK;
}

static int take_option(int index, const char *value, void *user, failure *why)
{
    predict_options *options = user;
    if (index == OPTION_MACHINE) options->predictor.machine_name = value;
    if (index == OPTION_OUTPUT) options->output = value;
    if (index == OPTION_SET) return take_setting(value, options, why);
    if (index == OPTION_ASSUME) options->assume = value;
    if (index == OPTION_GROUPS) options->with_groups = 1;
    if (index == OPTION_JSON) options->as_json = 1;
    return EXIT_OK;
}

/* What is written must not take the place of what is read. */
static int check_output(const predict_options *options, failure *why)
{
    struct stat read, written;
    if (!options->output || stat(options->output, &written) != 0 ||
        stat(options->path, &read) != 0 || read.st_dev != written.st_dev ||
        read.st_ino != written.st_ino)
        return EXIT_OK;
    return fail(why, EXIT_USAGE, "--output %.300s: the runs are read from it; name another file",
                options->output);
}

static int predict_all(const csv_table *table, const assumptions *assumed, predict_options *options,
                       measured_run *runs, failure *why)
{
    run_columns columns;
    if (run_columns_find(table, &columns, why)) return why->code;
    for (int64_t row = 0; row < table->n_rows; row++) {
        assumed_row fit;
        run_read(table, &columns, row, assumed, &runs[row], &fit);
        if (predictor_run(&options->predictor, &runs[row], why)) return why->code;
        if (!runs[row].why_skipped[0]) assumed_note(&fit);
    }
    return EXIT_OK;
}

static int put_out(const report *r, const predict_options *options, failure *why)
{
    if (options->output && report_save(r, options->output, why)) return why->code;
    if (options->as_json)
        report_print_json(r, why);
    else
        report_print(r);
    if (r->scores->all.n == 0)
        fail(why, EXIT_FAILED, "%.200s: no row could be predicted; the first one: %s",
             r->table->name, r->runs[0].why_skipped);
    return why->code;
}

static int predict_table(const csv_table *table, const assumptions *assumed,
                         predict_options *options, failure *why)
{
    scores all = {.n_groups = 0};
    if (table->n_rows == 0)
        return fail(why, EXIT_USAGE, "%.300s: it has no rows below the names of the columns",
                    table->name);
    measured_run *runs = calloc((size_t)table->n_rows, sizeof *runs);
    if (!runs)
        return fail(why, EXIT_FAILED, "%.300s: no memory for %lld rows", table->name,
                    (long long)table->n_rows);
    if (!predict_all(table, assumed, options, runs, why) &&
        !scores_make(runs, table->n_rows, &all, why)) {
        const report r = {table, runs, assumed, &all, options->with_groups};
        put_out(&r, options, why);
    }
    scores_free(&all);
    free(runs);
    return why->code;
}

static int run(int argc, char **argv)
{
    predict_options options = {.assume = "assumed_shapes"};
    csv_table table = {.name = NULL};
    assumptions assumed = {.n = 0};
    failure why = {0};
    if (argc > 1 && (argv[1][0] != '-' || argv[1][1] == '\0')) {
        options.path = argv[1];
        argv[1] = argv[0];
        if (!options_read(argc - 1, argv + 1, specs, take_option, &options, &why) &&
            !check_output(&options, &why) && !assumed_load(options.assume, &assumed, &why) &&
            !csv_load(options.path, &table, &why))
            predict_table(&table, &assumed, &options, &why);
    } else {
        fail(&why, EXIT_USAGE, "predict: a table of runs is missing; see quadrille predict --help");
    }
    predictor_free(&options.predictor);
    csv_free(&table);
    assumed_free(&assumed);
    return why.code ? fail_print(&why) : EXIT_OK;
}

const command command_predict = {
    .name = "predict",
    .summary = "test the model on measured training runs",
    .usage = "quadrille predict RUNS.csv [OPTION]...",
    .text =
        "Reads a table of measured runs (- is standard input), predicts the time and the memory "
        "of each, and\n"
        "prints how well both agree: the error, and whether the fastest way to run a network is "
        "found. The first\n"
        "line names the columns: n_gpus, batch and iter_time_s (or tflops_per_gpu, or "
        "'… tokens/s' in notes) are\n"
        "needed; source, machine, model, layers, hidden, heads, seq, vocab, tp, pp, dp, "
        "other_parallelism and\n"
        "params are used. What rows leave out is assumed, and printed. Nothing is run; MPI is "
        "not started.",
    .options = specs,
    .examples = "  quadrille predict runs.csv\n"
                "  quadrille predict runs.csv -o predicted.csv --json\n"
                "  quadrille predict runs.csv -m dgx-a100 --set bf16.most=0.85 --set "
                "software.host_us=10\n",
    .run = run,
};
