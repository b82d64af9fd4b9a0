/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille plan`: which grid is the fastest, why, and what fits. Starts no ranks. */
#include "plan/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/command.h"
#include "common/files.h"
#include "common/process.h"

/* ---- options ---- */

/* "z=8" or "x=2,y=4" */
static int take_fixed(const char *value, void *to, failure *why)
{
    int *size = to;
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

/* "2x2x2x4" or "2x2x2x4:2,8" */
static int take_why_not(const char *value, void *to, failure *why)
{
    why_not_question *asked = to;
    const char *colon = strchr(value, ':');
    *asked = (why_not_question){.has_levels = colon != NULL};
    if (!grid_read(value, colon ? colon : value + strlen(value), QDR_MAX_SEARCH_RANKS, &asked->grid))
        return fail(why, EXIT_USAGE,
                    "--why-not '%s': a grid is GXxGYxGZxGD, four numbers from 1 whose product is at most %d, such as "
                    "2x2x1x1, or with levels 1x1x2x4:2,8",
                    value, QDR_MAX_SEARCH_RANKS);
    return colon ? read_levels("why-not", value, colon + 1, 1, &asked->parts, why) : EXIT_OK;
}

#define AT(member) .at = offsetof(plan_options, member)

static const option_spec specs[] = {
    {"ranks", 'n', "P", "number of ranks to plan for, 1 to 1048576", OPTION_INT, AT(search.n_ranks), 1,
     QDR_MAX_SEARCH_RANKS},
    {"machine", 0, "M", "a machine's name (see quadrille list machines) or file", OPTION_TEXT, AT(asked.machine)},
    {"software", 0, "SOFTWARE", SOFTWARE_HELP, OPTION_TEXT, AT(asked.software)},
    {"batch", 0, "B", "sequences per step, over all ranks; default: one per rank", OPTION_COUNT, AT(search.batch), 1,
     1 << 30},
    {"seq", 0, "S", "tokens per sequence; default: the model's context", OPTION_COUNT, AT(search.sequence), 1, 1 << 30},
    {"ranks-per-node", 0, "N", "ranks per node; default: the machine's", OPTION_COUNT, AT(asked.ranks_per_node), 1,
     1 << 20},
    {"mem", 0, "BYTES", "memory per rank, such as 80G; default: the machine's", OPTION_OTHER, AT(asked.memory_bytes),
     .take = take_memory},
    {"set", 0, "KEY=NUMBER", "override another constant of the machine (docs/model.md lists them); can be repeated",
     OPTION_OTHER, AT(asked), .take = subject_set},
    {"fix", 0, "AXIS=N", "fix the ranks along axes, such as z=8 or x=2,y=4; can be repeated", OPTION_OTHER,
     AT(search.ranks), .take = take_fixed},
    {"order", 0, "ORDER", "axis order, fastest first, such as xyzd; default: the best", OPTION_ORDER, AT(search.order)},
    {"layout", 0, "LAYOUT", "replicated or scattered; default: the best", OPTION_CHOICE, AT(layout),
     .words = LAYOUT_WORDS},
    {"recompute", 0, "WHAT", "what backward makes again: none, operations or full; default: the best", OPTION_OTHER,
     AT(recompute), .take = take_recompute, .words = RECOMPUTE_WORDS},
    {"levels", 0, "GP,OP", LEVELS_HELP "; or any: the best", OPTION_OTHER, AT(parts), .take = take_levels_or_any,
     .words = LEVELS_WORDS "|any"},
    {"codec", 0, "CODECS", CODEC_HELP "; or auto:CODECS, only where they make the step shorter; default: none",
     OPTION_OTHER, AT(codec), .take = take_codecs_or_auto},
    {"micro-batch", 0, "N",
     "sequences per forward pass in each group of ranks with the same z and d; default: the best", OPTION_COUNT,
     AT(search.micro_batch), 1, 1 << 30},
    {"panels", 0, "N", "row panels of a layer's products; default: the best of 1, 2, 4, 8 and 16", OPTION_INT,
     AT(search.panels), 1, 4096},
    {"batch-parts", 0, "N", "parts of each rank's rows; default: the best of 1 and 2", OPTION_INT,
     AT(search.batch_parts), 1, 16},
    {"threads", 0, "N", THREADS_HELP, OPTION_COUNT, AT(search.threads), 1, MOST_THREADS},
    {"overlap", 0, "on|off", "overlap collectives with products; default: on", OPTION_CHOICE, AT(is_serial)},
    {"dtype", 0, "TYPE", "f32, f64, bf16 or f16; default: bf16 if the machine supports it", OPTION_CHOICE, AT(dtype),
     .words = DTYPE_WORDS},
    {"runnable", 0, NULL, "refuse a network that this version cannot run; all plans of others run", OPTION_FLAG,
     AT(is_runnable)},
    {"top", 0, "N", "number of grids to show, 1 to 64; default 10", OPTION_INT, AT(search.n_best), 1, QDR_MAX_BEST},
    {"why-not", 0, "GRID[:LEVELS]", "explain why this grid, with these levels, is not the best", OPTION_OTHER,
     AT(why_not), .take = take_why_not},
    {"explain", 0, NULL, "print the terms of the best plan with their formulas", OPTION_FLAG, AT(explains)},
    {"json", 0, NULL, "print one JSON object", OPTION_FLAG, AT(as_json)},
    {"csv", 0, NULL, "print comma-separated values", OPTION_FLAG, AT(as_csv)},
    {"svg", 0, "FILE", "draw the best ten plans, and one layer of the best", OPTION_PICTURE, AT(svg)},
    {"out", 'o', "FILE", "write the best plan to FILE, for train --plan and other programs", OPTION_TEXT, AT(out)},
    {"pick", 0, "N", "with -o: write the plan numbered N instead of the best", OPTION_INT, AT(pick), 1, QDR_MAX_BEST},
    OPTIONS_END,
};

/* Checks of options that depend on each other. */
static int check_options(plan_options *options, failure *why)
{
    const int p = options->search.n_ranks;
    if (p == 0) return fail(why, EXIT_USAGE, "plan: -n (the number of ranks) is missing; see quadrille plan --help");
    if (options->pick && !options->out)
        return fail(why, EXIT_USAGE, "plan: --pick %d says which plan -o writes; give -o FILE, too", options->pick);
    if (options->as_json && options->as_csv)
        return fail(why, EXIT_USAGE, "plan: --json and --csv exclude each other; use one of them");
    const why_not_question *asked = &options->why_not;
    if (asked->grid.x && grid_ranks(asked->grid) != p)
        return fail(why, EXIT_USAGE, "plan: --why-not %s has %d ranks, but -n is %d; name a grid of %d",
                    grid_words(asked->grid).text, grid_ranks(asked->grid), p, p);
    if (asked->parts.is_zero3 && asked->grid.d > 1)
        return fail(why, EXIT_USAGE, "plan: --why-not %s:zero3 has d = %d, but zero3 has d = 1; name a grid with d = 1",
                    grid_words(asked->grid).text, asked->grid.d);
    if (options->as_csv && (asked->grid.x || options->explains))
        return fail(why, EXIT_USAGE, "plan: --csv cannot be combined with --why-not or --explain; use --json");
    if (options->parts.is_zero3 && options->search.ranks[QDR_D] > 1)
        return fail(why, EXIT_USAGE, "plan: --levels zero3 has d = 1, but --fix says d=%d",
                    options->search.ranks[QDR_D]);
    if (options->parts.is_zero3) options->search.ranks[QDR_D] = 1;
    options->batch_follows = options->search.batch == 0;
    if (options->batch_follows) options->search.batch = p;
    return EXIT_OK;
}

/* Shown on a terminal once the search takes a while. */
typedef struct progress {
    double next_secs; /* time of the next update */
    int is_shown;
} progress;

static void show_progress(double bounded_share, int64_t n_simulated, void *user)
{
    progress *p = user;
    const double secs = process_secs();
    if (secs < p->next_secs) return;
    p->next_secs = secs + 0.2;
    p->is_shown = 1;
    if (bounded_share < 1)
        fprintf(stderr, "\r\033[K%.0f %% of the grids bounded", 100 * bounded_share);
    else
        fprintf(stderr, "\r\033[K%lld plans simulated", (long long)n_simulated);
    fflush(stderr);
}

/* ---- the answer ---- */

static void warn(const char *sentence, void *user)
{
    (void)user;
    fprintf(stderr, "quadrille: warning: %s\n", sentence);
}

static int save_plan(const plan_answer *answer, failure *why)
{
    const int pick = answer->options->pick ? answer->options->pick : 1, n = answer->found.counts.n_best;
    if (pick > n)
        return fail(why, EXIT_USAGE, "plan: --pick %d, but %d plan%s found; use at most %d, or a larger --top", pick, n,
                    n == 1 ? " is" : "s are", n);
    planned_grid picked = answer->found.best[pick - 1];
    qdr_network network = *answer->network;
    qdr_stored_plan stored = {QDR_INIT(qdr_stored_plan), .network = &network, .plan = &picked.plan,
                              .secs = picked.result.secs, .memory_bytes = picked.result.memory_bytes};
    picked.plan.sequence = plan_sequence(&network, &picked.plan);
    snprintf(stored.machine, sizeof stored.machine, "%s", answer->machine->name);
    return fail_status(why, qdr_plan_store(&stored, answer->options->out));
}

static int put_out(plan_answer *answer, failure *why)
{
    const plan_options *options = answer->options;
    if (answer->found.counts.n_best == 0) return plan_nothing_fits(answer, why);
    /* Files come first: a file that cannot be written is reported before much is printed. */
    if (options->out && save_plan(answer, why)) return why->code;
    if (options->svg && files_write("--svg", options->svg, plan_draw, answer, why)) return why->code;
    if (options->as_json) return plan_print_json(answer, why);
    if (options->as_csv) {
        plan_print_csv(answer);
        return EXIT_OK;
    }
    plan_print_table(answer);
    if (options->why_not.grid.x) {
        if (plan_print_why_not(stdout, answer, why)) return why->code;
        putchar('\n');
    }
    if (!options->explains) return EXIT_OK;
    plan_print_runs(answer);
    return fail_status(why, qdr_model_explain(answer->model, &answer->found.best[0].plan, stdout));
}

/* A network that the runtime cannot build, with --runnable. */
static int check_network(const plan_options *options, const qdr_network *network, failure *why)
{
    qdr_obstacle obstacle = {QDR_INIT(qdr_obstacle)};
    if (!options->is_runnable || qdr_plan_runs(network, NULL, &obstacle)) return EXIT_OK;
    return fail(why, EXIT_USAGE, "plan: --runnable: %s, or leave --runnable out", obstacle.why);
}

/* Levels that do not suit the grid are refused before anything is printed. */
static int check_why_not(const plan_answer *answer, failure *why)
{
    const plan_options *options = answer->options;
    const grid_size grid = options->why_not.grid;
    double unused;
    if (!grid.x) return EXIT_OK;
    qdr_plan plan = {QDR_INIT(qdr_plan),
                     .x = grid.x,
                     .y = grid.y,
                     .z = grid.z,
                     .d = grid.d,
                     .dtype = options->search.dtype,
                     .batch = options->search.batch};
    plan_set_levels(options->why_not.has_levels ? &options->why_not.parts : &options->parts, answer->machine, &plan,
                    NULL);
    return fail_status(why, qdr_model_bound(answer->model, &plan, &unused));
}

static int make_answer(plan_options *options, failure *why)
{
    static plan_answer answer; /* static because it is large */
    qdr_network network = {QDR_INIT(qdr_network)};
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    memset(&answer, 0, sizeof answer);
    if (subject_network(&options->asked, "plan", &network, why) || check_options(options, why) ||
        check_network(options, &network, why) || subject_machine(&options->asked, "plan", &machine, why))
        return why->code;
    /* What the options say of the search in other words. */
    qdr_search_opts *search = &options->search;
    if (options->layout >= 0) search->layouts = 1 << options->layout;
    if (options->recompute >= 0) search->recomputes = 1 << options->recompute;
    levels_search(&options->parts, &machine, search);
    if (options->codec.is_given && !options->codec.is_auto) search->codecs = &options->codec.codecs;
    if (options->is_serial) search->overlap = QDR_OVERLAP_NONE;
    search->dtype = options->dtype >= 0           ? compute_dtypes[options->dtype]
                    : machine.bf16.peak_flops > 0 ? QDR_BF16
                                                  : QDR_F32;
    answer.options = options;
    answer.network = &network;
    answer.machine = &machine;
    plan_machine_notes(&options->asked, &machine, options->search.n_ranks, warn, NULL);
    if (!fail_status(why, qdr_model_create(&machine, &network, &answer.model))) {
        progress shown = {.next_secs = process_secs() + 0.5};
        if (isatty(STDERR_FILENO)) {
            options->search.progress = show_progress;
            options->search.progress_user = &shown;
        }
        if (!check_why_not(&answer, why)) plan_find(&answer, why);
        options->search.progress = NULL;
        options->search.progress_user = NULL;
        if (shown.is_shown) fputs("\r\033[K", stderr);
        if (!why->code) put_out(&answer, why);
    }
    qdr_model_destroy(&answer.model);
    memset(&answer, 0, sizeof answer); /* the data it points to are freed here */
    return why->code;
}

static int run(int argc, char **argv)
{
    plan_options options = {.search = {QDR_INIT(qdr_search_opts)}, .layout = -1, .recompute = -1, .dtype = -1};
    failure why = {0};
    if (!options_read(argc, argv, specs, &options, &options.asked.network, &why)) make_answer(&options, &why);
    return why.code ? fail_print(&why) : EXIT_OK;
}

const command command_plan = {
    .name = "plan",
    .summary = "find the fastest grid for a model on a machine, and say why",
    .usage = "quadrille plan MODEL -n P --machine M [OPTION]...",
    .text = "Searches all grids of P ranks, with every axis order, layout, recomputation and micro-batch, for the\n"
            "fastest that fit in memory, and prints them with the exposed time of each axis. For comparison, it\n"
            "lists known methods, with the memory they lack if they do not fit: FSDP (1x1xPx1), Megatron-1D\n"
            "(1xTx1xD, T the ranks of a node), DDP (1x1x1xP), ZeRO-1 (its optimizer state split over all), HSDP\n"
            "(1x1xTxD) and three levels (weights split over a part of a node, gradients over a node, optimizer\n"
            "state over all). MODEL is a name (see quadrille list models), a Hugging Face config.json, or - for\n"
            "standard input. Starts no ranks and no MPI. Exits with 3 if nothing fits.",
    .options = specs,
    .examples = "  quadrille plan gpt3-175b -n 1024 --machine dgx-a100 --batch 1536\n"
                "  quadrille plan llama-2-70b -n 512 --machine dgx-a100 --batch 1024 --why-not 8x8x8x1\n"
                "  quadrille plan gpt3-13b -n 64 --machine dgx-a100 --batch 512 --runnable -o plan.json\n"
                "  quadrille plan config.json -n 64 --machine dgx-a100 --mem 40G --fix x=1 --svg plan.svg\n"
                "  quadrille plan gpt2-xl -n 16 --machine dgx-a100 --levels zero1 --explain -o plan.json\n"
                "  quadrille plan gpt-neox-20b -n 64 --machine frontier --levels any --why-not 1x1x2x32:8,all\n"
                "  quadrille plan gpt2-xl -n 64 --machine dgx-a100 --codec auto:hybrid --explain\n",
    .is_local = 1,
    .run = run,
};
