/* SPDX-License-Identifier: Apache-2.0 */
/* A transformer block's step recorded as a graph: it gives the same bits as an enqueued step; and the time of both,
 * alternating. graph [--check]: only the bits, with a small block. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "block.h"

enum { N_SAMPLES = 21, WARM_SAMPLES = 2 };

/* Everything that a step makes, on the host: out, the gradient of in, gradients of parameters. */
typedef struct results {
    size_t bytes;
    char *data;
} results;

static void append(const block *b, results *r, const void *data, size_t bytes)
{
    char *more = realloc(r->data, r->bytes + bytes + 1);
    if (!more) gpu_leave("no memory on the host for %zu bytes", r->bytes + bytes);
    r->data = more;
    OK(qdr_copy(b->place->ctx, r->data + r->bytes, data, bytes, NULL));
    gpu_wait(b->place);
    r->bytes += bytes;
}

static results read_results(const block *b)
{
    results r = {0, NULL};
    gpu_wait(b->place);
    append(b, &r, block_value(b, b->out), block_bytes(b));
    append(b, &r, block_gradient(b, b->in), block_bytes(b));
    for (int i = 0; i < qdr_stack_n_parameters(b->stack); i++) {
        qdr_parameter p = {QDR_INIT(qdr_parameter)};
        OK(qdr_stack_parameter(b->stack, i, &p));
        append(b, &r, p.gradient, (size_t)p.n_elems * sizeof(float));
    }
    return r;
}

/* NaN wherever a step writes. */
static void poison(const block *b)
{
    cudaStream_t stream = b->place->stream;
    CUDA_OK(cudaMemsetAsync(block_value(b, b->out), 0xff, block_bytes(b), stream));
    CUDA_OK(cudaMemsetAsync(block_gradient(b, b->in), 0xff, block_bytes(b), stream));
    for (int i = 0; i < qdr_stack_n_parameters(b->stack); i++) {
        qdr_parameter p = {QDR_INIT(qdr_parameter)};
        OK(qdr_stack_parameter(b->stack, i, &p));
        CUDA_OK(cudaMemsetAsync(p.gradient, 0xff, (size_t)p.n_elems * sizeof(float), stream));
    }
}

static qdr_graph *record(const block *b)
{
    qdr_graph *graph;
    OK(qdr_graph_begin(b->place->ctx));
    block_step(b);
    OK(qdr_graph_end(b->place->ctx, &graph));
    return graph;
}

/* With other inputs than it was recorded with, and more than once. */
static void check_bits(const block *b, qdr_graph *graph)
{
    for (int round = 0; round < 3; round++) {
        gpu_fill(b->place, block_value(b, b->in), b->n, b->shape.dtype, 1);
        gpu_fill(b->place, b->dy, b->n, b->shape.dtype, 1);
        poison(b);
        block_step(b);
        results want = read_results(b);
        poison(b);
        OK(qdr_graph_launch(graph, NULL));
        results got = read_results(b);
        if (got.bytes != want.bytes || memcmp(got.data, want.data, got.bytes) != 0)
            gpu_leave("round %d: a replayed step has other bits than one that is enqueued", round);
        free(want.data);
        free(got.data);
    }
}

/* Microseconds of a step by the host's clock, n of them back to back. */
static double time_steps(const block *b, qdr_graph *graph, int n)
{
    gpu_wait(b->place);
    const double began = gpu_now();
    for (int i = 0; i < n; i++) {
        if (graph)
            OK(qdr_graph_launch(graph, NULL));
        else
            block_step(b);
    }
    gpu_wait(b->place);
    return (gpu_now() - began) / n;
}

static void measure(const block *b, qdr_graph *graph, int n)
{
    double plain[N_SAMPLES], replayed[N_SAMPLES], ratio[N_SAMPLES];
    const block_shape *shape = &b->shape;
    char text[96];
    for (int i = -WARM_SAMPLES; i < N_SAMPLES; i++) {
        const int at = i < 0 ? 0 : i;
        if (i % 2) replayed[at] = time_steps(b, graph, n);
        plain[at] = time_steps(b, NULL, n);
        if (i % 2 == 0) replayed[at] = time_steps(b, graph, n);
        ratio[at] = plain[at] / replayed[at];
    }
    snprintf(text, sizeof text, "hidden %lld, %lld heads, %lldx%lld tokens, bf16, step", (long long)shape->hidden,
             (long long)shape->n_heads, (long long)shape->n_sequences, (long long)shape->context);
    gpu_report *all = gpu_report_begin("graph", text);
    gpu_report_samples(all, "enqueued, us", plain, N_SAMPLES);
    gpu_report_samples(all, "replayed, us", replayed, N_SAMPLES);
    gpu_report_samples(all, "enqueued/replayed", ratio, N_SAMPLES);
    gpu_report_bar(all, "enqueued/replayed", 1);
    gpu_report_end(all);
}

static void run(block_shape shape, int n_steps)
{
    gpu_place place = gpu_open();
    block b = block_make(&place, &shape);
    block_step(&b); /* what is made at first use */
    gpu_wait(&place);
    qdr_graph *graph = record(&b);
    check_bits(&b, graph);
    if (n_steps) measure(&b, graph, n_steps);
    qdr_graph_destroy(&graph);
    block_free(&b);
    gpu_close(&place);
}

int main(int argc, char **argv)
{
    run((block_shape){96, 4, 32, 3, QDR_F32}, 0);
    run((block_shape){256, 4, 64, 2, QDR_BF16}, 0);
    if (argc > 1 && strcmp(argv[1], "--check") == 0) return 0;
    run((block_shape){512, 8, 256, 4, QDR_BF16}, 50); /* the host's cost shows */
    run((block_shape){4096, 32, 2048, 4, QDR_BF16}, 5);
    return 0;
}
