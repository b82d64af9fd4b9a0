/* SPDX-License-Identifier: Apache-2.0 */
/* A linear layer on 1x1x1x1 whose products are of bf16 numbers and, alternating sample by sample, of numbers rounded to
 * fp8, forward and backward, each sample with the GPU's clock and power. fp8 [M N K]... */
#include <stdio.h>
#include <stdlib.h>

#include "monitor.h"

enum { N_SAMPLES = 15, N_WARM = 2, N_RUNS = 16 };

typedef struct layer {
    gpu_place *place;
    qdr_stack *stack;
    qdr_linear *linear;
    void *x, *y, *dy, *dx;
    gpu_series series;
} layer;

static layer make_layer(gpu_place *place, const int64_t shape[3], const char *name, qdr_product_type products)
{
    const int64_t m = shape[0], n = shape[1], k = shape[2];
    layer l = {.place = place, .series = {.name = name, .n_warm = N_WARM}};
    const qdr_stack_opts opts = {QDR_OPTS_INIT, .n_rows = m, .dtype = QDR_BF16, .product_type = products};
    const qdr_edge_desc input = {QDR_OPTS_INIT, .cols = {{k, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc desc = {QDR_OPTS_INIT, .name = "layer", .in = {{k, 1}}, .out = {{n, 1}}};
    qdr_edge x, y;
    OK(qdr_stack_create(place->grid, &opts, &l.stack));
    OK(qdr_stack_add_input(l.stack, "x", &input, 1, &x));
    OK(qdr_stack_add_linear(l.stack, &desc, x, &y, &l.linear));
    OK(qdr_stack_build(l.stack));
    OK(qdr_linear_init(l.linear, 1, 0.02));
    l.x = gpu_random(place, m * k, QDR_BF16, 1);
    l.dy = gpu_random(place, m * n, QDR_BF16, 1);
    l.y = gpu_memory(place, m * n, QDR_BF16);
    l.dx = gpu_memory(place, m * k, QDR_BF16);
    return l;
}

static void free_layer(layer *l)
{
    void **all[] = {&l->x, &l->y, &l->dy, &l->dx};
    for (int i = 0; i < 4; i++) qdr_mem_free(l->place->ctx, all[i]);
    qdr_stack_destroy(&l->stack);
}

static void run(void *user)
{
    const layer *l = user;
    OK(qdr_linear_forward(l->linear, l->x, l->y, 0, NULL));
    OK(qdr_linear_backward(l->linear, l->dy, l->x, l->dx, 0, NULL));
}

static void report(const int64_t shape[3], const layer layers[2])
{
    const double flops = 6.0 * (double)shape[0] * (double)shape[1] * (double)shape[2];
    char text[96], name[64];
    snprintf(text, sizeof text, "%lldx%lld, k=%lld", (long long)shape[0], (long long)shape[1], (long long)shape[2]);
    gpu_report *all = gpu_report_begin("linear, fp8", text);
    for (int i = 0; i < 2; i++) {
        gpu_series_report(all, &layers[i].series);
        snprintf(name, sizeof name, "%s, TFLOP/s", layers[i].series.name);
        gpu_report_number(all, name, 1e-9 * flops / gpu_median(layers[i].series.ms, layers[i].series.n));
    }
    gpu_series_compare(all, "bf16/fp8", &layers[0].series, &layers[1].series);
    gpu_report_end(all);
}

static void measure(const int64_t shape[3])
{
    gpu_place place = gpu_open();
    gpu_monitor *monitor = gpu_monitor_open(&place);
    layer layers[2] = {make_layer(&place, shape, "bf16", QDR_PRODUCT_AS_STORED),
                       make_layer(&place, shape, "fp8", QDR_PRODUCT_FP8)};
    for (int i = 0; i < N_WARM + N_SAMPLES; i++) /* who is first changes */
        for (int k = 0; k < 2; k++) {
            layer *l = &layers[(i + k) % 2];
            gpu_series_take(&l->series, &place, monitor, N_RUNS, run, l);
        }
    report(shape, layers);
    for (int i = 0; i < 2; i++) free_layer(&layers[i]);
    gpu_monitor_close(monitor);
    gpu_close(&place);
}

int main(int argc, char **argv)
{
    if (argc < 4 || (argc - 1) % 3) {
        fprintf(stderr, "usage: fp8 [M N K]...\n");
        return 2;
    }
    for (char **word = argv + 1; *word; word += 3) {
        const int64_t shape[3] = {atoll(word[0]), atoll(word[1]), atoll(word[2])};
        measure(shape);
    }
    return 0;
}
