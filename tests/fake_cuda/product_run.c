/* SPDX-License-Identifier: Apache-2.0 */
/* Computes a product, column-major: op(A) and op(B) unpacked to rows of fp32 (f64), sums in the same type, k divided
 * into as many parts as the algorithm requires, then the epilogue. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "lt.h"

typedef struct job {
    const fake_product *p;
    int64_t m, n, k;
    double *a, *b, *y; /* op(A)[m,k], op(B)[k,n], results [m,n] by rows */
} job;

/* op(X)[rows, cols] by rows. */
static void unpack(const void *data, const fake_layout *layout, int is_transposed, int64_t rows, int64_t cols,
                   int is_tf32, double *to)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            const int64_t index = is_transposed ? c + r * layout->ld : r + c * layout->ld;
            const double x = fake_load(data, index, layout->type);
            to[r * cols + c] = is_tf32 ? (double)fake_round_tf32((float)x) : x;
        }
    }
}

/* One row of the result, in one type of sums; `space` has room for them and for op(B) in that type, which the first row
 * puts there. */
#define ROW(real, name)                                                                                                \
    static void name(const job *j, int64_t r, int64_t begin, int64_t end, void *space)                                 \
    {                                                                                                                  \
        real *restrict sums = space, *restrict b = sums + j->n;                                                        \
        for (int64_t i = begin * j->n; r == 0 && i < end * j->n; i++) b[i] = (real)j->b[i];                            \
        for (int64_t c = 0; c < j->n; c++) sums[c] = 0;                                                                \
        for (int64_t i = begin; i < end; i++) {                                                                        \
            const real x = (real)j->a[r * j->k + i];                                                                   \
            for (int64_t c = 0; c < j->n; c++) sums[c] += x * b[i * j->n + c];                                         \
        }                                                                                                              \
        for (int64_t c = 0; c < j->n; c++) j->y[r * j->n + c] = (double)((real)j->y[r * j->n + c] + sums[c]);          \
    }

ROW(float, row_f32)
ROW(double, row_f64)

/* The sums so far of a row, in the type of the result. */
static void round_row(const job *j, int64_t r)
{
    double cell = 0;
    for (int64_t c = 0; c < j->n; c++) {
        fake_store(&cell, 0, j->p->d.type, j->y[r * j->n + c]);
        j->y[r * j->n + c] = fake_load(&cell, 0, j->p->d.type);
    }
}

static void multiply(const job *j)
{
    const int rounds = j->p->reduction == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    const int is_f64 = j->p->a.type == CUDA_R_64F;
    const int64_t n_splits = j->p->n_splits;
    void *space = fake_new((size_t)((1 + j->k) * j->n) * sizeof(double));
    memset(j->y, 0, (size_t)(j->m * j->n) * sizeof *j->y);
    for (int64_t r = 0; r < j->m; r++) {
        for (int64_t s = 0; s < n_splits; s++) {
            const int64_t begin = s * j->k / n_splits, end = (s + 1) * j->k / n_splits;
            (is_f64 ? row_f64 : row_f32)(j, r, begin, end, space);
            if (rounds) round_row(j, r);
        }
    }
    free(space);
}

/* ---- epilogues ---- */

static int has(const job *j, unsigned bit) { return (j->p->desc.epilogue & bit) != 0; }

/* The tanh form, as cublasLt's. */
static double gelu(double x) { return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }

static double gelu_slope(double x)
{
    const double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

static double scale_of(const float *scale) { return scale ? (double)*(float *)fake_translate(scale) : 1; }

static int is_narrow(const job *j) { return fake_type_bytes(j->p->d.type) == 2; }

/* Whether the product is rounded to a narrow result's type before something is done with it: as some algorithms of
 * cuBLASLt 13.1 do on Hopper, if its factors are of that type, too. */
static int rounds_product(const job *j)
{
    const int has_bias = has(j, CUBLASLT_EPILOGUE_BIAS);
    if (!is_narrow(j) || j->p->a.type != j->p->d.type) return 0;
    return j->p->beta != 0 || (has_bias && (j->p->n_splits > 1 || has(j, CUBLASLT_EPILOGUE_GELU))) ||
           has(j, FAKE_EPILOGUE_SLOPE);
}

/* alpha·op(A)·op(B) + beta·C + bias */
static void add_terms(const job *j)
{
    const fake_product *p = j->p;
    const double alpha = p->alpha * scale_of(p->desc.a_scale) * scale_of(p->desc.b_scale);
    const void *c_data = p->beta != 0 ? fake_translate(p->c_data) : NULL, *bias_data = fake_translate(p->desc.bias);
    const int has_bias = has(j, CUBLASLT_EPILOGUE_BIAS);
    const int rounds = rounds_product(j);
    for (int64_t r = 0; r < j->m; r++) {
        const double bias = has_bias ? fake_load(bias_data, r, p->d.type) : 0;
        for (int64_t c = 0; c < j->n; c++) j->y[r * j->n + c] *= alpha;
        if (rounds) round_row(j, r);
        for (int64_t c = 0; c < j->n; c++) {
            double *y = &j->y[r * j->n + c];
            *y += bias;
            if (c_data) *y += p->beta * fake_load(c_data, r + c * p->c.ld, p->c.type);
        }
    }
}

static void activate(const job *j)
{
    const fake_desc *desc = &j->p->desc;
    const int type = j->p->d.type, forward = has(j, CUBLASLT_EPILOGUE_GELU);
    char *aux = fake_translate(desc->aux);
    for (int64_t r = 0; r < j->m; r++) {
        if (forward && is_narrow(j)) round_row(j, r); /* some algorithms read what they stored */
        for (int64_t c = 0; c < j->n; c++) {
            double *y = &j->y[r * j->n + c];
            const int64_t index = r + c * desc->aux_ld;
            if (forward) fake_store(aux, index, type, *y);
            *y = forward ? gelu(*y) : *y * gelu_slope(fake_load(aux, index, type));
        }
    }
}

static void store(const job *j)
{
    const fake_product *p = j->p;
    for (int64_t c = 0; c < j->n; c++)
        for (int64_t r = 0; r < j->m; r++)
            fake_store(fake_translate(p->d_data), r + c * p->d.ld, p->d.type, j->y[r * j->n + c]);
}

/* Others see a product that lasts as long as is set. */
static void last(void)
{
    const int64_t us = fake_get_settings()->product_us;
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

void fake_run_product(void *product)
{
    const fake_product *p = product;
    const int is_tf32 = p->desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    fake_turn turn;
    job j = {.p = p,
             .m = (int64_t)p->d.rows,
             .n = (int64_t)p->d.cols,
             .k = (int64_t)(p->desc.trans_a ? p->a.rows : p->a.cols)};
    fake_turn_begin(&turn, p->desc.sm_target > 0 ? p->desc.sm_target : fake_get_settings()->n_sms);
    j.a = fake_new((size_t)(j.m * j.k) * sizeof(double));
    j.b = fake_new((size_t)(j.k * j.n) * sizeof(double));
    j.y = fake_new((size_t)(j.m * j.n) * sizeof(double));
    unpack(fake_translate(p->a_data), &p->a, p->desc.trans_a, j.m, j.k, is_tf32, j.a);
    unpack(fake_translate(p->b_data), &p->b, p->desc.trans_b, j.k, j.n, is_tf32, j.b);
    multiply(&j);
    add_terms(&j);
    if (has(&j, CUBLASLT_EPILOGUE_GELU | FAKE_EPILOGUE_SLOPE)) activate(&j);
    store(&j);
    last();
    fake_turn_end(&turn);
    free(j.a);
    free(j.b);
    free(j.y);
}
