/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the conformance tests of devices: a device (the CPU's, or with QDR_DEVICE=cuda and QDR_CUDA_MEMORY=managed
 * a GPU's), arrays of any type, and checks against long double references with bounds derived from the unit roundoff u:
 * γ(n) = n·u / (1 - n·u) bounds n successive roundings. */
#ifndef QDR_TESTS_CONFORM_DEVICE_H
#define QDR_TESTS_CONFORM_DEVICE_H

#include <math.h>

#include "core/size.h"
#include "dev/cpu/cpu.h"
#include "dev/cpu/kernels/kernels.h"
#include "dev/dev.h"
#include "dev/plugin.h"
#include "narrow.h"
#include "qdr_test.h"

typedef long double ref;

typedef struct array {
    qdr_dtype dtype;
    int64_t n;
    void *data;
} array;

static const qdr_dtype float_types[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
static const int64_t odd_sizes[] = {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 67, 129};
enum { N_TYPES = 4, N_SIZES = 15 };

static qdri_dev *device;
static qdr_stream *stream;
static uint64_t seed;

static inline int on_cuda(void)
{
    const char *name = getenv("QDR_DEVICE");
    return name && strcmp(name, "cuda") == 0;
}

/* QDR_TEST_THREADS=N: N threads on a CPU, and kernels in the smallest parts that there can be. */
static inline qdri_dev *device_create(void)
{
    qdri_dev *made = NULL;
    const char *threads = getenv("QDR_TEST_THREADS");
    if (threads) qdri_cpu_part_elems = 1;
    CHECK_OK(on_cuda() ? qdri_dev_create_cuda(-1, 0, &made) : qdri_dev_create_cpu(threads ? atoi(threads) : 1, &made));
    return made;
}

/* Memory that kernels and the test may use: the C library's, or managed memory of a device that lives as long as the
 * process. */
static qdri_dev *memory_device;
static inline void memory_device_close(void) { qdri_dev_destroy(&memory_device); }

static inline void *memory_new(size_t bytes)
{
    void *memory = NULL;
    if (!on_cuda()) return test_calloc(bytes ? bytes : 1, 1);
    if (!memory_device) {
        memory_device = device_create();
        (void)atexit(memory_device_close);
    }
    CHECK_OK(qdri_mem_alloc(memory_device, bytes, &memory));
    memset(memory, 0, bytes);
    return memory;
}

static inline void memory_drop(void *memory)
{
    if (on_cuda())
        qdri_mem_free(memory_device, &memory);
    else
        test_free(memory);
}

FIXTURE(device_open)
{
    seed = test_seed();
    device = device_create();
    CHECK_OK(qdri_stream_create(device, QDRI_STREAM_COMPUTE, &stream));
    return 0;
}

FIXTURE(device_close)
{
    qdri_stream_destroy(&stream);
    qdri_dev_destroy(&device);
    return 0;
}

/* Runs all tests with each set of kernels that this machine has. */
static inline int run_each_set(void)
{
    int n_failed = 0;
    if (on_cuda()) return run_all_tests(device_open, device_close);
    for (int level = 0; level < QDRI_N_KERNEL_SETS; level++) {
        if (!qdri_cpu_kernels_limit(level)) continue;
        print_message("kernel set %d\n", level);
        n_failed += run_all_tests(device_open, device_close);
    }
    return n_failed;
}

static inline qdr_dtype sum_type(qdr_dtype dtype) { return dtype == QDR_F64 ? QDR_F64 : QDR_F32; }

static inline ref roundoff(qdr_dtype dtype)
{
    if (is_narrow(dtype)) return (ref)narrow_roundoff(dtype);
    return dtype == QDR_F64 ? 0x1p-53L : 0x1p-24L;
}

/* γ(n) of sums in the type that `dtype` is summed in. */
static inline ref gamma_of(qdr_dtype dtype, int64_t n)
{
    const ref nu = (ref)n * roundoff(sum_type(dtype));
    return nu / (1 - nu);
}

static inline ref get(const array *a, int64_t i)
{
    if (a->dtype == QDR_F64) return (ref)((const double *)a->data)[i];
    if (a->dtype == QDR_F32) return (ref)((const float *)a->data)[i];
    return (ref)narrow_value(a->dtype, ((const uint16_t *)a->data)[i]);
}

static inline void set(array *a, int64_t i, double value)
{
    if (a->dtype == QDR_F64) ((double *)a->data)[i] = value;
    if (a->dtype == QDR_F32) ((float *)a->data)[i] = (float)value;
    if (is_narrow(a->dtype)) ((uint16_t *)a->data)[i] = narrow_bits(a->dtype, value);
}

/* In front of an array: an element, so that it is on no particular boundary; QDR_TEST_ALIGNED=1: 64 bytes, for what is
 * done only with aligned arrays. */
static inline size_t front_bytes(qdr_dtype dtype) { return getenv("QDR_TEST_ALIGNED") ? 64 : qdr_dtype_bytes(dtype); }

/* Filled with NaN. */
static inline array make(qdr_dtype dtype, int64_t n)
{
    array a = {dtype, n, NULL};
    char *memory = memory_new(front_bytes(dtype) + ((size_t)n + 1) * qdr_dtype_bytes(dtype));
    a.data = memory + front_bytes(dtype);
    for (int64_t i = 0; i < n; i++) set(&a, i, (double)NAN);
    return a;
}

static inline void drop(array *a) { memory_drop((char *)a->data - front_bytes(a->dtype)); }

static inline double uniform(double low, double high)
{
    return low + (high - low) * (double)(test_random(&seed) >> 11) * 0x1p-53;
}

/* Random numbers of [-scale, scale]. */
static inline array make_random(qdr_dtype dtype, int64_t n, double scale)
{
    array a = make(dtype, n);
    for (int64_t i = 0; i < n; i++) set(&a, i, uniform(-scale, scale));
    return a;
}

static inline array copy_of(const array *from)
{
    array a = make(from->dtype, from->n);
    memcpy(a.data, from->data, (size_t)a.n * qdr_dtype_bytes(a.dtype));
    return a;
}

/* n random numbers of [low, high]. */
static inline int32_t *make_tokens(int64_t n, int64_t low, int64_t high)
{
    int32_t *tokens = memory_new(((size_t)n + 1) * sizeof *tokens);
    for (int64_t i = 0; i < n; i++) tokens[i] = (int32_t)test_between(&seed, low, high);
    return tokens;
}

/* What rounding a number to a narrow type may change, if the number is `bound` off `x`. */
static inline ref storing_error(qdr_dtype dtype, ref x, ref bound)
{
    return is_narrow(dtype) ? roundoff(dtype) * (fabsl(x) + bound) + (ref)narrow_least(dtype) : 0;
}

/* Element i of `a` is `want`, up to `bound` and, if stored in a narrower type than computed in, one more rounding. */
static inline void check_near(const array *a, int64_t i, ref want, ref bound, const char *what)
{
    const ref got = get(a, i);
    const ref error = fabsl(got - want);
    const int rounded = is_narrow(a->dtype);
    const ref least = a->dtype == QDR_F64 ? 0x1p-1022L : a->dtype == QDR_F16 ? (ref)narrow_least(QDR_F16) : 0x1p-126L;
    const ref storing = rounded ? roundoff(a->dtype) * (fabsl(want) + bound) : 0;
    if (error <= bound + storing + least) return;
    print_error("%s %s: element %lld is %.17Lg, not %.17Lg: off by %.3Lg, allowed %.3Lg\n", what,
                qdr_dtype_name(a->dtype), (long long)i, got, want, error, bound + storing + least);
    fail();
}

static inline void run(const qdri_kernel *kernel)
{
    CHECK_OK(qdri_kernel_run(stream, kernel));
    CHECK_OK(qdri_stream_synchronize(stream));
}

#endif
