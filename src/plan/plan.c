/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille plan`: which grid is the fastest, why, and what fits. Starts no ranks. */
#include "plan/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/command.h"
#include "common/files.h"

enum {
    OPTION_RANKS,
    OPTION_MACHINE,
    OPTION_BATCH,
    OPTION_SEQ,
    OPTION_RANKS_PER_NODE,
    OPTION_MEM,
    OPTION_SET,
    OPTION_FIX,
    OPTION_ORDER,
    OPTION_LAYOUT,
    OPTION_RECOMPUTE,
    OPTION_LEVELS,
    OPTION_MICRO_BATCH,
    OPTION_OVERLAP,
    OPTION_DTYPE,
    OPTION_TOP,
    OPTION_WHY_NOT,
    OPTION_EXPLAIN,
    OPTION_JSON,
    OPTION_CSV,
    OPTION_SVG,
    OPTION_OUT,
    OPTION_HELP
};

static const option_spec specs[] = {
    {"ranks", 'n', "P", "number of ranks to plan for, 1 to 1048576"},
    {"machine", 0, "M", "a machine's name (see quadrille list machines) or file"},
    {"batch", 0, "B", "sequences per step, over all ranks; default: one per rank"},
    {"seq", 0, "S", "tokens per sequence; default: the model's context"},
    {"ranks-per-node", 0, "N", "ranks per node; default: the machine's"},
    {"mem", 0, "BYTES", "memory per rank, such as 80G; default: the machine's"},
    {"set", 0, "KEY=NUMBER", "override another constant of the machine (docs/model.md lists them); can be repeated"},
    {"fix", 0, "AXIS=N", "fix the ranks along axes, such as z=8 or x=2,y=4; can be repeated"},
    {"order", 0, "ORDER", "axis order, fastest first, such as xyzd; default: the best"},
    {"layout", 0, "LAYOUT", "replicated or scattered; default: the best"},
    {"recompute", 0, "WHAT", "none, attention or full; default: the best"},
    {"levels", 0, "GP,OP",
     "numbers of ranks that gradients (GP) and optimizer state (OP) are split over, such as 8,all; or none (the "
     "default), zero1, zero2, zero3"},
    {"micro-batch", 0, "N",
     "sequences per forward pass in each group of ranks with the same z and d; "
     "default: the best"},
    {"overlap", 0, "on|off", "overlap collectives with products; default: on"},
    {"dtype", 0, "TYPE", "f32, f64, bf16 or f16; default: bf16 if the machine supports it"},
    {"top", 0, "N", "number of grids to show, 1 to 64; default 10"},
    {"why-not", 0, "GRID", "explain why this grid is not the best"},
    {"explain", 0, NULL, "print the terms of the best plan with their formulas"},
    {"json", 0, NULL, "print one JSON object"},
    {"csv", 0, NULL, "print comma-separated values"},
    {"svg", 0, "FILE", "draw the best ten plans, and one layer of the best"},
    {"out", 'o', "FILE", "write the best plan to FILE, for train_gpt --plan and other programs"},
    {"help", 'h', NULL, "print this help"},
    {NULL, 0, NULL, NULL},
};

/* ---- options ---- */

/* "z=8" or "x=2,y=4" */
static int take_fixed(const char *value, int size[QDR_N_AXES], failure *why)
{
    static const char axes[] = "xyzd";
    for (const char *at = value;;) {
        char *end = NULL;
        const char *axis = *at ? strchr(axes, *at) : NULL;
        errno = 0;
        const long n = axis && at[1] == '=' && at[2] >= '0' && at[2] <= '9' ? strtol(at + 2, &end, 10) : 0;
        if (n < 1 || n > QDR_MAX_SEARCH_RANKS || errno || (*end && *end != ','))
            return fail(why, EXIT_USAGE, "--fix '%s': use AXIS=RANKS, such as z=8 or x=2,y=4", value);
        int *known = &size[axis - axes];
        if (*known && *known != n)
            return fail(why, EXIT_USAGE, "--fix: %c=%d and %c=%ld contradict each other; give one of them", *axis,
                        *known, *axis, n);
        *known = (int)n;
        if (!*end) return EXIT_OK;
        at = end + 1;
    }
}

static int take_whole(const char *name, const char *value, int64_t most, int64_t *number, failure *why)
{
    return option_integer(name, value, 1, most, number, why);
}

static int take_int(const char *name, const char *value, int most, int *number, failure *why)
{
    int64_t wide;
    if (option_integer(name, value, 1, most, &wide, why)) return why->code;
    *number = (int)wide;
    return EXIT_OK;
}

/* Options that determine what is searched. */
static int take_search(int index, const char *value, plan_options *options, failure *why)
{
    qdr_search_opts *search = &options->search;
    qdr_layout layout;
    qdr_recompute recompute;
    levels parts;
    switch (index) {
    case OPTION_FIX: return take_fixed(value, search->size, why);
    case OPTION_ORDER:
        if (option_order("order", value, why)) return why->code;
        memcpy(options->order, value, 5);
        return EXIT_OK;
    case OPTION_LAYOUT:
        if (option_layout("layout", value, &layout, why)) return why->code;
        search->layouts = 1 << layout;
        return EXIT_OK;
    case OPTION_RECOMPUTE:
        if (option_recompute("recompute", value, &recompute, why)) return why->code;
        search->recomputes = 1 << recompute;
        return EXIT_OK;
    case OPTION_LEVELS:
        if (option_levels("levels", value, &parts, why)) return why->code;
        search->gradient_parts = parts.gradient;
        search->optimizer_parts = parts.optimizer;
        options->is_zero3 = parts.is_zero3;
        return EXIT_OK;
    case OPTION_MICRO_BATCH: return take_whole("micro-batch", value, 1 << 30, &search->micro_batch, why);
    case OPTION_OVERLAP:
        search->overlap = strcmp(value, "off") == 0 ? QDR_OVERLAP_NONE : QDR_OVERLAP_ALL;
        if (strcmp(value, "off") == 0 || strcmp(value, "on") == 0) return EXIT_OK;
        return fail(why, EXIT_USAGE, "--overlap '%s': use on or off", value);
    case OPTION_DTYPE: options->has_dtype = 1; return option_compute_dtype("dtype", value, &search->dtype, why);
    default: return take_int("top", value, QDR_MAX_BEST, &search->n_best, why);
    }
}

static int take_format(plan_format format, plan_options *options, failure *why)
{
    if (options->format != PLAN_TABLE && options->format != format)
        return fail(why, EXIT_USAGE, "plan: --json and --csv exclude each other; use one of them");
    options->format = format;
    return EXIT_OK;
}

static int take_option(int index, const char *value, void *user, failure *why)
{
    plan_options *options = user;
    switch (index) {
    case OPTION_RANKS: return take_int("ranks", value, QDR_MAX_SEARCH_RANKS, &options->search.n_ranks, why);
    case OPTION_MACHINE: options->asked.machine = value; return EXIT_OK;
    case OPTION_BATCH: return take_whole("batch", value, 1 << 30, &options->search.batch, why);
    case OPTION_SEQ: return take_whole("seq", value, 1 << 30, &options->search.sequence, why);
    case OPTION_RANKS_PER_NODE:
        return take_whole("ranks-per-node", value, 1 << 20, &options->asked.ranks_per_node, why);
    case OPTION_MEM: return option_memory("mem", value, &options->asked.memory_bytes, why);
    case OPTION_SET: return subject_set(&options->asked, value, why);
    case OPTION_WHY_NOT:
        options->has_why_not = 1;
        return option_large_grid("why-not", value, QDR_MAX_SEARCH_RANKS, &options->why_not, why);
    case OPTION_EXPLAIN: options->explains = 1; return EXIT_OK;
    case OPTION_JSON: return take_format(PLAN_JSON, options, why);
    case OPTION_CSV: return take_format(PLAN_CSV, options, why);
    case OPTION_SVG: options->svg = value; return EXIT_OK;
    case OPTION_OUT: options->out = value; return EXIT_OK;
    default: return take_search(index, value, options, why);
    }
}

/* Checks of options that depend on each other. */
static int check_options(plan_options *options, failure *why)
{
    const int p = options->search.n_ranks;
    if (p == 0) return fail(why, EXIT_USAGE, "plan: -n (the number of ranks) is missing; see quadrille plan --help");
    if (options->has_why_not && (int64_t)grid_ranks(options->why_not) != p)
        return fail(why, EXIT_USAGE, "plan: --why-not %dx%dx%dx%d has %d ranks, but -n is %d; name a grid of %d",
                    options->why_not.x, options->why_not.y, options->why_not.z, options->why_not.d,
                    grid_ranks(options->why_not), p, p);
    if (options->format == PLAN_CSV && (options->has_why_not || options->explains))
        return fail(why, EXIT_USAGE, "plan: --csv cannot be combined with --why-not or --explain; use --json");
    if (options->is_zero3 && options->search.size[QDR_D] > 1)
        return fail(why, EXIT_USAGE, "plan: --levels zero3 has d = 1, but --fix says d=%d",
                    options->search.size[QDR_D]);
    if (options->is_zero3) options->search.size[QDR_D] = 1;
    options->batch_follows = options->search.batch == 0;
    if (options->batch_follows) options->search.batch = p;
    return EXIT_OK;
}

static int check_files(const plan_options *options, failure *why)
{
    char network[FILES_PATH_BYTES], machine[FILES_PATH_BYTES];
    const qdr_file_use uses[] = {
        {"the model", files_find("models", options->asked.network, network), QDR_FILE_READ},
        {"--machine", files_find("machines", options->asked.machine, machine), QDR_FILE_READ},
        {"--svg", options->svg, QDR_FILE_WRITTEN},
        {"--out", options->out, QDR_FILE_WRITTEN},
    };
    return fail_status(why, qdr_files_check(uses, sizeof uses / sizeof *uses, 0));
}

/* ---- progress of the search ---- */

/* Shown on a terminal once the search takes a while. */
typedef struct progress {
    double next_secs; /* time of the next update */
    int is_shown;
} progress;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void show_progress(double bounded_share, int64_t n_simulated, void *user)
{
    progress *p = user;
    const double secs = now();
    if (secs < p->next_secs) return;
    p->next_secs = secs + 0.2;
    p->is_shown = 1;
    if (bounded_share < 1)
        fprintf(stderr, "\r\033[K%.0f %% of the grids bounded", 100 * bounded_share);
    else
        fprintf(stderr, "\r\033[K%lld plans simulated", (long long)n_simulated);
    fflush(stderr);
}

static void find_with_progress(plan_answer *answer, plan_options *options, failure *why)
{
    progress shown = {.next_secs = now() + 0.5};
    if (isatty(STDERR_FILENO)) {
        options->search.progress = show_progress;
        options->search.progress_user = &shown;
    }
    plan_find(answer, why);
    options->search.progress = NULL;
    options->search.progress_user = NULL;
    if (shown.is_shown) fputs("\r\033[K", stderr);
}

/* ---- the answer ---- */

static void warn(const char *sentence, void *user)
{
    (void)user;
    fprintf(stderr, "quadrille: warning: %s\n", sentence);
}

static int save_svg(plan_answer *answer, failure *why)
{
    const char *path = answer->options->svg;
    qdr_output *output;
    if (fail_status(why, qdr_output_open("--svg", path, QDR_OUTPUT_REPLACE, &output))) return why->code;
    plan_draw(qdr_output_file(output), answer, why);
    return files_end(&output, 1, why);
}

static int save_plan(const plan_answer *answer, failure *why)
{
    const qdr_planned_grid *best = &answer->found.best[0];
    qdr_stored_plan stored = {.version = QDR_OPTS_INIT,
                              .plan = best->plan,
                              .secs = best->result.secs,
                              .memory_bytes = best->result.memory_bytes};
    stored.plan.sequence = plan_sequence(answer->network, &best->plan);
    snprintf(stored.network, sizeof stored.network, "%s", answer->network->name);
    snprintf(stored.machine, sizeof stored.machine, "%s", answer->machine->name);
    return fail_status(why, qdr_plan_store(&stored, answer->options->out));
}

static int print_answer(plan_answer *answer, failure *why)
{
    const plan_options *options = answer->options;
    if (options->format == PLAN_JSON) return plan_print_json(answer, why);
    if (options->format == PLAN_CSV) {
        plan_print_csv(answer);
        return EXIT_OK;
    }
    plan_print_table(answer);
    if (options->has_why_not) {
        if (plan_print_why_not(stdout, answer, options->why_not, why)) return why->code;
        putchar('\n');
    }
    if (!options->explains) return EXIT_OK;
    putchar('\n');
    return fail_status(why, qdr_model_explain(answer->model, &answer->found.best[0].plan, stdout));
}

static int answer_all(plan_answer *answer, failure *why)
{
    const plan_options *options = answer->options;
    if (answer->found.n_best == 0) return plan_nothing_fits(answer, why);
    /* Files come first: a file that cannot be written is reported before much is printed. */
    if (options->out && save_plan(answer, why)) return why->code;
    if (options->svg && save_svg(answer, why)) return why->code;
    return print_answer(answer, why);
}

static int make_answer(plan_options *options, failure *why)
{
    static plan_answer answer; /* static because it is large */
    qdr_network network;
    qdr_machine machine;
    memset(&answer, 0, sizeof answer);
    if (subject_network(&options->asked, "plan", &network, why) || check_options(options, why) ||
        subject_machine(&options->asked, "plan", &machine, why) || check_files(options, why))
        return why->code;
    if (!options->has_dtype) options->search.dtype = machine.bf16.peak_flops > 0 ? QDR_BF16 : QDR_F32;
    options->search.order = *options->order ? options->order : NULL;
    answer.options = options;
    answer.network = &network;
    answer.machine = &machine;
    plan_machine_notes(&machine, options->search.n_ranks, warn, NULL);
    if (!fail_status(why, qdr_model_create(&machine, &network, &answer.model))) {
        find_with_progress(&answer, options, why);
        if (!why->code) answer_all(&answer, why);
    }
    qdr_model_destroy(&answer.model);
    memset(&answer, 0, sizeof answer); /* the data it points to are freed here */
    return why->code;
}

static int run(int argc, char **argv)
{
    plan_options options = {.search = {.version = QDR_OPTS_INIT}};
    failure why = {0};
    if (!options_read_word(argc, argv, specs, take_option, &options, &options.asked.network, &why))
        make_answer(&options, &why);
    return why.code ? fail_print(&why) : EXIT_OK;
}

const command command_plan = {
    .name = "plan",
    .summary = "find the fastest grid for a model on a machine, and say why",
    .usage = "quadrille plan MODEL -n P --machine M [OPTION]...",
    .text = "Searches all grids of P ranks, with every axis order, layout, recomputation and micro-batch, for the\n"
            "fastest that fit in memory, and prints them with the exposed time of each axis. FSDP (1x1xPx1),\n"
            "Megatron-1D (1xTx1xD, T the ranks of a node) and DDP (1x1x1xP) follow for comparison, whether they\n"
            "fit or not. MODEL is a name (see quadrille list models), a Hugging Face config.json, or - for\n"
            "standard input. Starts no ranks and no MPI. Exits with 3 if nothing fits.",
    .options = specs,
    .examples = "  quadrille plan gpt3-175b -n 1024 --machine dgx-a100 --batch 1536\n"
                "  quadrille plan llama-2-70b -n 512 --machine dgx-a100 --batch 1024 --why-not "
                "8x8x8x1\n"
                "  quadrille plan config.json -n 64 --machine dgx-a100 --mem 40G --fix x=1 "
                "--svg plan.svg\n"
                "  quadrille plan gpt2-xl -n 16 --machine dgx-a100 --levels zero1 --explain "
                "-o plan.json\n",
    .is_local = 1,
    .run = run,
};
