/* SPDX-License-Identifier: Apache-2.0 */
/* Transformer layers with the library's attention and with cuDNN's, forward and backward, alternating sample by sample,
 * each sample with the GPU's clock and power. layers [HIDDEN HEADS CONTEXT SEQUENCES]...; bf16. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "block_attention.h"
#include "monitor.h"

enum { N_SAMPLES = 11, N_WARM = 2, LAYER_RUNS = 8, ATTENTION_RUNS = 24, N_SIDES = 2 };

static const char *const choices[N_SIDES] = {"own", "cudnn"};

typedef struct side {
    gpu_place place;
    block layer;
    attention attention;
    gpu_series of_layer, of_attention;
} side;

/* Why cuDNN did not compute the attention after all; "": it did. */
static char without_cudnn[256];

static void hear(int level, const char *line, void *user)
{
    (void)level;
    (void)user;
    fprintf(stderr, "%s\n", line);
    if (strstr(line, "own kernels compute it")) snprintf(without_cudnn, sizeof without_cudnn, "%s", line);
}

/* The block points to its place. */
static void open_side(side *s, int which, const block_shape *shape)
{
    static const char *const names[N_SIDES][2] = {{"layer, own attention", "own attention"},
                                                  {"layer, attention of cuDNN", "attention of cuDNN"}};
    if (setenv("QDR_ATTENTION", choices[which], 1) != 0) gpu_leave("no memory for a variable");
    s->place = gpu_open();
    s->layer = block_make(&s->place, shape);
    s->attention = attention_make(&s->layer);
    s->of_layer = (gpu_series){.name = names[which][0], .n_warm = N_WARM};
    s->of_attention = (gpu_series){.name = names[which][1], .n_warm = N_WARM};
}

static void close_side(side *s)
{
    attention_free(&s->attention);
    block_free(&s->layer);
    gpu_close(&s->place);
}

static void run_layer(void *user) { block_step(user); }
static void run_attention(void *user) { attention_run(user); }

static void take_sample(side *s, const gpu_monitor *monitor)
{
    gpu_series_take(&s->of_layer, &s->place, monitor, LAYER_RUNS, run_layer, &s->layer);
    gpu_series_take(&s->of_attention, &s->place, monitor, ATTENTION_RUNS, run_attention, &s->attention);
}

static void report(const block_shape *shape, const side sides[N_SIDES])
{
    char text[96];
    snprintf(text, sizeof text, "hidden %lld, %lld heads, %lldx%lld tokens, bf16", (long long)shape->hidden,
             (long long)shape->n_heads, (long long)shape->n_sequences, (long long)shape->context);
    gpu_report *all = gpu_report_begin("layers", text);
    const int n_compared = *without_cudnn ? 1 : N_SIDES;
    for (int i = 0; i < n_compared; i++) {
        gpu_series_report(all, &sides[i].of_layer);
        gpu_series_report(all, &sides[i].of_attention);
    }
    if (n_compared == N_SIDES) {
        gpu_series_compare(all, "layer, own/cuDNN", &sides[0].of_layer, &sides[1].of_layer);
        gpu_series_compare(all, "attention, own/cuDNN", &sides[0].of_attention, &sides[1].of_attention);
    } else {
        gpu_report_word(all, "without cuDNN", without_cudnn);
    }
    gpu_report_end(all);
}

static void measure(const block_shape *shape)
{
    side sides[N_SIDES];
    *without_cudnn = '\0';
    for (int i = 0; i < N_SIDES; i++) open_side(&sides[i], i, shape);
    gpu_monitor *monitor = gpu_monitor_open(&sides[0].place);
    for (int i = 0; i < N_WARM + N_SAMPLES; i++) /* who is first changes */
        for (int k = 0; k < N_SIDES; k++) take_sample(&sides[(i + k) % N_SIDES], monitor);
    report(shape, sides);
    gpu_monitor_close(monitor);
    for (int i = 0; i < N_SIDES; i++) close_side(&sides[i]);
}

int main(int argc, char **argv)
{
    if (argc < 5 || (argc - 1) % 4) {
        fprintf(stderr, "usage: layers [HIDDEN HEADS CONTEXT SEQUENCES]...\n");
        return 2;
    }
    qdr_set_log(hear, NULL);
    for (char **word = argv + 1; *word; word += 4) {
        const block_shape shape = {atoll(word[0]), atoll(word[1]), atoll(word[2]), atoll(word[3]), QDR_BF16};
        measure(&shape);
    }
    return 0;
}
