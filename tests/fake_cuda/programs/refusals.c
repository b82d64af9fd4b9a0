/* SPDX-License-Identifier: Apache-2.0 */
/* A product that cuBLASLt does not support is requested only once: afterwards it runs in another way, or fails. */
#include "../../conform/device.h"
#include "served.h"

enum { SIZE = 16, TIMES = 3 };

static qdri_gemm product_of(const array *x, const array *c)
{
    return (qdri_gemm){.m = SIZE,
                       .n = SIZE,
                       .k = SIZE,
                       .a = x->data,
                       .b = x->data,
                       .c = c->data,
                       .lda = SIZE,
                       .ldb = SIZE,
                       .ldc = SIZE,
                       .alpha = 1,
                       .dtype = x->dtype,
                       .c_dtype = c->dtype};
}

/* The rounded numbers are multiplied as bf16. */
TEST(codes_without_a_product)
{
    array x = make_random(QDR_BF16, (int64_t)SIZE * SIZE, 1);
    array c = {QDR_F32, (int64_t)SIZE * SIZE, memory_new(SIZE * SIZE * sizeof(float))};
    qdri_gemm g = product_of(&x, &c);
    const int64_t before = counted("heuristic");
    g.round_a = g.round_b = QDRI_E4M3;
    assert_true(before >= 0);
    setenv("FAKE_CUDA_NO_FP8", "1", 1);
    for (int i = 0; i < TIMES; i++) CHECK_OK(qdri_gemm_run(stream, &g));
    CHECK_OK(qdri_stream_synchronize(stream));
    assert_int_equal(counted("heuristic") - before, 2);
    drop(&x);
    memory_drop(c.data);
}

/* A number that was measured elsewhere and names nothing here means the first. */
TEST(algorithms_that_are_none)
{
    array x = make_random(QDR_F32, (int64_t)SIZE * SIZE, 1);
    array first = make(QDR_F32, (int64_t)SIZE * SIZE), c = make(QDR_F32, (int64_t)SIZE * SIZE);
    qdri_gemm g = product_of(&x, &first);
    const int64_t before = counted("heuristic");
    CHECK_OK(qdri_gemm_run(stream, &g));
    g.c = c.data;
    g.algorithm = 7;
    for (int i = 0; i < TIMES; i++) CHECK_OK(qdri_gemm_run(stream, &g));
    CHECK_OK(qdri_stream_synchronize(stream));
    assert_int_equal(counted("heuristic") - before, 2);
    assert_memory_equal(first.data, c.data, SIZE * SIZE * sizeof(float));
    drop(&x);
    drop(&first);
    drop(&c);
}

enum { N_TILES = 4 };

static int64_t runs_of(int tile)
{
    static const char *const names[N_TILES] = {"tile 20", "tile 21", "tile 22", "tile 23"};
    return counted(names[tile]);
}

/* A number means the same algorithm in whatever list it is, with a bias as without. */
TEST(numbers_mean_algorithms)
{
    array x = make_random(QDR_F32, (int64_t)SIZE * SIZE, 1);
    array plain = make(QDR_F32, (int64_t)SIZE * SIZE), with = make(QDR_F32, (int64_t)SIZE * SIZE);
    array bias = make(QDR_F32, SIZE);
    qdri_gemm g = product_of(&x, &plain);
    int numbers[8], n = 0;
    for (int i = 0; i < SIZE; i++) set(&bias, i, 0);
    CHECK_OK(qdri_gemm_list_algorithms(stream, &g, 8, numbers, &n));
    assert_int_equal(n, N_TILES);
    for (int i = 0; i < n; i++) {
        const int64_t before = runs_of(i);
        for (int j = 0; j < i; j++) assert_int_not_equal(numbers[i], numbers[j]);
        g.algorithm = numbers[i];
        g.c = plain.data, g.bias = NULL;
        CHECK_OK(qdri_gemm_run(stream, &g));
        assert_int_equal(runs_of(i) - before, 1);
        g.c = with.data, g.bias = bias.data;
        CHECK_OK(qdri_gemm_run(stream, &g));
        CHECK_OK(qdri_stream_synchronize(stream));
        assert_int_equal(runs_of(i) - before, 2);
        assert_memory_equal(plain.data, with.data, SIZE * SIZE * sizeof(float));
    }
    drop(&x);
    drop(&plain);
    drop(&with);
    drop(&bias);
}

/* What one operand lacks is not asked of the other. */
TEST(operands_that_are_not_aligned)
{
    array x = make_random(QDR_F32, (int64_t)SIZE * SIZE + 1, 1);
    array c = make(QDR_F32, (int64_t)SIZE * SIZE);
    for (int which = 0; which < 2; which++) {
        qdri_gemm g = product_of(&x, &c);
        const void **odd = which ? &g.b : &g.a;
        *odd = (const float *)x.data + 1;
        CHECK_OK(qdri_gemm_run(stream, &g));
        CHECK_OK(qdri_stream_synchronize(stream));
    }
    drop(&x);
    drop(&c);
}

/* What was offered and does not run is passed over, and the context lives; once all are refused, what was fused is done
 * in steps, and the rest says so. */
TEST(algorithms_that_are_refused)
{
    enum { WIDE = SIZE + 4 }; /* of which nothing is known yet */
    array x = make_random(QDR_F32, (int64_t)WIDE * WIDE, 1);
    array c = make(QDR_F32, (int64_t)WIDE * WIDE), bias = make_random(QDR_F32, WIDE, 1);
    qdri_gemm g = product_of(&x, &c);
    g.m = g.n = g.k = g.lda = g.ldb = g.ldc = WIDE;
    setenv("FAKE_CUDA_REFUSED", "20,21", 1);
    const int64_t before = runs_of(2);
    for (int i = 0; i < TIMES; i++) CHECK_OK(qdri_gemm_run(stream, &g));
    assert_int_equal(runs_of(2) - before, TIMES);
    setenv("FAKE_CUDA_REFUSED", "20,21,22,23", 1);
    CHECK_FAILS(qdri_gemm_run(stream, &g), QDR_ERR_UNSUPPORTED, "cuBLASLt has no f32 product");
    unsetenv("FAKE_CUDA_REFUSED");
    g.k = SIZE;
    g.bias = bias.data;
    setenv("FAKE_CUDA_REFUSED", "22,23", 1);
    const int64_t before_bias = runs_of(1);
    CHECK_OK(qdri_gemm_run(stream, &g));
    assert_int_equal(runs_of(1) - before_bias, 1);
    g.k = SIZE - 1;
    setenv("FAKE_CUDA_REFUSED", "fused,20,21,22,23", 1);
    const int64_t before_steps = runs_of(0);
    CHECK_OK(qdri_gemm_run(stream, &g));
    assert_int_equal(runs_of(0) - before_steps, 1);
    unsetenv("FAKE_CUDA_REFUSED");
    CHECK_OK(qdri_stream_synchronize(stream));
    CHECK_OK(qdri_dev_status(device));
    drop(&x);
    drop(&c);
    drop(&bias);
}

int main(void) { return run_all_tests(device_open, device_close); }
