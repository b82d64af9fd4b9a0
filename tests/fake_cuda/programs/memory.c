/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that training a small GPT needs on a GPU, compared with the size queries: by the library's count, equal to
 * the byte; by the GPU's own count, equal except for empty arrays, each of which needs one byte.
 *
 *   memory GRID LAYOUT f32|bf16 stored|fp8 HIDDEN */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "served.h"
#include "sizes.h"
#include "small_gpt.h"

enum { STEPS = 2, GPUS = 8 };

typedef struct training {
    small_gpt model;
    pthread_mutex_t mutex;
    size_t said[GPUS]; /* of all ranks on it */
    int n_bad;
} training;

static qdr_status train(qdr_context *ctx, small_gpt *m)
{
    double loss;
    TRY(small_gpt_create(ctx, m));
    TRY(gpt_init(&m->gpt, 1, 0.1));
    for (int step = 0; step < STEPS; step++) TRY(small_gpt_train(m, &loss));
    return qdr_stream_synchronize(qdr_context_stream(ctx));
}

static qdr_status compare(qdr_context *ctx, training *t, const small_gpt *m)
{
    qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
    size_t optimizer, now, peak;
    TRY(qdr_stack_get_sizes(m->gpt.stack, &sizes));
    TRY(qdr_adamw_size(m->gpt.stack, &optimizer));
    qdr_mem_usage(ctx, &now, &peak);
    const size_t said = sum_of_sizes(&sizes) + optimizer;
    pthread_mutex_lock(&t->mutex);
    t->said[qdr_context_gpu(ctx)] += said;
    t->n_bad += said != peak;
    pthread_mutex_unlock(&t->mutex);
    if (said != peak)
        fprintf(stderr, "rank %d: %zu bytes at the library's peak, %zu said (device %zu)\n", qdr_context_rank(ctx),
                peak, said, sizes.device);
    return qdr_barrier(ctx);
}

static int run_rank(qdr_context *ctx, void *user)
{
    training *t = user;
    small_gpt m = t->model;
    qdr_status status = train(ctx, &m);
    if (status == QDR_OK) status = compare(ctx, t, &m);
    const int exit_code = small_gpt_leave(ctx, status);
    small_gpt_destroy(&m);
    return exit_code;
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
    const int n = argc == 6 ? small_gpt_read_shape(&t.model, argv[1]) : 0;
    if (!n) return 2;
    t.model.config = (gpt_config){.network.hidden = atoi(argv[5]),
                                  .n_sequences = 3,
                                  .layout = small_gpt_layout(argv[2]),
                                  .dtype = strcmp(argv[3], "bf16") == 0 ? QDR_BF16 : QDR_F32,
                                  .products = strcmp(argv[4], "fp8") == 0 ? QDR_PRODUCT_FP8 : QDR_PRODUCT_AS_STORED};
    if (small_gpt_launch(n, run_rank, &t)) return 1;
    return t.n_bad + check_gpus(&t, n) > 0;
}
