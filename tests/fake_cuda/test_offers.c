/* SPDX-License-Identifier: Apache-2.0 */
/* The algorithms that are offered for a product, and the properties for which they are offered. */
#include "test_products.h"

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
        LT(cublasLtMatmulAlgoConfigGetAttribute(&algos[i].algo, CUBLASLT_ALGO_CONFIG_ID, &ids[i], sizeof *ids,
                                                &written));
    assert_int_not_equal(ids[0], ids[3]);
    assert_true(algos[0].workspaceSize > 0);
    LT_GIVES(cublasLtMatmul(s.lt, p.desc, &none, p.a.data, p.a.layout, p.b.data, p.b.layout, &none, p.c.data,
                            p.c.layout, p.d.data, p.d.layout, &algos[0].algo, NULL, 0, s.stream),
             CUBLAS_STATUS_INVALID_VALUE);
    LT(cublasLtMatmulPreferenceSetAttribute(s.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &none,
                                            sizeof none));
    assert_int_equal(find_algos(&s, &p, algos), 2);
    assert_int_equal(algos[0].workspaceSize, 0);
    splits = 3;
    LT(cublasLtMatmulAlgoConfigSetAttribute(&algos[0].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof splits));
    QUIET(LT(run(&s, &p, &algos[0].algo)));
    check_result(&s, &p);
    free_product(&p);
    close_scene(&s);
}

static uint32_t reduction_of(const cublasLtMatmulAlgo_t *algo)
{
    uint32_t reduction = 0;
    size_t written = 0;
    LT(cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction, sizeof reduction,
                                            &written));
    return reduction;
}

/* Parts of sums are rounded to a narrow result's type, unless that is excluded. */
static void test_reductions(void **state)
{
    (void)state;
    scene s = open_scene();
    cublasLtMatmulHeuristicResult_t algos[8];
    product p = new_product(&s, CUDA_R_16BF, CUDA_R_16BF, 0, 0, 4, 4, 32, 1, 0);
    assert_int_equal(find_algos(&s, &p, algos), 4);
    assert_int_equal(reduction_of(&algos[0].algo), CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE);
    allow_reductions(&s, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    assert_int_equal(find_algos(&s, &p, algos), 4);
    assert_int_equal(reduction_of(&algos[0].algo), CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    allow_reductions(&s, CUBLASLT_REDUCTION_SCHEME_NONE);
    assert_int_equal(find_algos(&s, &p, algos), 2);
    free_product(&p);
    close_scene(&s);
}

/* An algorithm is for the bias that the description had. */
static void test_bias_alignment(void **state)
{
    (void)state;
    scene s = open_scene();
    cublasLtMatmulHeuristicResult_t algos[8];
    const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    char *bias = new_memory(256 + 16 + 4 * sizeof(float));
    const void *pointers[] = {bias + 16, (const void *)16};
    product p = new_product(&s, CUDA_R_32F, CUDA_R_32F, 0, 0, 4, 4, 4, 1, 0);
    OK(cudaMemsetAsync(bias, 0, 256, s.stream));
    LT(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    for (int i = 0; i < 2; i++) {
        find_algos(&s, &p, algos); /* for NULL, and then for 16 bytes */
        LT(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &pointers[0], sizeof pointers[0]));
        LT_GIVES(run(&s, &p, &algos[0].algo), i ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED);
        LT(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &pointers[1], sizeof pointers[1]));
    }
    OK(cudaStreamSynchronize(s.stream));
    free_product(&p);
    OK(cudaFree(bias));
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAKE_TEST(test_algorithms),
        FAKE_TEST(test_reductions),
        FAKE_TEST(test_bias_alignment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
