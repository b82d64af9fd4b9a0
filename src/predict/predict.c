/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille predict`: tests the model on measured runs. */
#include "predict/predict.h"

#include <stdlib.h>
#include <string.h>

#include "common/command.h"
#include "common/files.h"
#include "predict/coll.h"
#include "predict/nccl.h"

typedef struct predict_options {
    const char *path, *output, *assume, *collective;
    char keys[MAX_SETTINGS][64];
    int ranks; /* 0: not given */
    int as_json, with_groups;
    predictor predictor;
} predict_options;

static int take_setting(const char *text, void *user, failure *why)
{
    predict_options *options = user;
    predictor *all = &options->predictor;
    const char *equals = strchr(text, '=');
    double value = 0;
    const size_t bytes = equals ? (size_t)(equals - text) : 0;
    if (!equals || !bytes || bytes >= sizeof options->keys[0] || csv_number(equals + 1, &value) != 1)
        return fail(why, EXIT_USAGE, "--set '%.80s': KEY=VALUE is needed, such as --set bf16.most=0.8", text);
    if (all->n_settings == MAX_SETTINGS)
        return fail(why, EXIT_USAGE, "--set: more than %d of them; write a machine file", MAX_SETTINGS);
    char *key = options->keys[all->n_settings];
    memcpy(key, text, bytes);
    key[bytes] = '\0';
    all->settings[all->n_settings++] = (setting){key, value};
    return EXIT_OK;
}

static int take_collective(const char *text, void *user, failure *why)
{
    if (strpbrk(text, ",\"\n\r"))
        return fail(why, EXIT_USAGE, "--collective '%.80s': a name such as all_reduce or all_gather is needed", text);
    ((predict_options *)user)->collective = text;
    return EXIT_OK;
}

#define AT(member) .at = offsetof(predict_options, member)

static const option_spec specs[] = {
    {"machine", 'm', "M", "machine of all rows: a name or file; default: column 'machine'", OPTION_MACHINE,
     AT(predictor.machine_name)},
    {"out", 'o', "FILE", "write the table with the predictions added to each row", OPTION_OUTPUT, AT(output)},
    {"set", 0, "KEY=VALUE", "set a constant of all machines, or of one (NAME:KEY=VALUE); can be repeated", OPTION_OTHER,
     .take = take_setting},
    {"assume", 0, "FILE", "JSON file of values that rows leave out; default: the installed assumed_shapes.json",
     OPTION_TEXT, AT(assume)},
    {"collective", 0, "NAME", "the collective that nccl-tests measured, if their output lacks it", OPTION_OTHER,
     .take = take_collective},
    {"ranks", 0, "N", "ranks used by nccl-tests; default: from their output, else those of a node", OPTION_INT,
     AT(ranks), 2, 1000000},
    {"groups", 0, NULL, "also print each group of runs, or each collective", OPTION_FLAG, AT(with_groups)},
    {"json", 0, NULL, "print JSON", OPTION_FLAG, AT(as_json)},
    OPTIONS_END,
};

static int check_files(const predict_options *options, failure *why)
{
    char machine[FILES_PATH_BYTES], assume[FILES_PATH_BYTES];
    const qdr_file_use uses[] = {
        {"the table", options->path, QDR_FILE_READ},
        {"--machine", files_find("machines", options->predictor.machine_name, machine), QDR_FILE_READ},
        {"--assume", files_find("data", options->assume, assume), QDR_FILE_READ},
        {"--out", options->output, QDR_FILE_WRITTEN},
    };
    return fail_status(why, qdr_files_check(uses, sizeof uses / sizeof *uses, 0));
}

static int no_memory(const csv_table *table, failure *why)
{
    return fail(why, EXIT_NOTHING_FITS, "%.300s: out of memory for %lld rows", table->name, (long long)table->n_rows);
}

/* ---- runs ---- */

static int predict_all(const csv_table *table, const assumptions *assumed, predict_options *options, measured_run *runs,
                       unknown_words *unknown, failure *why)
{
    run_columns columns;
    if (run_columns_find(table, &columns, why)) return why->code;
    for (int64_t row = 0; row < table->n_rows; row++) {
        assumed_row fit;
        run_read(table, &columns, row, assumed, &runs[row], &fit);
        if (predictor_run(&options->predictor, &runs[row], why)) return why->code;
        if (runs[row].why_skipped[0]) continue;
        assumed_note(&fit);
        unknown_add(unknown, table, row);
    }
    return predictor_check_settings(&options->predictor, why);
}

static int put_out_runs(const report *r, const predict_options *options, failure *why)
{
    if (options->output && report_save(r, options->output, why)) return why->code;
    if (options->as_json)
        report_print_json(r, why);
    else
        report_print(r);
    if (r->scores->all.n == 0)
        fail(why, EXIT_FAILED, "%.200s: no row could be predicted; the first one: %s", r->table->name,
             r->runs[0].why_skipped);
    return why->code;
}

static int predict_runs(const csv_table *table, const assumptions *assumed, predict_options *options, failure *why)
{
    scores all = {.n_groups = 0};
    unknown_words unknown = {.n = 0};
    measured_run *runs = calloc((size_t)table->n_rows, sizeof *runs);
    if (!runs) return no_memory(table, why);
    if (!predict_all(table, assumed, options, runs, &unknown, why) && !scores_make(runs, table->n_rows, &all, why)) {
        const report r = {table, runs, assumed, &all, &unknown, options->with_groups};
        put_out_runs(&r, options, why);
    }
    scores_free(&all);
    free(runs);
    return why->code;
}

/* ---- collectives ---- */

static int predict_each(const csv_table *table, const assumptions *assumed, predict_options *options,
                        measured_coll *colls, failure *why)
{
    coll_columns columns;
    if (coll_columns_find(table, &columns, why)) return why->code;
    for (int64_t row = 0; row < table->n_rows; row++) {
        assumed_row fit;
        coll_read(table, &columns, row, assumed, &colls[row], &fit);
        if (coll_predict(&options->predictor, &colls[row], why)) return why->code;
        if (!colls[row].why_skipped[0]) assumed_note(&fit);
    }
    return predictor_check_settings(&options->predictor, why);
}

static int put_out_collectives(const coll_report *r, const predict_options *options, failure *why)
{
    if (options->output && coll_report_save(r, options->output, why)) return why->code;
    if (options->as_json)
        coll_report_print_json(r, why);
    else
        coll_report_print(r);
    if (r->scores->all.n == 0)
        fail(why, EXIT_FAILED, "%.200s: no row could be predicted; the first one: %s", r->table->name,
             r->colls[0].why_skipped);
    return why->code;
}

static int predict_collectives(const csv_table *table, const assumptions *assumed, predict_options *options,
                               failure *why)
{
    coll_scores all = {.n_groups = 0};
    measured_coll *colls = calloc((size_t)table->n_rows, sizeof *colls);
    if (!colls) return no_memory(table, why);
    if (!predict_each(table, assumed, options, colls, why) && !coll_scores_make(colls, table->n_rows, &all, why)) {
        const coll_report r = {table, colls, assumed, &all, options->with_groups};
        put_out_collectives(&r, options, why);
    }
    coll_scores_free(&all);
    free(colls);
    return why->code;
}

static int predict_table(const csv_table *table, const assumptions *assumed, predict_options *options, failure *why)
{
    if (table->n_rows == 0)
        return fail(why, EXIT_USAGE, "%.300s: it has no rows below the names of the columns", table->name);
    return csv_find(table, "collective") >= 0 ? predict_collectives(table, assumed, options, why)
                                              : predict_runs(table, assumed, options, why);
}

/* ---- the table ---- */

static int load_nccl(const char *bytes, size_t n_bytes, const predict_options *options, csv_table *table, failure *why)
{
    nccl_told told = {csv_name(options->path), options->collective, options->ranks, 0};
    const char *machine_name = options->predictor.machine_name;
    qdr_machine machine;
    char *text = NULL;
    size_t text_bytes = 0;
    if (machine_name && fail_loading(why, qdr_machine_load(machine_name, &machine))) return why->code;
    if (machine_name) told.machine_ranks = machine.ranks_per_node;
    if (!nccl_table(bytes, n_bytes, &told, &text, &text_bytes, why)) csv_parse(text, text_bytes, told.name, table, why);
    free(text);
    return why->code;
}

static int load_table(const predict_options *options, csv_table *table, failure *why)
{
    char *bytes;
    size_t n_bytes = 0;
    if (csv_read(options->path, &bytes, &n_bytes, why)) {
        free(bytes);
        return why->code;
    }
    if (nccl_is_output(bytes, n_bytes))
        load_nccl(bytes, n_bytes, options, table, why);
    else
        csv_parse(bytes, n_bytes, csv_name(options->path), table, why);
    free(bytes);
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
        if (!options_read(argc - 1, argv + 1, specs, &options, NULL, &why) && !check_files(&options, &why) &&
            !assumed_load(options.assume, &assumed, &why) && !load_table(&options, &table, &why))
            predict_table(&table, &assumed, &options, &why);
    } else {
        fail(&why, EXIT_USAGE, "predict: a table of runs or collectives is missing; see quadrille predict --help");
    }
    predictor_free(&options.predictor);
    csv_free(&table);
    assumed_free(&assumed);
    return why.code ? fail_print(&why) : EXIT_OK;
}

const command command_predict = {
    .name = "predict",
    .summary = "compare predictions with measured runs or collectives",
    .usage = "quadrille predict TABLE.csv [OPTION]...",
    .text =
        "Reads a table of measured runs (- is standard input), predicts the time and memory of each, and prints\n"
        "how well prediction and measurement agree: the errors, and whether the model finds the fastest way to run a\n"
        "network. The first line names the columns. Required are n_gpus, batch and iter_time_s (or tflops_per_gpu,\n"
        "pct_peak, or a text such as '1200 tokens/s' in the column notes); source, machine, model, layers, hidden,\n"
        "heads, seq, vocab, tp, pp, dp, other_parallelism and params are used if present. Missing values are assumed\n"
        "and printed. Starts no ranks and no MPI.\n"
        "\n"
        "A table with a column 'collective' contains collectives instead, as measured by nccl-tests: gpus (of a\n"
        "group) and time_us or busbw_GBps are required; machine, gpu, nodes, bytes and algo are used if present.\n"
        "In that column, 'all_reduce group 4 strided' means an all-reduce in groups of 4 ranks that are as far apart\n"
        "as possible, all groups at once. The output of all_reduce_perf and the other nccl-tests programs is accepted\n"
        "as well.",
    .options = specs,
    .examples = "  quadrille predict runs.csv\n"
                "  quadrille predict collectives.csv --groups\n"
                "  quadrille predict all_reduce_perf.txt --machine dgx-a100\n"
                "  quadrille predict runs.csv -o predicted.csv --json\n"
                "  quadrille predict runs.csv -m dgx-a100 --set bf16.most=0.85 --set "
                "software.host_us=10\n",
    .is_local = 1,
    .run = run,
};
