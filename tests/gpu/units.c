/* SPDX-License-Identifier: Apache-2.0 */
/* The three products of a linear layer, bf16, each by cuBLASLt's fastest algorithm for all multiprocessors and for
 * fewer, as products leave some to collectives; alternating sample by sample, each sample with the GPU's clock and
 * power. units N,N,... [M N K]... */
#include <stdio.h>
#include <stdlib.h>

#include "lt.h"
#include "monitor.h"

enum { N_SAMPLES = 15, N_WARM = 2, N_RUNS = 16, MOST_COUNTS = 8 };

typedef struct layer {
    const lt_place *lt;
    lt_product y, dx, dw;
    char name[32];
    gpu_series series;
} layer;

/* The arrays that all share. */
typedef struct arrays {
    void *x, *w, *dy, *y, *dx, *dw;
} arrays;

static arrays make_arrays(const gpu_place *place, const int64_t shape[3])
{
    const int64_t m = shape[0], n = shape[1], k = shape[2];
    return (arrays){.x = gpu_random(place, m * k, QDR_BF16, 1),
                    .w = gpu_random(place, n * k, QDR_BF16, 0.02),
                    .dy = gpu_random(place, m * n, QDR_BF16, 1),
                    .y = gpu_memory(place, m * n, QDR_BF16),
                    .dx = gpu_memory(place, m * k, QDR_BF16),
                    .dw = gpu_memory(place, n * k, QDR_F32)};
}

static void free_arrays(const gpu_place *place, arrays *a)
{
    void **all[] = {&a->x, &a->w, &a->dy, &a->y, &a->dx, &a->dw};
    gpu_wait(place);
    for (int i = 0; i < 6; i++) qdr_mem_free(place->ctx, all[i]);
}

static void make_layer(layer *l, const lt_place *lt, const arrays *a, const int64_t shape[3], int n_units)
{
    const int64_t m = shape[0], n = shape[1], k = shape[2];
    *l = (layer){.lt = lt, .series = {.n_warm = N_WARM}};
    snprintf(l->name, sizeof l->name, "%d multiprocessors", n_units);
    l->series.name = l->name;
    l->y = (lt_product){.m = m, .n = n, .k = k, .a = a->x, .b = a->w, .c = a->y, .trans_b = 1};
    l->dx = (lt_product){.m = m, .n = k, .k = n, .a = a->dy, .b = a->w, .c = a->dx};
    l->dw = (lt_product){.m = n, .n = k, .k = m, .a = a->dy, .b = a->x, .c = a->dw, .trans_a = 1};
    l->y.c_type = l->dx.c_type = CUDA_R_16BF;
    l->dw.c_type = CUDA_R_32F;
    l->y.n_units = l->dx.n_units = l->dw.n_units = n_units;
    lt_prepare(lt, &l->y);
    lt_prepare(lt, &l->dx);
    lt_prepare(lt, &l->dw);
}

static void free_layer(layer *l)
{
    lt_free(&l->y);
    lt_free(&l->dx);
    lt_free(&l->dw);
}

static void run(void *user)
{
    const layer *l = user;
    lt_run(l->lt, &l->y);
    lt_run(l->lt, &l->dx);
    lt_run(l->lt, &l->dw);
}

static void report(const int64_t shape[3], const layer layers[], int n)
{
    const double flops = 6.0 * (double)shape[0] * (double)shape[1] * (double)shape[2];
    char text[96];
    snprintf(text, sizeof text, "%lldx%lld, k=%lld, bf16", (long long)shape[0], (long long)shape[1],
             (long long)shape[2]);
    gpu_report *all = gpu_report_begin("products on fewer multiprocessors", text);
    for (int i = 0; i < n; i++) {
        gpu_series_report(all, &layers[i].series);
        snprintf(text, sizeof text, "%s, TFLOP/s", layers[i].name);
        gpu_report_number(all, text, 1e-9 * flops / gpu_median(layers[i].series.ms, layers[i].series.n));
        snprintf(text, sizeof text, "%s over %s", layers[i].name, layers[0].name);
        if (i > 0) gpu_series_compare(all, text, &layers[i].series, &layers[0].series);
    }
    gpu_report_end(all);
}

static void measure(const int64_t shape[3], const int counts[], int n)
{
    gpu_place place = gpu_open();
    gpu_monitor *monitor = gpu_monitor_open(&place);
    lt_place lt = lt_open(place.stream);
    arrays a = make_arrays(&place, shape);
    layer layers[MOST_COUNTS];
    for (int i = 0; i < n; i++) make_layer(&layers[i], &lt, &a, shape, counts[i]);
    for (int i = 0; i < N_WARM + N_SAMPLES; i++) /* who is first changes */
        for (int k = 0; k < n; k++) {
            layer *l = &layers[(i + k) % n];
            gpu_series_take(&l->series, &place, monitor, N_RUNS, run, l);
        }
    report(shape, layers, n);
    free_arrays(&place, &a);
    for (int i = 0; i < n; i++) free_layer(&layers[i]);
    lt_close(&lt);
    gpu_monitor_close(monitor);
    gpu_close(&place);
}

int main(int argc, char **argv)
{
    int counts[MOST_COUNTS], n = 0;
    if (argc < 5 || (argc - 2) % 3) {
        fprintf(stderr, "usage: units N,N,... [M N K]...\n");
        return 2;
    }
    for (char *at = argv[1]; *at && n < MOST_COUNTS; at += *at == ',') counts[n++] = (int)strtol(at, &at, 10);
    for (char **word = argv + 2; *word; word += 3) {
        const int64_t shape[3] = {atoll(word[0]), atoll(word[1]), atoll(word[2])};
        measure(shape, counts, n);
    }
    return 0;
}
