/* SPDX-License-Identifier: Apache-2.0 */
/* Products compared with a triple loop, with a second implementation of the narrow types. */
#include "test_products.h"

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
    allow_reductions(&s, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    for (int i = 0; i < 4 * (int)(sizeof types / sizeof *types); i++) {
        const int64_t m = test_between(&s.random, 1, 20), n = test_between(&s.random, 1, 20);
        const int64_t k = test_between(&s.random, 1, 40);
        product p = new_product(&s, types[i / 4].type, types[i / 4].d_type, i & 1, i >> 1 & 1, m, n, k,
                                test_between(&s.random, 1, 3), test_between(&s.random, 0, 3));
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
    scene less = s; /* a workspace that ends behind its block, though the algorithm takes none */
    less.workspace = (char *)s.workspace + 256;
    REPORTS(FAKE_OUT_OF_BOUNDS, run(&less, &p, NULL));
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
    LT(cublasLtMatmulPreferenceSetAttribute(s.preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align,
                                            sizeof align));
    find_algos(&s, &p, algos);
    LT(run(&s, &p, &algos[0].algo));
    p.a.data = (char *)a.data + 2;
    LT_GIVES(run(&s, &p, &algos[0].algo), CUBLAS_STATUS_NOT_SUPPORTED);
    p.a = a;
    free_product(&p);
    close_scene(&s);
}

/* ---- fp8 ---- */

static void set_scale(scene *s, const product *p, cublasLtMatmulDescAttributes_t name, float *data, float scale)
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
    assert_string_equal(cublasLtGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED");
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAKE_TEST(test_against_loops), FAKE_TEST(test_detects),       FAKE_TEST(test_alignment),
        FAKE_TEST(test_fp8),           FAKE_TEST(test_fp16_rounding), FAKE_TEST(test_wrong_shapes),
    };
    print_message("FAKE_CUDA_SEED=%llu\n", (unsigned long long)fake_seed());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
