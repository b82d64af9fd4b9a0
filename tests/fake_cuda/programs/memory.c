/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that training a small GPT takes on a GPU against what the size queries said: by the
 * library's count the same to the byte; on the GPU, by its own count, the same but for arrays of
 * nothing, each of which takes a byte.
 *
 *   memory GRID LAYOUT f32|bf16 stored|fp8 HIDDEN */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../examples/common/gpt.h"
#include "../../../examples/common/program.h"
#include "counted.h"

enum { SEQUENCES = 3, CONTEXT = 8, VOCAB = 31, TEXT_BYTES = 256, STEPS = 2, GPUS = 8 };

typedef struct training {
    int grid[4];
    int64_t hidden;
    qdr_layout layout;
    qdr_dtype dtype;
    qdr_product_type products;
    pthread_mutex_t mutex;
    size_t said[GPUS]; /* of all ranks on it */
    int n_bad;
} training;

typedef struct model {
    qdr_grid *grid;
    gpt gpt;
    qdr_adamw *optimizer;
} model;

static qdr_status make(qdr_context *ctx, const training *t, model *m)
{
    const gpt_config config = {.n_layers = 1,
                               .hidden = t->hidden,
                               .n_heads = 2,
                               .context = CONTEXT,
                               .vocab = VOCAB,
                               .n_sequences = SEQUENCES,
                               .layout = t->layout,
                               .dtype = t->dtype,
                               .products = t->products};
    const qdr_grid_opts shape = {QDR_OPTS_INIT, .x = t->grid[0], .y = t->grid[1], .z = t->grid[2],
                                 .d = t->grid[3]};
    TRY(qdr_grid_create(ctx, &shape, &m->grid));
    TRY(gpt_create(m->grid, &config, &m->gpt));
    TRY(gpt_init(&m->gpt, 1, 0.1));
    return qdr_adamw_create(m->gpt.stack, NULL, &m->optimizer);
}

static qdr_status train(const model *m)
{
    const int64_t starts[SEQUENCES] = {3, 50, 111};
    uint8_t text[TEXT_BYTES];
    double loss;
    int64_t n_valid;
    for (int i = 0; i < TEXT_BYTES; i++) text[i] = (uint8_t)(i * i % VOCAB);
    for (int step = 0; step < STEPS; step++) {
        TRY(gpt_fill((gpt *)(uintptr_t)&m->gpt, text, starts));
        TRY(qdr_stack_forward(m->gpt.stack));
        TRY(qdr_stack_loss(m->gpt.stack, &loss, &n_valid));
        TRY(qdr_stack_backward(m->gpt.stack, 0, 1.0 / (SEQUENCES * CONTEXT)));
        TRY(qdr_adamw_step(m->optimizer, 1e-2));
    }
    return qdr_stream_synchronize(qdr_context_stream(qdr_grid_context(m->grid)));
}

static qdr_status compare(qdr_context *ctx, training *t, const model *m)
{
    qdr_stack_sizes sizes;
    size_t optimizer, now, peak;
    TRY(qdr_stack_get_sizes(m->gpt.stack, &sizes));
    TRY(qdr_adamw_size(m->gpt.stack, &optimizer));
    qdr_mem_usage(ctx, &now, &peak);
    const size_t said = sizes.parameters + sizes.gradients + sizes.activations + sizes.workspace +
                        sizes.communication + sizes.device + optimizer;
    pthread_mutex_lock(&t->mutex);
    t->said[qdr_context_gpu(ctx)] += said;
    t->n_bad += said != peak;
    pthread_mutex_unlock(&t->mutex);
    if (said != peak)
        fprintf(stderr, "rank %d: %zu bytes at the library's peak, %zu said (device %zu)\n",
                qdr_context_rank(ctx), peak, said, sizes.device);
    return qdr_barrier(ctx);
}

static int run_rank(qdr_context *ctx, void *user)
{
    model m = {0};
    training *t = user;
    qdr_status status = make(ctx, t, &m);
    if (status == QDR_OK) status = train(&m);
    if (status == QDR_OK) status = compare(ctx, t, &m);
    if (status < 0) fprintf(stderr, "rank %d: %s\n", qdr_context_rank(ctx), qdr_last_error());
    qdr_adamw_destroy(&m.optimizer);
    gpt_destroy(&m.gpt);
    qdr_grid_destroy(&m.grid);
    return status < 0;
}

/* Arrays of nothing: four regions, the optimizer's, staging of ten channels. */
static int check_gpus(const training *t, int n_ranks)
{
    const size_t most = (size_t)n_ranks * 16;
    int n_bad = 0;
    for (int gpu = 0; gpu < GPUS && t->said[gpu]; gpu++) {
        const size_t used = bytes_peak(gpu);
        printf("GPU %d: %zu bytes at most, %zu said\n", gpu, used, t->said[gpu]);
        n_bad += used < t->said[gpu] || used > t->said[gpu] + most;
    }
    return n_bad;
}

int main(int argc, char **argv)
{
    training t = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    int exit_code = 1;
    if (argc != 6 ||
        sscanf(argv[1], "%dx%dx%dx%d", &t.grid[0], &t.grid[1], &t.grid[2], &t.grid[3]) != 4)
        return 2;
    t.layout = strcmp(argv[2], "scattered") == 0 ? QDR_SCATTERED : QDR_REPLICATED;
    t.dtype = strcmp(argv[3], "bf16") == 0 ? QDR_BF16 : QDR_F32;
    t.products = strcmp(argv[4], "fp8") == 0 ? QDR_PRODUCT_FP8 : QDR_PRODUCT_AS_STORED;
    t.hidden = atoi(argv[5]);
    const int n = t.grid[0] * t.grid[1] * t.grid[2] * t.grid[3];
    const qdr_status status = qdr_launch(n, NULL, run_rank, &t, &exit_code);
    if (status < 0) fprintf(stderr, "%s\n", qdr_last_error());
    if (status < 0 || exit_code) return 1;
    return t.n_bad + check_gpus(&t, n) > 0;
}
