/* SPDX-License-Identifier: Apache-2.0 */
/* Products against a triple loop, with the types of few bits written down a second time. */
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

static scene open_scene(void)
{
    scene s = {.stream = new_stream(), .workspace = new_memory(WORKSPACE_BYTES)};
    const uint64_t bytes = WORKSPACE_BYTES;
    const uint32_t align = 1;
    s.random = test_seed();
    LT(cublasLtCreate(&s.lt));
    LT(cublasLtMatmulPreferenceCreate(&s.preference));
    LT(cublasLtMatmulPreferenceSetAttribute(s.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                            &bytes, sizeof bytes));
    for (int i = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
         i <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; i++)
        LT(cublasLtMatmulPreferenceSetAttribute(
            s.preference, (cublasLtMatmulPreferenceAttributes_t)i, &align, sizeof align));
    return s;
}

static void close_scene(const scene *s)
{
    OK(cudaStreamSynchronize(s->stream));
    LT(cublasLtMatmulPreferenceDestroy(s->preference));
    LT(cublasLtDestroy(s->lt));
    OK(cudaFree(s->workspace));
    OK(cudaStreamDestroy(s->stream));
}

/* ---- numbers: small multiples of 1/4, exact in every type ---- */

static int bytes_of(cudaDataType type)
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
static unsigned encode(double value, int n_exponent, int n_mantissa)
{
    int exponent = 0;
    if (value == 0) return 0;
    const double f = frexp(fabs(value), &exponent);
    const unsigned sign = value < 0;
    const unsigned biased = (unsigned)(exponent - 1 + (1 << (n_exponent - 1)) - 1);
    const unsigned mantissa = (unsigned)((2 * f - 1) * (1 << n_mantissa));
    return sign << (n_exponent + n_mantissa) | biased << n_mantissa | mantissa;
}

static double decode(unsigned bits, int n_exponent, int n_mantissa)
{
    const int exponent = (int)(bits >> n_mantissa & ((1u << n_exponent) - 1));
    const double mantissa = 1 + (bits & ((1u << n_mantissa) - 1)) / (double)(1 << n_mantissa);
    if (exponent == 0) return 0; /* none of the numbers here is that small */
    const double size = ldexp(mantissa, exponent - (1 << (n_exponent - 1)) + 1);
    return bits >> (n_exponent + n_mantissa) & 1 ? -size : size;
}

static void put(void *data, int64_t i, cudaDataType type, double value)
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

static double get(const void *data, int64_t i, cudaDataType type)
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
static double tolerance(cudaDataType type)
{
    return type == CUDA_R_64F   ? 1e-14
           : type == CUDA_R_32F ? 1e-6
           : type == CUDA_R_16F ? 5e-4
                                : 4e-3;
}

/* ---- matrices: columns ld apart, batches stride apart, on the GPU and here ---- */

typedef struct matrix {
    cudaDataType type;
    int64_t rows, cols, ld, stride, n_batch;
    void *host, *data;
    cublasLtMatrixLayout_t layout;
} matrix;

static size_t matrix_bytes(const matrix *m)
{
    return (size_t)(m->stride * m->n_batch * bytes_of(m->type));
}

static void set_batch(const matrix *m)
{
    const int32_t n = (int32_t)m->n_batch;
    LT(cublasLtMatrixLayoutSetAttribute(m->layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n,
                                        sizeof n));
    LT(cublasLtMatrixLayoutSetAttribute(m->layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                        &m->stride, sizeof m->stride));
}

/* is_filled: with numbers; else unwritten on the GPU, and the host's copy is 77. */
static matrix new_matrix(scene *s, cudaDataType type, int64_t rows, int64_t cols, int64_t n_batch,
                         int64_t pad, int is_filled)
{
    matrix m = {.type = type, .rows = rows, .cols = cols, .n_batch = n_batch, .ld = rows + pad};
    m.stride = m.ld * cols + pad;
    m.host = calloc(1, matrix_bytes(&m));
    m.data = new_memory(matrix_bytes(&m));
    for (int64_t i = 0; i < m.stride * n_batch; i++)
        put(m.host, i, type, is_filled ? (double)test_between(&s->random, -7, 7) / 4 : 77);
    if (is_filled)
        OK(cudaMemcpyAsync(m.data, m.host, matrix_bytes(&m), cudaMemcpyDefault, s->stream));
    LT(cublasLtMatrixLayoutCreate(&m.layout, type, (uint64_t)rows, (uint64_t)cols, m.ld));
    set_batch(&m);
    return m;
}

static void free_matrix(matrix *m)
{
    free(m->host);
    OK(cudaFree(m->data));
    LT(cublasLtMatrixLayoutDestroy(m->layout));
}

static double at(const matrix *m, int transposed, int64_t b, int64_t r, int64_t c)
{
    return get(m->host, b * m->stride + (transposed ? c + r * m->ld : r + c * m->ld), m->type);
}

static void fetch(const scene *s, matrix *m)
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

static product new_product(scene *s, cudaDataType type, cudaDataType d_type, int ta, int tb,
                           int64_t m, int64_t n, int64_t k, int64_t n_batch, int64_t pad)
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

static void free_product(product *p)
{
    free_matrix(&p->a);
    free_matrix(&p->b);
    free_matrix(&p->c);
    free_matrix(&p->d);
    LT(cublasLtMatmulDescDestroy(p->desc));
}

static int find_algos(const scene *s, const product *p, cublasLtMatmulHeuristicResult_t *found)
{
    int n = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        s->lt, p->desc, p->a.layout, p->b.layout, p->c.layout, p->d.layout, s->preference, 8, found,
        &n);
    return status == CUBLAS_STATUS_SUCCESS ? n : -(int)status;
}

static cublasStatus_t run(const scene *s, const product *p, const cublasLtMatmulAlgo_t *algo)
{
    const float factors[2] = {(float)p->alpha, (float)p->beta};
    const int is_f64 = p->a.type == CUDA_R_64F;
    const void *alpha = is_f64 ? (const void *)&p->alpha : &factors[0];
    const void *beta = is_f64 ? (const void *)&p->beta : &factors[1];
    return cublasLtMatmul(s->lt, p->desc, alpha, p->a.data, p->a.layout, p->b.data, p->b.layout,
                          beta, p->c.data, p->c.layout, p->d.data, p->d.layout, algo, s->workspace,
                          WORKSPACE_BYTES, s->stream);
}

static double expected(const product *p, int64_t batch, int64_t r, int64_t c)
{
    double sum = 0;
    for (int64_t i = 0; i < p->k; i++)
        sum += at(&p->a, p->ta, batch, r, i) * at(&p->b, p->tb, batch, i, c);
    return p->alpha * sum + (p->beta != 0 ? p->beta * at(&p->c, 0, batch, r, c) : 0);
}

static void check_close(double got, double want, double tolerated)
{
    if (fabs(got - want) <= tolerated * (1 + fabs(want))) return;
    print_error("%.17g is not %.17g\n", got, want);
    fail_msg("a number");
}

static void check_result(const scene *s, product *p)
{
    fetch(s, &p->d);
    for (int64_t b = 0; b < p->d.n_batch; b++) {
        for (int64_t r = 0; r < p->m; r++) {
            for (int64_t c = 0; c < p->n; c++)
                check_close(at(&p->d, 0, b, r, c), expected(p, b, r, c), tolerance(p->d.type));
        }
    }
}

static const struct {
    cudaDataType type, d_type;
} types[] = {{CUDA_R_64F, CUDA_R_64F},  {CUDA_R_32F, CUDA_R_32F}, {CUDA_R_16BF, CUDA_R_16BF},
             {CUDA_R_16BF, CUDA_R_32F}, {CUDA_R_16F, CUDA_R_16F}, {CUDA_R_16F, CUDA_R_32F}};

/* Every type, transposes, ways of algorithms, factors; with beta = 0 C is not read. */
static void test_against_loops(void **state)
{
    (void)state;
    scene s = open_scene();
    cublasLtMatmulHeuristicResult_t algos[8];
    for (int i = 0; i < 4 * (int)(sizeof types / sizeof *types); i++) {
        const int64_t m = test_between(&s.random, 1, 20), n = test_between(&s.random, 1, 20);
        const int64_t k = test_between(&s.random, 1, 40);
        product p = new_product(&s, types[i / 4].type, types[i / 4].d_type, i & 1, i >> 1 & 1, m, n,
                                k, test_between(&s.random, 1, 3), test_between(&s.random, 0, 3));
        const int n_algos = find_algos(&s, &p, algos);
        assert_int_equal(n_algos, 4);
        for (int a = 0; a < n_algos; a++) {
            p.beta = a % 2 ? 0.5 : 0;
            p.alpha = a % 2 ? -2 : 1;
            QUIET(LT(run(&s, &p, &algos[a].algo)));
            check_result(&s, &p);
        }
        free_product(&p);
    }
    close_scene(&s);
}

/* Scratch is a race when two streams share it; with a limit of 0 none is needed. */
static void test_algorithms(void **state)
{
    (void)state;
    scene s = open_scene();
    cublasLtMatmulHeuristicResult_t algos[8];
    int32_t ids[4] = {0}, splits = 0;
    size_t written = 0;
    uint64_t none = 0;
    product p = new_product(&s, CUDA_R_32F, CUDA_R_32F, 0, 0, 4, 4, 4, 1, 0);
    assert_int_equal(find_algos(&s, &p, algos), 4);
    for (int i = 0; i < 4; i++)
        LT(cublasLtMatmulAlgoConfigGetAttribute(&algos[i].algo, CUBLASLT_ALGO_CONFIG_ID, &ids[i],
                                                sizeof *ids, &written));
    assert_int_not_equal(ids[0], ids[3]);
    assert_true(algos[0].workspaceSize > 0);
    LT_GIVES(cublasLtMatmul(s.lt, p.desc, &none, p.a.data, p.a.layout, p.b.data, p.b.layout, &none,
                            p.c.data, p.c.layout, p.d.data, p.d.layout, &algos[0].algo, NULL, 0,
                            s.stream),
             CUBLAS_STATUS_INVALID_VALUE);
    LT(cublasLtMatmulPreferenceSetAttribute(s.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                            &none, sizeof none));
    assert_int_equal(find_algos(&s, &p, algos), 2);
    assert_int_equal(algos[0].workspaceSize, 0);
    splits = 3;
    LT(cublasLtMatmulAlgoConfigSetAttribute(&algos[0].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                            &splits, sizeof splits));
    QUIET(LT(run(&s, &p, &algos[0].algo)));
    check_result(&s, &p);
    free_product(&p);
    close_scene(&s);
}

static void test_detects(void **state)
{
    (void)state;
    scene s = open_scene();
    cublasLtMatmulHeuristicResult_t algos[8];
    product p = new_product(&s, CUDA_R_32F, CUDA_R_32F, 0, 0, 8, 8, 8, 1, 0);
    find_algos(&s, &p, algos);
    scene other = s;
    other.stream = new_stream();
    QUIET(LT(run(&s, &p, &algos[0].algo)));
    finish_unnoticed(s.stream);
    REPORTS(FAKE_RACE, run(&other, &p, &algos[0].algo));
    OK(cudaDeviceSynchronize());
    p.beta = 1;
    matrix unwritten = new_matrix(&s, CUDA_R_32F, 8, 8, 1, 0, 0), c = p.c, a = p.a;
    p.c = unwritten;
    REPORTS(FAKE_UNWRITTEN, run(&s, &p, NULL));
    p.c = c;
    p.a.data = (char *)p.a.data + 4; /* its last column ends behind the block */
    REPORTS(FAKE_OUT_OF_BOUNDS, run(&s, &p, NULL));
    p.a = a;
    fake_fail("product:1");
    LT_GIVES(run(&s, &p, NULL), CUBLAS_STATUS_EXECUTION_FAILED);
    fake_fail(NULL);
    REPORTS(FAKE_LEAK, fake_check_leaks());
    free_matrix(&unwritten);
    free_product(&p);
    OK(cudaStreamDestroy(other.stream));
    close_scene(&s);
    REPORTS(FAKE_DOUBLE_FREE, cublasLtDestroy(s.lt));
}

/* What was told to be aligned must be. */
static void test_alignment(void **state)
{
    (void)state;
    scene s = open_scene();
    cublasLtMatmulHeuristicResult_t algos[8];
    const uint32_t align = 16;
    product p = new_product(&s, CUDA_R_16BF, CUDA_R_16BF, 0, 0, 8, 7, 8, 1, 0);
    matrix a = p.a;
    LT(cublasLtMatmulPreferenceSetAttribute(
        s.preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align, sizeof align));
    find_algos(&s, &p, algos);
    LT(run(&s, &p, &algos[0].algo));
    p.a.data = (char *)a.data + 2;
    LT_GIVES(run(&s, &p, &algos[0].algo), CUBLAS_STATUS_NOT_SUPPORTED);
    p.a = a;
    free_product(&p);
    close_scene(&s);
}

/* ---- epilogues ---- */

static void set_epilogue(const product *p, cublasLtEpilogue_t epilogue, const void *bias,
                         const matrix *aux)
{
    LT(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                      sizeof epilogue));
    if (bias)
        LT(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                          sizeof bias));
    if (!aux) return;
    LT(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                      &aux->data, sizeof aux->data));
    LT(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux->ld,
                                      sizeof aux->ld));
}

static double gelu(double x)
{
    return x / (1 + exp(-2 * sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

static double slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

/* m = 16, n = 5; a bias per row of D. */
static void test_forward_epilogues(void **state)
{
    (void)state;
    scene s = open_scene();
    product p = new_product(&s, CUDA_R_32F, CUDA_R_32F, 1, 0, 16, 5, 9, 1, 0);
    matrix bias = new_matrix(&s, CUDA_R_32F, 16, 1, 1, 0, 1);
    matrix aux = new_matrix(&s, CUDA_R_32F, 16, 5, 1, 0, 0);
    set_epilogue(&p, CUBLASLT_EPILOGUE_BIAS, bias.data, NULL);
    QUIET(LT(run(&s, &p, NULL)));
    fetch(&s, &p.d);
    for (int64_t r = 0; r < 16; r++)
        check_close(at(&p.d, 0, 0, r, 3), expected(&p, 0, r, 3) + at(&bias, 0, 0, r, 0), 1e-6);
    set_epilogue(&p, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, bias.data, &aux);
    QUIET(LT(run(&s, &p, NULL)));
    fetch(&s, &p.d);
    fetch(&s, &aux);
    for (int64_t r = 0; r < 16; r++) {
        const double x = expected(&p, 0, r, 4) + at(&bias, 0, 0, r, 0);
        check_close(at(&aux, 0, 0, r, 4), x, 1e-6);
        check_close(at(&p.d, 0, 0, r, 4), gelu(x), 1e-6);
    }
    set_epilogue(&p, CUBLASLT_EPILOGUE_GELU_AUX, NULL, &aux);
    QUIET(LT(run(&s, &p, NULL)));
    fetch(&s, &aux);
    check_close(at(&aux, 0, 0, 7, 1), expected(&p, 0, 7, 1), 1e-6);
    free_matrix(&bias);
    free_matrix(&aux);
    free_product(&p);
    close_scene(&s);
}

static double sum_of(const matrix *m, int transposed, int64_t row, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += at(m, transposed, 0, row, i);
    return sum;
}

static void test_backward_epilogues(void **state)
{
    (void)state;
    scene s = open_scene();
    product p = new_product(&s, CUDA_R_32F, CUDA_R_32F, 0, 1, 16, 5, 9, 1, 0);
    matrix aux = new_matrix(&s, CUDA_R_32F, 16, 5, 1, 0, 1);
    matrix sums = new_matrix(&s, CUDA_R_32F, 16, 1, 1, 0, 0);
    set_epilogue(&p, CUBLASLT_EPILOGUE_DGELU_BGRAD, sums.data, &aux);
    QUIET(LT(run(&s, &p, NULL)));
    fetch(&s, &p.d);
    fetch(&s, &sums);
    for (int64_t r = 0; r < 16; r++) {
        const double dy = expected(&p, 0, r, 2) * slope(at(&aux, 0, 0, r, 2));
        check_close(at(&p.d, 0, 0, r, 2), dy, 1e-4);
        check_close(at(&sums, 0, 0, r, 0), sum_of(&p.d, 0, r, 5), 1e-5);
    }
    set_epilogue(&p, CUBLASLT_EPILOGUE_BGRADA, sums.data, NULL);
    QUIET(LT(run(&s, &p, NULL)));
    fetch(&s, &sums);
    for (int64_t r = 0; r < 16; r++)
        check_close(at(&sums, 0, 0, r, 0), sum_of(&p.a, 0, r, 9), 1e-6);
    set_epilogue(&p, CUBLASLT_EPILOGUE_BGRADB, sums.data, NULL);
    QUIET(LT(run(&s, &p, NULL)));
    fetch(&s, &sums);
    for (int64_t c = 0; c < 5; c++) /* op(B) is B transposed: its column c is B's row c */
        check_close(at(&sums, 0, 0, c, 0), sum_of(&p.b, 0, c, 9), 1e-6);
    set_epilogue(&p, CUBLASLT_EPILOGUE_DGELU, NULL, &aux);
    QUIET(LT(run(&s, &p, NULL)));
    fetch(&s, &p.d);
    check_close(at(&p.d, 0, 0, 3, 3), expected(&p, 0, 3, 3) * slope(at(&aux, 0, 0, 3, 3)), 1e-4);
    free_matrix(&aux);
    free_matrix(&sums);
    free_product(&p);
    close_scene(&s);
}

/* ---- fp8 ---- */

static void set_scale(scene *s, const product *p, cublasLtMatmulDescAttributes_t name, float *data,
                      float scale)
{
    OK(cudaMemcpyAsync(data, &scale, sizeof scale, cudaMemcpyDefault, s->stream));
    LT(cublasLtMatmulDescSetAttribute(p->desc, name, &data, sizeof data));
}

static void test_fp8(void **state)
{
    (void)state;
    scene s = open_scene();
    cublasLtMatmulHeuristicResult_t algos[8];
    float *scales = new_memory(2 * sizeof *scales);
    product p = new_product(&s, CUDA_R_8F_E4M3, CUDA_R_32F, 1, 0, 16, 5, 32, 1, 0);
    free_matrix(&p.b);
    p.b = new_matrix(&s, CUDA_R_8F_E5M2, 32, 5, 1, 0, 1);
    set_scale(&s, &p, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &scales[0], 0.5f);
    set_scale(&s, &p, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &scales[1], 8);
    assert_int_equal(find_algos(&s, &p, algos), 4);
    QUIET(LT(run(&s, &p, &algos[0].algo)));
    p.alpha = 4; /* what the scales are together */
    check_result(&s, &p);
    free_product(&p);
    p = new_product(&s, CUDA_R_8F_E4M3, CUDA_R_32F, 0, 0, 16, 5, 32, 1, 0); /* not transposed */
    assert_int_equal(find_algos(&s, &p, algos), -(int)CUBLAS_STATUS_NOT_SUPPORTED);
    free_product(&p);
    p = new_product(&s, CUDA_R_8F_E4M3, CUDA_R_32F, 1, 0, 16, 5, 24, 1, 0); /* k = 24 */
    assert_int_equal(find_algos(&s, &p, algos), -(int)CUBLAS_STATUS_NOT_SUPPORTED);
    free_product(&p);
    OK(cudaFree(scales));
    close_scene(&s);
}

/* Sums and roundings to fp16: what lies between two numbers goes to the even one. */
static void test_fp16_rounding(void **state)
{
    (void)state;
    scene s = open_scene();
    const float from[] = {2049, 2051, 65519, 65520, 5.9604645e-8f, 2.9e-8f, -0.1f};
    const uint16_t to[] = {0x6800, 0x6802, 0x7bff, 0x7c00, 0x0001, 0x0000, 0xae66};
    enum { N = sizeof from / sizeof *from };
    product p = new_product(&s, CUDA_R_16F, CUDA_R_16F, 0, 0, 1, 1, 1, 1, 0);
    for (int i = 0; i < N; i++) {
        const uint16_t one = 0x3c00;
        OK(cudaMemcpyAsync(p.a.data, &one, 2, cudaMemcpyDefault, s.stream));
        OK(cudaMemcpyAsync(p.b.data, &one, 2, cudaMemcpyDefault, s.stream));
        p.alpha = (double)from[i];
        LT(run(&s, &p, NULL));
        fetch(&s, &p.d);
        assert_int_equal(*(uint16_t *)p.d.host, to[i]);
    }
    free_product(&p);
    close_scene(&s);
}

static void test_wrong_shapes(void **state)
{
    (void)state;
    scene s = open_scene();
    cublasLtMatmulHeuristicResult_t algos[8];
    product p = new_product(&s, CUDA_R_32F, CUDA_R_32F, 0, 0, 4, 4, 4, 1, 0);
    matrix b = p.b;
    p.b = new_matrix(&s, CUDA_R_32F, 5, 4, 1, 0, 1);
    assert_int_equal(find_algos(&s, &p, algos), -(int)CUBLAS_STATUS_INVALID_VALUE);
    LT_GIVES(run(&s, &p, NULL), CUBLAS_STATUS_INVALID_VALUE);
    free_matrix(&p.b);
    p.b = new_matrix(&s, CUDA_R_16BF, 4, 4, 1, 0, 1);
    LT_GIVES(run(&s, &p, NULL), CUBLAS_STATUS_NOT_SUPPORTED);
    free_matrix(&p.b);
    p.b = b;
    free_product(&p);
    assert_string_equal(cublasLtGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED),
                        "CUBLAS_STATUS_NOT_SUPPORTED");
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAKE_TEST(test_against_loops),
        FAKE_TEST(test_algorithms),
        FAKE_TEST(test_detects),
        FAKE_TEST(test_alignment),
        FAKE_TEST(test_forward_epilogues),
        FAKE_TEST(test_backward_epilogues),
        FAKE_TEST(test_fp8),
        FAKE_TEST(test_fp16_rounding),
        FAKE_TEST(test_wrong_shapes),
    };
    print_message("FAKE_CUDA_SEED=%llu\n", (unsigned long long)fake_seed());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
