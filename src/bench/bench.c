/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille bench`: what grids cost on this machine. */
#include "bench/bench.h"
#include "common/ranks.h"

static const command *const benches[] = {&command_bench_ckpt,  &command_bench_codec,  &command_bench_coll,
                                         &command_bench_layer, &command_bench_linear, NULL};

/* Runs only if no benchmark was named. */
static int run(int argc, char **argv)
{
    failure why = {0};
    if (argc < 2)
        fail(&why, EXIT_USAGE,
             "bench: no benchmark is named; use ckpt, codec, coll, layer or linear (see quadrille bench --help)");
    else
        fail(&why, EXIT_USAGE,
             "bench: unknown benchmark '%s'; use ckpt, codec, coll, layer or linear (see quadrille bench --help)",
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
                "  quadrille bench linear --local 2 --grid all -m 4096 -n 4096 -k 1024\n"
                "  mpiexec.mpich -n 4 quadrille bench layer --grid 2x2x1x1 --threads 1 --csv\n"
                "  quadrille bench layer --device cuda --local 2 --dtype bf16 --hidden 4096 --heads 32\n",
    .run = run,
};
