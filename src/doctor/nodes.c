/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks meet, and rank 0 learns the facts of all nodes. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "doctor/nodes.h"

#include <stdlib.h>
#include <time.h>

#include "common/process.h"
#include "common/ranks.h"

/* ---- ranks that do not meet ---- */

static int are_meeting;

static void advise(void)
{
    if (are_meeting)
        fprintf(stderr,
                "%s: the ranks have not met; to look at each process alone, without MPI, run quadrille doctor --each\n",
                program_name);
    are_meeting = 0;
}

static void end_stuck(const char *sentence, void *user)
{
    advise();
    process_end_stuck(sentence, user);
}

/* ---- clocks ---- */

static int64_t clock_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* All ranks read their clocks between two moments of rank 0, of a few rounds in that where these were the closest: so
 * two clocks that show the same time differ by no more than that. Collective. */
static qdr_status read_clocks(qdr_context *ctx, int64_t *mine_ns, double *bound_secs)
{
    enum { ROUNDS = 8 };
    int64_t readings[ROUNDS], shortest_ns = INT64_MAX;
    int best = 0;
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t begin_ns = clock_now();
        TRY(qdr_barrier(ctx));
        readings[i] = clock_now();
        TRY(qdr_barrier(ctx));
        const int64_t passed_ns = clock_now() - begin_ns;
        if (passed_ns < 0 || passed_ns >= shortest_ns) continue; /* < 0: somebody set it */
        shortest_ns = passed_ns;
        best = i;
    }
    *bound_secs = 1e-9 * (double)shortest_ns;
    TRY(qdr_broadcast(ctx, 0, &best, sizeof best));
    *mine_ns = readings[best];
    return QDR_OK;
}

/* ---- all ranks ---- */

/* What MPI takes for several nodes may be one: launchers can be told so, and two daemons of Slurm can share a host. */
static void take(node_report *report, qdr_context *ctx, int rank, const fact_list *facts)
{
    const int first = qdr_context_node(ctx, rank);
    int at = first < rank ? report->node_of[first] : nodes_find(report->nodes, report->n_nodes, facts);
    if (at < 0) at = report->n_nodes++;
    report->node_of[rank] = at;
    node_add_rank(&report->nodes[at], rank, facts, &report->differences);
}

/* Rank 0 keeps what each rank says, in turn. Collective. */
static int gather(qdr_context *ctx, node_report *report, failure *why)
{
    const int rank = qdr_context_rank(ctx), is_first = qdr_context_node(ctx, rank) == rank;
    fact_list mine = {.n = 0}, theirs;
    int64_t clock_ns = 0;
    doctor_collect(is_first, &mine);
    if (fail_together(why, ctx)) return why->code;
    qdr_status status = read_clocks(ctx, &clock_ns, &report->clock_bound_secs);
    if (is_first) fact_set(&mine, FACT_CLOCK_NOW, "%lld", (long long)clock_ns);
    for (int i = 0; i < report->n_ranks && status == QDR_OK; i++) {
        theirs = mine;
        status = qdr_broadcast(ctx, i, &theirs, sizeof theirs);
        if (status == QDR_OK && report->nodes) take(report, ctx, i, &theirs);
    }
    return fail_status(why, status);
}

static void print(node_report *report, int is_json, failure *why)
{
    for (int i = 0; i < report->n_nodes; i++) node_complete(&report->nodes[i]);
    nodes_compare(report->nodes, report->n_nodes, report->clock_bound_secs, &report->differences);
    if (report->differences.is_short)
        fail_memory(why, "doctor: out of memory for %d differences of nodes", report->differences.n);
    else if (is_json)
        nodes_print_json(report, why);
    else
        nodes_print(report);
}

/* Only rank 0 returns 1 for something broken: of more, some launchers say that the job has crashed. */
static int run_rank(qdr_context *ctx, void *user)
{
    const int *is_json = user, is_first = qdr_context_rank(ctx) == 0;
    node_report report = {.n_ranks = qdr_context_size(ctx)};
    failure why = {0};
    int n_nodes = 1; /* that of rank 0 */
    for (int i = 1; i < report.n_ranks; i++) n_nodes += qdr_context_node(ctx, i) == i;
    fact_node *nodes = is_first ? calloc((size_t)n_nodes, sizeof *nodes) : NULL;
    int *node_of = is_first ? calloc((size_t)report.n_ranks, sizeof *node_of) : NULL;
    report.nodes = nodes;
    report.node_of = node_of;
    if (is_first && (!nodes || !node_of))
        fail_memory(&why, "doctor: out of memory for the facts of %d nodes and %d ranks", n_nodes, report.n_ranks);
    if (!gather(ctx, &report, &why)) {
        are_meeting = 0;
        if (is_first) print(&report, *is_json, &why);
        fail_together(&why, ctx);
    }
    const int is_broken = nodes_count(&report, DOCTOR_BROKEN) > 0;
    free(nodes);
    free(node_of);
    free(report.differences.list);
    return why.code ? fail_print_rank(&why, ctx) : is_broken ? EXIT_FAILED : EXIT_OK;
}

int doctor_run_nodes(int is_json)
{
    are_meeting = 1;
    atexit(advise); /* MPI itself may end the process while it starts */
    qdr_launch_watch(end_stuck, NULL);
    const int code = run_on_ranks(0, 0, "cpu", run_rank, &is_json);
    if (code == EXIT_USAGE || code == EXIT_NOTHING_FITS) are_meeting = 0; /* other options, no memory */
    return code;
}
