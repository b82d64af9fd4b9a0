/* SPDX-License-Identifier: Apache-2.0 */
/* Memory, in both layouts. For creating and initialising a stack, on every grid of p ranks that splits matrices: no
 * allocation is as large as a full matrix, and the total is what the size queries reported. For a whole training step:
 * the peak of the library's allocations equals what the size queries reported, to the byte, and a rank holds its share
 * of the parameters. For a second stack: it allocates its own memory.
 *
 *   test_memory                  8 local ranks
 *   mpiexec -n P test_memory mpi each process a rank */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quadrille/quadrille.h>

#include "../support/gpt_fill.h"
#include "count.h"
#include "sizes.h"

enum { RANKS = 8, HIDDEN = 256, CONTEXT = 4 };
static atomic_int n_failed;
static int n_local = RANKS;

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        if ((call) != QDR_OK) {                                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, qdr_last_error());                                      \
            atomic_fetch_add(&n_failed, 1);                                                                            \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)
#define EXPECT(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            atomic_fetch_add(&n_failed, 1);                                                                            \
        }                                                                                                              \
    } while (0)

typedef struct test_case {
    int x, y, z, d;
    qdr_layout layout;
    qdr_dtype dtype;
    int batch_parts;
} test_case;

static int steps(gpt *model, qdr_adamw *optimizer)
{
    static const uint8_t text[64] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9};
    const int64_t starts[] = {0, 7, 20, 33};
    double loss, norm;
    int64_t n_valid;
    for (int step = 0; step < 2; step++)
        for (int micro = 0; micro < 2; micro++) {
            CHECK(gpt_fill(model, text, starts));
            CHECK(qdr_stack_forward(model->stack));
            CHECK(qdr_stack_loss(model->stack, &loss, &n_valid));
            CHECK(qdr_stack_backward(model->stack, micro ? QDR_ACCUMULATE : QDR_DEFER_SYNC, 1.0 / 32));
            if (micro) CHECK(qdr_adamw_step(optimizer, 1e-3));
        }
    CHECK(qdr_adamw_norm(optimizer, &norm));
    return 0;
}

/* A larger stack of the same grid, whose staging is allocated in addition to the first one's. Memory that depends
 * neither on rows nor on columns is shared. */
static int check_second(qdr_context *ctx, const gpt *first, const qdr_stack_sizes *taken)
{
    gpt_config config = first->config;
    gpt model = {0};
    qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
    size_t before, now, peak;
    config.network.hidden *= 2;
    config.network.ffn *= 2;
    config.network = gpt_network(config.network);
    config.n_sequences *= 2;
    qdr_mem_usage(ctx, &before, &peak);
    CHECK(gpt_create(first->grid, &config, &model));
    CHECK(qdr_stack_get_sizes(model.stack, &sizes));
    qdr_mem_usage(ctx, &now, &peak);
    const size_t said = sum_of_sizes(&sizes) - sizes.device;
    const size_t replaced = said - taken->communication;
    EXPECT(now - before <= said && (taken->communication == 0 || now - before > replaced),
           "rank %d: a second stack takes %zu bytes; it said %zu, the first one has %zu of "
           "staging\n",
           qdr_context_rank(ctx), now - before, said, taken->communication);
    gpt_destroy(&model);
    return 0;
}

/* A whole training step. */
static int run_steps(qdr_context *ctx, const test_case *c)
{
    qdr_grid *grid = NULL;
    gpt model = {0};
    qdr_adamw *optimizer = NULL;
    qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
    size_t before, now, peak, optimizer_bytes;
    const gpt_config config = {.network = gpt_network((qdr_network){
                                   .layers = 2, .hidden = HIDDEN, .heads = 4, .vocab = 16, .context = CONTEXT}),
                               .context = CONTEXT,
                               .n_sequences = 4,
                               .layout = c->layout,
                               .dtype = c->dtype,
                               .batch_parts = c->batch_parts};
    CHECK(qdr_grid_create(ctx, &(qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = c->x, .y = c->y, .z = c->z, .d = c->d},
                          &grid));
    CHECK(qdr_barrier(ctx));
    qdr_mem_reset_peak(ctx);
    qdr_mem_usage(ctx, &before, &peak);
    CHECK(gpt_create(grid, &config, &model));
    CHECK(gpt_init(&model, 7, 0.02));
    CHECK(qdr_stack_get_sizes(model.stack, &sizes));
    const size_t whole_model = (size_t)gpt_n_parameters(&model) * qdr_dtype_bytes(c->dtype);
    const size_t n_parts = (size_t)(c->x * c->y * c->z);
    EXPECT(sizes.parameters < whole_model / n_parts * 8 / 7, /* norms and biases have copies */
           "%zu bytes of parameters of %zu on each of %zu parts\n", sizes.parameters, whole_model, n_parts);
    CHECK(qdr_adamw_size(model.stack, &optimizer_bytes));
    CHECK(qdr_adamw_create(model.stack, NULL, &optimizer));
    int failed = steps(&model, optimizer);
    qdr_mem_usage(ctx, &now, &peak);
    /* Panels of the device are made once for all stacks of a context. */
    static _Thread_local int has_panels;
    const size_t said = sum_of_sizes(&sizes) + optimizer_bytes - (has_panels ? sizes.device : 0);
    has_panels |= sizes.device > 0;
    EXPECT(peak - before == said,
           "rank %d, grid %dx%dx%dx%d, layout %d, %s: the peak is %zu bytes, the size queries said "
           "%zu\n",
           qdr_context_rank(ctx), c->x, c->y, c->z, c->d, (int)c->layout, qdr_dtype_name(c->dtype), peak - before,
           said);
    if (!failed) failed = check_second(ctx, &model, &sizes);
    qdr_adamw_destroy(&optimizer);
    gpt_destroy(&model);
    qdr_grid_destroy(&grid);
    return failed;
}

/* ---- making and initialising a stack of one large matrix ---- */

enum { TALL = 512, WIDE = 1024, ROWS = 16 };
static const size_t full_bytes = (size_t)TALL * WIDE * sizeof(float);
/* Room for tasks, events and names of all ranks of a process: less than any matrix in full. */
static const size_t small_bytes = (size_t)TALL * WIDE * sizeof(float) / 4 * 3;

typedef enum matrix_kind { NORMAL, TRANSPOSED, EMBEDDING, N_MATRIX_KINDS } matrix_kind;

static atomic_size_t said_bytes; /* of all ranks of this process */

static int describe(qdr_stack *stack, matrix_kind kind, qdr_layout layout)
{
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{TALL, 1}},
                                 .col_axis = kind == NORMAL ? QDR_X : QDR_Y, .layout = layout};
    const qdr_linear_desc layer_desc = {QDR_INIT(qdr_linear_desc),
                                        .name = "layer",
                                        .in = {{TALL, 1}},
                                        .out = {{WIDE, 1}},
                                        .bias = 1,
                                        .out_layout = layout,
                                        .transposed = kind == TRANSPOSED};
    const qdr_embedding_desc table_desc = {QDR_INIT(qdr_embedding_desc), .name = "table", .vocab = {WIDE, 1},
                                           .features = {TALL, 1}, .layout = layout};
    qdr_edge edge;
    qdr_linear *layer;
    if (kind == EMBEDDING) {
        CHECK(qdr_stack_add_tokens(stack, "tokens", &edge));
        CHECK(qdr_stack_add_embedding(stack, &table_desc, edge, &edge, &layer));
    } else {
        CHECK(qdr_stack_add_input(stack, "x", &input, 1, &edge));
        CHECK(qdr_stack_add_linear(stack, &layer_desc, edge, &edge, &layer));
    }
    CHECK(qdr_stack_build(stack));
    return 0;
}

/* What a process may hold: said_bytes, and small structures. */
static void check_counts(const test_case *c, matrix_kind kind, const char *when)
{
    size_t largest, peak;
    const size_t said = atomic_load(&said_bytes);
    count_so_far(&largest, &peak);
    EXPECT(largest < full_bytes,
           "grid %dx%dx%dx%d, layout %d, kind %d, %s: %zu bytes allocated at once; a full matrix "
           "has %zu\n",
           c->x, c->y, c->z, c->d, (int)c->layout, (int)kind, when, largest, full_bytes);
    EXPECT(peak <= said + small_bytes,
           "grid %dx%dx%dx%d, layout %d, kind %d, %s: %zu bytes held at once; the size queries "
           "said %zu\n",
           c->x, c->y, c->z, c->d, (int)c->layout, (int)kind, when, peak, said);
}

static int is_first(const qdr_context *ctx) { return !n_local || qdr_context_rank(ctx) == 0; }

/* All ranks of this process have come so far and may hold `bytes` more. */
static int check_together(qdr_context *ctx, const test_case *c, matrix_kind kind, const char *when, size_t bytes)
{
    atomic_fetch_add(&said_bytes, bytes);
    CHECK(qdr_barrier(ctx));
    if (is_first(ctx)) check_counts(c, kind, when);
    CHECK(qdr_barrier(ctx));
    return 0;
}

/* Two gathered weights and two whole gradients that take turns, a reduced shard, and activations of all rows. */
static size_t most_workspace(const test_case *c)
{
    const size_t block = full_bytes / (size_t)(c->x * c->y);
    return 5 * block + 8 * ROWS * (TALL + WIDE) * sizeof(float);
}

/* The workspace is the caller's, as gathered weights lie there: with z alone that is all of one. */
static int make(qdr_context *ctx, const test_case *c, matrix_kind kind, qdr_stack *stack)
{
    static _Alignas(64) char any_memory[64]; /* nothing runs, so nothing is written */
    const qdr_stack_memory memory = {QDR_INIT(qdr_stack_memory), .workspace = any_memory};
    qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
    if (describe(stack, kind, c->layout)) return 1;
    CHECK(qdr_stack_get_sizes(stack, &sizes));
    EXPECT(sizes.workspace <= most_workspace(c), "%zu bytes of workspace on %dx%dx%dx%d\n", sizes.workspace, c->x, c->y,
           c->z, c->d);
    if (check_together(ctx, c, kind, "building", sizes.communication)) return 1;
    CHECK(qdr_stack_bind(stack, &memory));
    CHECK(qdr_stack_init(stack, 7, 0.02));
    /* Values are drawn into host memory of a shard. */
    const size_t shard_bytes = full_bytes / (size_t)(c->x * c->y * c->z);
    return check_together(ctx, c, kind, "initialising",
                          sizes.parameters + sizes.gradients + sizes.activations + shard_bytes);
}

static int initialise(qdr_grid *grid, const test_case *c, matrix_kind kind)
{
    qdr_context *ctx = qdr_grid_context(grid);
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = ROWS, .caller_memory = 1};
    qdr_stack *stack = NULL;
    CHECK(qdr_barrier(ctx));
    if (is_first(ctx)) {
        atomic_store(&said_bytes, 0);
        count_begin();
    }
    CHECK(qdr_barrier(ctx));
    CHECK(qdr_stack_create(grid, &opts, &stack));
    const int failed = make(ctx, c, kind, stack);
    qdr_stack_destroy(&stack);
    return failed;
}

/* Every grid that splits matrices. */
static int initialise_all(qdr_context *ctx)
{
    const int p = qdr_context_size(ctx);
    int failed = 0, n_grids = 0;
    test_case c = {.dtype = QDR_F32};
    for (c.x = 1; c.x <= p; c.x++)
        for (c.y = 1; c.y <= p / c.x; c.y++)
            for (c.z = 1; c.z <= p / (c.x * c.y); c.z++) {
                const qdr_grid_opts opts = {QDR_INIT(qdr_grid_opts), .x = c.x, .y = c.y, .z = c.z,
                                            .d = p / (c.x * c.y * c.z)};
                qdr_grid *grid = NULL;
                c.d = opts.d;
                if (c.x * c.y * c.z * c.d != p || c.d == p) continue;
                CHECK(qdr_grid_create(ctx, &opts, &grid));
                for (int kind = 0; kind < (int)N_MATRIX_KINDS && !failed; kind++) {
                    c.layout = (qdr_layout)((n_grids + kind) % 2);
                    failed = initialise(grid, &c, (matrix_kind)kind);
                }
                qdr_grid_destroy(&grid);
                if (failed) return 1;
                n_grids++;
            }
    return 0;
}

static int on_rank(qdr_context *ctx, void *user)
{
    static const test_case cases[] = {
        {2, 2, 2, 1, QDR_REPLICATED, QDR_F32, 1},  {2, 2, 2, 1, QDR_SCATTERED, QDR_F32, 1},
        {2, 2, 2, 1, QDR_REPLICATED, QDR_F64, 1},  {2, 2, 2, 1, QDR_SCATTERED, QDR_F64, 1},
        {2, 2, 2, 1, QDR_REPLICATED, QDR_BF16, 1}, {2, 2, 2, 1, QDR_SCATTERED, QDR_BF16, 1},
        {4, 1, 1, 2, QDR_SCATTERED, QDR_F32, 1},   {1, 4, 2, 1, QDR_REPLICATED, QDR_F32, 1},
        {2, 1, 2, 2, QDR_SCATTERED, QDR_F32, 1},   {2, 2, 1, 1, QDR_REPLICATED, QDR_F32, 1},
        {2, 2, 1, 1, QDR_SCATTERED, QDR_BF16, 1},  {1, 2, 2, 1, QDR_SCATTERED, QDR_F64, 1},
        {1, 1, 4, 1, QDR_REPLICATED, QDR_F32, 1},  {2, 1, 1, 2, QDR_SCATTERED, QDR_F32, 1},
        {2, 2, 2, 1, QDR_REPLICATED, QDR_F32, 2},  {4, 2, 1, 1, QDR_REPLICATED, QDR_F64, 4},
        {2, 2, 1, 1, QDR_REPLICATED, QDR_F32, 3},  {2, 2, 2, 1, QDR_SCATTERED, QDR_F16, 1},
    };
    int failed = initialise_all(ctx), n_run = 0;
    (void)user;
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !failed; i++) {
        const test_case *c = &cases[i];
        if (c->x * c->y * c->z * c->d != qdr_context_size(ctx)) continue;
        failed = run_steps(ctx, c);
        n_run++;
    }
    EXPECT(n_run, "no case has %d ranks\n", qdr_context_size(ctx));
    return failed || atomic_load(&n_failed);
}

int main(int argc, char **argv)
{
    int failed = 0;
    if (argc > 1 && strcmp(argv[1], "mpi") == 0) n_local = 0;
    if (qdr_launch(n_local, NULL, on_rank, NULL, &failed) != QDR_OK) {
        fprintf(stderr, "%s\n", qdr_last_error());
        return 1;
    }
    printf("memory: %d failures\n", atomic_load(&n_failed));
    return failed || atomic_load(&n_failed) != 0;
}
