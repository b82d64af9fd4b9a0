/* SPDX-License-Identifier: Apache-2.0 */
/* A machine without a driver, with one that is too old, or without a GPU: the argument is the expected error. The
 * environment is set by meson. */
#include <cublasLt.h>

#include "test_fake.h"

static cudaError_t expected;

static void test_absent(void **state)
{
    (void)state;
    int n = -1, version = -1;
    size_t bytes;
    void *data = NULL;
    cudaStream_t stream = NULL;
    struct cudaDeviceProp is;
    cublasLtHandle_t handle = NULL;
    OK(cudaDriverGetVersion(&version));
    assert_int_equal(version, atoi(getenv("FAKE_CUDA_DRIVER")));
    OK(cudaRuntimeGetVersion(&version));
    assert_int_equal(version, CUDART_VERSION);
    GIVES(cudaGetDeviceCount(&n), expected);
    assert_int_equal(n, 0);
    GIVES(cudaSetDevice(0), expected);
    GIVES(cudaGetDeviceProperties(&is, 0), expected);
    GIVES(cudaMalloc(&data, 8), expected);
    GIVES(cudaHostAlloc(&data, 8, 0), expected);
    GIVES(cudaMemGetInfo(&bytes, &bytes), expected);
    GIVES(cudaStreamCreate(&stream), expected);
    assert_int_equal(cublasLtCreate(&handle), CUBLAS_STATUS_NOT_INITIALIZED);
    assert_true(cublasLtGetVersion() >= 130000);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {FAKE_TEST(test_absent)};
    if (argc != 2) return 2;
    expected = (cudaError_t)atoi(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
