/* SPDX-License-Identifier: Apache-2.0 */
/* A linear layer on 1x1x1x1 whose products are of bf16 numbers and, alternating sample by sample, of numbers rounded to
 * fp8, forward and backward, each sample with the GPU's clock and power. fp8 [M N K]... */
#include <stdio.h>
#include <stdlib.h>

#include "linear_make.h"
#include "monitor.h"

enum { N_SAMPLES = 15, N_WARM = 2, N_RUNS = 16 };

/* One kind of products. */
typedef struct rival {
    layer layer;
    gpu_series series;
} rival;

static rival make_rival(gpu_place *place, const int64_t shape[3], const char *name, qdr_product_type products)
{
    return (rival){.layer = layer_make(place, shape[0], shape[1], shape[2], products),
                   .series = {.name = name, .n_warm = N_WARM}};
}

static void run(void *user)
{
    const rival *r = user;
    layer_forward(&r->layer);
    layer_backward(&r->layer);
}

static void report(const int64_t shape[3], const rival rivals[2])
{
    const double flops = 6.0 * (double)shape[0] * (double)shape[1] * (double)shape[2];
    char text[96], name[64];
    snprintf(text, sizeof text, "%lldx%lld, k=%lld", (long long)shape[0], (long long)shape[1], (long long)shape[2]);
    gpu_report *all = gpu_report_begin("linear, fp8", text);
    for (int i = 0; i < 2; i++) {
        gpu_series_report(all, &rivals[i].series);
        snprintf(name, sizeof name, "%s, TFLOP/s", rivals[i].series.name);
        gpu_report_number(all, name, 1e-9 * flops / gpu_median(rivals[i].series.ms, rivals[i].series.n));
    }
    gpu_series_compare(all, "bf16/fp8", &rivals[0].series, &rivals[1].series);
    gpu_report_end(all);
}

static void measure(const int64_t shape[3])
{
    gpu_place place = gpu_open();
    gpu_monitor *monitor = gpu_monitor_open(&place);
    rival rivals[2] = {make_rival(&place, shape, "bf16", QDR_PRODUCT_AS_STORED),
                       make_rival(&place, shape, "fp8", QDR_PRODUCT_FP8)};
    for (int i = 0; i < N_WARM + N_SAMPLES; i++) /* who is first changes */
        for (int k = 0; k < 2; k++) {
            rival *r = &rivals[(i + k) % 2];
            gpu_series_take(&r->series, &place, monitor, N_RUNS, run, r);
        }
    report(shape, rivals);
    for (int i = 0; i < 2; i++) layer_free(&rivals[i].layer);
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
