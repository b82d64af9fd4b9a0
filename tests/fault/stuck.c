/* SPDX-License-Identifier: Apache-2.0 */
/* One rank makes a different call (QDR_CHECK; broadcasts also without), or does not arrive (QDR_TIMEOUT): all ranks, or
 * all others, fail with a message that names it.
 *
 *   fault_stuck [--local P | --messages | --reordered] CASE     without --local: the ranks started by mpiexec;
 *                                                               --messages: no shared memory;
 *                                                               --reordered: fault/reordered.h */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/comm.h"
#include "comm/mpi/mpi.h"
#include "config.h"
#include "fault/reordered.h"
#include "grid/internal.h"
#include "quadrille/quadrille.h"

enum { AS_EXPECTED = 7, WRONG = 8, N = 12, MOST_RANKS = 8, LATE_MS = 3000 };

typedef struct stuck {
    qdr_context *ctx;
    qdr_grid *grid; /* all ranks along z */
    int rank, size;
} stuck;

static void sleep_ms(long ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static qdr_status call(const stuck *s, qdri_coll coll)
{
    static _Thread_local float from[N * MOST_RANKS], to[N * MOST_RANKS];
    qdr_stream *stream = qdr_context_stream(s->ctx);
    coll.send = coll.kind == QDR_BROADCAST ? NULL : from;
    coll.recv = to;
    const qdr_status status = qdri_comm_launch(qdri_grid_comm(s->grid, QDR_CHANNEL_Z_GATHER), &coll, stream);
    return status != QDR_OK ? status : qdr_stream_synchronize(stream);
}

/* The words follow each other in the sentence. A rank may hear of the failure before it finds it. */
static int expect(qdr_status got, qdr_status wanted, const char *const words[], int n_words)
{
    const char *at = qdr_last_error();
    int right = got == wanted || got == QDR_ERR_PEER;
    for (int i = 0; i < n_words && right; i++) {
        at = strstr(at, words[i]);
        right = at != NULL;
    }
    if (right) return AS_EXPECTED;
    fprintf(stderr, "got %s, not %s: \"%s\"\n", qdr_status_name(got), qdr_status_name(wanted), qdr_last_error());
    return WRONG;
}
#define EXPECT(got, wanted, ...)                                                                                       \
    expect(got, wanted, (const char *const[]){__VA_ARGS__},                                                            \
           (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)))

static const qdri_coll usual = {.kind = QDR_ALL_REDUCE, .dtype = QDR_F32, .op = QDR_SUM, .count = N, .label = "fc1"};

/* All call the same twice, then rank 1 calls `other`, where the rest call `first`. */
static int differ(const stuck *s, qdri_coll first, qdri_coll other, const char *first_words, const char *other_words)
{
    for (int i = 0; i < 2; i++) {
        if (call(s, usual) != QDR_OK) return WRONG;
    }
    return EXPECT(call(s, s->rank == 1 ? other : first), QDR_ERR_ARGUMENT, "z gather",
                  "rank 0 at x=0 y=0 z=0 d=0 calls", first_words, "rank 1 at x=0 y=0 z=1 d=0 calls", other_words);
}

static int case_kind(const stuck *s)
{
    qdri_coll other = usual;
    other.kind = QDR_ALL_GATHER;
    other.count = N / s->size;
    return differ(s, usual, other, "all-reduce of 12 f32 for fc1", "all-gather of 12 f32 for fc1");
}

static int case_count(const stuck *s)
{
    qdri_coll other = usual;
    other.count = N - 1;
    return differ(s, usual, other, "all-reduce of 12 f32", "all-reduce of 11 f32");
}

static int case_dtype(const stuck *s)
{
    qdri_coll other = usual;
    other.dtype = QDR_BF16;
    return differ(s, usual, other, "all-reduce of 12 f32", "all-reduce of 12 bf16");
}

static int case_reduction(const stuck *s)
{
    qdri_coll other = usual;
    other.op = QDR_MAX;
    return differ(s, usual, other, "all-reduce of 12 f32", "all-reduce (max) of 12 f32");
}

static int case_layer(const stuck *s)
{
    qdri_coll other = usual;
    other.label = "fc2";
    return differ(s, usual, other, "12 f32 for fc1", "12 f32 for fc2");
}

static int case_root(const stuck *s)
{
    qdri_coll first = usual, other;
    first.kind = QDR_BROADCAST;
    first.peer = 0;
    other = first;
    other.peer = 1;
    return differ(s, first, other, "from member 0", "from member 1");
}

static int case_parts(const stuck *s)
{
    int64_t counts[MOST_RANKS] = {0};
    qdri_coll first = usual, other;
    first.kind = QDR_ALL_GATHER;
    first.split_unit = 1;
    other = first;
    other.counts = counts;
    counts[0] = N;
    return differ(s, first, other, "all-gather of 12", "in other parts");
}

/* Rank 1 is compared with rank 0, or first with the rank of its place on another node. */
static int expect_coded(qdr_status status, const char *first_words, const char *other_words)
{
    const qdr_status wanted = status == QDR_ERR_PEER ? QDR_ERR_PEER : QDR_ERR_ARGUMENT;
    const char *first = strstr(qdr_last_error(), first_words), *other = strstr(qdr_last_error(), other_words);
    if (first && other && other < first) return EXPECT(status, wanted, "rank 1", other_words, "rank 3", first_words);
    return EXPECT(status, wanted, "rank 0", first_words, "rank 1", other_words);
}

/* Of 256 and of 257 elements, whose messages are equally long. Stages of levels of a node compare them, each among its
 * own members: the others hear of the one that found it first. */
static int differ_coded(const stuck *s, const char *name, qdr_coll_kind kind, const char *first_words,
                        const char *other_words)
{
    enum { MOST = 257 };
    static _Thread_local float from[MOST], to[MOST];
    qdr_codec codec;
    qdr_stream *stream = qdr_context_stream(s->ctx);
    if (qdr_codec_parse(name, &codec) != QDR_OK || qdri_grid_compress(s->grid, QDR_CHANNEL_Z_GATHER) != QDR_OK)
        return WRONG;
    qdri_comm *comm = qdri_grid_comm(s->grid, QDR_CHANNEL_Z_GATHER);
    qdri_coll coll = {.kind = kind, .send = from, .recv = to, .count = MOST - 1, .codec = &codec, .label = "fc1"};
    if (kind != QDR_ALL_REDUCE) coll.split_unit = 1;
    for (int i = 0; i < 3; i++) {
        coll.count += i == 2 && s->rank == 1;
        qdr_status status = qdri_comm_launch(comm, &coll, stream);
        if (status == QDR_OK) status = qdr_stream_synchronize(stream);
        if (i == 2) return expect_coded(status, first_words, other_words);
        if (status != QDR_OK) return WRONG;
    }
    return WRONG;
}

static int case_coded(const stuck *s)
{
    return differ_coded(s, "int8", QDR_ALL_REDUCE, "calls all-reduce of 256 f32 as int8/128",
                        "calls all-reduce of 257 f32 as int8/128");
}

static int case_coded_gather(const stuck *s)
{
    return differ_coded(s, "lossless", QDR_ALL_GATHER, "calls all-gather of 256 f32 as lossless",
                        "calls all-gather of 257 f32 as lossless");
}

/* Rank 1 sends to the wrong side. */
static int case_peers(const stuck *s)
{
    const int next = (s->rank + 1) % s->size, before = (s->rank + s->size - 1) % s->size;
    qdri_coll ring = usual;
    ring.kind = QDR_SEND_RECV;
    ring.recv_count = N;
    ring.peer = next;
    ring.peer2 = before;
    if (call(s, ring) != QDR_OK) return WRONG;
    if (s->rank == 1) ring.peer = before;
    return EXPECT(call(s, ring), QDR_ERR_ARGUMENT, "z gather", "send-recv of 12 f32 to member",
                  "send-recv of 12 f32 to member", "the other must expect");
}

static int case_counts(const stuck *s)
{
    int64_t counts[MOST_RANKS];
    qdri_coll exchange = usual;
    exchange.kind = QDR_ALL_TO_ALL;
    exchange.count = 2;
    if (call(s, exchange) != QDR_OK) return WRONG;
    for (int j = 0; j < MOST_RANKS; j++) counts[j] = j == 0 ? 3 : 2;
    if (s->rank == 1) exchange.counts = counts;
    return EXPECT(call(s, exchange), QDR_ERR_SHAPE, "z gather", "rank 1 at x=0 y=0 z=1 d=0 sends 3",
                  "rank 0 at x=0 y=0 z=0 d=0", "expects 2");
}

static qdr_status stack_run(const stuck *s, const char *name)
{
    const qdr_stack_opts opts = {QDR_OPTS_INIT, .n_rows = N};
    const qdr_edge_desc input = {QDR_OPTS_INIT, .cols = {{N, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc desc = {QDR_OPTS_INIT, .name = name, .in = {{N, 1}}, .out = {{N, 1}}};
    qdr_stack *stack = NULL;
    qdr_edge edge = 0;
    qdr_linear *layer = NULL;
    qdr_status status = qdr_stack_create(s->grid, &opts, &stack);
    if (status == QDR_OK) status = qdr_stack_add_input(stack, "x", &input, 0, &edge);
    if (status == QDR_OK) status = qdr_stack_add_linear(stack, &desc, edge, &edge, &layer);
    if (status == QDR_OK) status = qdr_stack_build(stack);
    if (status == QDR_OK) status = qdr_stack_init(stack, 1, 0.1);
    if (status == QDR_OK) status = qdr_stack_forward(stack);
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(s->ctx));
    qdr_stack_destroy(&stack);
    return status;
}

/* Layers say who they are: rank 1 describes another one. */
static int case_stack(const stuck *s)
{
    if (stack_run(s, "fc1") != QDR_OK) return WRONG;
    return EXPECT(stack_run(s, s->rank == 1 ? "fc2" : "fc1"), QDR_ERR_ARGUMENT, "layer 'fc1' on rank 0",
                  "layer 'fc2' on rank 1", "describe the same stack on every rank");
}

/* ---- broadcasts of the context ---- */

/* All ranks fail, and go on. */
static int fails_together(const stuck *s, qdr_status got, const char *words, const char *other_words)
{
    int value = s->rank;
    const int last = s->size - 1, result = EXPECT(got, QDR_ERR_ARGUMENT, words, other_words);
    if (result != AS_EXPECTED || got != QDR_ERR_ARGUMENT) return WRONG;
    if (qdr_broadcast(s->ctx, last, &value, sizeof value) != QDR_OK || value != last) return WRONG;
    return qdr_barrier(s->ctx) == QDR_OK ? AS_EXPECTED : WRONG;
}

static int case_broadcast_root(const stuck *s)
{
    int values[4] = {0};
    return fails_together(s, qdr_broadcast(s->ctx, s->rank == 1, values, sizeof values),
                          "broadcast: ", "root 0 on rank 0 and 1 on rank 1");
}

static int case_broadcast_bytes(const stuck *s)
{
    int values[4] = {0};
    return fails_together(s, qdr_broadcast(s->ctx, 0, values, s->rank == 1 ? 4 : 16),
                          "broadcast: ", "bytes 16 on rank 0 and 4 on rank 1");
}

static int case_broadcast_invalid(const stuck *s)
{
    int values[4] = {0};
    if (fails_together(s, qdr_broadcast(s->ctx, s->rank == 1 ? s->size : 0, values, sizeof values), "broadcast: root",
                       "is not in 0") == WRONG)
        return WRONG;
    return fails_together(s, qdr_broadcast(s->ctx, 0, s->rank == 1 ? NULL : values, sizeof values), "data is NULL",
                          "16 bytes");
}

static int case_broadcast_barrier(const stuck *s)
{
    int values[4] = {0};
    return fails_together(s, s->rank == 1 ? qdr_barrier(s->ctx) : qdr_broadcast(s->ctx, 0, values, sizeof values),
                          "rank 0 and rank 1 are in different calls", "the same order");
}

/* ---- one rank does not come ---- */

/* What rank 1 gets: its call may have all it needs from ranks that have given up since. */
static int came_late(const stuck *s, qdr_status status)
{
    if (status == QDR_OK) status = qdr_barrier(s->ctx);
    return EXPECT(status, QDR_ERR_PEER, "another rank left or failed", "has waited 2 s in", "for rank 1");
}

static int case_late(const stuck *s)
{
    qdri_coll before = usual;
    before.label = "fc0";
    if (call(s, before) != QDR_OK) return WRONG;
    if (s->rank == 1) sleep_ms(LATE_MS);
    const qdr_status status = call(s, usual);
    if (s->rank == 1) return came_late(s, status);
    return EXPECT(status, QDR_ERR_TIMEOUT, "z gather", "has waited 2 s in all-reduce",
                  "12 f32 for fc1 (the call before was all-reduce of 12 f32 for fc0)",
                  "for rank 1 at x=0 y=0 z=1 d=0; ", "QDR_TIMEOUT=2");
}

static int case_late_pair(const stuck *s)
{
    qdri_coll ring = usual;
    ring.kind = QDR_SEND_RECV;
    ring.recv_count = N;
    ring.peer = (s->rank + 1) % s->size;
    ring.peer2 = (s->rank + s->size - 1) % s->size;
    if (s->rank == 1) sleep_ms(LATE_MS);
    qdr_status status = call(s, ring);
    if (status == QDR_OK) status = qdr_barrier(s->ctx); /* rank 0 needs nothing of rank 1 */
    return EXPECT(status, QDR_ERR_TIMEOUT, "has waited 2 s in", "rank 1");
}

static int case_late_barrier(const stuck *s)
{
    if (s->rank == 1) sleep_ms(LATE_MS);
    return EXPECT(qdr_barrier(s->ctx), QDR_ERR_TIMEOUT, "world", "has waited 2 s in an agreement",
                  "for rank 1; find out what rank 1 is doing");
}

/* What ranks make together. */
typedef enum making { GRID, STACK, BUILD, OPTIMIZER } making;

static void come_to(const stuck *s, making late, making now)
{
    if (s->rank == 1 && late == now) sleep_ms(LATE_MS);
}

/* Each needs the one before; rank 1 comes too late to one of them. */
static qdr_status make_all(const stuck *s, making late, qdr_grid **grid, qdr_stack **stack, qdr_adamw **optimizer)
{
    const qdr_grid_opts shape = {QDR_OPTS_INIT, .x = s->size, .y = 1, .z = 1, .d = 1};
    const qdr_stack_opts opts = {QDR_OPTS_INIT, .n_rows = N};
    const qdr_edge_desc input = {QDR_OPTS_INIT, .cols = {{N, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc desc = {QDR_OPTS_INIT, .name = "fc1", .in = {{N, 1}}, .out = {{N, 1}}};
    qdr_edge edge = 0;
    qdr_linear *layer = NULL;
    come_to(s, late, GRID);
    qdr_status status = qdr_grid_create(s->ctx, &shape, grid);
    if (status == QDR_OK) come_to(s, late, STACK);
    if (status == QDR_OK) status = qdr_stack_create(*grid, &opts, stack);
    if (status == QDR_OK) status = qdr_stack_add_input(*stack, "x", &input, 1, &edge);
    if (status == QDR_OK) status = qdr_stack_add_linear(*stack, &desc, edge, &edge, &layer);
    if (status == QDR_OK) come_to(s, late, BUILD);
    if (status == QDR_OK) status = qdr_stack_build(*stack);
    if (status == QDR_OK) come_to(s, late, OPTIMIZER);
    return status == QDR_OK ? qdr_adamw_create(*stack, NULL, optimizer) : status;
}

static int make_late(const stuck *s, making late)
{
    qdr_grid *grid = NULL;
    qdr_stack *stack = NULL;
    qdr_adamw *optimizer = NULL;
    const qdr_status status = make_all(s, late, &grid, &stack, &optimizer);
    const int result = s->rank == 1 ? came_late(s, status)
                                    : EXPECT(status, QDR_ERR_TIMEOUT, "world", "has waited 2 s in an agreement",
                                             "for rank 1; ", "QDR_TIMEOUT=2");
    qdr_adamw_destroy(&optimizer);
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
    return result;
}

static int case_late_grid(const stuck *s) { return make_late(s, GRID); }
static int case_late_stack(const stuck *s) { return make_late(s, STACK); }
static int case_late_build(const stuck *s) { return make_late(s, BUILD); }
static int case_late_optimizer(const stuck *s) { return make_late(s, OPTIMIZER); }

/* What rank 1 does instead of coming in time. */
typedef enum absence { SLEEPS, DIES } absence;

static void be_absent(const stuck *s, absence how)
{
    if (s->rank != 1) return;
    if (how == DIES) raise(SIGKILL);
    sleep_ms(LATE_MS);
}

/* A layer whose state is partitioned over all ranks, along d: rank 1 does not come to the sum of its gradient over the
 * far ones, or to the return of its W. */
static qdr_status run_levels(const stuck *s, int is_return, absence how, qdr_grid **grid, qdr_stack **stack)
{
    const qdr_grid_opts shape = {
        QDR_OPTS_INIT, .x = 1, .y = 1, .z = 1, .d = s->size, .gradient_parts = 1, .optimizer_parts = s->size};
    const qdr_stack_opts opts = {QDR_OPTS_INIT, .n_rows = N};
    const qdr_edge_desc input = {QDR_OPTS_INIT, .cols = {{N, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc desc = {QDR_OPTS_INIT, .name = "fc1", .in = {{N, 1}}, .out = {{N, 1}}};
    qdr_edge edge = 0;
    qdr_linear *layer = NULL;
    qdr_status status = qdr_grid_create(s->ctx, &shape, grid);
    if (status == QDR_OK) status = qdr_stack_create(*grid, &opts, stack);
    if (status == QDR_OK) status = qdr_stack_add_input(*stack, "x", &input, 0, &edge);
    if (status == QDR_OK) status = qdr_stack_add_linear(*stack, &desc, edge, &edge, &layer);
    if (status == QDR_OK) status = qdr_stack_build(*stack);
    if (status == QDR_OK) status = qdr_stack_init(*stack, 1, 0.1);
    if (status == QDR_OK) status = qdr_stack_updated(*stack);
    if (status == QDR_OK && is_return) be_absent(s, how);
    if (status == QDR_OK) status = qdr_stack_forward(*stack);
    if (status == QDR_OK && !is_return) status = qdr_stream_synchronize(qdr_context_stream(s->ctx));
    if (status == QDR_OK && !is_return) be_absent(s, how);
    if (status == QDR_OK) status = qdr_stack_backward(*stack, 0, 1);
    return status == QDR_OK ? qdr_stream_synchronize(qdr_context_stream(s->ctx)) : status;
}

static int late_level(const stuck *s, int is_return, const char *call)
{
    qdr_grid *grid = NULL;
    qdr_stack *stack = NULL;
    const qdr_status status = run_levels(s, is_return, SLEEPS, &grid, &stack);
    const int result = s->rank == 1 ? came_late(s, status)
                                    : EXPECT(status, QDR_ERR_TIMEOUT, "d far", "has waited 2 s in", call, "for fc1",
                                             "for rank 1 at x=0 y=0 z=0 d=1; ");
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
    return result;
}

static int case_late_far(const stuck *s) { return late_level(s, 0, "reduce-scatter"); }
static int case_late_return(const stuck *s) { return late_level(s, 1, "all-gather"); }

static int killed_level(const stuck *s, int is_return)
{
    qdr_grid *grid = NULL;
    qdr_stack *stack = NULL;
    const int result = run_levels(s, is_return, DIES, &grid, &stack) == QDR_OK ? WRONG : AS_EXPECTED;
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
    return result;
}

static int case_killed_far(const stuck *s) { return killed_level(s, 0); }
static int case_killed_return(const stuck *s) { return killed_level(s, 1); }

/* Nobody is late: the limit is one of each wait. */
static int case_in_time(const stuck *s)
{
    for (int i = 0; i < 4; i++) {
        if (s->rank == i % s->size) sleep_ms(700);
        if (call(s, usual) != QDR_OK) return WRONG;
    }
    return qdr_barrier(s->ctx) == QDR_OK ? AS_EXPECTED : WRONG;
}

/* The process stands still for good; what mpiexec prints and returns is the script's to judge. */
static int case_stopped(const stuck *s)
{
    if (call(s, usual) != QDR_OK) return WRONG;
    if (s->rank == 1) raise(SIGSTOP);
    const int result = EXPECT(call(s, usual), QDR_ERR_TIMEOUT, "z gather", "has waited 2 s",
                              "for rank 1 at x=0 y=0 z=1 d=0; ");
    if (result == AS_EXPECTED) fprintf(stderr, "rank %d named rank 1\n", s->rank);
    return result;
}

static void tell(int level, const char *line, void *user)
{
    const stuck *s = user;
    (void)level;
    if (strstr(line, "has waited 2 s in the destruction of contexts for rank 1; find out what rank 1 is doing"))
        fprintf(stderr, "rank %d named rank 1\n", s->rank);
    else
        fprintf(stderr, "%s\n", line);
}

/* Destroying has no status: the log tells. */
static int expect_log(const stuck *s)
{
    static stuck told; /* the receiver outlives the case */
    told = *s;
    qdr_set_log(tell, &told);
    return AS_EXPECTED;
}

static int case_stopped_destroy(const stuck *s)
{
    if (call(s, usual) != QDR_OK) return WRONG;
    if (s->rank == 1) raise(SIGSTOP);
    return expect_log(s);
}

#if QDRI_HAVE_MPI
/* Nobody can tell who has not come to a world that there is not yet; who is missing when the old one ends is told. */
static int case_stopped_context(const stuck *s)
{
    qdr_context *ctx = NULL;
    if (s->rank == 1) raise(SIGSTOP);
    const int result = EXPECT(qdr_context_create_mpi(MPI_COMM_WORLD, NULL, &ctx), QDR_ERR_TIMEOUT,
                              "has waited 2 s in the creation of contexts for others of the 3 ranks");
    return result == AS_EXPECTED ? expect_log(s) : result;
}
#endif

/* The process is gone while the others wait for it, on a stream or in a call: the launcher, not this program, ends the
 * job. */
static int case_killed(const stuck *s)
{
    if (call(s, usual) != QDR_OK) return WRONG;
    if (s->rank == 1) raise(SIGKILL);
    return call(s, usual) == QDR_OK ? WRONG : AS_EXPECTED;
}

static int case_killed_barrier(const stuck *s)
{
    if (call(s, usual) != QDR_OK) return WRONG;
    if (s->rank == 1) raise(SIGKILL);
    return qdr_barrier(s->ctx) == QDR_OK ? WRONG : AS_EXPECTED;
}

static const struct {
    const char *name;
    int (*run)(const stuck *s);
    const char *check, *timeout;
} cases[] = {
    {"kind", case_kind, "1", NULL},
    {"count", case_count, "1", NULL},
    {"dtype", case_dtype, "1", NULL},
    {"reduction", case_reduction, "1", NULL},
    {"layer", case_layer, "1", NULL},
    {"root", case_root, "1", NULL},
    {"coded", case_coded, "1", NULL},
    {"coded-gather", case_coded_gather, "1", NULL},
    {"coded-unchecked", case_coded, NULL, NULL},
    {"coded-gather-unchecked", case_coded_gather, NULL, NULL},
    {"parts", case_parts, "1", NULL},
    {"peers", case_peers, "1", NULL},
    {"counts", case_counts, "1", NULL},
    {"stack", case_stack, "1", NULL},
    {"broadcast-root", case_broadcast_root, NULL, "5"},
    {"broadcast-bytes", case_broadcast_bytes, NULL, "5"},
    {"broadcast-invalid", case_broadcast_invalid, NULL, "5"},
    {"broadcast-barrier", case_broadcast_barrier, NULL, "5"},
    {"late", case_late, NULL, "2"},
    {"late-checked", case_late, "1", "2"},
    {"late-pair", case_late_pair, "0", "2.0"},
    {"late-barrier", case_late_barrier, NULL, "2"},
    {"late-far", case_late_far, NULL, "2"},
    {"late-return", case_late_return, NULL, "2"},
    {"killed-far", case_killed_far, NULL, NULL},
    {"killed-return", case_killed_return, NULL, NULL},
    {"late-grid", case_late_grid, NULL, "2"},
    {"late-stack", case_late_stack, NULL, "2"},
    {"late-build", case_late_build, NULL, "2"},
    {"late-optimizer", case_late_optimizer, NULL, "2"},
    {"in-time", case_in_time, "1", "2"},
    {"stopped", case_stopped, NULL, "2"},
    {"stopped-checked", case_stopped, "1", "2"},
    {"stopped-destroy", case_stopped_destroy, NULL, "2"},
#if QDRI_HAVE_MPI
    {"stopped-context", case_stopped_context, NULL, "2"},
#endif
    {"killed", case_killed, NULL, NULL},
    {"killed-checked", case_killed, "1", "60"},
    {"killed-barrier", case_killed_barrier, NULL, NULL},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static int rank_main(qdr_context *ctx, void *user)
{
    const int *chosen = user;
    stuck s = {.ctx = ctx, .rank = qdr_context_rank(ctx), .size = qdr_context_size(ctx)};
    const qdr_grid_opts shape = {QDR_OPTS_INIT, .x = 1, .y = 1, .z = s.size, .d = 1};
    if (s.size > MOST_RANKS || qdr_grid_create(ctx, &shape, &s.grid) != QDR_OK) return WRONG;
    const int result = cases[*chosen].run(&s);
    qdr_grid_destroy(&s.grid);
    return result;
}

/* Rank 1 comes too late to the creation of contexts. Alone among the cases: there is no context yet. */
static int late_context(qdr_local_world *world, int rank, void *user)
{
    qdr_context *ctx = NULL;
    (void)user;
    if (rank == 1) sleep_ms(LATE_MS);
    const qdr_status status = qdr_context_create_local(world, rank, NULL, &ctx);
    const int result = rank == 1 ? EXPECT(status, QDR_ERR_PEER, "another rank left or failed", "has waited 2 s in",
                                          "for rank 1")
                                 : EXPECT(status, QDR_ERR_TIMEOUT, "has waited 2 s in the creation of contexts",
                                          "for rank 1; ", "QDR_TIMEOUT=2");
    qdr_context_destroy(&ctx);
    return result == AS_EXPECTED ? 0 : 1;
}

static int run_late_context(int n_local)
{
    int failed = 1;
    setenv("QDR_TIMEOUT", "2", 1);
    return qdr_local_run(n_local, late_context, NULL, &failed) == QDR_OK && !failed ? 0 : 1;
}

int main(int argc, char **argv)
{
    int n_local = 0, exit_code = WRONG, chosen = 0;
    const int is_reordered = argc == 3 && strcmp(argv[1], "--reordered") == 0;
    if (argc == 4 && strcmp(argv[1], "--local") == 0) n_local = atoi(argv[2]);
#if QDRI_HAVE_MPI
    if (argc == 3 && strcmp(argv[1], "--messages") == 0) qdri_mpi_use_node_memory = 0;
#endif
    if (n_local > 0 && strcmp(argv[3], "late-context") == 0) return run_late_context(n_local);
    while (chosen < N_CASES && strcmp(cases[chosen].name, argv[argc - 1]) != 0) chosen++;
    if (chosen == N_CASES) return 2;
    if (cases[chosen].check) setenv("QDR_CHECK", cases[chosen].check, 1);
    if (cases[chosen].timeout) setenv("QDR_TIMEOUT", cases[chosen].timeout, 1);
    const qdr_status status = is_reordered ? reordered_launch(rank_main, &chosen, &exit_code)
                                           : qdr_launch(n_local, NULL, rank_main, &chosen, &exit_code);
    if (status != QDR_OK) fprintf(stderr, "fault_stuck: %s\n", qdr_last_error());
    return status == QDR_OK && exit_code == AS_EXPECTED ? 0 : 1;
}
