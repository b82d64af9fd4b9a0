/* SPDX-License-Identifier: Apache-2.0 */
/* A transformer layer, forward and backward, and its attention alone, alternating; layer_torch.py does the same. With
 * QDR_FUSE_GELU=0, GELU runs in separate kernels. block [HIDDEN HEADS CONTEXT SEQUENCES]; default: 4096 32 2048 4.
 * bf16. */
#include "block_attention.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SAMPLES = 15, WARM_SAMPLES = 3 };

typedef struct samples {
    double layer[N_SAMPLES], forward[N_SAMPLES], backward[N_SAMPLES], attention[N_SAMPLES], rest[N_SAMPLES];
} samples;

/* The layer and its attention, back to back. */
static void take_sample(const block *b, const attention *a, gpu_marks *marks, int at, samples *s)
{
    gpu_marks_reset(marks);
    gpu_mark(marks);
    OK(qdr_stack_forward(b->stack));
    gpu_mark(marks);
    block_set_gradient(b);
    gpu_mark(marks);
    OK(qdr_stack_backward(b->stack, 0, 1));
    gpu_mark(marks);
    attention_run(a);
    gpu_mark(marks);
    gpu_marks_wait(marks);
    s->forward[at] = gpu_between(marks, 0);
    s->backward[at] = gpu_between(marks, 2);
    s->layer[at] = s->forward[at] + s->backward[at];
    s->attention[at] = gpu_between(marks, 3);
    s->rest[at] = s->layer[at] - s->attention[at];
}

static int is_set(const char *name, const char *value)
{
    const char *given = getenv(name);
    return given && strcmp(given, value) == 0;
}

static const char *report_name(void)
{
    const char *tune = getenv("QDR_TUNE");
    if (is_set("QDR_ATTENTION", "cudnn")) return "layer, attention of cuDNN";
    if (is_set("QDR_FUSE_GELU", "0")) return "layer, GELU by kernels";
    return tune && *tune ? "layer" : "layer, not tuned";
}

/* Why cuDNN did not compute the attention after all; "": it did, or was not asked. */
static char without_cudnn[256];

static void hear(int level, const char *line, void *user)
{
    (void)level;
    (void)user;
    if (strstr(line, "own kernels compute it")) snprintf(without_cudnn, sizeof without_cudnn, "%s", line);
}

static void report(const block *b, const samples *s)
{
    const block_shape *shape = &b->shape;
    char text[96];
    snprintf(text, sizeof text, "hidden %lld, %lld heads, %lldx%lld tokens, bf16", (long long)shape->hidden,
             (long long)shape->n_heads, (long long)shape->n_sequences, (long long)shape->context);
    gpu_report *all = gpu_report_begin(report_name(), text);
    gpu_report_samples(all, "layer, ms", s->layer, N_SAMPLES);
    gpu_report_samples(all, "forward, ms", s->forward, N_SAMPLES);
    gpu_report_samples(all, "backward, ms", s->backward, N_SAMPLES);
    gpu_report_samples(all, "attention, ms", s->attention, N_SAMPLES);
    gpu_report_samples(all, "all but attention, ms", s->rest, N_SAMPLES);
    gpu_report_word(all, "attention", is_set("QDR_ATTENTION", "cudnn") ? "cuDNN" : "the library's kernel");
    gpu_report_end(all);
}

int main(int argc, char **argv)
{
    block_shape shape = {4096, 32, 2048, 4, QDR_BF16};
    samples s;
    if (argc == 5) shape = (block_shape){atoll(argv[1]), atoll(argv[2]), atoll(argv[3]), atoll(argv[4]), QDR_BF16};
    qdr_set_log(hear, NULL);
    gpu_place place = gpu_open();
    block b = block_make(&place, &shape);
    attention a = attention_make(&b);
    gpu_marks marks = gpu_marks_make(place.stream);
    for (int i = -WARM_SAMPLES; i < N_SAMPLES; i++) take_sample(&b, &a, &marks, i < 0 ? 0 : i, &s);
    if (*without_cudnn)
        fprintf(stderr, "block: nothing is reported: %s\n", without_cudnn);
    else
        report(&b, &s);
    gpu_marks_free(&marks);
    attention_free(&a);
    block_free(&b);
    gpu_close(&place);
    return 0;
}
