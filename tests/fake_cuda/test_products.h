/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of the fake's products: a setup, matrices, one product. */
#ifndef FAKE_CUDA_TEST_PRODUCTS_H
#define FAKE_CUDA_TEST_PRODUCTS_H

#include <cublasLt.h>
#include <math.h>

#include "test_fake.h"

#define LT(call) assert_int_equal((call), CUBLAS_STATUS_SUCCESS)
#define LT_GIVES(call, status) assert_int_equal((call), (status))

enum { WORKSPACE_BYTES = 4 << 20 };

typedef struct scene {
    cudaStream_t stream;
    cublasLtHandle_t lt;
    cublasLtMatmulPreference_t preference;
    void *workspace;
    uint64_t random;
} scene;

static inline scene open_scene(void)
{
    scene s = {.stream = new_stream(), .workspace = new_memory(WORKSPACE_BYTES)};
    const uint64_t bytes = WORKSPACE_BYTES;
    const uint32_t align = 1;
    s.random = test_seed();
    LT(cublasLtCreate(&s.lt));
    LT(cublasLtMatmulPreferenceCreate(&s.preference));
    LT(cublasLtMatmulPreferenceSetAttribute(s.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                            sizeof bytes));
    for (int i = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES; i <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; i++)
        LT(cublasLtMatmulPreferenceSetAttribute(s.preference, (cublasLtMatmulPreferenceAttributes_t)i, &align,
                                                sizeof align));
    return s;
}

static inline void close_scene(const scene *s)
{
    OK(cudaStreamSynchronize(s->stream));
    LT(cublasLtMatmulPreferenceDestroy(s->preference));
    LT(cublasLtDestroy(s->lt));
    OK(cudaFree(s->workspace));
    OK(cudaStreamDestroy(s->stream));
}

/* ---- numbers: small multiples of 1/4, exact in every type ---- */

static inline int bytes_of(cudaDataType type)
{
    switch (type) {
    case CUDA_R_64F: return 8;
    case CUDA_R_32F: return 4;
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2: return 1;
    default: return 2;
    }
}

/* Sign, exponent and mantissa of a type of few bits. */
static inline unsigned encode(double value, int n_exponent, int n_mantissa)
{
    int exponent = 0;
    if (value == 0) return 0;
    const double f = frexp(fabs(value), &exponent);
    const unsigned sign = value < 0;
    const unsigned biased = (unsigned)(exponent - 1 + (1 << (n_exponent - 1)) - 1);
    const unsigned mantissa = (unsigned)((2 * f - 1) * (1 << n_mantissa));
    return sign << (n_exponent + n_mantissa) | biased << n_mantissa | mantissa;
}

static inline double decode(unsigned bits, int n_exponent, int n_mantissa)
{
    const int exponent = (int)(bits >> n_mantissa & ((1u << n_exponent) - 1));
    const double mantissa = 1 + (bits & ((1u << n_mantissa) - 1)) / (double)(1 << n_mantissa);
    if (exponent == 0) return 0; /* none of the numbers here is that small */
    const double size = ldexp(mantissa, exponent - (1 << (n_exponent - 1)) + 1);
    return bits >> (n_exponent + n_mantissa) & 1 ? -size : size;
}

static inline void put(void *data, int64_t i, cudaDataType type, double value)
{
    switch (type) {
    case CUDA_R_64F: ((double *)data)[i] = value; break;
    case CUDA_R_32F: ((float *)data)[i] = (float)value; break;
    case CUDA_R_16F: ((uint16_t *)data)[i] = (uint16_t)encode(value, 5, 10); break;
    case CUDA_R_16BF: ((uint16_t *)data)[i] = (uint16_t)encode(value, 8, 7); break;
    case CUDA_R_8F_E4M3: ((uint8_t *)data)[i] = (uint8_t)encode(value, 4, 3); break;
    default: ((uint8_t *)data)[i] = (uint8_t)encode(value, 5, 2); break;
    }
}

static inline double get(const void *data, int64_t i, cudaDataType type)
{
    switch (type) {
    case CUDA_R_64F: return ((const double *)data)[i];
    case CUDA_R_32F: return (double)((const float *)data)[i];
    case CUDA_R_16F: return decode(((const uint16_t *)data)[i], 5, 10);
    case CUDA_R_16BF: return decode(((const uint16_t *)data)[i], 8, 7);
    case CUDA_R_8F_E4M3: return decode(((const uint8_t *)data)[i], 4, 3);
    default: return decode(((const uint8_t *)data)[i], 5, 2);
    }
}

/* Half an ulp and a bit, relative. */
static inline double tolerance(cudaDataType type)
{
    return type == CUDA_R_64F ? 1e-14 : type == CUDA_R_32F ? 1e-6 : type == CUDA_R_16F ? 5e-4 : 4e-3;
}

/* ---- matrices: columns ld apart, batches stride apart, on the GPU and here ---- */

typedef struct matrix {
    cudaDataType type;
    int64_t rows, cols, ld, stride, n_batch;
    void *host, *data;
    cublasLtMatrixLayout_t layout;
} matrix;

static inline size_t matrix_bytes(const matrix *m) { return (size_t)(m->stride * m->n_batch * bytes_of(m->type)); }

static inline void set_batch(const matrix *m)
{
    const int32_t n = (int32_t)m->n_batch;
    LT(cublasLtMatrixLayoutSetAttribute(m->layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n));
    LT(cublasLtMatrixLayoutSetAttribute(m->layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m->stride,
                                        sizeof m->stride));
}

/* is_filled: with numbers; else unwritten on the GPU, and the host's copy is 77. */
static inline matrix new_matrix(scene *s, cudaDataType type, int64_t rows, int64_t cols, int64_t n_batch, int64_t pad,
                                int is_filled)
{
    matrix m = {.type = type, .rows = rows, .cols = cols, .n_batch = n_batch, .ld = rows + pad};
    m.stride = m.ld * cols + pad;
    m.host = calloc(1, matrix_bytes(&m));
    m.data = new_memory(matrix_bytes(&m));
    for (int64_t i = 0; i < m.stride * n_batch; i++)
        put(m.host, i, type, is_filled ? (double)test_between(&s->random, -7, 7) / 4 : 77);
    if (is_filled) OK(cudaMemcpyAsync(m.data, m.host, matrix_bytes(&m), cudaMemcpyDefault, s->stream));
    LT(cublasLtMatrixLayoutCreate(&m.layout, type, (uint64_t)rows, (uint64_t)cols, m.ld));
    set_batch(&m);
    return m;
}

static inline void free_matrix(matrix *m)
{
    free(m->host);
    OK(cudaFree(m->data));
    LT(cublasLtMatrixLayoutDestroy(m->layout));
}

static inline double at(const matrix *m, int transposed, int64_t b, int64_t r, int64_t c)
{
    return get(m->host, b * m->stride + (transposed ? c + r * m->ld : r + c * m->ld), m->type);
}

static inline void fetch(const scene *s, matrix *m)
{
    OK(cudaMemcpyAsync(m->host, m->data, matrix_bytes(m), cudaMemcpyDefault, s->stream));
}

/* ---- one product ---- */

typedef struct product {
    cublasLtMatmulDesc_t desc;
    int ta, tb;
    int64_t m, n, k;
    double alpha, beta;
    matrix a, b, c, d;
} product;

static inline product new_product(scene *s, cudaDataType type, cudaDataType d_type, int ta, int tb, int64_t m,
                                  int64_t n, int64_t k, int64_t n_batch, int64_t pad)
{
    const int is_f64 = type == CUDA_R_64F;
    const int32_t ops[] = {ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N};
    product p = {.ta = ta, .tb = tb, .m = m, .n = n, .k = k, .alpha = 1};
    LT(cublasLtMatmulDescCreate(&p.desc, is_f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                is_f64 ? CUDA_R_64F : CUDA_R_32F));
    LT(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &ops[0], sizeof *ops));
    LT(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSB, &ops[1], sizeof *ops));
    p.a = new_matrix(s, type, ta ? k : m, ta ? m : k, n_batch, pad, 1);
    p.b = new_matrix(s, type, tb ? n : k, tb ? k : n, n_batch, pad, 1);
    p.c = new_matrix(s, d_type, m, n, n_batch, pad, 1);
    p.d = new_matrix(s, d_type, m, n, n_batch, pad, 0);
    return p;
}

static inline void free_product(product *p)
{
    free_matrix(&p->a);
    free_matrix(&p->b);
    free_matrix(&p->c);
    free_matrix(&p->d);
    LT(cublasLtMatmulDescDestroy(p->desc));
}

/* Those that work. */
static inline int find_algos(const scene *s, const product *p, cublasLtMatmulHeuristicResult_t *found)
{
    int n = 0, n_work = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(s->lt, p->desc, p->a.layout, p->b.layout, p->c.layout,
                                                                 p->d.layout, s->preference, 8, found, &n);
    if (status != CUBLAS_STATUS_SUCCESS) return -(int)status;
    for (int i = 0; i < n; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS) found[n_work++] = found[i];
    return n_work;
}

static inline void allow_reductions(const scene *s, uint32_t mask)
{
    LT(cublasLtMatmulPreferenceSetAttribute(s->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &mask,
                                            sizeof mask));
}

static inline cublasStatus_t run(const scene *s, const product *p, const cublasLtMatmulAlgo_t *algo)
{
    const float factors[2] = {(float)p->alpha, (float)p->beta};
    const int is_f64 = p->a.type == CUDA_R_64F;
    const void *alpha = is_f64 ? (const void *)&p->alpha : &factors[0];
    const void *beta = is_f64 ? (const void *)&p->beta : &factors[1];
    return cublasLtMatmul(s->lt, p->desc, alpha, p->a.data, p->a.layout, p->b.data, p->b.layout, beta, p->c.data,
                          p->c.layout, p->d.data, p->d.layout, algo, s->workspace, WORKSPACE_BYTES, s->stream);
}

static inline double expected_product(const product *p, int64_t batch, int64_t r, int64_t c)
{
    double sum = 0;
    for (int64_t i = 0; i < p->k; i++) sum += at(&p->a, p->ta, batch, r, i) * at(&p->b, p->tb, batch, i, c);
    return p->alpha * sum;
}

static inline double expected(const product *p, int64_t batch, int64_t r, int64_t c)
{
    return expected_product(p, batch, r, c) + (p->beta != 0 ? p->beta * at(&p->c, 0, batch, r, c) : 0);
}

static inline void check_close(double got, double want, double tolerated)
{
    if (fabs(got - want) <= tolerated * (1 + fabs(want))) return;
    print_error("%.17g is not %.17g\n", got, want);
    fail_msg("a number");
}

static inline void check_result(const scene *s, product *p)
{
    fetch(s, &p->d);
    for (int64_t b = 0; b < p->d.n_batch; b++) {
        for (int64_t r = 0; r < p->m; r++) {
            for (int64_t c = 0; c < p->n; c++) {
                /* The product may be rounded before it is added to C. */
                const double once = tolerance(p->d.type), more = p->beta != 0 ? fabs(expected_product(p, b, r, c)) : 0;
                check_close(at(&p->d, 0, b, r, c), expected(p, b, r, c), once * (1 + more));
            }
        }
    }
}

#endif
