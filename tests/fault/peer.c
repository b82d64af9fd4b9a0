/* SPDX-License-Identifier: Apache-2.0 */
/* One rank fails, leaves or is late while the others wait for it: they fail with a message, or wait without using a
 * core.
 *
 *   fault_peer [--local P | --messages | --reordered] CASE...     fault/cases.h */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "comm/comm.h"
#include "fault/cases.h"
#include "grid/internal.h"
#include "nodes.h"
#include "quadrille/quadrille.h"

static int is_local;

static void sleep_ms(long ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static double cpu_secs(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static qdr_status all_reduce(qdr_context *ctx, float *data, int64_t n)
{
    const qdri_coll coll = {.kind = QDR_ALL_REDUCE, .recv = data, .count = n};
    const qdr_status status = qdri_comm_launch(qdri_context_world(ctx), &coll, qdr_context_stream(ctx));
    return status != QDR_OK ? status : qdr_stream_synchronize(qdr_context_stream(ctx));
}

static int expect(qdr_status got, qdr_status wanted, const char *words)
{
    if (got == wanted && strstr(qdr_last_error(), words)) return AS_EXPECTED;
    fprintf(stderr, "got %s, not %s: \"%s\"\n", qdr_status_name(got), qdr_status_name(wanted), qdr_last_error());
    return WRONG;
}

static int case_leaves_barrier(qdr_context *ctx)
{
    if (qdr_context_rank(ctx) == 1) return AS_EXPECTED;
    return expect(qdr_barrier(ctx), QDR_ERR_PEER, "another rank");
}

static int case_leaves_stream(qdr_context *ctx)
{
    float data[100] = {0};
    if (qdr_context_rank(ctx) == 1) return AS_EXPECTED;
    int result = expect(all_reduce(ctx, data, 100), QDR_ERR_PEER, "all-reduce");
    if (result == AS_EXPECTED) result = expect(qdr_barrier(ctx), QDR_ERR_PEER, "all-reduce");
    return result;
}

/* One line of ranks along x, and a sum of n numbers on it, without waiting for it. */
static qdr_status line_make(qdr_context *ctx, qdr_grid **grid)
{
    const qdr_grid_opts shape = {QDR_INIT(qdr_grid_opts), .x = qdr_context_size(ctx), .y = 1, .z = 1, .d = 1};
    return qdr_grid_create(ctx, &shape, grid);
}

static qdr_status sum_on_line(qdr_context *ctx, qdr_grid *grid, float *data, int64_t n)
{
    const qdr_status status = qdr_all_reduce(grid, QDR_X, QDR_SUM, data, n, QDR_F32, NULL);
    return status != QDR_OK ? status : qdr_stream_synchronize(qdr_context_stream(ctx));
}

/* Rank 1 destroys nothing: its grid, too, is left with its context. */
static int case_leaves_grid(qdr_context *ctx)
{
    float data[100] = {0};
    qdr_grid *grid = NULL;
    if (line_make(ctx, &grid) != QDR_OK || sum_on_line(ctx, grid, data, 100) != QDR_OK) return WRONG;
    if (qdr_context_rank(ctx) == 1) return AS_EXPECTED;
    int result = expect(sum_on_line(ctx, grid, data, 100), QDR_ERR_PEER, "");
    /* Some may hear of it from another rank that waited. With MPI ranks know less of each other. */
    const char *words = is_local ? "rank 1 at x=1 y=0 z=0 d=0 has left" : "";
    if (result == AS_EXPECTED) result = expect(qdr_barrier(ctx), QDR_ERR_PEER, words);
    return result;
}

#if QDRI_HAVE_MPI
/* Four ranks in two rows and columns: the last one leaves, one is in a sum with it. The others stay until that one says
 * that it has given up. */
static int leaves_line(qdr_context *ctx, qdr_axis axis)
{
    const qdr_grid_opts shape = {QDR_INIT(qdr_grid_opts), .x = 2, .y = 2, .z = 1, .d = 1};
    const int rank = qdr_context_rank(ctx), last = 3, waiting = axis == QDR_X ? 2 : 1;
    float data[100] = {0};
    char word = 0;
    qdr_grid *grid = NULL;
    int result = AS_EXPECTED;
    if (qdr_grid_create(ctx, &shape, &grid) != QDR_OK) return WRONG;
    qdr_status status = qdr_all_reduce(grid, axis, QDR_SUM, data, 100, QDR_F32, NULL);
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(ctx));
    if (status != QDR_OK) result = WRONG;
    if (rank == waiting && result == AS_EXPECTED) {
        status = qdr_all_reduce(grid, axis, QDR_SUM, data, 100, QDR_F32, NULL);
        if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(ctx));
        result = expect(status, QDR_ERR_PEER, "all-reduce");
    }
    for (int to = 0; rank == waiting && to < last; to++)
        if (to != rank) MPI_Send(&word, 1, MPI_CHAR, to, 0, MPI_COMM_WORLD);
    if (rank != waiting && rank != last) MPI_Recv(&word, 1, MPI_CHAR, waiting, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    qdr_grid_destroy(&grid);
    return result;
}
static int case_leaves_row(qdr_context *ctx) { return leaves_line(ctx, QDR_X); }
static int case_leaves_column(qdr_context *ctx) { return leaves_line(ctx, QDR_Y); }
#endif

enum { N_SUMS = 20, MOST_LOCAL = 8, N_LEFT = 50000 };
static float left_behind[MOST_LOCAL][N_LEFT];

/* Local ranks destroy nothing and wait for nothing: all leave with sums on a stream that no other waits for. Rank 1 may
 * have enqueued fewer. */
static int leave_at_once(qdr_context *ctx, int n_less)
{
    const int rank = qdr_context_rank(ctx), n_sums = rank == 1 ? N_SUMS - n_less : N_SUMS;
    qdr_stream *aside = NULL;
    qdr_grid *grid = NULL;
    if (qdr_context_size(ctx) > MOST_LOCAL) return WRONG;
    for (int i = 0; i < N_LEFT; i++) left_behind[rank][i] = 1;
    if (line_make(ctx, &grid) != QDR_OK || qdr_stream_create(ctx, &aside) != QDR_OK) return WRONG;
    if (n_less == 0 && rank == 2) sleep_ms(50);
    for (int i = 0; i < n_sums; i++) {
        const qdr_status status = qdr_all_reduce(grid, QDR_X, QDR_SUM, left_behind[rank], N_LEFT, QDR_F32, aside);
        if (status != QDR_OK && n_less == 0) return WRONG;
    }
    return AS_EXPECTED;
}
static int case_all_leave(qdr_context *ctx) { return leave_at_once(ctx, 0); }
static int case_all_leave_unequal(qdr_context *ctx) { return leave_at_once(ctx, 1); }

/* What all ranks had enqueued was completed. */
static int check_left_behind(int n_ranks)
{
    float wanted = 1;
    for (int i = 0; i < N_SUMS; i++) wanted *= (float)n_ranks;
    for (int rank = 0; rank < n_ranks; rank++)
        for (int i = 0; i < N_LEFT; i++)
            if (left_behind[rank][i] != wanted) return WRONG;
    return AS_EXPECTED;
}

/* The device of one rank fails while it, too, is in a collective of its host thread. */
static int case_poison(qdr_context *ctx)
{
    float data[100] = {0};
    if (qdr_context_rank(ctx) != 1) return expect(all_reduce(ctx, data, 100), QDR_ERR_PEER, "all-reduce");
    sleep_ms(20);
    qdri_dev_poison(qdri_context_dev(ctx), QDR_ERR_DEVICE, "the device broke");
    return expect(qdr_barrier(ctx), QDR_ERR_DEVICE, "the device broke");
}

static qdr_status break_device(void *args)
{
    (void)args;
    sleep_ms(30);
    return QDR_FAIL(QDR_ERR_DEVICE, "work failed");
}

/* The failing work runs while its rank waits in a barrier that the others never join. */
static int case_work_fails(qdr_context *ctx)
{
    float data[100] = {0};
    if (qdr_context_rank(ctx) != 0) return expect(all_reduce(ctx, data, 100), QDR_ERR_PEER, "all-reduce");
    qdr_status status = qdri_work(qdr_context_stream(ctx), break_device, NULL, 0);
    if (status == QDR_OK) status = qdr_barrier(ctx);
    if (expect(status, QDR_ERR_PEER, "another rank") == WRONG) return WRONG;
    return expect(qdr_barrier(ctx), QDR_ERR_DEVICE, "work failed");
}

/* One rank breaks at a random moment while all exchange large messages, and memory is freed at once. */
static int case_storm(qdr_context *ctx)
{
    enum { N = 60000 };
    const int rank = qdr_context_rank(ctx);
    float *data = calloc(N, sizeof *data);
    qdr_status status = data ? QDR_OK : QDR_ERR_MEMORY;
    for (int i = 0; i < 1000 && status == QDR_OK; i++) {
        if (rank == 1 && i >= 20 && clock() % 7 == 0)
            qdri_dev_poison(qdri_context_dev(ctx), QDR_ERR_DEVICE, "the device broke");
        status = all_reduce(ctx, data, i % 3 ? N : 50);
    }
    free(data);
    return expect(status, rank == 1 ? QDR_ERR_DEVICE : QDR_ERR_PEER, "");
}

/* Members call different collectives (not with messages, where nobody sees it). */
static int case_differ(qdr_context *ctx, int64_t n, int odd)
{
    float *data = calloc((size_t)n + 1, sizeof *data);
    if (!data) return WRONG;
    const qdr_status status = all_reduce(ctx, data, qdr_context_rank(ctx) == odd ? n + 1 : n);
    free(data);
    return expect(status, QDR_ERR_ARGUMENT, "must call the same");
}
static int case_differ_short(qdr_context *ctx) { return case_differ(ctx, 10, 1); }
static int case_differ_long(qdr_context *ctx) { return case_differ(ctx, 100000, qdr_context_size(ctx) - 1); }

static int case_differ_all_to_all(qdr_context *ctx)
{
    float data[64] = {0}, other[64];
    const int64_t wrong[8] = {2, 2, 2, 2, 2, 2, 2, 2};
    const int rank = qdr_context_rank(ctx);
    const qdri_coll coll = {
        .kind = QDR_ALL_TO_ALL, .send = data, .recv = other, .count = 3, .recv_counts = rank == 0 ? wrong : NULL};
    qdr_status status = qdri_comm_launch(qdri_context_world(ctx), &coll, qdr_context_stream(ctx));
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(ctx));
    return expect(status, QDR_ERR_SHAPE, "rank 0 expects 2");
}

enum { VOCAB = 10, FEATURES = 4, ROWS_EACH = 3 };

/* The smallest language model: tokens, embedding, head, loss. */
typedef struct model {
    qdr_grid *grid;
    qdr_stack *stack;
    qdr_edge tokens, targets;
} model;

static qdr_status model_make(qdr_context *ctx, int y, model *m)
{
    const int p = qdr_context_size(ctx);
    const qdr_grid_opts shape = {QDR_INIT(qdr_grid_opts), .x = 1, .y = y, .z = 1, .d = p / y};
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = ROWS_EACH * (p / y)};
    const qdr_embedding_desc embedding = {QDR_INIT(qdr_embedding_desc), .name = "embedding", .vocab = {VOCAB, 1},
                                          .features = {FEATURES, 1}};
    qdr_edge at = 0;
    qdr_linear *table = NULL;
    QDR_TRY(qdr_grid_create(ctx, &shape, &m->grid));
    QDR_TRY(qdr_stack_create(m->grid, &opts, &m->stack));
    QDR_TRY(qdr_stack_add_tokens(m->stack, "tokens", &m->tokens));
    QDR_TRY(qdr_stack_add_embedding(m->stack, &embedding, m->tokens, &at, &table));
    QDR_TRY(test_add_tied_head(m->stack, "head", table, QDR_REPLICATED, at, &at));
    QDR_TRY(qdr_stack_add_cross_entropy(m->stack, "loss", at, &m->targets));
    QDR_TRY(qdr_stack_build(m->stack));
    return qdr_stack_init(m->stack, 1, 0.1);
}

/* A step with this id as the second token, or as the second target. */
static qdr_status model_step(const model *m, int is_target, int32_t id)
{
    double loss = 0;
    int64_t n_valid = 0;
    for (int i = 0; i < 2; i++) {
        void *ids = NULL;
        QDR_TRY(qdr_stack_edge_value(m->stack, i ? m->targets : m->tokens, &ids));
        memcpy(ids, (const int32_t[ROWS_EACH]){VOCAB - 1, is_target == i ? id : 0, -1}, ROWS_EACH * sizeof(int32_t));
    }
    QDR_TRY(qdr_stack_forward(m->stack));
    QDR_TRY(qdr_stack_backward(m->stack, 0, 1));
    return qdr_stack_loss(m->stack, &loss, &n_valid);
}

/* The ranks that have the wrong id name it, or fail with another that did; the others fail with them. */
static int wrong_id(qdr_context *ctx, int y, int is_target)
{
    const int has_it = y > 1 || qdr_context_rank(ctx) == qdr_context_size(ctx) - 1;
    const char *words = is_target ? "the target in row 1 on this rank is 10, but the vocabulary has 10"
                                  : "the token in row 1 on this rank is 10, but the vocabulary has 10";
    model m = {0};
    qdr_status status = model_make(ctx, y, &m);
    if (status == QDR_OK) status = model_step(&m, is_target, VOCAB - 1);
    if (status == QDR_OK) status = model_step(&m, is_target, -7);
    /* Of a rank that is a step ahead, others may hear before they have ended theirs. */
    const int is_early = status == QDR_ERR_PEER && !(has_it && y == 1);
    int result = is_early ? AS_EXPECTED : expect(status, QDR_OK, "");
    if (result == AS_EXPECTED) {
        if (!is_early) status = model_step(&m, is_target, has_it ? VOCAB : 0);
        const int names_it = has_it && (y == 1 || status != QDR_ERR_PEER);
        result = expect(status, names_it ? QDR_ERR_ARGUMENT : QDR_ERR_PEER, names_it ? words : "");
        if (result == AS_EXPECTED) result = expect(qdr_stack_forward(m.stack), status, "");
        if (result == AS_EXPECTED) result = expect(qdr_context_status(ctx), status, "");
    }
    qdr_stack_destroy(&m.stack);
    qdr_grid_destroy(&m.grid);
    return result;
}
static int case_wrong_token(qdr_context *ctx) { return wrong_id(ctx, 1, 0); }
static int case_wrong_target(qdr_context *ctx) { return wrong_id(ctx, 1, 1); }
static int case_wrong_token_y(qdr_context *ctx) { return wrong_id(ctx, qdr_context_size(ctx), 0); }
static int case_wrong_target_y(qdr_context *ctx) { return wrong_id(ctx, qdr_context_size(ctx), 1); }

/* Of a process: its rank, or all local ranks together, of which each might use as much. */
static int used_little(double before, const char *where)
{
    const double secs = cpu_secs() - before;
    if (secs <= 0.2) return AS_EXPECTED;
    fprintf(stderr, "%.3f s of CPU were used while waiting in %s\n", secs, where);
    return WRONG;
}

/* One rank comes two seconds late. */
static int case_late(qdr_context *ctx)
{
    float data[100] = {0};
    if (qdr_barrier(ctx) != QDR_OK) return WRONG;
    const double before = cpu_secs();
    if (qdr_context_rank(ctx) == 0) sleep_ms(2000);
    if (all_reduce(ctx, data, 100) != QDR_OK) return WRONG;
    if (used_little(before, "an all-reduce") == WRONG) return WRONG;
    const double between = cpu_secs();
    if (qdr_context_rank(ctx) == 0) sleep_ms(2000);
    if (qdr_barrier(ctx) != QDR_OK) return WRONG;
    return used_little(between, "a barrier");
}

static const struct {
    const char *name;
    int (*run)(qdr_context *ctx);
} cases[] = {
    {"leaves-barrier", case_leaves_barrier},
    {"leaves-stream", case_leaves_stream},
    {"leaves-grid", case_leaves_grid},
#if QDRI_HAVE_MPI
    {"leaves-row", case_leaves_row},
    {"leaves-column", case_leaves_column},
#endif
    {"all-leave", case_all_leave},
    {"all-leave-unequal", case_all_leave_unequal},
    {"poison", case_poison},
    {"work-fails", case_work_fails},
    {"storm", case_storm},
    {"differ-short", case_differ_short},
    {"differ-long", case_differ_long},
    {"differ-all-to-all", case_differ_all_to_all},
    {"wrong-token", case_wrong_token},
    {"wrong-target", case_wrong_target},
    {"wrong-token-y", case_wrong_token_y},
    {"wrong-target-y", case_wrong_target_y},
    {"late", case_late},
};

static int rank_main(qdr_context *ctx, void *user)
{
    const char *name = user;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, name) == 0) return cases[i].run(ctx);
    }
    return WRONG;
}

static int run_case(const case_ranks *ranks, const char *name)
{
    is_local = ranks->n_local > 0;
    const int failed = case_launch(ranks, rank_main, (void *)(uintptr_t)name);
    if (failed || strcmp(name, "all-leave") != 0) return failed;
    return check_left_behind(ranks->n_local) == AS_EXPECTED ? 0 : 1;
}

int main(int argc, char **argv) { return cases_main(argc, argv, run_case); }
