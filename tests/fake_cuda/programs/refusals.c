/* SPDX-License-Identifier: Apache-2.0 */
/* What cuBLASLt has not is asked for once: a product that runs in another way, or not at all. */
#include "../../conform/device.h"
#include "counted.h"

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
static void codes_without_a_product(void **state)
{
    array x = make_random(QDR_BF16, (int64_t)SIZE * SIZE, 1);
    array c = {QDR_F32, (int64_t)SIZE * SIZE, memory_new(SIZE * SIZE * sizeof(float))};
    qdri_gemm g = product_of(&x, &c);
    const int64_t before = counted("heuristic");
    (void)state;
    g.round_a = g.round_b = QDRI_E4M3;
    assert_true(before >= 0);
    setenv("FAKE_CUDA_NO_FP8", "1", 1);
    for (int i = 0; i < TIMES; i++) CHECK_OK(qdri_gemm_run(stream, &g));
    CHECK_OK(qdri_stream_synchronize(stream));
    assert_int_equal(counted("heuristic") - before, 2);
    drop(&x);
    memory_drop(c.data);
}

/* A number that was measured elsewhere and is too high here means the first. */
static void algorithms_that_are_none(void **state)
{
    array x = make_random(QDR_F32, (int64_t)SIZE * SIZE, 1);
    array first = make(QDR_F32, (int64_t)SIZE * SIZE), c = make(QDR_F32, (int64_t)SIZE * SIZE);
    qdri_gemm g = product_of(&x, &first);
    const int64_t before = counted("heuristic");
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_without_a_product),
        cmocka_unit_test(algorithms_that_are_none),
    };
    return cmocka_run_group_tests(tests, device_open, device_close);
}
