/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille verify`: every grid of P local ranks, both layouts, random uneven layers, compared with one thread in
 * float64. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/command.h"
#include "common/layer_case.h"
#include "common/planning.h"
#include "common/ranks.h"

#define MAX_GRIDS 1024 /* more than any number of up to 64 ranks has */
#define MAX_LEVELS 64 /* more than one of them has pairs of levels: 60 ranks have 54 */

typedef struct verify_options {
    int64_t n_ranks, seed, n_cases;
    int dtype; /* position in compute_dtypes; past the last: all */
    int n_sizes;
    grid_size sizes[MAX_GRIDS];
    codec_choice codec;
    const char *device;
    /* One element for each rank's worst error: ranks are threads, and the check should not rely on what it checks. */
    double *worst;
    int n_wrong; /* rows of the table that failed; written by rank 0 */
} verify_options;

static int take_bounded(const char *value, void *choice, failure *why);

#define AT(member) .at = offsetof(verify_options, member)

static const option_spec specs[] = {
    {"ranks", 'n', "P", "number of local ranks; every grid of P ranks is tried; 1 to 64, default 4", OPTION_COUNT,
     AT(n_ranks), 1, 64},
    {"seed", 0, "S", "seed of shapes and values; default 1", OPTION_COUNT, AT(seed), 0, 1e18},
    {"dtype", 0, "TYPE", "f32, f64, bf16, f16 or all (default)", OPTION_CHOICE, AT(dtype), .words = DTYPE_WORDS "|all"},
    {"cases", 0, "N", "random layers per grid, layout and type; default 8", OPTION_COUNT, AT(n_cases), 1, 1000000},
    {"codec", 0, "CODECS",
     "codecs of messages, as in train --codec, always with inside and least=1; not zfp; f64 is never coded; "
     "default: QDR_CODEC, for which bounds are not widened, else none",
     OPTION_OTHER, AT(codec), .take = take_bounded},
    OPTIONS_DEVICE(verify_options, device),
    OPTIONS_END,
};

/* All ranks share a node, and their messages are short. */
static int take_bounded(const char *value, void *choice, failure *why)
{
    qdr_codecs *codecs = &((codec_choice *)choice)->codecs;
    if (take_codecs(value, choice, why)) return why->code;
    codecs->inside = 1;
    codecs->least_bytes = 1;
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        for (int class = 0; class < QDR_N_TRAFFIC_CLASSES; class ++)
            if (qdr_codec_bound(&codecs->of[axis][class], 1) < 0)
                return fail(why, EXIT_USAGE,
                            "verify: --codec '%s' has zfp, and verify needs codecs with a known bound, such as int8",
                            value);
    return EXIT_OK;
}

/* Grids of one size, one for each pair of levels. */
typedef struct level_grids {
    int n;
    qdr_grid *of[MAX_LEVELS];
} level_grids;

/* One row of the table. */
typedef struct table_row {
    grid_size size;
    int grid_index;
    qdr_layout layout;
    qdr_dtype dtype;
    double worst;
    layer_case worst_case;
    const qdr_grid *worst_grid;
} table_row;

static int run_row(const level_grids *grids, verify_options *options, table_row *row, failure *why)
{
    qdr_context *ctx = qdr_grid_context(grids->of[0]);
    for (int64_t i = 0; i < options->n_cases && !why->code; i++) {
        /* Every case has other levels, and every row begins with others. */
        qdr_grid *grid = grids->of[(i + 2 * (int64_t)row->dtype + row->layout) % grids->n];
        layer_case drawn;
        layer_errors errors;
        /* Different shapes on each grid; every second case so small that some ranks own nothing. */
        layer_case_draw((uint64_t)options->seed * 1000003u + (uint64_t)row->grid_index * 4099u + (uint64_t)i, &drawn);
        drawn.dtype = row->dtype;
        drawn.codecs = options->codec.is_given ? &options->codec.codecs : NULL;
        drawn.in_layout = drawn.out_layout = row->layout;
        drawn.is_exact = i % 4 >= 2; /* half of them round, half must be exact */
        if (i % 2) layer_case_shrink(&drawn, (layer_small)(i / 2 % N_SMALL), row->size);
        if (layer_case_run(grid, &drawn, NULL, NULL, &errors, why)) break;
        double worst = layer_errors_worst(&errors);
        options->worst[qdr_context_rank(ctx)] = worst;
        if (fail_status(why, qdr_barrier(ctx))) break;
        for (int rank = 0; rank < qdr_context_size(ctx); rank++) worst = fmax(worst, options->worst[rank]);
        if (fail_status(why, qdr_barrier(ctx))) break; /* no rank writes again before all have read */
        if (worst > row->worst || i == 0) {
            row->worst_case = drawn;
            row->worst_grid = grid;
        }
        row->worst = fmax(row->worst, worst);
    }
    if (why->code || qdr_context_rank(ctx) != 0) return why->code;
    char worst[32], text[512];
    snprintf(worst, sizeof worst, isinf(row->worst) ? "wrong" : "%.3f", row->worst);
    printf("%-12s %-10s %-5s %6lld %8s  %s\n", grid_words(row->size).text, layout_word(row->layout),
           qdr_dtype_name(row->dtype), (long long)options->n_cases, worst, row->worst <= 1 ? "ok" : "FAIL");
    if (row->worst > 1) {
        layer_case_text(&row->worst_case, text, sizeof text);
        printf("             worst case: %s, levels %d,%d\n", text,
               qdr_grid_parts(row->worst_grid, QDR_LEVEL_GRADIENTS),
               qdr_grid_parts(row->worst_grid, QDR_LEVEL_OPTIMIZER));
    }
    fflush(stdout);
    options->n_wrong += row->worst > 1;
    return EXIT_OK;
}

/* Whether one number of parts lies inside the other, and both nest. */
static int nests(int inner, int parts, int all) { return parts % inner == 0 && all % parts == 0; }

static int make_grids(qdr_context *ctx, grid_size size, level_grids *grids, failure *why)
{
    const int all = size.z * size.d;
    for (int gradients = size.z; gradients <= all; gradients += size.z)
        for (int state = gradients; state <= all && nests(size.z, gradients, all); state += gradients) {
            const qdr_grid_opts opts = {QDR_INIT(qdr_grid_opts),
                                        .x = size.x,
                                        .y = size.y,
                                        .z = size.z,
                                        .d = size.d,
                                        .gradient_parts = gradients,
                                        .optimizer_parts = state};
            if (!nests(gradients, state, all) || grids->n == MAX_LEVELS) continue;
            if (fail_status(why, qdr_grid_create(ctx, &opts, &grids->of[grids->n]))) return why->code;
            grids->n++;
        }
    return EXIT_OK;
}

static int run_grid(qdr_context *ctx, verify_options *options, int index, failure *why)
{
    const grid_size size = options->sizes[index];
    level_grids grids = {.n = 0};
    make_grids(ctx, size, &grids, why);
    for (int type = 0; type < N_COMPUTE_DTYPES && grids.n > 0; type++)
        for (int layout = 0; layout < 2 && !why->code; layout++) {
            if (options->dtype != type && options->dtype != N_COMPUTE_DTYPES) continue;
            table_row row = {
                .size = size, .grid_index = index, .layout = (qdr_layout)layout, .dtype = compute_dtypes[type]};
            run_row(&grids, options, &row, why);
        }
    for (int i = 0; i < grids.n; i++) qdr_grid_destroy(&grids.of[i]);
    return why->code;
}

static int run_rank(qdr_context *ctx, void *user)
{
    verify_options *options = user;
    failure why = {0};
    char codecs[CODECS_BYTES] = "";
    if (options->codec.is_given) qdr_codecs_text(&options->codec.codecs, codecs, sizeof codecs);
    if (qdr_context_rank(ctx) == 0)
        printf("%-12s %-10s %-5s %6s %8s  (worst error as a share of its bound; seed %lld%s%s)\n", "grid", "layout",
               "type", "cases", "worst", (long long)options->seed, *codecs ? "; codecs " : "", codecs);
    for (int i = 0; i < options->n_sizes && !why.code; i++) run_grid(ctx, options, i, &why);
    return why.code ? fail_print_rank(&why, ctx) : EXIT_OK;
}

static int run(int argc, char **argv)
{
    verify_options options = {.n_ranks = 4, .seed = 1, .n_cases = 8, .dtype = N_COMPUTE_DTYPES};
    failure why = {0};
    if (options_read(argc, argv, specs, &options, NULL, &why)) return fail_print(&why);
    options.n_sizes = list_grids((int)options.n_ranks, options.sizes, MAX_GRIDS);
    options.worst = calloc((size_t)options.n_ranks, sizeof *options.worst);
    if (!options.worst) fail_memory(&why, "verify: out of memory for %lld numbers", (long long)options.n_ranks);
    const int code = why.code ? fail_print(&why) : run_on_ranks(options.n_ranks, 0, options.device, run_rank, &options);
    free(options.worst);
    if (code) return code;
    if (options.n_wrong)
        fprintf(stderr, "quadrille: verify: %d rows of the table exceed their bound\n", options.n_wrong);
    return options.n_wrong ? EXIT_MISMATCH : EXIT_OK;
}

const command command_verify = {
    .name = "verify",
    .summary = "check every grid of P ranks against a float64 reference",
    .usage = "quadrille verify [-n P] [OPTION]...",
    .text = "Runs random layers of uneven shapes (every other one so small that some ranks own nothing),\n"
            "forward and backward, on every grid of P local ranks in both layouts, each with other levels of\n"
            "gradients and optimizer state, and compares Y, dX, dW and db with a serial float64 reference. The\n"
            "error bounds are derived in docs/numerics.md; with --codec they are wider by the errors that coded\n"
            "messages may have. Exits with 4 if one is exceeded.",
    .options = specs,
    .examples = "  quadrille verify -n 4\n"
                "  quadrille verify -n 12 --dtype bf16 --seed 7 --cases 50\n"
                "  quadrille verify -n 4 --codec aggressive\n"
                "  quadrille verify -n 8 --device cuda\n",
    .run = run,
};
