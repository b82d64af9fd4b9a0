/* SPDX-License-Identifier: Apache-2.0 */
/* The overhead of the library on one rank: forward and backward of a layer compared with the same three cblas calls,
 * alternating, f32. one_rank [M N K [SAMPLES]]; default 4096 4096 1024 7. Prints medians and the median of the ratios
 * of pairs, and the time after which both calls had returned. */
#include <cblas.h>
#include <quadrille/quadrille.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_SAMPLES = 1001 };

typedef struct sizes {
    int64_t m, n, k;
    int n_samples;
} sizes;

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        if ((status = (call)) < 0) goto out;                                                                           \
    } while (0)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, int n)
{
    double sorted[MAX_SAMPLES];
    for (int i = 0; i < n; i++) sorted[i] = values[i];
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    return sorted[n / 2];
}

typedef struct operands {
    float *x, *y, *dx, *dy, *w, *dw;
} operands;

static double time_cblas(const sizes *s, const operands *o)
{
    const int m = (int)s->m, n = (int)s->n, k = (int)s->k;
    const double began = now();
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, o->x, k, o->w, k, 0, o->y, n);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, k, n, 1, o->dy, n, o->w, k, 0, o->dx, k);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, k, m, 1, o->dy, n, o->x, k, 0, o->dw, k);
    return now() - began;
}

/* call_secs: until both calls have returned */
static qdr_status time_library(qdr_linear *layer, const operands *o, qdr_stream *stream, double *secs,
                               double *call_secs)
{
    const double began = now();
    qdr_status status;
    CHECK(qdr_linear_forward(layer, o->x, o->y, 0, stream));
    CHECK(qdr_linear_backward(layer, o->dy, o->x, o->dx, 0, stream));
    *call_secs = now() - began;
    CHECK(qdr_stream_synchronize(stream));
    *secs = now() - began;
out:
    return status;
}

static qdr_status measure(qdr_context *ctx, const sizes *s, qdr_stack *stack, qdr_linear *layer, const operands *o)
{
    double plain[MAX_SAMPLES], library[MAX_SAMPLES], calls[MAX_SAMPLES], ratio[MAX_SAMPLES];
    qdr_status status = QDR_OK;
    qdr_parameter w = {QDR_INIT(qdr_parameter)};
    operands mine = *o;
    CHECK(qdr_stack_parameter(stack, qdr_linear_weight_index(layer), &w));
    mine.w = w.data;
    mine.dw = w.gradient;
    for (int i = -1; i < s->n_samples; i++) { /* the first pair warms up */
        double secs, call_secs;
        const double reference = time_cblas(s, &mine);
        CHECK(time_library(layer, o, qdr_context_stream(ctx), &secs, &call_secs));
        if (i < 0) continue;
        plain[i] = reference;
        library[i] = secs;
        calls[i] = call_secs;
        ratio[i] = secs / reference;
    }
    const double flops = 6.0 * (double)s->m * (double)s->n * (double)s->k;
    const double reference = median(plain, s->n_samples), with = median(library, s->n_samples);
    printf("one rank, %d thread(s), f32, m=%d n=%d k=%d, forward + backward, %d samples: cblas %.4g ms (%.1f GFLOP/s), "
           "library %.4g ms (%.1f GFLOP/s), of it the calls %.2f µs, median ratio %.4f\n",
           qdr_context_threads(ctx), (int)s->m, (int)s->n, (int)s->k, s->n_samples, 1e3 * reference,
           flops / reference * 1e-9, 1e3 * with, flops / with * 1e-9, 1e6 * median(calls, s->n_samples),
           median(ratio, s->n_samples));
out:
    return status;
}

static float *filled(int64_t n)
{
    float *values = malloc((size_t)n * sizeof *values);
    for (int64_t i = 0; values && i < n; i++) values[i] = (float)(i % 17) / 16 - 0.5f;
    return values;
}

static int run(qdr_context *ctx, void *user)
{
    const sizes *s = user;
    qdr_status status;
    qdr_grid *grid = NULL;
    qdr_stack *stack = NULL;
    qdr_linear *layer = NULL;
    qdr_edge x, y;
    operands o = {
        .x = filled(s->m * s->k), .y = filled(s->m * s->n), .dx = filled(s->m * s->k), .dy = filled(s->m * s->n)};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{s->k, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc), .name = "layer", .in = {{s->k, 1}}, .out = {{s->n, 1}}};
    CHECK(qdr_grid_create(ctx, &(qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = 1, .y = 1, .z = 1, .d = 1}, &grid));
    CHECK(qdr_stack_create(grid, &(qdr_stack_opts){QDR_INIT(qdr_stack_opts), .n_rows = s->m}, &stack));
    CHECK(qdr_stack_add_input(stack, "x", &input, 1, &x));
    CHECK(qdr_stack_add_linear(stack, &desc, x, &y, &layer));
    CHECK(qdr_stack_build(stack));
    CHECK(qdr_linear_init(layer, 1, 0.02));
    if (o.x && o.y && o.dx && o.dy) CHECK(measure(ctx, s, stack, layer, &o));
out:
    if (status < 0) fprintf(stderr, "one_rank: %s\n", qdr_last_error());
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
    free(o.x);
    free(o.y);
    free(o.dx);
    free(o.dy);
    return status < 0;
}

int main(int argc, char **argv)
{
    sizes s = {4096, 4096, 1024, 7};
    const qdr_context_opts opts = {QDR_INIT(qdr_context_opts), .n_threads = 1};
    int exit_code = 1;
    if (argc >= 4) {
        s.m = atoll(argv[1]);
        s.n = atoll(argv[2]);
        s.k = atoll(argv[3]);
    }
    if (argc >= 5) s.n_samples = atoi(argv[4]);
    if ((argc > 1 && argc < 4) || s.m < 1 || s.n < 1 || s.k < 1 || s.n_samples < 1 || s.n_samples > MAX_SAMPLES) {
        fprintf(stderr, "usage: one_rank [M N K [SAMPLES]]; sizes at least 1, at most %d samples\n", MAX_SAMPLES);
        return 2;
    }
    if (qdr_launch(1, &opts, run, &s, &exit_code) != QDR_OK) fprintf(stderr, "one_rank: %s\n", qdr_last_error());
    return exit_code;
}
