/* SPDX-License-Identifier: Apache-2.0 */
/* A linear layer on 1x1x1x1, bf16, forward and backward, compared with cuBLASLt's fastest algorithm for each of its
 * three products (dW in fp32, as in the library), alternating in one process. With QDR_TUNE the library also times
 * algorithms when the layer is created. linear [M N K]...; default: the two shapes of the performance target. */
#include <stdio.h>
#include <stdlib.h>

#include "linear_make.h"
#include "lt.h"

enum { N_SAMPLES = 31, N_REPEATS = 4, WARM_SAMPLES = 2 };

typedef struct rival {
    lt_place lt;
    qdr_parameter w; /* the layer's */
    int is_turned; /* W is [in, out] */
    lt_product y, dx, dw;
} rival;

/* Milliseconds of one forward and of one backward. */
typedef struct times {
    double forward, backward;
} times;

/* Y = X·Wᵀ, dX = dY·W, dW = dYᵀ·X on the layer's own inputs, W stored as the layer stores it, into memory of its
 * own. */
static rival make_rival(const layer *l)
{
    rival r = {.lt = lt_open(l->place->stream)};
    qdr_linear_storage storage = {QDR_INIT(qdr_linear_storage)};
    r.w.size = sizeof r.w;
    OK(qdr_stack_parameter(l->stack, qdr_linear_weight_index(l->linear), &r.w));
    OK(qdr_linear_get_storage(l->linear, &storage));
    const int turned = r.is_turned = storage.storage == QDR_IN_OUT;
    r.y = (lt_product){.m = l->m, .n = l->n, .k = l->k, .a = l->x, .b = r.w.data};
    r.y.trans_b = !turned;
    r.dx = (lt_product){.m = l->m, .n = l->k, .k = l->n, .a = l->dy, .b = r.w.data};
    r.dx.trans_b = turned;
    r.dw = (lt_product){.m = l->n, .n = l->k, .k = l->m, .a = l->dy, .b = l->x, .trans_a = 1};
    if (turned) r.dw = (lt_product){.m = l->k, .n = l->n, .k = l->m, .a = l->x, .b = l->dy, .trans_a = 1};
    r.y.c_type = r.dx.c_type = CUDA_R_16BF;
    r.dw.c_type = CUDA_R_32F;
    r.y.c = gpu_memory(l->place, l->m * l->n, QDR_BF16);
    r.dx.c = gpu_memory(l->place, l->m * l->k, QDR_BF16);
    r.dw.c = gpu_memory(l->place, l->n * l->k, QDR_F32);
    lt_prepare(&r.lt, &r.y);
    lt_prepare(&r.lt, &r.dx);
    lt_prepare(&r.lt, &r.dw);
    return r;
}

static void free_rival(const layer *l, rival *r)
{
    lt_product *all[] = {&r->y, &r->dx, &r->dw};
    gpu_wait(l->place);
    for (int i = 0; i < 3; i++) {
        qdr_mem_free(l->place->ctx, &all[i]->c);
        lt_free(all[i]);
    }
    lt_close(&r->lt);
}

static times read_times(const gpu_marks *marks)
{
    times t = {0, 0};
    gpu_marks_wait(marks);
    for (int i = 0; i < N_REPEATS; i++) {
        t.forward += gpu_between(marks, 2 * i) / N_REPEATS;
        t.backward += gpu_between(marks, 2 * i + 1) / N_REPEATS;
    }
    return t;
}

static times time_library(const layer *l, gpu_marks *marks)
{
    gpu_marks_reset(marks);
    gpu_mark(marks);
    for (int i = 0; i < N_REPEATS; i++) {
        layer_forward(l);
        gpu_mark(marks);
        layer_backward(l);
        gpu_mark(marks);
    }
    return read_times(marks);
}

static times time_rival(const rival *r, gpu_marks *marks)
{
    gpu_marks_reset(marks);
    gpu_mark(marks);
    for (int i = 0; i < N_REPEATS; i++) {
        lt_run(&r->lt, &r->y);
        gpu_mark(marks);
        lt_run(&r->lt, &r->dx);
        lt_run(&r->lt, &r->dw);
        gpu_mark(marks);
    }
    return read_times(marks);
}

static double distance(const layer *l, const void *mine, const lt_product *p, qdr_dtype dtype)
{
    const int64_t n = p->m * p->n, most = (int64_t)1 << 20;
    return gpu_distance(l->place, mine, p->c, n < most ? n : most, dtype);
}

/* Both compute the same, up to rounding: bf16 rounds to 2^-8, fp32 sums of bf16 far below. */
static void check_results(const layer *l, const rival *r)
{
    const double y = distance(l, l->y, &r->y, QDR_BF16);
    const double dx = distance(l, l->dx, &r->dx, QDR_BF16);
    const double dw = distance(l, r->w.gradient, &r->dw, QDR_F32);
    if (!(y < 0x1p-7 && dx < 0x1p-7 && dw < 1e-3))
        gpu_leave("library and cuBLASLt differ: y %g, dx %g, dw %g, relatively", y, dx, dw);
}

static void measure(const layer *l, const rival *r, times library[N_SAMPLES], times best[N_SAMPLES])
{
    gpu_marks marks = gpu_marks_make(l->place->stream);
    for (int i = -WARM_SAMPLES; i < N_SAMPLES; i++) {
        const int at = i < 0 ? 0 : i;
        if (i % 2) best[at] = time_rival(r, &marks); /* who is first changes */
        library[at] = time_library(l, &marks);
        if (i % 2 == 0) best[at] = time_rival(r, &marks);
        if (i == -1) check_results(l, r);
    }
    gpu_marks_free(&marks);
}

/* The library times algorithms only when it is asked to. */
static int is_tuned(void)
{
    const char *path = getenv("QDR_TUNE");
    return path && *path;
}

static double pick(const times *t, int which)
{
    return which == 0 ? t->forward : which == 1 ? t->backward : t->forward + t->backward;
}

static void report_part(gpu_report *report, const char *name, int which, double flops, const times *library,
                        const times *best)
{
    double mine[N_SAMPLES], theirs[N_SAMPLES], ratio[N_SAMPLES];
    char text[64];
    for (int i = 0; i < N_SAMPLES; i++) {
        mine[i] = pick(&library[i], which);
        theirs[i] = pick(&best[i], which);
        ratio[i] = theirs[i] / mine[i];
    }
    snprintf(text, sizeof text, "%s, library, ms", name);
    gpu_report_samples(report, text, mine, N_SAMPLES);
    snprintf(text, sizeof text, "%s, best cuBLASLt, ms", name);
    gpu_report_samples(report, text, theirs, N_SAMPLES);
    snprintf(text, sizeof text, "%s, library, TFLOP/s", name);
    gpu_report_number(report, text, 1e-9 * flops / gpu_median(mine, N_SAMPLES));
    snprintf(text, sizeof text, "%s, ratio", name);
    gpu_report_samples(report, text, ratio, N_SAMPLES);
    if (is_tuned()) gpu_report_bar(report, text, 0.97);
}

static void report(const layer *l, const rival *r, const times *library, const times *best)
{
    const double flops = 2.0 * (double)l->m * (double)l->n * (double)l->k;
    const lt_product *const products[] = {&r->y, &r->dx, &r->dw};
    static const char *const names[] = {"Y", "dX", "dW"};
    char text[96];
    snprintf(text, sizeof text, "%lldx%lld, k=%lld, bf16", (long long)l->m, (long long)l->n, (long long)l->k);
    gpu_report *all = gpu_report_begin(is_tuned() ? "linear, tuned" : "linear", text);
    report_part(all, "forward", 0, flops, library, best);
    report_part(all, "backward", 1, 2 * flops, library, best);
    report_part(all, "both", 2, 3 * flops, library, best);
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "%d timed, first %.4f ms, best %.4f ms", products[i]->n_algorithms,
                 products[i]->first_ms, products[i]->best_ms);
        gpu_report_word(all, names[i], text);
    }
    gpu_report_word(all, "W", r->is_turned ? "[in, out]" : "[out, in]");
    gpu_report_end(all);
}

static void run(int64_t m, int64_t n, int64_t k)
{
    times library[N_SAMPLES], best[N_SAMPLES];
    gpu_place place = gpu_open();
    layer l = layer_make(&place, m, n, k, QDR_PRODUCT_DEFAULT);
    rival r = make_rival(&l);
    measure(&l, &r, library, best);
    report(&l, &r, library, best);
    free_rival(&l, &r);
    layer_free(&l);
    gpu_close(&place);
}

int main(int argc, char **argv)
{
    for (int i = 1; i + 2 < argc; i += 3) run(atoll(argv[i]), atoll(argv[i + 1]), atoll(argv[i + 2]));
    if (argc > 1) return (argc - 1) % 3 ? 2 : 0;
    run(8192, 8192, 8192);
    run(16384, 4096, 4096);
    return 0;
}
