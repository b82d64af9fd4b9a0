/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers on every grid of P ranks against the serial reference of src/common/reference.h, in both layouts of
 * both edges:
 *
 *   sweep     f32, f64, bf16 and f16, random uneven shapes, some of which leave ranks with nothing, normal and
 *             transposed: y, dx, dw, db within their bounds, and bytes sent equal to the bytes planned
 *   bitwise   overlap on, off and in parts gives the same bits
 *   bytes     divisible shapes: bytes per channel and kind equal the closed forms
 *   sequence  under MPI: the calls that each rank makes (channel, kind, elements, group) equal those of local ranks
 *
 *   test_linear CHECK [--ranks P] [--cases N] [--seed S]     local ranks; with --boot, connected by callbacks
 *   mpiexec -n P test_linear CHECK --mpi [...]               each process a rank */
#include <math.h>
#include <quadrille/launch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/boot.h"
#include "common/layer_case.h"
#include "grid/internal.h"
#include "reference/layer_cost.h"

typedef struct test_settings {
    int64_t n_ranks, n_cases, seed;
    int use_mpi, by_boot;
    int (*check)(qdr_context *ctx, struct test_settings *settings);
    int n_runs; /* written by rank 0 */
} test_settings;

#define MAX_GRIDS 256
static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
enum { N_DTYPES = 4 };

static void grid_name(grid_size size, char text[64])
{
    snprintf(text, 64, "%dx%dx%dx%d", size.x, size.y, size.z, size.d);
}

/* Says on standard error which case was wrong; returns 1. */
static int complain(qdr_grid *grid, const layer_case *the_case, const char *what)
{
    char text[512];
    layer_case_text(the_case, text, sizeof text);
    fprintf(stderr, "rank %d of %dx%dx%dx%d: %s: %s\n", qdr_context_rank(qdr_grid_context(grid)),
            qdr_grid_size(grid, QDR_X), qdr_grid_size(grid, QDR_Y), qdr_grid_size(grid, QDR_Z),
            qdr_grid_size(grid, QDR_D), what, text);
    return 1;
}

/* Runs `check` on each grid of the world. Returns the number of failures on this rank. */
typedef int (*grid_check)(qdr_grid *grid, int grid_index, test_settings *settings);
static int for_grids(qdr_context *ctx, test_settings *settings, grid_check check)
{
    static const char *const orders[] = {"xyzd", "dzyx", "yxdz", "zdxy"};
    grid_size sizes[MAX_GRIDS];
    const int n_sizes = list_grids(qdr_context_size(ctx), sizes, MAX_GRIDS);
    int n_bad = 0;
    for (int i = 0; i < n_sizes && n_bad == 0; i++) {
        char name[64];
        qdr_grid *grid;
        const qdr_grid_opts opts = {QDR_INIT(qdr_grid_opts), .x = sizes[i].x, .y = sizes[i].y,
                                    .z = sizes[i].z,         .d = sizes[i].d, .order = orders[i % 4]};
        grid_name(sizes[i], name);
        if (qdr_grid_create(ctx, &opts, &grid) != QDR_OK) {
            fprintf(stderr, "grid %s: %s\n", name, qdr_last_error());
            return 1;
        }
        n_bad += check(grid, i, settings);
        qdr_grid_destroy(&grid);
    }
    return n_bad;
}

/* All ranks stop at the same case, or those that go on would wait for those that stopped. */
static int together(qdr_grid *grid, int n_bad)
{
    return qdr_agree(qdr_grid_context(grid), n_bad ? QDR_ERR_STATE : QDR_OK) == QDR_OK ? 0 : n_bad + 1;
}

/* ---- bytes that were sent against bytes that the schedule planned or the closed form has ---- */

typedef struct byte_check {
    const reference_cost *forward, *backward; /* NULL: only the plan is compared */
    int in_panels; /* which sends what collectives would have sent by other calls */
    char complaint[256];
} byte_check;

static int64_t sum_of_members(qdri_comm *comm, int64_t mine)
{
    int64_t sum = 0;
    for (int j = 0; j < qdri_comm_size(comm); j++) {
        int64_t theirs = mine;
        if (qdri_comm_broadcast(comm, j, &theirs, sizeof theirs) != QDR_OK) return -1;
        sum += theirs;
    }
    return sum;
}

/* Level by level other members send it, but all together as much. */
static void join_levels(qdr_grid *grid, qdr_channel channel, qdr_coll_kind kind, qdr_traffic *sent,
                        qdr_planned *planned)
{
    qdri_comm *comm = qdri_grid_comm(grid, channel);
    const qdri_coll coll = {.kind = kind};
    if (qdri_comm_summed_first(comm, &coll) == 1 || planned->n_calls == 0) return;
    sent->bytes_sent = sum_of_members(comm, sent->bytes_sent);
    planned->bytes_sent = sum_of_members(comm, planned->bytes_sent);
}

static qdr_traffic traffic_of(const qdr_grid *grid, qdr_channel channel, qdr_coll_kind kind)
{
    qdr_traffic traffic = {QDR_INIT(qdr_traffic)};
    const qdr_status status = qdr_grid_traffic(grid, channel, kind, &traffic);
    (void)status; /* of a grid and a channel that exist */
    return traffic;
}

static void check_channel(byte_check *check, qdr_grid *grid, qdr_stack *stack, qdr_list list,
                          const reference_cost *cost, qdr_channel channel, qdr_coll_kind kind)
{
    qdr_traffic sent = traffic_of(grid, channel, kind);
    const char *which = list == QDR_LIST_FORWARD ? "forward" : "backward";
    qdr_planned planned = {QDR_INIT(qdr_planned)};
    if (qdr_stack_planned(stack, list, channel, kind, &planned) < 0)
        snprintf(check->complaint, sizeof check->complaint, "%s", qdr_last_error());
    join_levels(grid, channel, kind, &sent, &planned);
    if (check->complaint[0]) return;
    if (sent.bytes_sent != planned.bytes_sent || sent.n_calls != planned.n_calls)
        snprintf(check->complaint, sizeof check->complaint,
                 "%s, %s, %s: %lld bytes in %lld calls, planned were %lld in %lld", which, qdr_channel_name(channel),
                 qdr_coll_kind_name(kind), (long long)sent.bytes_sent, (long long)sent.n_calls,
                 (long long)planned.bytes_sent, (long long)planned.n_calls);
    else if (cost && !check->in_panels && (double)sent.bytes_sent != cost->bytes[channel][kind])
        snprintf(check->complaint, sizeof check->complaint, "%s, %s, %s: %lld bytes, the closed form has %.17g", which,
                 qdr_channel_name(channel), qdr_coll_kind_name(kind), (long long)sent.bytes_sent,
                 cost->bytes[channel][kind]);
}

static void check_sum(byte_check *check, qdr_grid *grid, const char *which, const reference_cost *cost,
                      qdr_channel channel)
{
    double bytes = 0;
    for (int kind = 0; kind < QDR_N_COLL_KINDS; kind++)
        bytes += (double)traffic_of(grid, channel, (qdr_coll_kind)kind).bytes_sent;
    if (cost && !check->complaint[0] && bytes != reference_channel_bytes(cost, channel))
        snprintf(check->complaint, sizeof check->complaint, "%s, %s: %.17g bytes, the closed form has %.17g", which,
                 qdr_channel_name(channel), bytes, reference_channel_bytes(cost, channel));
}

static void watch_bytes(layer_stage stage, qdr_grid *grid, qdr_stack *stack, void *user)
{
    byte_check *check = user;
    const char *which = stage == STAGE_FORWARD ? "forward" : "backward";
    const reference_cost *cost = stage == STAGE_FORWARD ? check->forward : check->backward;
    for (int channel = 0; stage != STAGE_BUILT && channel < QDR_N_CHANNELS; channel++) {
        for (int kind = 0; kind < QDR_N_COLL_KINDS; kind++)
            check_channel(check, grid, stack, stage == STAGE_FORWARD ? QDR_LIST_FORWARD : QDR_LIST_BACKWARD, cost,
                          (qdr_channel)channel, (qdr_coll_kind)kind);
        check_sum(check, grid, which, cost, (qdr_channel)channel);
    }
    qdr_grid_reset_traffic(grid);
}

/* ---- one case ---- */

static int run_case(qdr_grid *grid, const layer_case *the_case, byte_check *bytes, layer_errors *errors)
{
    failure why = {0};
    int n_bad = 0;
    if (layer_case_run(grid, the_case, bytes ? watch_bytes : NULL, bytes, errors, &why))
        return complain(grid, the_case, why.sentence);
    static const char *const names[N_RESULTS] = {"y", "dx", "dw", "db"};
    for (int i = 0; i < N_RESULTS; i++) {
        char what[64];
        snprintf(what, sizeof what, "error of %s is %.3g of its bound", names[i], errors->share[i]);
        if (!(errors->share[i] <= 1)) n_bad += complain(grid, the_case, what);
    }
    if (bytes && bytes->complaint[0]) n_bad += complain(grid, the_case, bytes->complaint);
    return together(grid, n_bad);
}

/* ---- the checks ---- */

/* The plan counts calls with sums over d and without accumulation: what one call has. */
static int sweep_case(qdr_grid *grid, const layer_case *the_case, test_settings *settings)
{
    layer_errors errors;
    byte_check bytes = {0};
    if (run_case(grid, the_case, the_case->n_calls == 1 ? &bytes : NULL, &errors)) return 1;
    if (qdr_context_rank(qdr_grid_context(grid)) == 0) settings->n_runs++;
    return 0;
}

/* M, K, N and W smaller than what splits them, in each layout (under MPI in one of them, which changes from grid to
 * grid): ranks own nothing. */
static int sweep_small(qdr_grid *grid, int grid_index, test_settings *settings)
{
    const grid_size size = {qdr_grid_size(grid, QDR_X), qdr_grid_size(grid, QDR_Y), qdr_grid_size(grid, QDR_Z),
                            qdr_grid_size(grid, QDR_D)};
    for (int i = 0; i < 4 * (int)N_SMALL; i++) {
        layer_case drawn;
        if (settings->use_mpi && i / (int)N_SMALL != (i + grid_index) % 4) continue;
        layer_case_draw((uint64_t)(settings->seed * 1000033 + grid_index * 4099 + i), &drawn);
        drawn.dtype = dtypes[(i + grid_index) % N_DTYPES];
        drawn.in_layout = (qdr_layout)(i / (int)N_SMALL % 2);
        drawn.out_layout = (qdr_layout)(i / (int)N_SMALL / 2);
        drawn.transposed = (i + i / (int)N_SMALL + grid_index) % 2;
        if (layer_case_shrink(&drawn, (layer_small)(i % (int)N_SMALL), size) && sweep_case(grid, &drawn, settings))
            return 1;
    }
    return 0;
}

static int sweep_grid(qdr_grid *grid, int grid_index, test_settings *settings)
{
    for (int64_t i = 0; i < settings->n_cases * 4 * N_DTYPES; i++) {
        layer_case drawn;
        layer_case_draw((uint64_t)(settings->seed * 1000003 + grid_index * 4099 + i), &drawn);
        drawn.dtype = dtypes[i % N_DTYPES];
        drawn.in_layout = (qdr_layout)(i / N_DTYPES % 2);
        drawn.out_layout = (qdr_layout)(i / N_DTYPES / 2 % 2);
        drawn.transposed = (int)(i + i / N_DTYPES / 4 + grid_index) % 2;
        if (sweep_case(grid, &drawn, settings)) return 1;
    }
    return sweep_small(grid, grid_index, settings);
}

static int check_sweep(qdr_context *ctx, test_settings *settings) { return for_grids(ctx, settings, sweep_grid); }

static int bitwise_case(qdr_grid *grid, layer_case *the_case)
{
    static const int overlaps[] = {QDR_OVERLAP_ALL, QDR_OVERLAP_NONE, QDR_OVERLAP_WEIGHTS, QDR_OVERLAP_ROWS,
                                   QDR_OVERLAP_GRADIENTS};
    layer_errors first, errors;
    for (int i = 0; i < 5; i++) {
        the_case->overlap = overlaps[i];
        if (run_case(grid, the_case, NULL, i ? &errors : &first)) return 1;
        const int n_bad = i && errors.bits != first.bits ? complain(grid, the_case, "bits differ from overlap = all")
                                                         : 0;
        if (together(grid, n_bad)) return 1;
    }
    return 0;
}

static int bitwise_grid(qdr_grid *grid, int grid_index, test_settings *settings)
{
    for (int64_t i = 0; i < settings->n_cases; i++) {
        layer_case drawn;
        layer_case_draw((uint64_t)(settings->seed * 999983 + grid_index * 4099 + i), &drawn);
        drawn.is_exact = 0;
        drawn.dtype = dtypes[(grid_index + i) % N_DTYPES];
        drawn.in_layout = (qdr_layout)(grid_index / 3 % 2);
        drawn.out_layout = (qdr_layout)(grid_index / 2 % 2);
        if (bitwise_case(grid, &drawn)) return 1;
    }
    if (qdr_context_rank(qdr_grid_context(grid)) == 0) settings->n_runs += (int)settings->n_cases * 5;
    return 0;
}

static int check_bitwise(qdr_context *ctx, test_settings *settings) { return for_grids(ctx, settings, bitwise_grid); }

enum { N_DIVISIBLE = 128 };

/* A layer that every grid of p ranks divides, parts of 16 bytes included. */
static layer_case divisible_case(qdr_grid *grid, int which)
{
    const int p = qdr_context_size(qdr_grid_context(grid)), unit = 8 * p;
    return (layer_case){.seed = 7,
                        .m = 2 * unit,
                        .in = {{unit, 1}},
                        .out = {{unit, 2}, {unit, 1}},
                        .row_unit = 1,
                        .dtype = dtypes[which % N_DTYPES],
                        .in_layout = (qdr_layout)(which / 4 % 2),
                        .out_layout = (qdr_layout)(which / 8 % 2),
                        .transposed = which / 16 % 2,
                        .bias = which / 3 % 2,
                        .drop_gathered = which / 32 % 2,
                        .storage = which % 5 % 2 ? QDR_IN_OUT : QDR_OUT_IN,
                        .n_calls = 1,
                        .overlap = QDR_OVERLAP_ALL,
                        .panels = which / 64 ? 4 : 1};
}

static int bytes_case(qdr_grid *grid, const layer_case *the_case)
{
    const reference_layer perf = {.m = (double)the_case->m,
                                  .k = (double)layer_case_k(the_case),
                                  .n = (double)layer_case_n(the_case),
                                  .x = qdr_grid_size(grid, QDR_X),
                                  .y = qdr_grid_size(grid, QDR_Y),
                                  .z = qdr_grid_size(grid, QDR_Z),
                                  .d = qdr_grid_size(grid, QDR_D),
                                  .transposed = the_case->transposed,
                                  .bias = the_case->bias,
                                  .in_layout = the_case->in_layout,
                                  .out_layout = the_case->out_layout,
                                  .drop_gathered = the_case->drop_gathered,
                                  .dtype = the_case->dtype};
    const reference_cost forward = reference_forward_cost(&perf), backward = reference_backward_cost(&perf);
    byte_check bytes = {.forward = &forward, .backward = &backward, .in_panels = the_case->panels > 1};
    layer_errors errors;
    return run_case(grid, the_case, &bytes, &errors);
}

static int bytes_grid(qdr_grid *grid, int grid_index, test_settings *settings)
{
    /* All 128 combinations in the full run, else four of them, others on each grid. */
    const int n_cases = settings->n_cases < 12 ? 4 * (int)settings->n_cases : N_DIVISIBLE;
    for (int i = 0; i < n_cases; i++) {
        const layer_case the_case = divisible_case(grid, (grid_index * 5 + i * (n_cases < N_DIVISIBLE ? 29 : 1)) %
                                                             N_DIVISIBLE);
        if (bytes_case(grid, &the_case)) return 1;
    }
    if (qdr_context_rank(qdr_grid_context(grid)) == 0) settings->n_runs += n_cases;
    return 0;
}

static int check_bytes(qdr_context *ctx, test_settings *settings) { return for_grids(ctx, settings, bytes_grid); }

/* ---- the sequence of calls ---- */

typedef struct call {
    int channel, kind, group, unused; /* no padding: compared as bytes */
    int64_t n_elems;
} call;

#define MAX_CALLS 4096
#define MAX_RANKS 16

typedef struct recording {
    int n_calls;
    call calls[MAX_CALLS];
} recording;

/* The observer of one channel. */
typedef struct channel_listener {
    recording *recording;
    int channel;
} channel_listener;

static void record(const qdri_comm *comm, const qdri_coll *coll, void *user)
{
    const channel_listener *listener = user;
    recording *into = listener->recording;
    call made = {.channel = listener->channel, .kind = (int)coll->kind, .group = qdri_comm_size(comm)};
    for (int i = 0; i < made.group; i++) made.n_elems += coll->counts ? coll->counts[i] : coll->count;
    if (into->n_calls < MAX_CALLS) into->calls[into->n_calls++] = made;
}

static void listen_to(qdr_grid *grid, channel_listener listeners[QDR_N_CHANNELS], recording *into)
{
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++) {
        listeners[channel] = (channel_listener){into, channel};
        qdri_comm *comm = qdri_grid_comm(grid, (qdr_channel)channel);
        if (comm) qdri_comm_set_observer(comm, into ? record : NULL, &listeners[channel]);
    }
}

/* Which case runs: the same on MPI and on local ranks. */
typedef struct sequence_job {
    grid_size size;
    layer_case the_case;
    recording *recordings; /* one for each rank of this process */
    int n_recordings;
} sequence_job;

static int record_rank(qdr_context *ctx, void *user)
{
    const sequence_job *job = user;
    channel_listener listeners[QDR_N_CHANNELS];
    layer_errors errors;
    qdr_grid *grid;
    const qdr_grid_opts opts = {QDR_INIT(qdr_grid_opts), .x = job->size.x, .y = job->size.y, .z = job->size.z,
                                .d = job->size.d};
    if (qdr_grid_create(ctx, &opts, &grid) != QDR_OK) return 1;
    recording *into = &job->recordings[job->n_recordings > 1 ? qdr_context_rank(ctx) : 0];
    into->n_calls = 0;
    listen_to(grid, listeners, into);
    const int n_bad = run_case(grid, &job->the_case, NULL, &errors);
    listen_to(grid, listeners, NULL);
    qdr_grid_destroy(&grid);
    return n_bad;
}

/* Compares what this rank of MPI did with what the same rank did as a thread of rank 0's process. */
static int compare_calls(qdr_context *ctx, const recording *mine, recording *local)
{
    int n_bad = 0;
    for (int rank = 0; rank < qdr_context_size(ctx); rank++) {
        if (qdr_broadcast(ctx, 0, &local[rank], sizeof local[rank]) != QDR_OK) return 1;
        if (rank != qdr_context_rank(ctx)) continue;
        n_bad = mine->n_calls != local[rank].n_calls || mine->n_calls == MAX_CALLS ||
                memcmp(mine->calls, local[rank].calls, (size_t)mine->n_calls * sizeof *mine->calls) != 0;
    }
    return n_bad;
}

static int sequence_job_run(qdr_context *ctx, const sequence_job *job, recording *mine, recording *local)
{
    sequence_job here = *job, as_threads = *job;
    int code = 0;
    here.recordings = mine;
    here.n_recordings = 1;
    as_threads.recordings = local;
    as_threads.n_recordings = qdr_context_size(ctx);
    int n_bad = record_rank(ctx, &here);
    if (qdr_context_rank(ctx) == 0 &&
        (qdr_launch(qdr_context_size(ctx), NULL, record_rank, &as_threads, &code) != QDR_OK || code))
        n_bad++;
    n_bad += compare_calls(ctx, mine, local);
    return qdr_agree(ctx, n_bad ? QDR_ERR_STATE : QDR_OK) == QDR_OK ? 0 : n_bad + 1;
}

static int check_sequence(qdr_context *ctx, test_settings *settings)
{
    grid_size sizes[MAX_GRIDS];
    const int n_ranks = qdr_context_size(ctx), n_sizes = list_grids(n_ranks, sizes, MAX_GRIDS);
    recording *recordings = calloc((size_t)n_ranks + 1, sizeof *recordings);
    int n_bad = !recordings;
    for (int i = 0; i < n_sizes * settings->n_cases && !n_bad; i++) {
        sequence_job job = {.size = sizes[i % n_sizes]};
        layer_case_draw((uint64_t)(settings->seed * 7919 + i), &job.the_case);
        job.the_case.dtype = dtypes[i % N_DTYPES];
        job.the_case.in_layout = (qdr_layout)(i / 3 % 2);
        job.the_case.out_layout = (qdr_layout)(i / 4 % 2);
        n_bad = sequence_job_run(ctx, &job, &recordings[n_ranks], recordings);
        if (n_bad && qdr_context_rank(ctx) == 0) {
            char name[64], text[512];
            grid_name(job.size, name);
            layer_case_text(&job.the_case, text, sizeof text);
            fprintf(stderr, "grid %s: calls under MPI differ from those of local ranks: %s\n", name, text);
        }
        settings->n_runs++;
    }
    free(recordings);
    return n_bad;
}

/* ---- the program ---- */

static int run_rank(qdr_context *ctx, void *user)
{
    test_settings *settings = user;
    if (settings->use_mpi && settings->n_ranks && qdr_context_size(ctx) != settings->n_ranks) {
        fprintf(stderr, "%d ranks started, %d expected\n", qdr_context_size(ctx), (int)settings->n_ranks);
        return 1;
    }
    const int n_bad = settings->check(ctx, settings);
    if (qdr_context_rank(ctx) == 0 && !n_bad) printf("%d ranks: %d cases\n", qdr_context_size(ctx), settings->n_runs);
    return n_bad ? 1 : 0;
}

static int read_settings(int argc, char **argv, test_settings *settings)
{
    static const struct {
        const char *name;
        int (*check)(qdr_context *, struct test_settings *);
    } checks[] = {
        {"sweep", check_sweep}, {"bitwise", check_bitwise}, {"bytes", check_bytes}, {"sequence", check_sequence}};
    for (int i = 0; i < 4; i++)
        if (argc > 1 && strcmp(argv[1], checks[i].name) == 0) settings->check = checks[i].check;
    int has_ended = 1;
    for (int i = 2; i < argc && has_ended; i++) {
        const int has_value = i + 1 < argc;
        if (strcmp(argv[i], "--mpi") == 0)
            settings->use_mpi = 1;
        else if (strcmp(argv[i], "--boot") == 0 && has_value)
            settings->by_boot = 1, settings->n_ranks = atoll(argv[++i]);
        else if (strcmp(argv[i], "--ranks") == 0 && has_value)
            settings->n_ranks = atoll(argv[++i]);
        else if (strcmp(argv[i], "--cases") == 0 && has_value)
            settings->n_cases = atoll(argv[++i]);
        else if (strcmp(argv[i], "--seed") == 0 && has_value)
            settings->seed = atoll(argv[++i]);
        else
            has_ended = 0;
    }
    return settings->check && has_ended;
}

int main(int argc, char **argv)
{
    test_settings settings = {.n_cases = 1, .seed = 1};
    int code = 1;
    if (!read_settings(argc, argv, &settings)) {
        fputs("usage: test_linear sweep|bitwise|bytes|sequence [--mpi] [--ranks P | --boot P] [--cases N] "
              "[--seed S]\n",
              stderr);
        return 2;
    }
    const int n_local = settings.use_mpi ? 0 : settings.n_ranks ? (int)settings.n_ranks : 4;
    const qdr_status status = (settings.by_boot ? boot_launch : qdr_launch)(n_local, NULL, run_rank, &settings, &code);
    if (status != QDR_OK) fprintf(stderr, "%s\n", qdr_last_error());
    return status == QDR_OK ? code : 1;
}
