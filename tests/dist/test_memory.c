/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a whole training step on 8 local ranks (2x2x2x1), in both layouts and all types: the
 * peak of the library's allocations equals what the size queries said, to the byte; a rank holds an
 * eighth of the parameters; and initialising them never allocates more than a rank's shard of the
 * largest matrix. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <quadrille/quadrille.h>

#include "../../examples/common/gpt.h"

enum { RANKS = 8, HIDDEN = 256, CONTEXT = 4 };
static atomic_size_t largest;
static atomic_int n_failed;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

static void note(size_t bytes)
{
    size_t seen = atomic_load(&largest);
    while (bytes > seen && !atomic_compare_exchange_weak(&largest, &seen, bytes)) {}
}

void *__wrap_malloc(size_t bytes)
{
    note(bytes);
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    note(n * bytes);
    return __real_calloc(n, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    note(bytes);
    return __real_realloc(old, bytes);
}

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if ((call) != QDR_OK) {                                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, qdr_last_error());                  \
            atomic_fetch_add(&n_failed, 1);                                                        \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)
#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                        \
            fprintf(stderr, __VA_ARGS__);                                                          \
            atomic_fetch_add(&n_failed, 1);                                                        \
        }                                                                                          \
    } while (0)

typedef struct test_case {
    qdr_layout layout;
    qdr_dtype dtype;
} test_case;

static size_t sum_of(const qdr_stack_sizes *sizes)
{
    return sizes->parameters + sizes->gradients + sizes->activations + sizes->workspace +
           sizes->communication + sizes->device;
}

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
            CHECK(qdr_stack_backward(model->stack, micro ? QDR_ACCUMULATE : QDR_DEFER_SYNC,
                                     1.0 / 32));
            if (micro) CHECK(qdr_adamw_step(optimizer, 1e-3));
        }
    CHECK(qdr_adamw_norm(optimizer, &norm));
    return 0;
}

static int run(qdr_context *ctx, const test_case *c)
{
    qdr_grid *grid = NULL;
    gpt model = {0};
    qdr_adamw *optimizer = NULL;
    qdr_stack_sizes sizes;
    size_t before, now, peak, optimizer_bytes;
    const gpt_config config = {.n_layers = 2,
                               .hidden = HIDDEN,
                               .n_heads = 4,
                               .context = CONTEXT,
                               .vocab = 16,
                               .n_sequences = 4,
                               .layout = c->layout,
                               .dtype = c->dtype};
    CHECK(qdr_grid_create(ctx, &(qdr_grid_opts){QDR_OPTS_INIT, .x = 2, .y = 2, .z = 2, .d = 1},
                          &grid));
    CHECK(qdr_barrier(ctx));
    qdr_mem_reset_peak(ctx);
    qdr_mem_usage(ctx, &before, &peak);
    CHECK(gpt_create(grid, &config, &model));
    CHECK(qdr_barrier(ctx));
    if (qdr_context_rank(ctx) == 0) atomic_store(&largest, 0);
    CHECK(qdr_barrier(ctx));
    CHECK(gpt_init(&model, 7, 0.02));
    CHECK(qdr_barrier(ctx));
    const size_t full = (size_t)(4 * HIDDEN) * HIDDEN * qdr_dtype_bytes(c->dtype);
    const size_t allocated = atomic_load(&largest);
    EXPECT(allocated <= full / RANKS + 64,
           "initialising allocates %zu bytes at once; a shard of the largest matrix has %zu\n",
           allocated, full / RANKS);
    CHECK(qdr_barrier(ctx));
    CHECK(qdr_stack_get_sizes(model.stack, &sizes));
    const size_t whole_model = (size_t)gpt_n_parameters(&model) * qdr_dtype_bytes(c->dtype);
    EXPECT(sizes.parameters < whole_model / (RANKS - 1),
           "%zu bytes of parameters of %zu on each of 8 ranks\n", sizes.parameters, whole_model);
    CHECK(qdr_adamw_size(model.stack, &optimizer_bytes));
    CHECK(qdr_adamw_create(model.stack, NULL, &optimizer));
    const int failed = steps(&model, optimizer);
    qdr_mem_usage(ctx, &now, &peak);
    const size_t said = sum_of(&sizes) + optimizer_bytes;
    EXPECT(peak - before == said,
           "rank %d, layout %d, %s: the peak is %zu bytes, the size queries said %zu\n",
           qdr_context_rank(ctx), (int)c->layout, qdr_dtype_name(c->dtype), peak - before, said);
    qdr_adamw_destroy(&optimizer);
    gpt_destroy(&model);
    qdr_grid_destroy(&grid);
    return failed;
}

static int on_rank(qdr_context *ctx, void *user) { return run(ctx, user); }

int main(void)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16};
    int failed = 0;
    for (int i = 0; i < 6; i++) {
        test_case c = {i % 2 ? QDR_SCATTERED : QDR_REPLICATED, dtypes[i / 2]};
        if (qdr_launch(RANKS, NULL, on_rank, &c, &failed) != QDR_OK || failed) {
            fprintf(stderr, "%s\n", qdr_last_error());
            return 1;
        }
    }
    printf("memory: %d failures\n", atomic_load(&n_failed));
    return atomic_load(&n_failed) != 0;
}
