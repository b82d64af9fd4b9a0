/* SPDX-License-Identifier: Apache-2.0 */
/* A training step of a GPT, bf16: forward, backward and AdamW, enqueued and as a recorded graph, alternating sample by
 * sample, each sample with the GPU's clock and power; training_torch.py does the same. The head is tied to the
 * embedding. training LAYERS HIDDEN HEADS CONTEXT SEQUENCES VOCABULARY */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/gpt_step.h"
#include "monitor.h"

enum { N_SAMPLES = 11, N_WARM = 2, N_RUNS = 4, N_WORDS = 6 };

typedef struct training {
    gpu_place place;
    gpt model;
    qdr_adamw *optimizer;
    gpt_step steps[2]; /* enqueued, recorded */
    gpu_series series[2];
} training;

/* qdr_stack_init() takes ten times as long for its numbers, which are the same on any grid. */
static void fill_parameters(const training *t)
{
    for (int i = 0; i < qdr_stack_n_parameters(t->model.stack); i++) {
        qdr_parameter p = {QDR_INIT(qdr_parameter)};
        OK(qdr_stack_parameter(t->model.stack, i, &p));
        gpu_fill(&t->place, p.data, p.n_elems, QDR_BF16, p.decay ? 0.02 : 1);
    }
}

/* Random tokens of the whole vocabulary. */
static void fill_tokens(const training *t, qdr_edge edge)
{
    const gpt_config *config = &t->model.config;
    const int64_t n = config->n_sequences * config->context;
    int32_t *tokens = calloc((size_t)n, sizeof *tokens);
    uint32_t state = (uint32_t)edge + 1;
    void *value;
    if (!tokens) gpu_leave("no memory for %lld tokens", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223;
        tokens[i] = (int32_t)((state >> 8) % (uint32_t)config->network.vocab);
    }
    OK(qdr_stack_edge_value(t->model.stack, edge, &value));
    OK(qdr_copy(t->place.ctx, value, tokens, (size_t)n * sizeof *tokens, NULL));
    gpu_wait(&t->place);
    free(tokens);
}

static void open_training(training *t, const gpt_config *config)
{
    t->place = gpu_open();
    OK(gpt_create(t->place.grid, config, &t->model));
    fill_parameters(t);
    fill_tokens(t, t->model.tokens);
    fill_tokens(t, t->model.targets);
    OK(qdr_adamw_create(t->model.stack, NULL, &t->optimizer));
    OK(qdr_adamw_set_rate(t->optimizer, 1e-5));
    for (int i = 0; i < 2; i++) {
        t->steps[i] = (gpt_step){.model = &t->model,
                                 .optimizer = t->optimizer,
                                 .loss_scale = 1.0 / (double)(config->n_sequences * config->context),
                                 .is_recorded = i};
        t->series[i] = (gpu_series){.name = i ? "recorded" : "enqueued", .n_warm = N_WARM};
    }
}

static void close_training(training *t)
{
    gpu_wait(&t->place);
    for (int i = 0; i < 2; i++) gpt_step_destroy(&t->steps[i]);
    qdr_adamw_destroy(&t->optimizer);
    gpt_destroy(&t->model);
    gpu_close(&t->place);
}

static void run(void *user) { OK(gpt_step_run(user, 0, 1)); }

static void report(const training *t)
{
    const gpt_config *c = &t->model.config;
    double norm;
    char text[128];
    OK(qdr_adamw_norm(t->optimizer, &norm));
    if (!isfinite(norm)) gpu_leave("the norm of the gradients is %g", norm);
    snprintf(text, sizeof text, "%lld layers, hidden %lld, %lld heads, %lldx%lld tokens, vocabulary %lld, bf16",
             (long long)c->network.layers, (long long)c->network.hidden, (long long)c->network.heads,
             (long long)c->n_sequences, (long long)c->context, (long long)c->network.vocab);
    gpu_report *all = gpu_report_begin("training step", text);
    for (int i = 0; i < 2; i++) gpu_series_report(all, &t->series[i]);
    gpu_series_compare(all, "enqueued/recorded", &t->series[0], &t->series[1]);
    gpu_report_number(all, "norm of the gradients", norm);
    gpu_report_end(all);
}

int main(int argc, char **argv)
{
    training t = {.optimizer = NULL};
    int64_t words[N_WORDS];
    if (argc != N_WORDS + 1) {
        fprintf(stderr, "usage: training LAYERS HIDDEN HEADS CONTEXT SEQUENCES VOCABULARY\n");
        return 2;
    }
    for (int i = 0; i < N_WORDS; i++) words[i] = atoll(argv[1 + i]);
    const gpt_config config = {.network = gpt_network((qdr_network){.layers = words[0],
                                                                    .hidden = words[1],
                                                                    .heads = words[2],
                                                                    .vocab = words[5],
                                                                    .tied = 1,
                                                                    .context = words[3]}),
                               .context = words[3],
                               .n_sequences = words[4],
                               .dtype = QDR_BF16};
    open_training(&t, &config);
    gpu_monitor *monitor = gpu_monitor_open(&t.place);
    for (int i = 0; i < N_WARM + N_SAMPLES; i++) /* who is first changes */
        for (int k = 0; k < 2; k++) {
            const int which = (i + k) % 2;
            gpu_series_take(&t.series[which], &t.place, monitor, N_RUNS, run, &t.steps[which]);
        }
    report(&t);
    gpu_monitor_close(monitor);
    close_training(&t);
    return 0;
}
