/* SPDX-License-Identifier: Apache-2.0 */
/* A small GPT on local ranks connected by NCCL, first without registered memory, then with it: the same bits, and
 * collectives on registered memory where expected.
 *
 *   registered GRID LAYOUT PANELS all|none|fails    all: each rank can register memory; none: one cannot;
 *                                                   fails: it fails later, and all ranks are told why */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "served.h"
#include "small_gpt.h"

enum { STEPS = 2, MOVED = 20 };

typedef struct training {
    small_gpt model;
    double losses[STEPS]; /* rank 0's */
    double norm;
    float moved[3 * MOVED];
    atomic_int n_told; /* ranks that heard what to do about a failure */
} training;

/* Between a stack's memory and other memory: uneven sums, an exchange, a message; MOVED numbers each, unused ones
 * zero. */
static qdr_status move(qdr_grid *grid, qdr_stack *stack, float *other)
{
    const int64_t counts[] = {1, 3}, sends[] = {2, 3}, receives[2][2] = {{2, 2}, {3, 3}};
    qdr_parameter p = {QDR_INIT(qdr_parameter)};
    int axis = 0;
    while (qdr_grid_size(grid, (qdr_axis)axis) != 2) axis++;
    const qdr_axis along = (qdr_axis)axis;
    const int rank = qdr_grid_coordinate(grid, along);
    TRY(qdr_stack_parameter(stack, 0, &p));
    TRY(qdr_reduce_scatter(grid, along, QDR_SUM, p.gradient, other, counts[rank], counts, QDR_F32, NULL));
    TRY(qdr_all_to_all(grid, along, p.gradient, sends, other + MOVED, receives[rank], 0, QDR_F32, NULL));
    return qdr_send_recv(grid, along, 1 - rank, other, 1, 1 - rank, p.gradient, 1, QDR_F32, NULL);
}

static qdr_status move_and_read(qdr_context *ctx, qdr_grid *grid, qdr_stack *stack, float moved[3 * MOVED])
{
    const size_t bytes = 3 * MOVED * sizeof(float);
    void *other = NULL;
    qdr_parameter p = {QDR_INIT(qdr_parameter)};
    memset(moved, 0, bytes);
    TRY(qdr_stack_parameter(stack, 0, &p));
    TRY(qdr_mem_alloc(ctx, bytes, &other));
    qdr_status status = qdr_copy(ctx, other, moved, bytes, NULL);
    if (status == QDR_OK) status = move(grid, stack, other);
    if (status == QDR_OK) status = qdr_copy(ctx, (float *)other + 2 * MOVED, p.gradient, MOVED * sizeof(float), NULL);
    if (status == QDR_OK) status = qdr_copy(ctx, moved, other, bytes, NULL);
    const qdr_status synchronized = qdr_stream_synchronize(qdr_context_stream(ctx));
    qdr_mem_free(ctx, &other);
    return status == QDR_OK ? synchronized : status;
}

static qdr_status train(qdr_context *ctx, training *t, small_gpt *m)
{
    double losses[STEPS], norm;
    float moved[3 * MOVED];
    TRY(small_gpt_create(ctx, m));
    TRY(gpt_init(&m->gpt, 1, 0.1));
    for (int step = 0; step < STEPS; step++) TRY(small_gpt_train(m, &losses[step]));
    TRY(qdr_adamw_norm(m->optimizer, &norm));
    TRY(move_and_read(ctx, m->grid, m->gpt.stack, moved));
    if (qdr_context_rank(ctx) > 0) return QDR_OK;
    memcpy(t->losses, losses, sizeof losses);
    memcpy(t->moved, moved, sizeof moved);
    t->norm = norm;
    return QDR_OK;
}

static int run_rank(qdr_context *ctx, void *user)
{
    training *t = user;
    small_gpt m = t->model;
    const qdr_status status = train(ctx, t, &m);
    if (status < 0 && strstr(qdr_last_error(), "QDR_NCCL_REGISTER=0")) atomic_fetch_add(&t->n_told, 1);
    const int exit_code = small_gpt_leave(ctx, status);
    small_gpt_destroy(&m);
    return exit_code;
}

static int run(training *t, int n_ranks, const char *wanted)
{
    setenv("QDR_NCCL_REGISTER", wanted, 1);
    return small_gpt_launch(n_ranks, run_rank, t);
}

static atomic_int n_warnings; /* of ranks that cannot */

static void listen(int level, const char *line, void *user)
{
    (void)level;
    (void)user;
    if (strstr(line, "rank 1 cannot register memory")) atomic_fetch_add(&n_warnings, 1);
}

static int check(const training *plain, const training *t, int64_t n_before, int is_all)
{
    const int64_t n = counted("registered collective");
    const int differs = memcmp(plain->moved, t->moved, sizeof t->moved) != 0 ||
                        memcmp(plain->losses, t->losses, sizeof t->losses) != 0 ||
                        memcmp(&plain->norm, &t->norm, sizeof t->norm) != 0;
    printf("losses %.9g %.9g, norm %.9g; registered collectives %lld, others %lld\n", t->losses[0], t->losses[1],
           t->norm, (long long)n, (long long)counted("collective"));
    if (differs)
        fprintf(stderr, "registered: losses %.17g %.17g, not %.17g %.17g\n", t->losses[0], t->losses[1],
                plain->losses[0], plain->losses[1]);
    if (n_before != 0 || (n > 0) != is_all)
        fprintf(stderr, "%lld registered collectives without, %lld with\n", (long long)n_before, (long long)n);
    if (n_warnings != !is_all) {
        fprintf(stderr, "%d warnings\n", (int)n_warnings);
        return 1;
    }
    return differs || n_before != 0 || (n > 0) != is_all || !(t->losses[1] < t->losses[0]);
}

int main(int argc, char **argv)
{
    training plain = {.model = {.config = {.network.hidden = 24, .n_sequences = 3}}};
    const int n = argc == 5 ? small_gpt_read_shape(&plain.model, argv[1]) : 0;
    if (!n) return 2;
    plain.model.config.layout = small_gpt_layout(argv[2]);
    plain.model.config.panels = atoi(argv[3]);
    training t = plain;
    qdr_set_log(listen, NULL);
    if (run(&plain, n, "0")) return 1;
    const int64_t n_before = counted("registered collective");
    const int failed = run(&t, n, "1");
    if (strcmp(argv[4], "fails") == 0) return !failed || t.n_told != n;
    if (failed) return 1;
    return check(&plain, &t, n_before, strcmp(argv[4], "all") == 0);
}
