/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille topo`: machines, their links, and which link each axis of a grid uses. */
#include "topo/topo.h"

#include <quadrille/launch.h>
#include <stdlib.h>

#include "common/command.h"
#include "common/files.h"
#include "common/ranks.h"

typedef enum placing { ON_DEFAULT = -1, ON_GPUS, ON_CORES } placing;

typedef struct topo_options {
    const char *xml, *svg, *order;
    grid_size grid;
    int64_t n_on_node;
    placing on;
    levels parts;
    int wants_ranks, is_json;
} topo_options;

#define AT(member) .at = offsetof(topo_options, member)

static const option_spec specs[] = {
    {"xml", 0, "FILE", "a machine that hwloc recorded (lstopo FILE.xml); default: this one", OPTION_TEXT, AT(xml)},
    {"ranks", 0, NULL, "initialise MPI and list ranks and their binding; default under mpiexec", OPTION_FLAG,
     AT(wants_ranks)},
    OPTIONS_TIMEOUT,
    {"grid", 0, "GRID", "print which links the axes of GXxGYxGZxGD use", OPTION_GRID, AT(grid), .max = 1 << 16},
    {"order", 0, "ORDER", "axis order, fastest first; default xyzd", OPTION_ORDER, AT(order)},
    {"levels", 0, "GP,OP",
     "also print which links weights, gradients and state use if they are split over z, GP and OP "
     "ranks, such as module,node or 8,all; words as for plan",
     OPTION_OTHER, AT(parts), .take = take_levels, .words = LEVELS_WORDS},
    {"ranks-per-node", 0, "R", "place the grid on nodes of R ranks; default: one per GPU, or per core", OPTION_COUNT,
     AT(n_on_node), 1, 1024},
    {"on", 0, "WHAT", "place ranks on gpus or cores; default: gpus, or cores if there are none or under mpiexec",
     OPTION_CHOICE, AT(on), .words = "gpus|cores"},
    {"json", 0, NULL, "print one JSON object", OPTION_FLAG, AT(is_json)},
    {"svg", 0, "FILE", "also draw it", OPTION_PICTURE, AT(svg)},
    OPTIONS_END,
};

static int check_options(const topo_options *options, failure *why)
{
    const int has_levels = options->parts.words != NULL;
    const int has_layout = options->order || options->n_on_node || options->on != ON_DEFAULT || has_levels;
    if (has_layout && !options->grid.x)
        return fail(why, EXIT_USAGE, "topo: --%s needs --grid, such as --grid 2x2x2x1",
                    options->order       ? "order"
                    : options->n_on_node ? "ranks-per-node"
                    : has_levels         ? "levels"
                                         : "on");
    if (options->xml && options->wants_ranks)
        return fail(why, EXIT_USAGE, "topo: ranks do not run on the machine of --xml; leave out --ranks or --xml");
    return EXIT_OK;
}

/* ---- the report ---- */

/* Running ranks are on cores, as this library's are; a plan uses GPUs if there are any. */
static int lay(const topo_options *options, topo_report *report, failure *why)
{
    const qdr_topo *topo = report->topo;
    const int n_needed = grid_ranks(options->grid);
    if (!options->grid.x) return EXIT_OK;
    if (options->on == ON_GPUS && !topo->n_gpus)
        return fail(why, EXIT_USAGE, "topo: there are no GPUs for --on gpus (%s); use --on cores", topo->gpu_source);
    if (report->ranks && !options->n_on_node && report->n_ranks != n_needed)
        return fail(why, EXIT_USAGE,
                    "topo: the grid has %d ranks, but %d %s started: use mpiexec -n %d, or give the ranks per node "
                    "with --ranks-per-node",
                    n_needed, report->n_ranks, report->n_ranks == 1 ? "was" : "were", n_needed);
    const int is_live = report->ranks && !options->n_on_node;
    report->layout = (topo_layout){
        .size = options->grid,
        .order = options->order ? options->order : "xyzd",
        .n_on_node = (int)options->n_on_node,
        .on_gpus = options->on == ON_GPUS || (options->on == ON_DEFAULT && !is_live && topo->n_gpus > 0),
    };
    const int has_levels = options->parts.words != NULL;
    if (topo_lay(topo, report->ranks, report->n_ranks, &report->layout, why) || !has_levels) return why->code;
    if (topo_cut(topo, &options->parts, &report->layout, why)) return why->code;
    return topo_map_levels(topo, &report->layout, why);
}

/* The picture comes first, so that no error follows the printed text. */
static int write_report(const topo_options *options, topo_report *report, failure *why)
{
    if (!lay(options, report, why) && (!options->svg || !files_write("--svg", options->svg, topo_draw, report, why))) {
        if (options->is_json)
            topo_print_json(report, why);
        else
            topo_print(report);
    }
    free(report->layout.places);
    return why->code;
}

static int load(const topo_options *options, qdr_topo **topo, failure *why)
{
    const qdr_topo_opts opts = {QDR_INIT(qdr_topo_opts), .xml = options->xml};
    const qdr_status status = qdr_topo_load(&opts, topo);
    fail_status(why, status);
    if (status == QDR_ERR_IO) why->code = EXIT_USAGE; /* the user named the file */
    return why->code;
}

/* ---- starting ---- */

/* For a recorded machine, only rank 0 prints. */
static int run_rank(qdr_context *ctx, void *user)
{
    const topo_options *options = user;
    const int is_first = qdr_context_rank(ctx) == 0;
    qdr_topo *topo = NULL;
    topo_report report = {.n_ranks = qdr_context_size(ctx)};
    failure why = {0};
    load(options, &topo, &why);
    if (!fail_together(&why, ctx) && topo) {
        report.topo = topo;
        if (topo->is_this_machine) topo_gather(ctx, topo, &report.ranks, &why);
        if (!why.code && is_first) write_report(options, &report, &why);
        fail_together(&why, ctx);
    }
    free(report.ranks);
    qdr_topo_destroy(&topo);
    return why.code ? fail_print_rank(&why, ctx) : EXIT_OK;
}

static int run(int argc, char **argv)
{
    topo_options options = {.on = ON_DEFAULT};
    failure why = {0};
    const int is_launched = qdr_launched() != 1;
    if (options_read(argc, argv, specs, &options, NULL, &why) || check_options(&options, &why))
        return is_launched ? fail_print_once(&why) : fail_print(&why);
    if (is_launched || options.wants_ranks) return run_on_ranks(0, 0, "cpu", run_rank, &options);
    qdr_topo *topo = NULL;
    if (!load(&options, &topo, &why) && topo) write_report(&options, &(topo_report){.topo = topo}, &why);
    qdr_topo_destroy(&topo);
    return why.code ? fail_print(&why) : EXIT_OK;
}

const command command_topo = {
    .name = "topo",
    .summary = "print a machine's topology, and which links a grid uses",
    .text = "Prints packages, NUMA nodes, caches, GPUs, network adapters and the links between them, of this\n"
            "machine or a recorded one. Under mpiexec it also prints where each rank may run; with --grid, the\n"
            "slowest link between the ranks of the groups of each axis, and how many groups share it; with\n"
            "--levels, the same for the groups over which weights, gradients and optimizer state are split,\n"
            "and a warning if the groups used most have the slower links. MPI is initialised only with --ranks,\n"
            "or under a launcher that started several processes or does not say how many.",
    .options = specs,
    .examples = "  quadrille topo --svg machine.svg\n"
                "  quadrille topo --xml frontier.xml --grid 2x4x2x1 --svg plan.svg\n"
                "  quadrille topo --xml frontier.xml --grid 1x1x2x16 --levels 8,all\n"
                "  quadrille topo --grid 2x2x2x1 --order zyxd --ranks-per-node 4 --on cores\n"
                "  mpiexec.mpich -n 4 -bind-to core quadrille topo --grid 2x2x1x1 --json\n",
    .is_local = 1,
    .run = run,
};
