/* SPDX-License-Identifier: Apache-2.0 */
/* A thread's current GPU is the caller's: after each call of the library it is what it was. And no rank makes a context
 * on a GPU that it does not use, 0 above all, which is everybody's without a choice.
 *
 *   callers_gpu chosen | none    what the ranks' threads choose before the first call */
#include "served.h"
#include "small_gpt.h"

enum { RANKS = 2, FIRST_GPU = 1, CHOSEN = 3 };

static int is_chosen;

static qdr_status check(const char *after)
{
    const int gpu = is_chosen ? current_gpu() : CHOSEN;
    if (gpu == CHOSEN) return QDR_OK;
    fprintf(stderr, "after %s GPU %d is current, not %d\n", after, gpu, CHOSEN);
    return QDR_ERR_STATE;
}

static qdr_status train(qdr_context *ctx, small_gpt *m)
{
    qdr_graph *graph = NULL;
    TRY(small_gpt_create(ctx, m));
    TRY(gpt_init(&m->gpt, 1, 0.1));
    TRY(check("creation"));
    double loss;
    TRY(small_gpt_train(m, &loss));
    TRY(check("a step"));
    TRY(qdr_graph_begin(ctx));
    TRY(qdr_stack_forward(m->gpt.stack));
    TRY(small_gpt_backward(m, 0));
    TRY(qdr_adamw_step(m->optimizer, 1e-2));
    TRY(qdr_graph_end(ctx, &graph));
    TRY(check("recording"));
    qdr_status status = qdr_graph_launch(graph, NULL);
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(ctx));
    if (status == QDR_OK) status = check("a recorded step");
    qdr_graph_destroy(&graph);
    return status == QDR_OK ? check("its end") : status;
}

static int run_rank(qdr_local_world *world, int rank, void *user)
{
    small_gpt m = *(const small_gpt *)user;
    char device[24];
    qdr_context *ctx = NULL;
    snprintf(device, sizeof device, "cuda:%d", FIRST_GPU + rank);
    const qdr_context_opts opts = {QDR_INIT(qdr_context_opts), .device = device};
    if (is_chosen) set_gpu(CHOSEN);
    qdr_status status = qdr_context_create_local(world, rank, &opts, &ctx);
    if (status == QDR_OK) status = check("the context");
    if (status == QDR_OK) status = train(ctx, &m);
    if (status != QDR_OK) fprintf(stderr, "rank %d: %s\n", rank, qdr_last_error());
    small_gpt_destroy(&m);
    qdr_context_destroy(&ctx);
    return status != QDR_OK || check("the end") != QDR_OK;
}

int main(int argc, char **argv)
{
    small_gpt m = {.shape = {1, 1, RANKS, 1}, .config = {.network.hidden = 16, .n_sequences = 4}};
    int result = 1;
    if (argc != 2) return 2;
    is_chosen = strcmp(argv[1], "chosen") == 0;
    const qdr_status status = qdr_local_run(RANKS, run_rank, &m, &result);
    if (status != QDR_OK) fprintf(stderr, "%s\n", qdr_last_error());
    const int64_t n_on_0 = counted("context of GPU 0"), n = counted("context");
    if (n_on_0 == 0 && n == RANKS + is_chosen) return status != QDR_OK || result;
    fprintf(stderr, "%lld contexts, %lld of them on GPU 0\n", (long long)n, (long long)n_on_0);
    return 1;
}
