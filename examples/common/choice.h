/* SPDX-License-Identifier: Apache-2.0 */
/* How a program runs on its ranks: according to the command line, to a plan of `quadrille plan -o`, or to the model
 * (--grid auto). */
#ifndef EXAMPLES_CHOICE_H
#define EXAMPLES_CHOICE_H

#include <quadrille/quadrille.h>

#include "program.h"
#include "src/common/options.h"

/* The settings of each program begin with one. */
typedef struct choice {
    const char *plan, *machine; /* a file; a name or a file. NULL: not given */
    grid_size grid; /* x = 0: not given; -1: auto */
    const char *order, *levels, *codec; /* NULL: not given */
    qdr_codecs codecs; /* made: those of `codec`, or of a plan; size 0: none are given */
    int layout, dtype, serial, recompute; /* qdr_layout, qdr_dtype, 0 or 1, qdr_recompute; -1: not given */
    int64_t context, batch, micro_batch; /* 0: not given */
    double peak_flops; /* made: of a rank of `machine` in this type, as that states it; 0: not given, or not stated */
    int overlap; /* made: sum of QDR_OVERLAP_…; 0: all */
    char order_text[8]; /* made: `order` may point here */
    int gradient_parts, optimizer_parts; /* made: those of a plan, if no levels are given */
    /* always as given */
    const char *device; /* NULL: $QDR_DEVICE */
    int64_t n_local, n_threads, n_panels, n_batch_parts; /* 0: the default */
    int recorded; /* as graphs */
    int is_part; /* the program runs one layer of its network, so that times of steps are not its own */
    /* by choice_load_plan(): what `plan` has; plan.x = 0: there is none */
    struct {
        qdr_network network;
        qdr_plan plan;
        char machine[QDR_MAX_NAME];
        double secs;
    } planned;
} choice;

/* The first options of each program. */
#define CHOICE_AT(kind, member) kind, .at = offsetof(choice, member)
#define CHOICE_GRID CHOICE_AT(OPTION_GRID, grid), .max = 1 << 20, .words = "auto"
#define CHOICE_LAYOUT CHOICE_AT(OPTION_CHOICE, layout), .words = LAYOUT_WORDS
#define CHOICE_COUNT(member, max) CHOICE_AT(OPTION_COUNT, member), 1, max
#define CHOICE_SPECS                                                                                                   \
    {"ranks and grid", .kind = OPTION_HEADING},                                                                        \
        {"grid", 0, "GXxGYxGZxGD|auto",                                                                                \
         "ranks along x, y, z, d (default 1x1x1xP, data parallel); auto: chosen by the model", CHOICE_GRID},           \
        {"machine", 0, "NAME|FILE",                                                                                    \
         "machine that --grid auto plans for and QDR_REPORT predicts (default: $QDR_MACHINE, else here); train "       \
         "compares its speed with the peak of one that is given",                                                      \
         CHOICE_AT(OPTION_TEXT, machine)},                                                                             \
        {"plan", 0, "FILE", "run a plan written by `quadrille plan -o FILE`; other options override it",               \
         CHOICE_AT(OPTION_TEXT, plan)},                                                                                \
        {"local", 0, "P", "run P ranks as threads of one process, without MPI", CHOICE_COUNT(n_local, 1024)},          \
        OPTIONS_TIMEOUT, OPTIONS_DEVICE(choice, device),                                                               \
        {"layout", 0, "LAYOUT", "layout of activations: replicated (default) or scattered", CHOICE_LAYOUT},            \
        {"order", 0, "AXES", "axis order, fastest first (default xyzd)", CHOICE_AT(OPTION_ORDER, order)},              \
        {"levels", 0, "GP,OP",                                                                                         \
         "numbers of ranks that gradients (GP) and optimizer state (OP) are split over, each a number, module, "       \
         "cache, numa, package, node or all; or none (default), zero1, zero2; with --grid auto also any (the best), "  \
         "but no unit other than all",                                                                                 \
         CHOICE_AT(OPTION_TEXT, levels)},                                                                              \
        {"codec", 0, "CODECS",                                                                                         \
         "how messages between nodes are compressed: none, safe, hybrid, aggressive, or codecs such as int8, each "    \
         "optionally with ,AXES.CLASS=CODEC ,least=BYTES ,inside (default: $QDR_CODEC, else none)",                    \
         CHOICE_AT(OPTION_TEXT, codec)},                                                                               \
        {"overlap", 0, "on|off", "overlap communication with products; results stay bitwise the same (default on)",    \
         CHOICE_AT(OPTION_CHOICE, serial)},                                                                            \
        {"recompute",                                                                                                  \
         0,                                                                                                            \
         "WHAT",                                                                                                       \
         "what the backward pass makes again instead of keeping it: none (default); operations: norms and activation " \
         "functions; full: what each layer needs, from its input; results stay bitwise the same",                      \
         CHOICE_AT(OPTION_OTHER, recompute),                                                                           \
         .take = take_recompute,                                                                                       \
         .words = RECOMPUTE_WORDS},                                                                                    \
        {"panels", 0, "N",                                                                                             \
         "row panels of a product; one is communicated while the next is computed (default: by estimated cost)",       \
         CHOICE_COUNT(n_panels, 1024)},                                                                                \
        {"batch-parts", 0, "N",                                                                                        \
         "split each rank's sequences into N parts; reductions of one overlap products of the next (default: by "      \
         "estimated cost)",                                                                                            \
         CHOICE_COUNT(n_batch_parts, 16)},                                                                             \
        {"graph", 0, "off|on", "on a GPU: record the work as graphs and launch these (default off)",                   \
         CHOICE_AT(OPTION_CHOICE, recorded)},                                                                          \
    {                                                                                                                  \
        "threads", 0, "N", "threads per rank (default: cores / ranks)", CHOICE_COUNT(n_threads, 1024)                  \
    }

/* Reads the file of --plan, if one was given, on rank 0. Collective, ranks agree. */
qdr_status choice_load_plan(qdr_context *ctx, choice *given);
/* Reads a model's network, by name or from a config.json, on rank 0. Collective, ranks agree. */
qdr_status choice_load_network(qdr_context *ctx, const char *name_or_path, qdr_network *network);
/* Completes the given choices: they take precedence over a plan and over the model's choice; everything else is as in
 * `usual`, whose micro_batch is also the one that the model must use (0: any). network: for the model; of its context
 * only whether positions are learned is used. A plan must be one of the same network. Collective, ranks agree; rank 0
 * prints in one line what was chosen, and why. */
qdr_status choice_make(qdr_context *ctx, const choice *given, const choice *usual, const qdr_network *network,
                       choice *made, char sentence[PROBLEM_BYTES]);

/* Creates the grid, by default 1x1x1xP, which must have as many ranks as were started; otherwise says how to start
 * them. The same result on all ranks. */
qdr_status choice_make_grid(qdr_context *ctx, choice *made, char sentence[PROBLEM_BYTES], qdr_grid **grid);

/* Says on rank 0, in one line, if there are codecs and no message is coded, since all ranks are on one node. */
void choice_tell_codecs(const qdr_context *ctx, const qdr_codecs *codecs);

#endif
