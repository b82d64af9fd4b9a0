/* SPDX-License-Identifier: Apache-2.0 */
/* A GPT of one layer on any grid, and training steps on its own text. */
#ifndef FAKE_CUDA_PROGRAMS_SMALL_GPT_H
#define FAKE_CUDA_PROGRAMS_SMALL_GPT_H

#include <stdio.h>
#include <string.h>

#include "../../../examples/common/program.h"
#include "../../support/gpt_fill.h"

enum { SMALL_CONTEXT = 8, SMALL_VOCAB = 31, SMALL_TEXT_BYTES = 1024, SMALL_SEQUENCES_MAX = 4 };

typedef struct small_gpt {
    int shape[4], levels[2]; /* of the grid; parts of gradients and optimizer state, 0: none */
    gpt_config config; /* hidden and perhaps layers of the network; n_sequences, and what is not 0 below it */
    qdr_grid *grid;
    gpt gpt;
    qdr_adamw *optimizer; /* from the first step of training on */
} small_gpt;

/* @return ranks of a grid written "2x1x2x1", or "1x1x2x4:4,8" with levels; 0: it is not written so */
static inline int small_gpt_read_shape(small_gpt *m, const char *text)
{
    int *s = m->shape, *l = m->levels;
    return sscanf(text, "%dx%dx%dx%d:%d,%d", &s[0], &s[1], &s[2], &s[3], &l[0], &l[1]) >= 4 ? s[0] * s[1] * s[2] * s[3]
                                                                                            : 0;
}

static inline qdr_layout small_gpt_layout(const char *name)
{
    return strcmp(name, "scattered") == 0 ? QDR_SCATTERED : QDR_REPLICATED;
}

/* Without weights: zeros, until gpt_init(). */
static inline qdr_status small_gpt_create(qdr_context *ctx, small_gpt *m)
{
    const qdr_grid_opts shape = {QDR_INIT(qdr_grid_opts),
                                 .x = m->shape[0],
                                 .y = m->shape[1],
                                 .z = m->shape[2],
                                 .d = m->shape[3],
                                 .gradient_parts = m->levels[0],
                                 .optimizer_parts = m->levels[1]};
    const qdr_network *given = &m->config.network;
    m->config.network = gpt_network((qdr_network){.layers = given->layers ? given->layers : 1,
                                                  .hidden = given->hidden,
                                                  .heads = 2,
                                                  .vocab = SMALL_VOCAB,
                                                  .context = SMALL_CONTEXT});
    m->config.context = SMALL_CONTEXT;
    TRY(qdr_grid_create(ctx, &shape, &m->grid));
    return gpt_create(m->grid, &m->config, &m->gpt);
}

static inline void small_gpt_destroy(small_gpt *m)
{
    qdr_adamw_destroy(&m->optimizer);
    gpt_destroy(&m->gpt);
    qdr_grid_destroy(&m->grid);
}

/* Windows of a text; other ones for each of ten inputs. */
static inline qdr_status small_gpt_fill(small_gpt *m, int input)
{
    int64_t starts[SMALL_SEQUENCES_MAX];
    uint8_t text[SMALL_TEXT_BYTES];
    for (int i = 0; i < SMALL_TEXT_BYTES; i++) text[i] = (uint8_t)(i * i % SMALL_VOCAB);
    for (int i = 0; i < SMALL_SEQUENCES_MAX; i++) starts[i] = 17 * i + 101 * input;
    return gpt_fill(&m->gpt, text, starts);
}

/* Gradients of the mean loss. */
static inline qdr_status small_gpt_backward(small_gpt *m, int flags)
{
    return qdr_stack_backward(m->gpt.stack, flags, 1.0 / (double)(m->config.n_sequences * SMALL_CONTEXT));
}

/* A whole step of training; loss may be NULL: then nothing waits for it. */
static inline qdr_status small_gpt_train(small_gpt *m, double *loss)
{
    int64_t n_valid;
    if (!m->optimizer) TRY(qdr_adamw_create(m->gpt.stack, NULL, &m->optimizer));
    TRY(small_gpt_fill(m, 0));
    TRY(qdr_stack_forward(m->gpt.stack));
    if (loss) TRY(qdr_stack_loss(m->gpt.stack, loss, &n_valid));
    TRY(small_gpt_backward(m, 0));
    return qdr_adamw_step(m->optimizer, 1e-2);
}

/* Ends a recording. @return the status of what was enqueued there, or else of the end */
static inline qdr_status small_gpt_end_graph(qdr_context *ctx, qdr_status enqueued, qdr_graph **graph)
{
    const qdr_status ended = qdr_graph_end(ctx, graph);
    return enqueued < 0 ? enqueued : ended;
}

/* Copies the gradients of all parameters, which are fp32, one after the other. */
static inline qdr_status small_gpt_read_gradients(qdr_context *ctx, const small_gpt *m, unsigned char *gradients)
{
    for (int i = 0; i < qdr_stack_n_parameters(m->gpt.stack); i++) {
        qdr_parameter parameter = {QDR_INIT(qdr_parameter)};
        TRY(qdr_stack_parameter(m->gpt.stack, i, &parameter));
        const size_t bytes = (size_t)parameter.n_elems * sizeof(float);
        TRY(qdr_copy(ctx, gradients, parameter.gradient, bytes, NULL));
        gradients += bytes;
    }
    return qdr_stream_synchronize(qdr_context_stream(ctx));
}

/* Runs fn on n ranks (0: those of mpiexec), and returns the program's exit code. */
static inline int small_gpt_launch(int n, qdr_main_fn fn, void *user)
{
    int exit_code = 1;
    const qdr_status status = qdr_launch(n, NULL, fn, user, &exit_code);
    if (status != QDR_OK) fprintf(stderr, "%s\n", qdr_last_error());
    return status != QDR_OK || exit_code;
}

/* Says on standard error what failed, and returns the rank's exit code. */
static inline int small_gpt_leave(qdr_context *ctx, qdr_status status)
{
    if (status < 0) fprintf(stderr, "rank %d: %s\n", qdr_context_rank(ctx), qdr_last_error());
    return status < 0;
}

#endif
