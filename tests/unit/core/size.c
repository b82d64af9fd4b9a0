/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes that cannot overflow; element types; host memory. */
#include "core/size.h"

#include "qdr_test.h"

TEST(products_fit_or_fail)
{
    int64_t product = -1;
    CHECK_OK(qdri_mul_elems(3, 4, &product));
    assert_int_equal(product, 12);
    CHECK_OK(qdri_mul_elems(INT64_MAX, 1, &product));
    assert_true(product == INT64_MAX);
    CHECK_OK(qdri_mul_elems(INT64_MAX, 0, &product));
    assert_int_equal(product, 0);
    CHECK_FAILS(qdri_mul_elems(INT64_MAX / 2 + 1, 2, &product), QDR_ERR_SHAPE, "do not fit");
    assert_int_equal(product, 0);
    CHECK_FAILS(qdri_mul_elems(-1, 2, &product), QDR_ERR_SHAPE, "-1 times 2");
    CHECK_FAILS(qdri_mul_elems(2, -1, &product), QDR_ERR_SHAPE, "2 times -1");
}

TEST(bytes_fit_or_fail)
{
    size_t bytes = 1;
    CHECK_OK(qdri_elems_bytes(10, QDR_BF16, &bytes));
    assert_int_equal(bytes, 20);
    CHECK_OK(qdri_elems_bytes(0, QDR_F64, &bytes));
    assert_int_equal(bytes, 0);
    CHECK_OK(qdri_elems_bytes((int64_t)(SIZE_MAX / 2 / 8), QDR_F64, &bytes));
    CHECK_FAILS(qdri_elems_bytes((int64_t)(SIZE_MAX / 2 / 8) + 1, QDR_F64, &bytes), QDR_ERR_SHAPE, "elements of f64");
    assert_int_equal(bytes, 0);
    CHECK_FAILS(qdri_elems_bytes(-1, QDR_F32, &bytes), QDR_ERR_SHAPE, "-1 elements");
    CHECK_FAILS(qdri_elems_bytes(1, (qdr_dtype)17, &bytes), QDR_ERR_DTYPE, "17 is not an element type");
}

TEST(types_have_sizes_and_names)
{
    assert_int_equal(qdr_dtype_bytes(QDR_F32), 4);
    assert_int_equal(qdr_dtype_bytes(QDR_U8), 1);
    assert_int_equal(qdr_dtype_bytes((qdr_dtype)-1), 0);
    assert_string_equal(qdr_dtype_name(QDR_BF16), "bf16");
    assert_string_equal(qdr_dtype_name(QDR_F16), "f16");
    assert_int_equal(qdr_dtype_bytes(QDR_F16), 2);
    assert_string_equal(qdr_dtype_name((qdr_dtype)6), "?");
}

TEST(rounding)
{
    assert_int_equal(qdri_ceil_div(0, 4), 0);
    assert_int_equal(qdri_ceil_div(9, 4), 3);
    assert_int_equal(qdri_round_up(9, 4), 12);
    assert_int_equal(qdri_round_up(8, 4), 8);
    assert_int_equal(qdri_align_bytes(65, 64), 128);
}

TEST(memory_is_zeroed_or_refused)
{
    int *numbers = NULL;
    CHECK_OK(QDRI_NEW(100, "numbers", &numbers));
    for (int i = 0; i < 100; i++) assert_int_equal(numbers[i], 0);
    free(numbers);
    CHECK_OK(QDRI_NEW(0, "no numbers", &numbers));
    assert_non_null(numbers);
    free(numbers);
    volatile size_t too_many = SIZE_MAX / 2;
    CHECK_FAILS(QDRI_NEW(too_many, "numbers", &numbers), QDR_ERR_MEMORY, "bytes for numbers");
    assert_null(numbers);
}

TEST(strings_are_copied)
{
    char *copy = NULL;
    CHECK_OK(qdri_strdup("attention", &copy));
    assert_string_equal(copy, "attention");
    free(copy);
}
