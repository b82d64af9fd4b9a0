/* SPDX-License-Identifier: Apache-2.0 */
/* Operations fused with products, compared with a triple loop. */
#include "test_products.h"

static void set_epilogue(const product *p, cublasLtEpilogue_t epilogue, const void *bias, const matrix *aux)
{
    LT(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    if (bias) LT(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    if (!aux) return;
    LT(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux->data,
                                      sizeof aux->data));
    LT(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux->ld, sizeof aux->ld));
}

static double gelu(double x) { return x / (1 + exp(-2 * sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x))); }

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
    for (int64_t r = 0; r < 16; r++) check_close(at(&sums, 0, 0, r, 0), sum_of(&p.a, 0, r, 9), 1e-6);
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

/* The auxiliary matrix is rounded, GELU is taken of what was not. */
static void test_gelu_of_bf16(void **state)
{
    (void)state;
    scene s = open_scene();
    product p = new_product(&s, CUDA_R_16BF, CUDA_R_16BF, 1, 0, 16, 12, 33, 1, 0);
    matrix aux = new_matrix(&s, CUDA_R_16BF, 16, 12, 1, 0, 0);
    set_epilogue(&p, CUBLASLT_EPILOGUE_GELU_AUX, NULL, &aux);
    QUIET(LT(run(&s, &p, NULL)));
    fetch(&s, &p.d);
    fetch(&s, &aux);
    for (int i = 0; i < 16 * 12; i++) {
        const double x = expected(&p, 0, i % 16, i / 16);
        check_close(at(&aux, 0, 0, i % 16, i / 16), x, tolerance(CUDA_R_16BF));
        if (x > -1) /* smaller ones have fewer bits than decode() knows */
            check_close(at(&p.d, 0, 0, i % 16, i / 16), gelu(x), tolerance(CUDA_R_16BF));
    }
    free_matrix(&aux);
    free_product(&p);
    close_scene(&s);
}

static void test_wrong_epilogues(void **state)
{
    static const int wrong[] = {CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_BGRADA,
                                CUBLASLT_EPILOGUE_DGELU | CUBLASLT_EPILOGUE_BIAS};
    (void)state;
    scene s = open_scene();
    product p = new_product(&s, CUDA_R_16BF, CUDA_R_16BF, 1, 0, 16, 5, 8, 1, 0);
    matrix good = new_matrix(&s, CUDA_R_16BF, 24, 5, 1, 0, 1);
    const int32_t type = CUDA_R_16BF;
    matrix aux = good;
    aux.ld = 24;
    set_epilogue(&p, CUBLASLT_EPILOGUE_DGELU, NULL, &aux);
    QUIET(LT(run(&s, &p, NULL)));
    for (aux.ld = 8; aux.ld <= 20; aux.ld += 12) { /* too short; no units of 8 */
        set_epilogue(&p, CUBLASLT_EPILOGUE_DGELU, NULL, &aux);
        LT_GIVES(run(&s, &p, NULL), CUBLAS_STATUS_NOT_SUPPORTED);
    }
    aux = (matrix){.data = (char *)good.data + 8, .ld = 24};
    set_epilogue(&p, CUBLASLT_EPILOGUE_DGELU, NULL, &aux);
    LT_GIVES(run(&s, &p, NULL), CUBLAS_STATUS_NOT_SUPPORTED);
    aux.data = NULL;
    set_epilogue(&p, CUBLASLT_EPILOGUE_GELU_AUX, NULL, &aux);
    LT_GIVES(run(&s, &p, NULL), CUBLAS_STATUS_INVALID_VALUE);
    aux.data = good.data;
    for (int i = 0; i < 2; i++) {
        set_epilogue(&p, (cublasLtEpilogue_t)wrong[i], good.data, &aux);
        LT_GIVES(run(&s, &p, NULL), CUBLAS_STATUS_NOT_SUPPORTED);
    }
    set_epilogue(&p, CUBLASLT_EPILOGUE_DGELU, NULL, &aux);
    LT(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, &type, sizeof type));
    LT_GIVES(run(&s, &p, NULL), CUBLAS_STATUS_NOT_SUPPORTED);
    free_matrix(&good);
    free_product(&p);
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAKE_TEST(test_forward_epilogues),
        FAKE_TEST(test_backward_epilogues),
        FAKE_TEST(test_gelu_of_bf16),
        FAKE_TEST(test_wrong_epilogues),
    };
    print_message("FAKE_CUDA_SEED=%llu\n", (unsigned long long)fake_seed());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
