/* SPDX-License-Identifier: Apache-2.0 */
/* What the library asks of CUDA and NCCL for the sake of speed, and so that nothing waits for ever:
 * no result tells. Steps of a small GPT, between which nobody waits for the GPU, so that all order
 * is the streams' own; then the fake says what it was asked for.
 *
 *   hot_path GRID local|nccl|unordered CTAS    CTAS of each communicator; unordered: nccl, and the
 *                                              user wants no order of launches */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../examples/common/gpt.h"
#include "../../../examples/common/program.h"
#include "counted.h"

enum { SEQUENCES = 4, CONTEXT = 8, VOCAB = 31, TEXT_BYTES = 256, STEPS = 2, SMS = 64 };

typedef struct model {
    int shape[4];
    qdr_grid *grid;
    gpt gpt;
    qdr_adamw *optimizer;
} model;

static qdr_status make(qdr_context *ctx, model *m)
{
    const gpt_config config = {.n_layers = 1,
                               .hidden = 16,
                               .n_heads = 2,
                               .context = CONTEXT,
                               .vocab = VOCAB,
                               .n_sequences = SEQUENCES,
                               .layout = QDR_SCATTERED,
                               .dtype = QDR_F32};
    const qdr_grid_opts shape = {QDR_OPTS_INIT, .x = m->shape[0], .y = m->shape[1],
                                 .z = m->shape[2], .d = m->shape[3]};
    TRY(qdr_grid_create(ctx, &shape, &m->grid));
    TRY(gpt_create(m->grid, &config, &m->gpt));
    TRY(gpt_init(&m->gpt, 1, 0.1));
    return qdr_adamw_create(m->gpt.stack, NULL, &m->optimizer);
}

static qdr_status train(model *m)
{
    const int64_t starts[SEQUENCES] = {3, 50, 111, 200};
    uint8_t text[TEXT_BYTES];
    for (int i = 0; i < TEXT_BYTES; i++) text[i] = (uint8_t)(i * i % VOCAB);
    for (int step = 0; step < STEPS; step++) {
        TRY(gpt_fill(&m->gpt, text, starts));
        TRY(qdr_stack_forward(m->gpt.stack));
        TRY(qdr_stack_backward(m->gpt.stack, 0, 1.0 / (SEQUENCES * CONTEXT)));
        TRY(qdr_adamw_step(m->optimizer, 1e-2));
    }
    return QDR_OK;
}

static int run_rank(qdr_context *ctx, void *user)
{
    model m = *(const model *)user;
    qdr_status status = make(ctx, &m);
    if (status == QDR_OK) status = train(&m);
    if (status < 0) fprintf(stderr, "rank %d: %s\n", qdr_context_rank(ctx), qdr_last_error());
    qdr_adamw_destroy(&m.optimizer);
    gpt_destroy(&m.gpt);
    qdr_grid_destroy(&m.grid);
    return status < 0;
}

static int check(const char *what, int64_t least, int64_t most)
{
    const int64_t n = counted(what);
    if (n >= least && n <= most) return 0;
    fprintf(stderr, "%s: %lld, not %lld to %lld\n", what, (long long)n, (long long)least,
            (long long)most);
    return 1;
}

static int is(const char *what, int64_t n) { return check(what, n, n); }
static int some(const char *what) { return check(what, 1, INT64_MAX); }

/* Events without times, streams that the default stream does not block; axes go before products. */
static int check_streams(void)
{
    return is("timed event", 0) + is("blocking stream", 0) + some("product") +
           is("urgent product", 0);
}

/* Each communicator has room on the GPU beside the others, and products leave it to one of them. */
static int check_nccl(int n_ctas, int is_ordered)
{
    return some("urgent") + (is_ordered ? is("unordered", 0) : some("unordered")) +
           is("shared", 0) + is("asynchronous", 0) + is("CTAs", n_ctas) + is("SMs", SMS - n_ctas) +
           is("confined product", counted("product"));
}

static int check_local(void) { return is("confined product", 0) + is("SMs", 0); }

int main(int argc, char **argv)
{
    model m = {0};
    char sms[16];
    int exit_code = 1;
    if (argc != 4 ||
        sscanf(argv[1], "%dx%dx%dx%d", &m.shape[0], &m.shape[1], &m.shape[2], &m.shape[3]) != 4)
        return 2;
    const int n = m.shape[0] * m.shape[1] * m.shape[2] * m.shape[3];
    const int is_local = strcmp(argv[2], "local") == 0;
    const int is_ordered = strcmp(argv[2], "unordered") != 0;
    snprintf(sms, sizeof sms, "%d", SMS);
    setenv("FAKE_CUDA_SMS", sms, 1);
    setenv("QDR_CUDA_COMM", is_local ? "local" : "nccl", 1);
    if (!is_ordered) setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 1);
    const qdr_status status = qdr_launch(n, NULL, run_rank, &m, &exit_code);
    if (status < 0) fprintf(stderr, "%s\n", qdr_last_error());
    if (status < 0 || exit_code) return 1;
    const int n_bad = check_streams() +
                      (is_local ? check_local() : check_nccl(atoi(argv[3]), is_ordered));
    return n_bad > 0;
}
