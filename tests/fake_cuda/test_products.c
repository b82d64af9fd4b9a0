/* SPDX-License-Identifier: Apache-2.0 */
/* What the fake's cublasLt refuses, offers and detects. That its products are right is shown by every suite of the
 * library that computes on it. */
#include <cublasLt.h>

#include "test_fake.h"

#define LT(call) assert_int_equal((call), CUBLAS_STATUS_SUCCESS)
#define LT_GIVES(call, status) assert_int_equal((call), (status))

enum { WORKSPACE_BYTES = 4 << 20, FOUND_MOST = 8, PAD = 8 };

typedef struct scene {
    cudaStream_t stream;
    cublasLtHandle_t lt;
    cublasLtMatmulPreference_t preference;
    void *workspace;
    cublasLtMatmulHeuristicResult_t found[FOUND_MOST];
} scene;

static void prefer(const scene *s, cublasLtMatmulPreferenceAttributes_t name, uint64_t value, size_t bytes)
{
    LT(cublasLtMatmulPreferenceSetAttribute(s->preference, name, &value, bytes));
}

static void destroy_handle(void *handle) { (void)cublasLtDestroy(handle); }
static void destroy_preference(void *preference) { (void)cublasLtMatmulPreferenceDestroy(preference); }
static void destroy_layout(void *layout) { (void)cublasLtMatrixLayoutDestroy(layout); }
static void destroy_desc(void *desc) { (void)cublasLtMatmulDescDestroy(desc); }

static scene open_scene(void)
{
    scene s = {.stream = new_stream(), .workspace = new_memory(WORKSPACE_BYTES)};
    LT(cublasLtCreate(&s.lt));
    keep(s.lt, destroy_handle);
    LT(cublasLtMatmulPreferenceCreate(&s.preference));
    keep(s.preference, destroy_preference);
    prefer(&s, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, WORKSPACE_BYTES, sizeof(uint64_t));
    for (int i = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES; i <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; i++)
        prefer(&s, (cublasLtMatmulPreferenceAttributes_t)i, 1, sizeof(uint32_t));
    return s;
}

/* ---- matrices and products ---- */

typedef struct matrix {
    void *data;
    cublasLtMatrixLayout_t layout;
} matrix;

/* Zeros, or unwritten. */
static matrix new_matrix(const scene *s, cudaDataType type, int64_t rows, int64_t cols, int is_filled)
{
    const size_t bytes = (size_t)(rows * cols + PAD) * sizeof(double);
    matrix m = {.data = new_memory(bytes)};
    if (is_filled) OK(cudaMemsetAsync(m.data, 0, bytes, s->stream));
    LT(cublasLtMatrixLayoutCreate(&m.layout, type, (uint64_t)rows, (uint64_t)cols, rows));
    keep(m.layout, destroy_layout);
    return m;
}

typedef struct product {
    cublasLtMatmulDesc_t desc;
    float beta;
    matrix a, b, c, d;
} product;

static void describe(const product *p, cublasLtMatmulDescAttributes_t name, const void *value, size_t bytes)
{
    LT(cublasLtMatmulDescSetAttribute(p->desc, name, value, bytes));
}

static product new_product(const scene *s, cudaDataType type, cudaDataType d_type, int turns_a, int64_t m, int64_t n,
                           int64_t k)
{
    const int32_t op = turns_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    product p = {.a = new_matrix(s, type, turns_a ? k : m, turns_a ? m : k, 1),
                 .b = new_matrix(s, type, k, n, 1),
                 .c = new_matrix(s, d_type, m, n, 1),
                 .d = new_matrix(s, d_type, m, n, 0)};
    LT(cublasLtMatmulDescCreate(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    keep(p.desc, destroy_desc);
    describe(&p, CUBLASLT_MATMUL_DESC_TRANSA, &op, sizeof op);
    return p;
}

/* How many algorithms work; or minus the status. */
static int find_algos(scene *s, const product *p)
{
    int n = 0, n_work = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(s->lt, p->desc, p->a.layout, p->b.layout, p->c.layout,
                                                                 p->d.layout, s->preference, FOUND_MOST, s->found, &n);
    for (int i = 0; i < n; i++)
        if (s->found[i].state == CUBLAS_STATUS_SUCCESS) s->found[n_work++] = s->found[i];
    return status == CUBLAS_STATUS_SUCCESS ? n_work : -(int)status;
}

static cublasStatus_t run_with(const scene *s, const product *p, const cublasLtMatmulAlgo_t *algo,
                               size_t workspace_bytes)
{
    const float alpha = 1;
    return cublasLtMatmul(s->lt, p->desc, &alpha, p->a.data, p->a.layout, p->b.data, p->b.layout, &p->beta, p->c.data,
                          p->c.layout, p->d.data, p->d.layout, algo, s->workspace, workspace_bytes, s->stream);
}

/* By the first algorithm found, or any. */
static cublasStatus_t run_found(const scene *s, const product *p)
{
    return run_with(s, p, &s->found[0].algo, WORKSPACE_BYTES);
}
static cublasStatus_t run(const scene *s, const product *p) { return run_with(s, p, NULL, WORKSPACE_BYTES); }

/* ---- detected ---- */

FAKE_TEST(test_detects)
{
    scene s = open_scene();
    product p = new_product(&s, CUDA_R_32F, CUDA_R_32F, 0, 8, 8, 8);
    assert_int_equal(find_algos(&s, &p), 4);
    scene other = s;
    other.stream = new_stream();
    QUIET(LT(run_found(&s, &p)));
    finish_unnoticed(s.stream);
    REPORTS(FAKE_RACE, run_found(&other, &p));
    OK(cudaDeviceSynchronize());
    const matrix unwritten = new_matrix(&s, CUDA_R_32F, 8, 8, 0), c = p.c, a = p.a;
    p.beta = 1;
    p.c = unwritten;
    REPORTS(FAKE_UNWRITTEN, run(&s, &p));
    p.c = c;
    p.a.data = (char *)p.a.data + (8 * 8 + PAD) * sizeof(double) - 8; /* its columns end behind the block */
    REPORTS(FAKE_OUT_OF_BOUNDS, run(&s, &p));
    p.a = a;
    scene less = s; /* a workspace that ends behind its block, though the algorithm takes none */
    less.workspace = (char *)s.workspace + 256;
    REPORTS(FAKE_OUT_OF_BOUNDS, run(&less, &p));
    fake_fail("product:1");
    LT_GIVES(run(&s, &p), CUBLAS_STATUS_EXECUTION_FAILED);
    fake_fail(NULL);
    REPORTS(FAKE_LEAK, fake_check_leaks());
    LT(cublasLtDestroy(s.lt));
    REPORTS(FAKE_DOUBLE_FREE, cublasLtDestroy(s.lt));
}

/* ---- refused ---- */

/* What was told to be aligned must be. */
FAKE_TEST(test_alignment)
{
    scene s = open_scene();
    product p = new_product(&s, CUDA_R_16BF, CUDA_R_16BF, 0, 8, 7, 8);
    prefer(&s, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 16, sizeof(uint32_t));
    find_algos(&s, &p);
    LT(run_found(&s, &p));
    p.a.data = (char *)p.a.data + 2;
    LT_GIVES(run_found(&s, &p), CUBLAS_STATUS_NOT_SUPPORTED);
}

FAKE_TEST(test_fp8)
{
    static const int64_t k[] = {32, 24}; /* the second is no multiple of 16 */
    scene s = open_scene();
    for (int turns_a = 0; turns_a < 2; turns_a++)
        for (int i = 0; i < 2; i++) {
            const product p = new_product(&s, CUDA_R_8F_E4M3, CUDA_R_32F, turns_a, 16, 5, k[i]);
            assert_int_equal(find_algos(&s, &p), turns_a && i == 0 ? 4 : -(int)CUBLAS_STATUS_NOT_SUPPORTED);
        }
}

FAKE_TEST(test_wrong_shapes)
{
    scene s = open_scene();
    product p = new_product(&s, CUDA_R_32F, CUDA_R_32F, 0, 4, 4, 4);
    p.b = new_matrix(&s, CUDA_R_32F, 5, 4, 1);
    assert_int_equal(find_algos(&s, &p), -(int)CUBLAS_STATUS_INVALID_VALUE);
    LT_GIVES(run(&s, &p), CUBLAS_STATUS_INVALID_VALUE);
    p.b = new_matrix(&s, CUDA_R_16BF, 4, 4, 1);
    LT_GIVES(run(&s, &p), CUBLAS_STATUS_NOT_SUPPORTED);
}

static void set_epilogue(const product *p, uint32_t epilogue, const void *bias, const void *aux, int64_t aux_ld)
{
    describe(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    describe(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    describe(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux);
    describe(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_ld, sizeof aux_ld);
}

FAKE_TEST(test_wrong_epilogues)
{
    static const uint32_t wrong[] = {CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_DGELU | CUBLASLT_EPILOGUE_BIAS};
    static const int64_t lds[] = {24, 8, 20}; /* good; too short; no units of 8 */
    scene s = open_scene();
    const product p = new_product(&s, CUDA_R_16BF, CUDA_R_16BF, 1, 16, 5, 8);
    const matrix aux = new_matrix(&s, CUDA_R_16BF, 24, 5, 1);
    for (int i = 0; i < 3; i++) {
        set_epilogue(&p, CUBLASLT_EPILOGUE_DGELU, NULL, aux.data, lds[i]);
        LT_GIVES(run(&s, &p), i ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS);
    }
    set_epilogue(&p, CUBLASLT_EPILOGUE_DGELU, NULL, (char *)aux.data + 8, 24);
    LT_GIVES(run(&s, &p), CUBLAS_STATUS_NOT_SUPPORTED);
    set_epilogue(&p, CUBLASLT_EPILOGUE_GELU_AUX, NULL, NULL, 24);
    LT_GIVES(run(&s, &p), CUBLAS_STATUS_INVALID_VALUE);
    for (int i = 0; i < 2; i++) {
        set_epilogue(&p, wrong[i], aux.data, aux.data, 24);
        LT_GIVES(run(&s, &p), CUBLAS_STATUS_NOT_SUPPORTED);
    }
}

/* ---- offered ---- */

/* With less memory than one needs it does not run; with a limit of 0 none needs any. */
FAKE_TEST(test_workspaces)
{
    scene s = open_scene();
    const product p = new_product(&s, CUDA_R_32F, CUDA_R_32F, 0, 4, 4, 4);
    assert_int_equal(find_algos(&s, &p), 4);
    assert_true(s.found[0].workspaceSize > 0);
    LT_GIVES(run_with(&s, &p, &s.found[0].algo, 0), CUBLAS_STATUS_INVALID_VALUE);
    prefer(&s, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 0, sizeof(uint64_t));
    assert_int_equal(find_algos(&s, &p), 2);
    assert_int_equal(s.found[0].workspaceSize, 0);
}

/* Parts of sums are rounded to a narrow result's type, unless that is excluded. */
FAKE_TEST(test_reductions)
{
    static const uint32_t allowed[] = {UINT32_MAX, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE};
    static const uint32_t offered[] = {CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE};
    scene s = open_scene();
    const product p = new_product(&s, CUDA_R_16BF, CUDA_R_16BF, 0, 4, 4, 32);
    for (int i = 0; i < 2; i++) {
        uint32_t reduction = 0;
        size_t written = 0;
        prefer(&s, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, allowed[i], sizeof *allowed);
        assert_int_equal(find_algos(&s, &p), 4);
        LT(cublasLtMatmulAlgoConfigGetAttribute(&s.found[0].algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction,
                                                sizeof reduction, &written));
        assert_int_equal(reduction, offered[i]);
    }
    prefer(&s, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_NONE, sizeof *allowed);
    assert_int_equal(find_algos(&s, &p), 2);
}

/* An algorithm is for the bias that the description had. */
FAKE_TEST(test_bias_alignment)
{
    scene s = open_scene();
    char *bias = new_memory(256);
    const product p = new_product(&s, CUDA_R_32F, CUDA_R_32F, 0, 4, 4, 4);
    const void *had[] = {NULL, (const void *)16};
    OK(cudaMemsetAsync(bias, 0, 256, s.stream));
    for (int i = 0; i < 2; i++) {
        set_epilogue(&p, CUBLASLT_EPILOGUE_BIAS, had[i], NULL, 0);
        find_algos(&s, &p);
        set_epilogue(&p, CUBLASLT_EPILOGUE_BIAS, bias + 16, NULL, 0);
        LT_GIVES(run_found(&s, &p), i ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED);
    }
}
