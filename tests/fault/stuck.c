/* SPDX-License-Identifier: Apache-2.0 */
/* One rank makes a different call (stuck_calls.c), or does not arrive (QDR_TIMEOUT): all ranks, or all others, fail
 * with a message that names it.
 *
 *   fault_stuck [--local P | --messages | --reordered] CASE...     fault/cases.h */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/mpi/mpi.h"
#include "config.h"
#include "fault/stuck.h"
#include "grid/internal.h"

enum { LATE_MS = 1500 * LIMIT_SECS };

static void sleep_ms(long ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* What rank 1 gets: its call may have all it needs from ranks that have given up since. */
static int came_late(const stuck *s, qdr_status status)
{
    if (status == QDR_OK) status = qdr_barrier(s->ctx);
    return EXPECT(status, QDR_ERR_PEER, "another rank left or failed", WAITED " in", "for rank 1");
}

static int case_late(const stuck *s)
{
    qdri_coll before = stuck_usual;
    before.label = "fc0";
    if (stuck_call(s, before) != QDR_OK) return WRONG;
    if (s->rank == 1) sleep_ms(LATE_MS);
    const qdr_status status = stuck_call(s, stuck_usual);
    if (s->rank == 1) return came_late(s, status);
    return EXPECT(status, QDR_ERR_TIMEOUT, "z gather", WAITED " in all-reduce",
                  "12 f32 for fc1 (the call before was all-reduce of 12 f32 for fc0)",
                  "for rank 1 at x=0 y=0 z=1 d=0; ", "QDR_TIMEOUT=" LIMIT);
}

/* To the first call of a group that has what another one left, whose members had made many. */
static int case_late_again(const stuck *s)
{
    const qdr_grid_opts shape = {QDR_INIT(qdr_grid_opts), .x = 1, .y = 1, .z = s->size, .d = 1};
    stuck again = *s;
    qdr_status status = qdr_grid_create(s->ctx, &shape, &again.grid);
    for (int i = 0; i < 20 && status == QDR_OK; i++) status = stuck_call(&again, stuck_usual);
    qdr_grid_destroy(&again.grid);
    if (status == QDR_OK) status = qdr_barrier(s->ctx);
    if (status == QDR_OK) status = qdr_grid_create(s->ctx, &shape, &again.grid);
    if (status != QDR_OK) return WRONG;
    if (s->rank == 1) sleep_ms(LATE_MS);
    status = stuck_call(&again, stuck_usual);
    const int result = s->rank == 1 ? came_late(s, status)
                                    : EXPECT(status, QDR_ERR_TIMEOUT, "z gather", WAITED " in all-reduce",
                                             "for rank 1 at x=0 y=0 z=1 d=0; ");
    qdr_grid_destroy(&again.grid);
    return result;
}

/* Rank 0 is late, too, but comes in time. Those on another node have had theirs from each other since, wait for it
 * longer than usual, and do not name it. */
static int case_late_later(const stuck *s)
{
    if (s->rank == 0) sleep_ms(400);
    if (s->rank == 1) sleep_ms(2 * LATE_MS);
    const qdr_status status = stuck_call(s, stuck_usual);
    if (s->rank == 1) return came_late(s, status);
    return EXPECT(status, QDR_ERR_TIMEOUT, "z gather", WAITED " in all-reduce", "for rank 1 at x=0 y=0 z=1 d=0; ");
}

/* A coded sum to which the ranks from `late` on come too late. On two nodes those of the other one have added among
 * themselves, and each waits for its counterpart: whoever gives up names that one, or the first of its own node. */
static int late_coded(const stuck *s, int late)
{
    enum { N_CODED = 256 };
    static _Thread_local float data[N_CODED];
    const qdr_codec codec = {.kind = QDR_CODEC_INT8};
    const qdri_coll coll = {.kind = QDR_ALL_REDUCE, .op = QDR_SUM, .recv = data, .count = N_CODED, .codec = &codec};
    const int has_two_nodes = qdri_comm_node_size(qdri_context_world(s->ctx)) < s->size, half = s->size / 2;
    if (qdri_grid_compress(s->grid, QDR_CHANNEL_Z_GATHER) != QDR_OK) return WRONG;
    if (s->rank >= late) sleep_ms(LATE_MS);
    qdr_status status = qdri_comm_launch(qdri_grid_comm(s->grid, QDR_CHANNEL_Z_GATHER), &coll,
                                         qdr_context_stream(s->ctx));
    if (status == QDR_OK) status = qdr_barrier(s->ctx);
    const char *who = strstr(qdr_last_error(), "z gather: rank "), *whom = who ? strstr(who, " for rank ") : NULL;
    if (whom) {
        const int waits = atoi(who + strlen("z gather: rank ")), named = atoi(whom + strlen(" for rank "));
        if (named != (has_two_nodes && waits < half ? waits + half : late)) status = QDR_ERR_STATE;
    }
    return EXPECT(status, QDR_ERR_TIMEOUT, WAITED, "for rank");
}

static int case_late_coded(const stuck *s) { return late_coded(s, s->size - 1); }
static int case_late_coded_node(const stuck *s) { return late_coded(s, s->size / 2); }

static int case_late_pair(const stuck *s)
{
    qdri_coll ring = stuck_usual;
    ring.kind = QDR_SEND_RECV;
    ring.recv_count = N;
    ring.peer = (s->rank + 1) % s->size;
    ring.peer2 = (s->rank + s->size - 1) % s->size;
    if (s->rank == 1) sleep_ms(LATE_MS);
    qdr_status status = stuck_call(s, ring);
    if (status == QDR_OK) status = qdr_barrier(s->ctx); /* rank 0 needs nothing of rank 1 */
    return EXPECT(status, QDR_ERR_TIMEOUT, WAITED " in", "rank 1");
}

static int case_late_barrier(const stuck *s)
{
    if (s->rank == 1) sleep_ms(LATE_MS);
    return EXPECT(qdr_barrier(s->ctx), QDR_ERR_TIMEOUT, "world", WAITED " in an agreement",
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
    const qdr_grid_opts shape = {QDR_INIT(qdr_grid_opts), .x = s->size, .y = 1, .z = 1, .d = 1};
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = N};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{N, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc), .name = "fc1", .in = {{N, 1}}, .out = {{N, 1}}};
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
                                    : EXPECT(status, QDR_ERR_TIMEOUT, "world", WAITED " in an agreement",
                                             "for rank 1; ", "QDR_TIMEOUT=" LIMIT);
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
    const qdr_grid_opts shape = {QDR_INIT(qdr_grid_opts),   .x = 1, .y = 1, .z = 1, .d = s->size, .gradient_parts = 1,
                                 .optimizer_parts = s->size};
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = N};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{N, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc), .name = "fc1", .in = {{N, 1}}, .out = {{N, 1}}};
    qdr_edge edge = 0;
    qdr_linear *layer = NULL;
    qdr_status status = qdr_grid_create(s->ctx, &shape, grid);
    if (status == QDR_OK) status = qdr_stack_create(*grid, &opts, stack);
    if (status == QDR_OK) status = qdr_stack_add_input(*stack, "x", &input, 0, &edge);
    if (status == QDR_OK) status = qdr_stack_add_linear(*stack, &desc, edge, &edge, &layer);
    if (status == QDR_OK) status = qdr_stack_build(*stack);
    if (status == QDR_OK) status = qdr_stack_init(*stack, 1, 0.1);
    if (status == QDR_OK) status = qdr_stack_mark_updated(*stack);
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
                                    : EXPECT(status, QDR_ERR_TIMEOUT, "d far", WAITED " in", call, "for fc1",
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
        if (s->rank == i % s->size) sleep_ms(350 * LIMIT_SECS);
        if (stuck_call(s, stuck_usual) != QDR_OK) return WRONG;
    }
    return qdr_barrier(s->ctx) == QDR_OK ? AS_EXPECTED : WRONG;
}

/* The process stands still for good; what mpiexec prints and returns is the script's to judge. */
static int case_stopped(const stuck *s)
{
    if (stuck_call(s, stuck_usual) != QDR_OK) return WRONG;
    if (s->rank == 1) raise(SIGSTOP);
    const int result = EXPECT(stuck_call(s, stuck_usual), QDR_ERR_TIMEOUT, "z gather", WAITED,
                              "for rank 1 at x=0 y=0 z=1 d=0; ");
    if (result == AS_EXPECTED) fprintf(stderr, "rank %d named rank 1\n", s->rank);
    return result;
}

static void tell(int level, const char *line, void *user)
{
    const stuck *s = user;
    (void)level;
    if (strstr(line, WAITED " in the destruction of contexts for rank 1; find out what rank 1 is doing"))
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
    if (stuck_call(s, stuck_usual) != QDR_OK) return WRONG;
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
                              WAITED " in the creation of contexts for others of the 3 ranks");
    return result == AS_EXPECTED ? expect_log(s) : result;
}
#endif

/* The process is gone while the others wait for it, on a stream or in a call: the launcher, not this program, ends the
 * job. */
static int case_killed(const stuck *s)
{
    if (stuck_call(s, stuck_usual) != QDR_OK) return WRONG;
    if (s->rank == 1) raise(SIGKILL);
    return stuck_call(s, stuck_usual) == QDR_OK ? WRONG : AS_EXPECTED;
}

static int case_killed_barrier(const stuck *s)
{
    if (stuck_call(s, stuck_usual) != QDR_OK) return WRONG;
    if (s->rank == 1) raise(SIGKILL);
    return qdr_barrier(s->ctx) == QDR_OK ? WRONG : AS_EXPECTED;
}

static const stuck_case late_cases[] = {
    {"late", case_late, NULL, LIMIT},
    {"late-checked", case_late, "1", LIMIT},
    {"late-coded", case_late_coded, NULL, LIMIT},
    {"late-coded-node", case_late_coded_node, NULL, LIMIT},
    {"late-again", case_late_again, NULL, LIMIT},
    {"late-later", case_late_later, NULL, LIMIT},
    {"late-pair", case_late_pair, "0", LIMIT ".0"},
    {"late-barrier", case_late_barrier, NULL, LIMIT},
    {"late-far", case_late_far, NULL, LIMIT},
    {"late-return", case_late_return, NULL, LIMIT},
    {"killed-far", case_killed_far, NULL, NULL},
    {"killed-return", case_killed_return, NULL, NULL},
    {"late-grid", case_late_grid, NULL, LIMIT},
    {"late-stack", case_late_stack, NULL, LIMIT},
    {"late-build", case_late_build, NULL, LIMIT},
    {"late-optimizer", case_late_optimizer, NULL, LIMIT},
    {"in-time", case_in_time, "1", LIMIT},
    {"stopped", case_stopped, NULL, LIMIT},
    {"stopped-checked", case_stopped, "1", LIMIT},
    {"stopped-destroy", case_stopped_destroy, NULL, LIMIT},
#if QDRI_HAVE_MPI
    {"stopped-context", case_stopped_context, NULL, LIMIT},
#endif
    {"killed", case_killed, NULL, NULL},
    {"killed-checked", case_killed, "1", "60"},
    {"killed-barrier", case_killed_barrier, NULL, NULL},
    {NULL, NULL, NULL, NULL},
};

static const stuck_case *find_case(const stuck_case *at, const char *name)
{
    while (at->name && strcmp(at->name, name) != 0) at++;
    return at->name ? at : NULL;
}

static int rank_main(qdr_context *ctx, void *user)
{
    const stuck_case *chosen = user;
    stuck s = {.ctx = ctx, .rank = qdr_context_rank(ctx), .size = qdr_context_size(ctx)};
    const qdr_grid_opts shape = {QDR_INIT(qdr_grid_opts), .x = 1, .y = 1, .z = s.size, .d = 1};
    if (s.size > MOST_RANKS || qdr_grid_create(ctx, &shape, &s.grid) != QDR_OK) return WRONG;
    const int result = chosen->run(&s);
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
    const int result = rank == 1
                           ? EXPECT(status, QDR_ERR_PEER, "another rank left or failed", WAITED " in", "for rank 1")
                           : EXPECT(status, QDR_ERR_TIMEOUT, WAITED " in the creation of contexts", "for rank 1; ",
                                    "QDR_TIMEOUT=" LIMIT);
    qdr_context_destroy(&ctx);
    return result == AS_EXPECTED ? 0 : 1;
}

static int run_late_context(int n_local)
{
    int failed = 1;
    return qdr_local_run(n_local, late_context, NULL, &failed) == QDR_OK && !failed ? 0 : 1;
}

static void set_or_unset(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static int run_case(const case_ranks *ranks, const char *name)
{
    if (strcmp(name, "late-context") == 0) {
        setenv("QDR_TIMEOUT", LIMIT, 1);
        return run_late_context(ranks->n_local);
    }
    const stuck_case *found = find_case(stuck_calls, name);
    if (!found) found = find_case(late_cases, name);
    if (!found) return 2;
    stuck_case chosen = *found;
    set_or_unset("QDR_CHECK", found->check);
    set_or_unset("QDR_TIMEOUT", found->timeout);
    return case_launch(ranks, rank_main, &chosen);
}

int main(int argc, char **argv) { return cases_main(argc, argv, run_case); }
