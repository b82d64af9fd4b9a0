/* SPDX-License-Identifier: Apache-2.0 */
/* Products of the GPU compared with those of the CPU device: every type, transposed or not, with gaps between rows, at
 * odd addresses, with a bias, with GELU, added to existing values. products [SEED]
 *
 * The error of either side is at most γ(k + 3)·(|alpha|·Σ|a·b| + |beta·c| + |bias|) plus that of storing; on the GPU a
 * matrix unit truncates instead of rounding, which doubles its u. A GPU may round alpha·Σ a·b to C's type before it
 * adds to it, except a bias without GELU, and the input of GELU, or what is multiplied by its slope (docs/numerics.md).
 * After GELU or its slope the error is at most 1.13 times as large, plus that of a GPU's instruction for tanh, 2⁻¹⁰. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../narrow.h"
#include "core/size.h"
#include "dev/dev.h"
#include "dev/plugin.h"
#include "gpu.h"

enum { N_ROUNDS = 600, N_SIZES = 16 };

static const int64_t sizes[N_SIZES] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100, 128, 129, 260};
static const struct {
    qdr_dtype in, out;
} type_pairs[] = {{QDR_F32, QDR_F32},  {QDR_F64, QDR_F64}, {QDR_BF16, QDR_BF16},
                  {QDR_BF16, QDR_F32}, {QDR_F16, QDR_F16}, {QDR_F16, QDR_F32}};
enum { N_PAIRS = 6 };

/* One device and its stream. */
typedef struct side {
    qdri_dev *dev;
    qdr_stream *stream;
} side;

static side cpu, gpu;
static uint64_t seed;
static int n_bad, n_unsupported, n_biased, n_gelu;

static uint64_t random_bits(void)
{
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int64_t below(int64_t n) { return (int64_t)(random_bits() % (uint64_t)n); }

static void put(qdr_dtype dtype, void *data, int64_t i, double value)
{
    if (dtype == QDR_F64) ((double *)data)[i] = value;
    if (dtype == QDR_F32) ((float *)data)[i] = (float)value;
    if (is_narrow(dtype)) ((uint16_t *)data)[i] = narrow_bits(dtype, value);
}

static double at(qdr_dtype dtype, const void *data, int64_t i)
{
    if (dtype == QDR_F64) return ((const double *)data)[i];
    if (dtype == QDR_F32) return (double)((const float *)data)[i];
    return narrow_value(dtype, ((const uint16_t *)data)[i]);
}

static void *host_memory(size_t bytes)
{
    void *data = calloc(bytes + 64, 1);
    if (!data) gpu_leave("no memory on the host for %zu bytes", bytes);
    return data;
}

static void *random_array(qdr_dtype dtype, int64_t n)
{
    void *data = host_memory((size_t)n * qdr_dtype_bytes(dtype));
    for (int64_t i = 0; i < n; i++) put(dtype, data, i, 2 * (double)(random_bits() >> 11) * 0x1p-53 - 1);
    return data;
}

/* A product with its arrays on the host; `shift`: elements by which they are off a boundary. */
typedef struct problem {
    const side *where; /* it was run last */
    int has_bias, has_gelu, has_slope; /* what is done at once */
    qdri_gemm g;
    void *a, *b, *c, *bias, *gelu_of;
    int64_t n_a, n_b, n_c, shift;
} problem;

static problem make_problem(int round)
{
    problem p = {.shift = below(3) == 0 ? below(8) : 0};
    qdri_gemm *g = &p.g;
    g->dtype = type_pairs[round % N_PAIRS].in;
    g->c_dtype = type_pairs[round % N_PAIRS].out;
    g->m = sizes[below(N_SIZES)];
    g->n = sizes[below(N_SIZES)];
    g->k = sizes[below(N_SIZES)];
    g->trans_a = (int)below(2);
    g->trans_b = (int)below(2);
    g->alpha = below(2) ? 1 : -0.5;
    g->beta = (double)below(2);
    const int64_t gap = below(2) ? below(9) : 0;
    g->lda = (g->trans_a ? g->m : g->k) + gap;
    g->ldb = (g->trans_b ? g->k : g->n) + gap;
    g->ldc = g->n + gap;
    p.n_a = (g->trans_a ? g->k : g->m) * g->lda;
    p.n_b = (g->trans_b ? g->n : g->k) * g->ldb;
    p.n_c = g->m * g->ldc;
    p.a = random_array(g->dtype, p.n_a);
    p.b = random_array(g->dtype, p.n_b);
    p.c = random_array(g->c_dtype, p.n_c);
    p.bias = random_array(g->c_dtype, g->n);
    p.gelu_of = random_array(g->c_dtype, p.n_c);
    return p;
}

static void free_problem(problem *p)
{
    free(p->a);
    free(p->b);
    free(p->c);
    free(p->bias);
    free(p->gelu_of);
}

static void *send(const side *s, const void *data, int64_t n, qdr_dtype dtype, int64_t shift, void **memory)
{
    const size_t each = qdr_dtype_bytes(dtype);
    OK(qdri_mem_alloc(s->dev, (size_t)(n + shift) * each, memory));
    void *first = (char *)*memory + (size_t)shift * each;
    OK(qdri_copy(s->stream, first, data, (size_t)n * each));
    return first;
}

/* What a run leaves on the host. */
typedef struct result {
    void *c, *gelu;
} outcome;

static void *fetch(const side *s, const void *from, size_t bytes)
{
    void *data = host_memory(bytes);
    if (from) OK(qdri_copy(s->stream, data, from, bytes));
    return data;
}

/* 0: the device does not do this at once, or has no such product. */
static int run(const problem *p, outcome *out)
{
    const side *s = p->where;
    qdri_gemm g = p->g;
    void *memory[6] = {NULL};
    const size_t bytes = (size_t)p->n_c * qdr_dtype_bytes(g.c_dtype);
    g.a = send(s, p->a, p->n_a, g.dtype, p->shift, &memory[0]);
    g.b = send(s, p->b, p->n_b, g.dtype, p->shift, &memory[1]);
    g.c = send(s, p->c, p->n_c, g.c_dtype, p->shift, &memory[2]);
    if (p->has_bias) g.bias = send(s, p->bias, g.n, g.c_dtype, p->shift, &memory[3]);
    if (p->has_gelu) g.gelu = send(s, p->c, p->n_c, g.c_dtype, p->shift, &memory[4]);
    if (p->has_slope) g.gelu_of = send(s, p->gelu_of, p->n_c, g.c_dtype, p->shift, &memory[5]);
    const int is_fused = p->has_bias || p->has_gelu || p->has_slope;
    const int does = !is_fused || qdri_dev_fuses(s->dev, &g);
    const qdr_status status = does ? qdri_gemm_run(s->stream, &g) : QDR_OK;
    if (status != QDR_ERR_UNSUPPORTED) gpu_check(status, "a product");
    if (status == QDR_ERR_UNSUPPORTED && n_unsupported++ < 20) fprintf(stderr, "%s\n", qdr_last_error());
    *out = (outcome){fetch(s, g.c, bytes), fetch(s, g.gelu, bytes)};
    OK(qdri_stream_synchronize(s->stream));
    for (int i = 0; i < 6; i++) qdri_mem_free(s->dev, &memory[i]);
    return does && status == QDR_OK;
}

/* What the terms of element (i, j) add up to in size, the product, and the element itself. */
static double size_of(const problem *p, int64_t i, int64_t j, double *product, double *want)
{
    const qdri_gemm *g = &p->g;
    double size = 0, sum = 0;
    for (int64_t l = 0; l < g->k; l++) {
        const double a = at(g->dtype, p->a, g->trans_a ? l * g->lda + i : i * g->lda + l);
        const double b = at(g->dtype, p->b, g->trans_b ? j * g->ldb + l : l * g->ldb + j);
        sum += a * b;
        size += fabs(a * b);
    }
    const double old = g->beta * at(g->c_dtype, p->c, i * g->ldc + j);
    const double bias = p->has_bias ? at(g->c_dtype, p->bias, j) : 0;
    *product = g->alpha * sum;
    *want = *product + old + bias;
    return fabs(g->alpha) * size + fabs(old) + fabs(bias);
}

static double gelu(double x) { return x / (1 + exp(-1.5957691216057308 * (x + 0.044715 * x * x * x))); }
static double slope(double x)
{
    const double s = 1 / (1 + exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)));
    return s + x * s * (1 - s) * 1.5957691216057308 * (1 + 0.134145 * x * x);
}

static const char *fused_name(const problem *p)
{
    if (p->has_slope) return " with the gradient through GELU";
    if (p->has_gelu) return p->has_bias ? " with a bias and GELU" : " with GELU";
    return p->has_bias ? " with a bias" : "";
}

static void complain(const problem *p, int64_t i, int64_t j, double got, double want, double bound)
{
    const qdri_gemm *g = &p->g;
    if (n_bad++ < 20)
        fprintf(stderr,
                "%s%s: %s to %s, m=%lld n=%lld k=%lld, %c%c, alpha %g, beta %g, shift %lld: element "
                "(%lld, %lld) is %.9g, not %.9g; bound %.3g\n",
                p->where == &gpu ? "cuda" : "cpu", fused_name(p), qdr_dtype_name(g->dtype), qdr_dtype_name(g->c_dtype),
                (long long)g->m, (long long)g->n, (long long)g->k, g->trans_a ? 'T' : 'N', g->trans_b ? 'T' : 'N',
                g->alpha, g->beta, (long long)p->shift, (long long)i, (long long)j, got, want, bound);
}

/* `want`, computed with an error of `bound`, and stored. */
static void compare_element(const problem *p, const void *data, int64_t i, int64_t j, double want, double bound)
{
    const qdri_gemm *g = &p->g;
    const double u = g->dtype == QDR_F64 ? 0x1p-52 : 0x1p-23;
    const int rounded = is_narrow(g->c_dtype);
    const double all = bound + (rounded ? narrow_roundoff(g->c_dtype) : u) * fabs(want) +
                       (rounded ? narrow_least(g->c_dtype) : 1e-37);
    const double got = at(g->c_dtype, data, i * g->ldc + j);
    if (!(fabs(got - want) <= all * 1.01)) complain(p, i, j, got, want, all);
}

/* What storing a number in C's type may change; the number is `bound` off `x`. */
static double storing_error(qdr_dtype dtype, double x, double bound)
{
    return is_narrow(dtype) ? narrow_roundoff(dtype) * (fabs(x) + bound) + narrow_least(dtype) : 0;
}

static void compare(const problem *p, const outcome *r)
{
    const qdri_gemm *g = &p->g;
    const double u = g->dtype == QDR_F64 ? 0x1p-52 : 0x1p-23, tanh_error = 0x1p-10;
    const int rounds = p->where == &gpu && (g->beta != 0 || (p->has_bias && p->has_gelu));
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            double product, want;
            const double exact = (double)(g->k + 4) * u * size_of(p, i, j, &product, &want);
            const double bound = exact + (rounds ? storing_error(g->c_dtype, product, exact) : 0);
            const double stored = bound + storing_error(g->c_dtype, want, bound);
            const double x = at(g->c_dtype, p->gelu_of, i * g->ldc + j);
            if (p->has_slope)
                compare_element(p, r->c, i, j, want * slope(x),
                                1.2 * stored + fabs(want) * tanh_error * (1 + 1.1 * fabs(x)));
            else
                compare_element(p, r->c, i, j, want, bound);
            if (p->has_gelu)
                compare_element(p, r->gelu, i, j, gelu(want), 1.2 * stored + (tanh_error / 2 + 40 * u) * fabs(want));
        }
}

/* What lies between the rows of C is left alone. */
static void check_gaps(const problem *p, const void *result)
{
    const qdri_gemm *g = &p->g;
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = i * g->ldc + g->n; j < (i + 1) * g->ldc; j++)
            if (at(g->c_dtype, result, j) != at(g->c_dtype, p->c, j))
                complain(p, i, j - i * g->ldc, at(g->c_dtype, result, j), at(g->c_dtype, p->c, j), 0);
}

/* What is done at once: bits of `with` are a bias, GELU and the gradient through it. @return 1: it was */
static int check_on(const side *s, problem *p, int with)
{
    outcome r;
    p->where = s;
    p->has_bias = with & 1;
    p->has_gelu = (with & 2) != 0;
    p->has_slope = (with & 4) != 0;
    const int is_done = run(p, &r);
    if (is_done) {
        compare(p, &r);
        check_gaps(p, r.c);
    }
    free(r.c);
    free(r.gelu);
    return is_done;
}

static void check_round(int round)
{
    problem p = make_problem(round);
    (void)check_on(&cpu, &p, 0);
    (void)check_on(&gpu, &p, 0);
    if (p.g.beta == 0) n_biased += check_on(&gpu, &p, 1);
    for (int with = 2; with <= 4; with++) n_gelu += check_on(&gpu, &p, with);
    free_problem(&p);
}

static void close_side(side *s)
{
    qdri_stream_destroy(&s->stream);
    qdri_dev_destroy(&s->dev);
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL);
    fprintf(stderr, "products %llu\n", (unsigned long long)seed);
    OK(qdri_dev_create_cpu(1, &cpu.dev));
    OK(qdri_dev_create_cuda(0, 0, &gpu.dev));
    OK(qdri_stream_create(cpu.dev, QDRI_STREAM_COMPUTE, &cpu.stream));
    OK(qdri_stream_create(gpu.dev, QDRI_STREAM_COMPUTE, &gpu.stream));
    for (int round = 0; round < N_ROUNDS; round++) check_round(round);
    close_side(&gpu);
    close_side(&cpu);
    fprintf(stderr,
            "%d products, %d with a bias, %d with GELU; %d elements are wrong, %d products cannot "
            "be had\n",
            N_ROUNDS, n_biased, n_gelu, n_bad, n_unsupported);
    return n_bad > 0 || n_unsupported > 0 || n_biased == 0;
}
