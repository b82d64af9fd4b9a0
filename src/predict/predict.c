/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille predict`: tests the model on measured runs. */
#include "predict/predict.h"

#include <stdlib.h>

#include "common/command.h"
#include "common/files.h"

typedef struct predict_options {
    predictor predictor; /* first: --set wants its subject there */
    const char *path, *output;
    int as_json;
} predict_options;

#define AT(member) .at = offsetof(predict_options, member)

static const option_spec specs[] = {
    {"machine", 'm', "M", "machine of all rows: a name or file; default: column 'machine'", OPTION_TEXT,
     AT(predictor.asked.machine)},
    {"software", 0, "SOFTWARE",
     "software of all rows: a name or file; default: column 'software', else that of the machine's "
     "file",
     OPTION_TEXT, AT(predictor.asked.software)},
    {"out", 'o', "FILE", "write the table with the predictions added to each row", OPTION_TEXT, AT(output)},
    {"set", 0, "KEY=VALUE", "set a constant of all machines, or of one (NAME:KEY=VALUE); can be repeated", OPTION_OTHER,
     .take = subject_set},
    {"json", 0, NULL, "print JSON", OPTION_FLAG, AT(as_json)},
    OPTIONS_END,
};

static int predict_rows(const table *t, const table_kind *kind, predict_options *options, measured *rows, failure *why)
{
    scores all = {.n_groups = 0};
    for (int64_t row = 0; row < t->csv.n_rows; row++)
        if (kind->predict(t, row, &options->predictor, &rows[row], why)) return why->code;
    const predictor *used = &options->predictor;
    for (int i = 0; used->machine_text && i < used->asked.n_settings; i++)
        if (!used->is_used[i])
            return fail(why, EXIT_USAGE, "--set %.80s: no row is on that machine; the last one is on %s",
                        used->asked.settings[i], used->machine.name);
    const report r = {.kind = kind, .t = t, .rows = rows, .scores = &all};
    if (!scores_make(rows, t->csv.n_rows, &all, why) &&
        (!options->output || !files_write("--out", options->output, report_write, &r, why))) {
        if (options->as_json)
            report_print_json(&r, why);
        else
            report_print(&r);
        if (!(all.all.n > 0))
            fail(why, EXIT_FAILED, "%.200s: no row could be predicted; the first one: %s", t->csv.name,
                 rows[0].why_skipped);
    }
    scores_free(&all);
    return why->code;
}

static int predict(predict_options *options, failure *why)
{
    table t = {.n_columns = 0};
    measured *rows = NULL;
    const table_kind *kind = &kind_runs;
    char *bytes;
    size_t n_bytes = 0;
    if (!csv_read(options->path, &bytes, &n_bytes, why) &&
        !csv_parse(bytes, n_bytes, csv_name(options->path), &t.csv, why)) {
        if (csv_find(&t.csv, "collective") >= 0) kind = &kind_collectives;
        table_read(&t, kind->columns, why);
    }
    free(bytes);
    if (!why->code) {
        rows = t.csv.n_rows ? calloc((size_t)t.csv.n_rows, sizeof *rows) : NULL;
        if (rows)
            predict_rows(&t, kind, options, rows, why);
        else if (t.csv.n_rows)
            fail_memory(why, "%.200s: out of memory for its rows", t.csv.name);
        else
            fail(why, EXIT_USAGE, "%.200s: it has no rows below the names of the columns", t.csv.name);
    }
    qdr_model_destroy(&options->predictor.model);
    free(rows);
    table_free(&t);
    return why->code;
}

static int run(int argc, char **argv)
{
    predict_options options = {.path = NULL};
    failure why = {0};
    if (!options_read(argc, argv, specs, &options, &options.path, &why)) {
        if (!options.path)
            fail(&why, EXIT_USAGE, "predict: a table of runs or collectives is missing; see quadrille predict --help");
        else
            predict(&options, &why);
    }
    return why.code ? fail_print(&why) : EXIT_OK;
}

const command command_predict = {
    .name = "predict",
    .summary = "compare predictions with measured runs or collectives",
    .usage = "quadrille predict TABLE.csv [OPTION]...",
    .text = "Reads a table of measured runs (- is standard input), predicts the time and memory of each, and\n"
            "prints how well prediction and measurement agree: the errors, and whether the model finds the\n"
            "fastest way to run a network. Starts no ranks and no MPI.\n"
            "\n"
            "The first line names the columns, in any order; each row is a run. Required are:\n"
            "  gpus batch step_secs             GPUs, sequences of a step over all of them, seconds of a step\n"
            "  model                            a name of quadrille list models, a config.json, or any name with:\n"
            "  layers hidden heads vocab sequence\n"
            "An empty cell, or a column that is left out, has the default in brackets:\n"
            "  machine software                 names of both, or files; [that of the machine's file]\n"
            "  source skip                      where the row is from; why it is not predicted\n"
            "  date url note                    more about the row; not read\n"
            "  tp pp dp cp ep [1]               ranks of each parallelism; dp [gpus / (tp * pp * cp)]\n"
            "  zero [0] shards [dp]             ZeRO stage, 0 to 3; with 3 (FSDP): the ranks that share one copy\n"
            "  levels [none]                    as of plan --levels, instead of zero 1 and 2\n"
            "  micro_batch [1] interleave [1]   sequences of a forward pass; parts of a pipeline stage\n"
            "  recompute [none]                 none; attention or full, as other software does them; operations;\n"
            "                                   segments: what plan --recompute full means\n"
            "  layout [replicated]              of activations between tp ranks: replicated or scattered\n"
            "  overlap [all]                    none, all, or weights, rows and gradients joined by +\n"
            "  dtype [bf16]                     bf16, f16, f32 or f64; rows of fp8 are skipped\n"
            "  kv_heads head_size ffn           [heads, hidden / heads, 4 * hidden, or the model's]\n"
            "  gated tied learned_positions biases norm   [0, 1, 1, 1, layer, or the model's]\n"
            "  memory_gib                       measured memory of a GPU, in GiB\n"
            "\n"
            "A table with a column 'collective' (all-reduce, all-gather, reduce-scatter or send-recv) contains\n"
            "collectives instead. It needs gpus (of a group), bytes (of the whole vector) and secs; nodes,\n"
            "strided, alone, algorithm, bytes_most, machine, source and skip are optional. quadrille(1) describes\n"
            "all columns.",
    .options = specs,
    .examples = "  quadrille predict runs.csv\n"
                "  quadrille predict collectives.csv --json\n"
                "  quadrille predict runs.csv -o predicted.csv\n"
                "  quadrille predict runs.csv -m dgx-a100 --set bf16.most=0.85 --set software.host_us=10\n",
    .is_local = 1,
    .run = run,
};
