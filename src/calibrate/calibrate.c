/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille calibrate`: measures what the model's constants are derived from, fits them, writes a machine file. */
#include "calibrate/calibrate.h"

#include <quadrille/gpu.h>

#include <quadrille/cuda.h>
#include <quadrille_private/data.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/product.h"
#include "common/files.h"
#include "common/ranks.h"

typedef struct calibrate_options {
    const char *path, *name;
    int64_t n_local, n_threads;
    int is_quick, may_replace, is_for_here;
    bench_format format;
    const char *device, *base; /* NULL: not given */
    const char *model; /* --for; NULL: none */
    network_run run;
} calibrate_options;

#define AT(member) .at = offsetof(calibrate_options, member)

static const option_spec specs[] = {
    {"out", 'o', "FILE", "the machine file to write; default: this host's, which programs then use", OPTION_TEXT,
     AT(path)},
    {"force", 0, NULL, "replace FILE if it exists", OPTION_FLAG, AT(may_replace)},
    {"name", 0, "NAME", "the machine's name; default: the file's name without .json", OPTION_TEXT, AT(name)},
    {"quick", 0, NULL, "few and small samples: takes seconds, gives rough constants", OPTION_FLAG, AT(is_quick)},
    {"local", 0, "P", "run P ranks as threads of one process, without MPI", OPTION_COUNT, AT(n_local), 1, 1024},
    {"threads", 0, "N", "threads per rank; default: cores / ranks", OPTION_COUNT, AT(n_threads), 1, 1024},
    OPTIONS_DEVICE(calibrate_options, device),
    {"base", 0, "M", "a machine's name or file: what is not measured stays as there, such as links between nodes",
     OPTION_TEXT, AT(base)},
    OPTIONS_TIMEOUT,
    {"for", 0, "MODEL",
     "also measure the tasks of this model, a name or a config.json, and print how well each kind is predicted",
     OPTION_TEXT, AT(model)},
    {"grid", 0, "GRID", "with --for: GXxGYxGZxGD; default: the fastest, by the measurements so far", OPTION_GRID,
     AT(run.grid), .max = 1024},
    {"batch", 0, "B", "with --for: sequences per step, over all ranks; default: one per rank", OPTION_COUNT,
     AT(run.batch), 1, 1 << 20},
    {"seq", 0, "S", "with --for: tokens per sequence; default: the model's context", OPTION_COUNT, AT(run.sequence), 1,
     1 << 20},
    {"dtype", 0, "TYPE", "with --for: f32 (default), f64 or bf16", OPTION_DTYPE, AT(run.dtype),
     .words = "f32|f64|bf16"},
    {"json", 0, NULL, "print all samples and errors as one JSON object", OPTION_VALUE, AT(format), FORMAT_JSON},
    OPTIONS_END,
};

/* ---- one rank ---- */

/* Nodes must have the same number of ranks each, numbered node by node. */
static int find_nodes(calibration *c, failure *why)
{
    const int n = qdr_context_size(c->ctx);
    int per_node = 1;
    while (per_node < n && qdr_context_node(c->ctx, per_node) == 0) per_node++;
    c->ranks_per_node = per_node;
    c->n_nodes = n / per_node;
    for (int rank = 0; rank < n; rank++)
        if (n % per_node || qdr_context_node(c->ctx, rank) != rank - rank % per_node)
            return fail(why, EXIT_USAGE,
                        "calibrate: rank %d is not on the node of its neighbours; start the same "
                        "number of ranks on each node, node by node (mpiexec -ppn %d)",
                        rank, per_node);
    return EXIT_OK;
}

/* Rounds constants to four digits: the samples are not more accurate. */
static void round_number(const char *key, void *user)
{
    double value;
    char text[32];
    if (qdr_machine_get(user, key, &value) < 0) return;
    snprintf(text, sizeof text, "%.4g", value);
    if (qdr_machine_set(user, key, strtod(text, NULL)) < 0) return; /* keeps the old value */
}

/* A link whose rate is still the one that stood in, since more bytes took no longer; NULL: none. */
static const char *unknown_link(const calibration *c, const qdr_machine *fitted)
{
    if (!c->begins_links || calibrate_assumes_links(c)) return NULL;
    for (int l = 0; l < fitted->n_links; l++) {
        const qdr_machine_link *link = &fitted->links[l], *begun = &c->machine.links[l];
        if (link->rank_bytes_per_sec == begun->rank_bytes_per_sec &&
            link->adapter_bytes_per_sec == begun->adapter_bytes_per_sec)
            return link->name;
    }
    return NULL;
}

/* On rank 0. */
static int fit(const calibration *c, qdr_machine *machine, failure *why)
{
    *machine = c->machine;
    if (fail_status(why, qdr_machine_fit(machine, c->samples, c->n_samples))) return why->code;
    const char *link = unknown_link(c, machine);
    if (link)
        return fail(why, EXIT_FAILED,
                    "calibrate: collectives of more bytes took no longer, so the rate of the link '%s' is not known; "
                    "calibrate while nothing else runs, or without --quick",
                    link);
    qdr_machine_keys(machine, round_number, machine);
    return EXIT_OK;
}

/* Only rank 0 has an output file. */
static int finish(const calibration *c, const calibrate_options *options, qdr_output **output, failure *why)
{
    static _Thread_local calibrate_errors errors;
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    if (fit(c, &machine, why) || calibrate_compare(c, &machine, &errors, why)) return why->code;
    char *notes = calibrate_notes(c, &errors);
    if (!notes) return fail_memory(why, "calibrate: out of memory for the residuals");
    fail_status(why, qdr_machine_write(&machine, notes + strspn(notes, " \n"), qdr_output_file(*output)));
    free(notes);
    if (files_end(output, why)) return why->code;
    calibrate_print(c, &machine, &errors, options->format);
    if (options->format == FORMAT_JSON) return EXIT_OK;
    if (options->model && calibrate_network_print(c, &machine, why)) return why->code;
    printf("\nwritten to %s%s\n", options->path,
           options->is_for_here ? ", which programs on this host use unless QDR_MACHINE names another" : "");
    return EXIT_OK;
}

static int open_output(const calibrate_options *options, qdr_output **output, failure *why)
{
    char folder[FILES_PATH_BYTES];
    if (options->is_for_here) {
        snprintf(folder, sizeof folder, "%s", options->path);
        *strrchr(folder, '/') = 0; /* its path is absolute */
        if (files_make_folder("calibrate:", folder, why)) return why->code;
    }
    if (!options->may_replace && qdr_output_replaces(options->path))
        return fail(why, EXIT_USAGE, "calibrate: %.300s exists; give --force to replace it, or another name with -o",
                    options->path);
    const qdr_output_kind kind = options->may_replace ? QDR_OUTPUT_REPLACE : QDR_OUTPUT_NEW;
    return fail_status(why, qdr_output_open("--out", options->path, kind, output));
}

/* On rank 0, before minutes are spent on measuring: finds what is wrong, and reads what is named. */
static int begin(calibration *c, const calibrate_options *options, qdr_machine *base, qdr_output **output, failure *why)
{
    const int n_ranks = qdr_context_size(c->ctx);
    if (options->run.grid.x) grid_check_ranks("calibrate", options->run.grid, n_ranks, why);
    if (!why->code && c->is_on_gpu && n_ranks == 1 && !options->base)
        fail(why, EXIT_USAGE,
             "calibrate: one GPU shows nothing of links; start a rank for each GPU (--local 8, or mpiexec), or name a "
             "machine that has them with --base (see quadrille list machines)");
    if (!why->code) open_output(options, output, why);
    if (!why->code && options->base) fail_loading(why, qdr_machine_load(options->base, base));
    if (!why->code && options->model) fail_loading(why, qdr_network_load(options->model, &c->run.network));
    return why->code;
}

/* Two ranks on a GPU would show neither its speed nor a link. Processes may each see a GPU of their own as number 0, so
 * GPUs of a node are told by their place on its bus. */
static int check_gpus(const calibration *c, failure *why)
{
    const int gpu = qdr_context_gpu(c->ctx), self = qdr_context_rank(c->ctx);
    qdr_gpu own = {QDR_INIT(qdr_gpu)};
    char mine[sizeof own.bus] = "";
    if (gpu >= 0 && !fail_status(why, qdr_gpu_describe(gpu, &own))) memcpy(mine, own.bus, sizeof mine);
    for (int rank = 0; rank < qdr_context_size(c->ctx); rank++) {
        char theirs[sizeof mine];
        memcpy(theirs, mine, sizeof mine);
        fail_status(why, qdr_broadcast(c->ctx, rank, theirs, sizeof theirs));
        if (rank < self && *mine && strcmp(theirs, mine) == 0 &&
            qdr_context_node(c->ctx, rank) == qdr_context_node(c->ctx, self))
            fail(why, EXIT_USAGE, "calibrate: ranks %d and %d are both on GPU %s; start one rank for each GPU", rank,
                 self, mine);
    }
    return fail_together(why, c->ctx);
}

static int measure_all(calibration *c, const calibrate_options *options, failure *why)
{
    const int is_of_processes = c->ranks_per_node > 1 && !options->n_local && !c->is_on_gpu;
    if (calibrate_memory(c, options->n_local ? c->ranks_per_node : 1, why)) return why->code;
    if (is_of_processes && calibrate_borders(c, why)) return why->code;
    if (c->is_on_gpu && calibrate_launches(c, why)) return why->code;
    if (calibrate_kernels(c, why) || calibrate_products(c, why) || calibrate_codecs(c, why)) return why->code;
    if (!c->is_on_gpu && calibrate_together(c, why)) return why->code;
    if (calibrate_collectives(c, why) || !options->model) return why->code;
    /* The network's plan is chosen by what was measured so far. */
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    if (qdr_context_rank(c->ctx) == 0) fit(c, &machine, why);
    return fail_together(why, c->ctx) ? why->code : calibrate_network(c, &machine, why);
}

static int run_rank(qdr_context *ctx, void *user)
{
    const calibrate_options *options = user;
    const int is_first = qdr_context_rank(ctx) == 0;
    calibration *c = calloc(1, sizeof *c);
    qdr_output *output = NULL;
    qdr_machine base = {QDR_INIT(qdr_machine)};
    failure why = {0};
    if (!c) fail_memory(&why, "calibrate: out of memory for %d samples", MAX_SAMPLES);
    if (c) {
        c->run = options->run;
        c->run.network.size = sizeof c->run.network;
        c->ctx = ctx;
        c->is_quick = options->is_quick;
        c->is_on_gpu = is_on_gpu(ctx);
        c->shows = is_first && isatty(STDERR_FILENO);
        if (is_first) begin(c, options, &base, &output, &why);
    }
    if (!fail_together(&why, ctx) && c) {
        fail_status(&why, qdr_broadcast(ctx, 0, &base, sizeof base));
        if (!why.code && c->is_on_gpu) check_gpus(c, &why);
        if (!why.code && !find_nodes(c, &why) && !fail_status(&why, context_alone(ctx, &c->alone))) {
            fail_status(&why, grid_make(c->alone, (grid_size){1, 1, 1, 1}, NULL, &c->self));
            fail_together(&why, ctx);
        }
        if (!why.code && !calibrate_begin(c, &base, options->name, options->path, &why)) measure_all(c, options, &why);
        if (c->shows) fputs("\r\033[K", stderr);
        if (is_first && !why.code) finish(c, options, &output, &why);
        fail_together(&why, ctx);
        calibrate_network_end(c);
        qdr_grid_destroy(&c->self);
        qdr_context_destroy(&c->alone);
    }
    qdr_output_discard(&output);
    free(c);
    return why.code ? fail_print_rank(&why, ctx) : EXIT_OK;
}

static int run(int argc, char **argv)
{
    calibrate_options options = {.path = NULL};
    char path[FILES_PATH_BYTES];
    failure why = {0};
    options_read(argc, argv, specs, &options, NULL, &why);
    if (!options.model && (options.run.grid.x || options.run.batch || options.run.sequence || options.run.dtype))
        fail(&why, EXIT_USAGE,
             "calibrate: --grid, --batch, --seq and --dtype say how the network of --for is run; add --for MODEL");
    options.is_for_here = !options.path;
    if (!options.path && !why.code) fail_status(&why, qdr_data_host_file(path, sizeof path));
    if (!options.path) options.path = path;
    if (options.name && strlen(options.name) >= QDR_MAX_NAME)
        fail(&why, EXIT_USAGE, "calibrate: --name '%s': use a name of 1 to %d characters", options.name,
             QDR_MAX_NAME - 1);
    if (why.code) return fail_print_once(&why);
    return run_on_ranks(options.n_local, options.n_threads, options.device, run_rank, &options);
}

const command command_calibrate = {
    .name = "calibrate",
    .summary = "measure this machine and write a machine file for plan",
    .text = "Measures products, kernels, attention and collectives on all ranks at once, as in training, fits the\n"
            "model's constants to the measurements, and writes a machine file for plan and predict. Prints how\n"
            "far the model is off. With several ranks on a node, it also finds the size above which they should\n"
            "read each other's memory directly; programs then do so. Ranks are started by mpiexec, or are threads\n"
            "with --local. Takes a few minutes. --for also runs one layer of a model, with embedding, head and\n"
            "loss, on the grid that is fastest by these measurements, without overlap, and adds the times of its\n"
            "kernels and collectives at their own shapes. On GPUs, it measures theirs, and NCCL's collectives;\n"
            "one GPU alone shows no links, which --base then names.",
    .options = specs,
    .examples = "  mpiexec.mpich -n 8 quadrille calibrate\n"
                "  mpiexec.mpich -n 8 quadrille calibrate -o cluster.json\n"
                "  mpiexec.mpich -n 8 quadrille calibrate --for gpt2 --seq 256 -o gpt2-here.json\n"
                "  quadrille calibrate --local 2 --quick -o rough.json --force\n"
                "  quadrille calibrate --local 8 --device cuda -o gpus.json\n"
                "  quadrille calibrate --device cuda --base dgx-h100 -o h100.json\n",
    .run = run,
};
