/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts and grids on local ranks while the n-th allocation, or the n-th thread creation, fails, for every n: all
 * ranks get the same error, none waits forever, and nothing is leaked (leak checkers are active). */
#include "fault/inject.h"
#include "qdr_test.h"
#include "quadrille/quadrille.h"

enum { MAX_RANKS = 4, MOST_CALLS = 20000 };

typedef struct outcome {
    int ran;
    int is_running; /* has enqueued a collective: what one rank lacks from there on the others learn as QDR_ERR_PEER */
    qdr_status status;
    char sentence[512];
} outcome;

static qdr_status create_and_use(qdr_local_world *world, int rank, int n_ranks, outcome *mine)
{
    qdr_context *ctx = NULL;
    qdr_grid *grid = NULL;
    double x[3] = {1, 2, (double)rank};
    float y[300] = {0}; /* of zeros each codec gives zeros */
    const qdr_codec int8 = {.kind = QDR_CODEC_INT8};
    /* An even number of ranks is one with levels. */
    const qdr_grid_opts along_x = {QDR_INIT(qdr_grid_opts), .x = n_ranks, .y = 1, .z = 1, .d = 1};
    const qdr_grid_opts along_d = {
        QDR_INIT(qdr_grid_opts),   .x = 1, .y = 1, .z = 1, .d = n_ranks, .gradient_parts = n_ranks / 2,
        .optimizer_parts = n_ranks};
    const int has_levels = n_ranks % 2 == 0;
    const qdr_setting settings[] = {{"--steps", rank ? "8" : "9"}, {"--save", NULL}};
    qdr_status status = qdr_context_create_local(world, rank, NULL, &ctx);
    if (status == QDR_OK) {
        const qdr_status compared = qdr_settings_compare(ctx, settings, 2);
        status = compared == QDR_ERR_ARGUMENT ? qdr_settings_compare(ctx, settings + 1, 1) : compared;
    }
    if (status == QDR_OK) status = qdr_grid_create(ctx, has_levels ? &along_d : &along_x, &grid);
    mine->is_running = status == QDR_OK;
    if (status == QDR_OK) status = qdr_all_reduce(grid, has_levels ? QDR_D : QDR_X, QDR_SUM, x, 3, QDR_F64, NULL);
    if (status == QDR_OK)
        status = qdr_all_reduce_coded(grid, has_levels ? QDR_D : QDR_X, QDR_SUM, y, 300, QDR_F32, NULL, &int8, NULL);
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(ctx));
    if (status == QDR_OK) assert_true(x[0] == n_ranks && y[299] == 0);
    qdr_grid_destroy(&grid);
    qdr_context_destroy(&ctx);
    return status;
}

typedef struct job {
    int n_ranks;
    outcome outcomes[MAX_RANKS];
} job;

static int run_rank(qdr_local_world *world, int rank, void *user)
{
    job *all = user;
    outcome *mine = &all->outcomes[rank];
    mine->ran = 1;
    mine->status = create_and_use(world, rank, all->n_ranks, mine);
    if (mine->status != QDR_OK) snprintf(mine->sentence, sizeof mine->sentence, "%s", qdr_last_error());
    return 0;
}

static void check_agreed(const job *all, qdr_status whole, int failed, long n)
{
    for (int rank = 0; rank < all->n_ranks; rank++) {
        const outcome *mine = &all->outcomes[rank];
        if (whole != QDR_OK) {
            assert_int_equal(mine->ran, 0);
            continue;
        }
        if (failed && mine->status == QDR_OK) print_error("call %ld, rank %d: no error\n", n, rank);
        assert_int_equal(mine->status < 0, failed);
        if (failed) assert_true(strlen(mine->sentence) > 10);
        if (mine->is_running && (mine->status == QDR_ERR_PEER || mine->status == QDR_ERR_MEMORY)) continue;
        assert_int_equal(mine->status, all->outcomes[0].status);
        assert_string_equal(mine->sentence, all->outcomes[0].sentence);
    }
}

static void fail_each(int kind, inject_extent extent, int n_ranks)
{
    long n = 0;
    int failed = 1;
    for (; failed && n < MOST_CALLS; n++) {
        job all = {.n_ranks = n_ranks};
        inject_begin(kind, n, extent);
        const qdr_status status = qdr_local_run(n_ranks, run_rank, &all, NULL);
        failed = inject_happened();
        inject_end();
        check_agreed(&all, status, failed, n);
    }
    assert_true(n > 1 && n < MOST_CALLS);
}

TEST(memory_runs_out)
{
    for (int n_ranks = 1; n_ranks <= 4; n_ranks++) fail_each(INJECT_MEMORY, INJECT_ONCE, n_ranks);
    fail_each(INJECT_MEMORY, INJECT_ONWARDS, 2);
}

TEST(threads_run_out)
{
    for (int n_ranks = 1; n_ranks <= 4; n_ranks++) fail_each(INJECT_THREAD, INJECT_ONCE, n_ranks);
    fail_each(INJECT_THREAD, INJECT_ONWARDS, 3);
}
