/* SPDX-License-Identifier: Apache-2.0 */
/* The host memory that saving a checkpoint takes, to the byte; and saves that are pending while everything else is
 * destroyed, in any order, or while one rank writes.
 *
 *   test_checkpoint_lives --local P */
#include <jansson.h>
#include <sched.h>
#include <unistd.h>

#include "checkpoint/rows.h"
#include "checkpoint/save.h"
#include "dist/dist.h"
#include "fault/inject.h"
#include "fault/trained.h"

enum { PATH_BYTES = 80, SMALL = 6, N_LAYERS = 4, WIDTH = 512 };
enum { FIXED_BYTES = 16 << 10, TENSOR_BYTES = 300, HEADER_BYTES = 2048 }; /* as checkpoint.h says */

static char folder[TRAINED_FOLDER_BYTES], path[PATH_BYTES]; /* of all ranks: they are threads */

static void make_path(qdr_context *ctx)
{
    if (qdr_context_rank(ctx) == 0) {
        trained_folder(folder);
        snprintf(path, sizeof path, "%s/a", folder);
    }
    DIST_OK(qdr_barrier(ctx));
}

static void remove_path(qdr_context *ctx)
{
    DIST_OK(qdr_barrier(ctx));
    if (qdr_context_rank(ctx) == 0) DIST_CHECK(unlink(path) == 0 && rmdir(folder) == 0, "%s: other files", folder);
    DIST_OK(qdr_barrier(ctx));
}

static void verify(void)
{
    qdr_safetensors *file;
    DIST_OK(qdr_safetensors_open(path, &file));
    for (int i = 0; i < qdr_safetensors_count(file); i++) DIST_OK(qdr_safetensors_verify(file, i));
    DIST_OK(qdr_safetensors_close(&file));
}

/* ---- memory ---- */

/* Only what this rank's thread allocates counts; that of the background allocates nothing. */
static void check_memory(const trained *net, int background)
{
    const qdr_checkpoint_opts opts = {QDR_INIT(qdr_checkpoint_opts), .background = background};
    const int n_tensors = 3 * qdr_stack_n_parameters(net->stack), p = qdr_context_size(qdr_grid_context(net->grid));
    const size_t lists = FIXED_BYTES + (size_t)n_tensors * TENSOR_BYTES, header = (size_t)n_tensors * HEADER_BYTES;
    const size_t whole = sizeof(float[WIDTH][WIDTH]), rest = sizeof(float[N_LAYERS * 3][WIDTH]); /* a matrix; biases */
    qdr_checkpoint *pending = NULL;
    inject_use use = {0};
    size_t host_bytes;
    int64_t file_bytes;
    DIST_OK(qdr_checkpoint_size(net->stack, net->optimizer, background, &host_bytes, &file_bytes));
    inject_track(&use);
    DIST_OK(qdr_checkpoint_save(net->stack, net->optimizer, path, &opts, &pending));
    const size_t while_pending = use.now;
    DIST_OK(qdr_checkpoint_finish(&pending));
    inject_track(NULL);
    DIST_CHECK(use.now == 0, "%zu bytes are left", use.now);
    DIST_CHECK(use.largest == host_bytes, "the largest block has %zu bytes, not %zu", use.largest, host_bytes);
    DIST_CHECK(use.peak >= host_bytes && use.peak <= host_bytes + lists + header, "%zu bytes at most, %zu were said",
               use.peak, host_bytes);
    DIST_CHECK(!background || (while_pending >= host_bytes && while_pending <= host_bytes + lists),
               "%zu bytes while it is pending, %zu were said", while_pending, host_bytes);
    DIST_CHECK(background || host_bytes <= 16 << 20, "%zu bytes", host_bytes);
    /* Of the block, a band is for transposing. The rest is this rank's part: of one matrix, or of the file. */
    const size_t part = host_bytes - QDRI_BAND_BYTES;
    DIST_CHECK(part <= (background ? (size_t)file_bytes / (size_t)p + rest : whole / (size_t)p),
               "%zu bytes are more than a part of %d", part, p);
    printf("%d of %d ranks, %s%s: %zu bytes for %d tensors, with lists %zu, with the header %zu\n",
           qdr_context_rank(qdr_grid_context(net->grid)), p, qdr_dtype_name(qdr_stack_dtype(net->stack)),
           background ? ", in the background" : "", host_bytes, n_tensors, while_pending, use.peak);
}

DIST_TEST(memory_is_what_was_said)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_BF16};
    make_path(ctx);
    for (int i = 0; i < 4; i++) {
        trained net = trained_create(ctx, N_LAYERS, WIDTH, dtypes[i / 2]);
        check_memory(&net, i % 2);
        trained_destroy(&net);
    }
    remove_path(ctx);
}

/* ---- lives ---- */

enum thing { CONTEXT, GRID, STACK, OPTIMIZER, SAVE, N_THINGS };

typedef struct family {
    qdr_context *ctx;
    trained net;
    qdr_checkpoint *pending;
} family;

static void end(family *all, enum thing which, int rank)
{
    if (which == CONTEXT) qdr_context_destroy(&all->ctx);
    if (which == GRID) qdr_grid_destroy(&all->net.grid);
    if (which == STACK) qdr_stack_destroy(&all->net.stack);
    if (which == OPTIMIZER) qdr_adamw_destroy(&all->net.optimizer);
    if (which != SAVE) return;
    DIST_OK(qdr_checkpoint_finish(&all->pending));
    DIST_CHECK(!all->pending, "still pending");
    if (rank == 0) verify();
    if (rank == 0) DIST_CHECK(unlink(path) == 0, "no file");
}

/* The number says which of the things left comes next, digit by digit. */
static int run_order(qdr_local_world *world, int rank, void *user)
{
    const qdr_checkpoint_opts opts = {QDR_INIT(qdr_checkpoint_opts), .background = 1};
    int number = *(const int *)user, n = N_THINGS;
    enum thing left[N_THINGS] = {CONTEXT, GRID, STACK, OPTIMIZER, SAVE};
    family all = {.ctx = NULL};
    DIST_OK(qdr_context_create_local(world, rank, NULL, &all.ctx));
    all.net = trained_create(all.ctx, 2, SMALL, QDR_BF16);
    DIST_OK(qdr_checkpoint_save(all.net.stack, all.net.optimizer, path, &opts, &all.pending));
    if (number % 2) (void)!qdr_checkpoint_poll(all.pending); /* which may complete it */
    for (; n > 0; number /= n--) {
        const int next = number % n;
        end(&all, left[next], rank);
        left[next] = left[n - 1];
    }
    return 0;
}

static void ends_in_any_order(int n_ranks)
{
    enum { N_ORDERS = 120 };
    trained_folder(folder);
    snprintf(path, sizeof path, "%s/a", folder);
    for (int number = 0; number < N_ORDERS; number++) DIST_OK(qdr_local_run(n_ranks, run_order, &number, NULL));
    DIST_CHECK(rmdir(folder) == 0, "%s holds other files", folder);
    printf("ok %d orders of destruction\n", N_ORDERS);
}

/* ---- late ranks ---- */

/* While one rank writes, no rank has saved, whichever it is. */
DIST_TEST(a_late_rank_is_waited_for)
{
    const qdr_checkpoint_opts opts = {QDR_INIT(qdr_checkpoint_opts), .background = 1};
    const int rank = qdr_context_rank(ctx), n_ranks = qdr_context_size(ctx);
    make_path(ctx);
    trained net = trained_create(ctx, 2, SMALL, QDR_BF16);
    for (int late = 0; late < n_ranks; late++) {
        qdr_checkpoint *pending;
        DIST_OK(qdr_checkpoint_save(net.stack, net.optimizer, path, &opts, &pending));
        while (!atomic_load(&pending->has_written)) sched_yield();
        if (rank == late) atomic_store(&pending->has_written, 0);
        for (int i = 0; i < 3; i++) {
            const qdr_status status = qdr_checkpoint_poll(pending);
            DIST_CHECK(status == QDR_PENDING, "rank %d, while rank %d writes: %d", rank, late, (int)status);
        }
        if (rank == 0) DIST_CHECK(access(path, F_OK) != 0, "%s is there", path);
        if (rank == late) atomic_store(&pending->has_written, 1);
        DIST_OK(qdr_barrier(ctx));
        DIST_OK(qdr_checkpoint_poll(pending));
        if (rank == 0) verify();
        DIST_OK(qdr_checkpoint_finish(&pending));
        if (rank == 0) DIST_CHECK(late == n_ranks - 1 || unlink(path) == 0, "no %s", path);
        DIST_OK(qdr_barrier(ctx));
    }
    trained_destroy(&net);
    remove_path(ctx);
}

static void *allocate(size_t n_bytes) { return malloc(n_bytes); }
static void release(void *block) { free(block); }

int main(int argc, char **argv)
{
    json_set_alloc_funcs(allocate, release); /* those of the header's JSON are counted, too */
    if (argc > 2 && strcmp(argv[1], "--local") == 0) ends_in_any_order((int)strtol(argv[2], NULL, 10));
    return dist_main(argc, argv, NULL);
}
