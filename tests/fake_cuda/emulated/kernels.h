/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of CUDA kernels: a kernel runs on the CPU device, twice on the (emulated) GPU, where both runs
 * give the same bits, and once more with arrays at odd addresses. All results are close to the CPU's. */
#ifndef FAKE_CUDA_EMULATED_KERNELS_H
#define FAKE_CUDA_EMULATED_KERNELS_H

#include <cuda_runtime_api.h>
#include <math.h>

#include "core/operands.h"
#include "dev/cuda/kernels/launch.h"
#include "dev/dev.h"
#include "narrow.h"
#include "qdr_test.h"

#define CHECK_CUDA(call) assert_int_equal((call), cudaSuccess)

enum { N_OPERANDS = 16, GUARD_BYTES = 64 };

/* How many of n random cases are tested: with QDR_TEST_SHORT, for tools that make kernels slow, one in eight. */
static int cases(int n) { return getenv("QDR_TEST_SHORT") ? (n + 7) / 8 : n; }

/* Whether the next check belongs to this process: with QDR_TEST_PIECE=1/8, one in eight does, from the second on. */
__attribute__((unused)) static int is_mine(void)
{
    static int n_checks;
    const char *piece = getenv("QDR_TEST_PIECE");
    int which = 0, n = 1;
    if (piece && (sscanf(piece, "%d/%d", &which, &n) != 2 || n < 1)) fail_msg("QDR_TEST_PIECE is \"%s\"", piece);
    return n_checks++ % n == which;
}

/* An array of a kernel. */
typedef struct operand {
    size_t where; /* offset of its address in the description */
    qdr_dtype dtype;
    int64_t n;
    int is_result, is_scratch;
    int is_exact; /* a result with the CPU's bits */
    double bound; /* how far a result may be off, besides its own rounding */
    double *bounds; /* of each element, instead */
    void *data; /* its input; of a result: what it holds before */
} operand;

typedef struct kernel_test {
    qdri_kernel kernel;
    int n;
    operand operands[N_OPERANDS];
    int no_cpu; /* nothing to compare with but the repetition */
    void (*on_cpu)(const qdri_kernel *kernel); /* in the place of the CPU's kernel, where it has none; NULL: it has */
} kernel_test;

static const qdr_dtype float_types[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
enum { N_TYPES = 4 };

static qdri_dev *cpu;
static qdr_stream *cpu_stream;
static qdri_cuda_target target;
static uint64_t seed;

FIXTURE(open_devices)
{
    seed = test_seed();
    CHECK_OK(qdri_dev_create_cpu(1, &cpu));
    CHECK_OK(qdri_stream_create(cpu, QDRI_STREAM_COMPUTE, &cpu_stream));
    CHECK_CUDA(cudaStreamCreateWithFlags(&target.stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaMalloc(&target.scratch, QDRI_CUDA_SCRATCH_BYTES));
    CHECK_CUDA(cudaHostAlloc((void **)&target.fault, sizeof *target.fault, cudaHostAllocMapped));
    *target.fault = (qdri_cuda_fault){0};
    return 0;
}

FIXTURE(close_devices)
{
    CHECK_CUDA(cudaStreamDestroy(target.stream));
    CHECK_CUDA(cudaFree(target.scratch));
    CHECK_CUDA(cudaFreeHost(target.fault));
    qdri_stream_destroy(&cpu_stream);
    qdri_dev_destroy(&cpu);
    return 0;
}

static inline qdr_dtype sum_type(qdr_dtype dtype) { return dtype == QDR_F64 ? QDR_F64 : QDR_F32; }

static inline double roundoff(qdr_dtype dtype)
{
    if (is_narrow(dtype)) return narrow_roundoff(dtype);
    return dtype == QDR_F64 ? 0x1p-53 : 0x1p-24;
}

/* n roundings in the type that `dtype` is summed in, on both sides. */
static inline double roundings(qdr_dtype dtype, int64_t n) { return 2 * (double)(n + 8) * roundoff(sum_type(dtype)); }

static inline double uniform(double low, double high)
{
    return low + (high - low) * (double)(test_random(&seed) >> 11) * 0x1p-53;
}

static inline double value_of(qdr_dtype dtype, const void *data, int64_t i)
{
    if (dtype == QDR_F64) return ((const double *)data)[i];
    if (dtype == QDR_F32) return (double)((const float *)data)[i];
    if (dtype == QDR_I32) return (double)((const int32_t *)data)[i];
    return narrow_value(dtype, ((const uint16_t *)data)[i]);
}

static inline void set_value(qdr_dtype dtype, void *data, int64_t i, double value)
{
    if (dtype == QDR_F64) ((double *)data)[i] = value;
    if (dtype == QDR_F32) ((float *)data)[i] = (float)value;
    if (is_narrow(dtype)) ((uint16_t *)data)[i] = narrow_bits(dtype, value);
}

static inline size_t bytes_of(const operand *o)
{
    return (size_t)o->n * (o->dtype == QDR_U8 ? 1 : qdr_dtype_bytes(o->dtype));
}

static inline operand *add_operand(kernel_test *test, size_t where, qdr_dtype dtype, int64_t n)
{
    operand *o = &test->operands[test->n++];
    assert_true(test->n <= N_OPERANDS);
    *o = (operand){.where = where, .dtype = dtype, .n = n};
    o->data = test_calloc(bytes_of(o) + 8, 1);
    return o;
}

#define AT(member) offsetof(qdri_kernel, u.member)

/* An array of random numbers of [low, high]. */
static inline operand *add_random(kernel_test *test, size_t where, qdr_dtype dtype, int64_t n, double low, double high)
{
    operand *o = add_operand(test, where, dtype, n);
    for (int64_t i = 0; i < n; i++) set_value(dtype, o->data, i, uniform(low, high));
    return o;
}

/* A result; before, it holds random numbers if it is added to, else NaN. */
static inline operand *add_result(kernel_test *test, size_t where, qdr_dtype dtype, int64_t n, int is_added_to,
                                  double bound)
{
    operand *o = add_random(test, where, dtype, n, -1, 1);
    if (!is_added_to) memset(o->data, 0xff, bytes_of(o));
    o->is_result = 1;
    o->bound = bound;
    return o;
}

static inline void set_address(qdri_kernel *kernel, const operand *o, void *address)
{
    memcpy((char *)kernel + o->where, &address, sizeof address);
}

/* ---- runs ---- */

static inline void run_kernel_on_cpu(const kernel_test *test, const qdri_kernel *kernel)
{
    if (test->on_cpu) {
        test->on_cpu(kernel);
        return;
    }
    CHECK_OK(qdri_kernel_run(cpu_stream, kernel));
    CHECK_OK(qdri_stream_synchronize(cpu_stream));
}

static inline void run_on_cpu(const kernel_test *test, void **results)
{
    qdri_kernel kernel = test->kernel;
    for (int i = 0; i < test->n; i++) {
        const operand *o = &test->operands[i];
        results[i] = test_calloc(bytes_of(o) + 8, 1);
        memcpy(results[i], o->data, bytes_of(o));
        set_address(&kernel, o, results[i]);
    }
    if (!test->no_cpu) run_kernel_on_cpu(test, &kernel);
}

static inline void move_bytes(void *to, const void *from, size_t bytes)
{
    CHECK_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, target.stream));
    CHECK_CUDA(cudaStreamSynchronize(target.stream));
}

/* Nothing may change before and after each array. */
static inline void check_guards(const char *bytes, size_t before, size_t n, size_t all)
{
    for (size_t i = 0; i < all; i++)
        if (i < before || i >= before + n) assert_int_equal((unsigned char)bytes[i], 0xa5);
}

static inline void run_on_gpu(const kernel_test *test, int is_odd, void **results)
{
    qdri_kernel kernel = test->kernel;
    char *memory[N_OPERANDS];
    for (int i = 0; i < test->n; i++) {
        const operand *o = &test->operands[i];
        const size_t before = is_odd && !o->is_scratch ? qdr_dtype_bytes(o->dtype) : 0;
        const size_t n = bytes_of(o);
        char *bytes = test_malloc(n + GUARD_BYTES);
        memset(bytes, 0xa5, n + GUARD_BYTES);
        if (n > 0) memcpy(bytes + before, o->data, n);
        CHECK_CUDA(cudaMalloc((void **)&memory[i], n + GUARD_BYTES));
        move_bytes(memory[i], bytes, n + GUARD_BYTES);
        set_address(&kernel, o, memory[i] + before);
        test_free(bytes);
    }
    CHECK_CUDA(qdri_cuda_launch(&kernel, &target));
    CHECK_CUDA(cudaStreamSynchronize(target.stream));
    for (int i = 0; i < test->n; i++) {
        const operand *o = &test->operands[i];
        const size_t before = is_odd && !o->is_scratch ? qdr_dtype_bytes(o->dtype) : 0;
        const size_t n = bytes_of(o);
        char *bytes = test_malloc(n + GUARD_BYTES);
        move_bytes(bytes, memory[i], n + GUARD_BYTES);
        check_guards(bytes, before, n, n + GUARD_BYTES);
        results[i] = test_calloc(n + 8, 1);
        memcpy(results[i], bytes + before, n);
        test_free(bytes);
        CHECK_CUDA(cudaFree(memory[i]));
    }
}

/* ---- comparison ---- */

static inline int is_near(const operand *o, double bound, double got, double want)
{
    const double rounding = 2 * roundoff(o->dtype) * (fabs(want) + bound);
    const double least = o->dtype == QDR_F64 ? 0x1p-1022 : o->dtype == QDR_F16 ? 2 * narrow_least(QDR_F16) : 0x1p-125;
    if (isnan(want) || isinf(want)) return isnan(want) ? isnan(got) : got == want;
    return fabs(got - want) <= bound + rounding + least;
}

static inline void compare(const kernel_test *test, int i, const void *got, const void *want)
{
    const operand *o = &test->operands[i];
    if (o->dtype == QDR_U8 || o->dtype == QDR_I32 || o->is_exact) {
        assert_memory_equal(got, want, bytes_of(o));
        return;
    }
    for (int64_t k = 0; k < o->n; k++) {
        const double a = value_of(o->dtype, got, k), b = value_of(o->dtype, want, k);
        const double bound = o->bounds ? o->bounds[k] : o->bound;
        if (is_near(o, bound, a, b)) continue;
        print_error("kernel %d of %s, operand %d, element %lld of %lld: %.17g, the CPU has %.17g; "
                    "bound %.3g\n",
                    (int)test->kernel.kind, qdr_dtype_name(test->kernel.dtype), i, (long long)k, (long long)o->n, a, b,
                    bound);
        fail();
    }
}

/* Results are near the CPU's, and the rest stays as it is. */
static inline void check_run(const kernel_test *test, void *const *got, void *const *want)
{
    for (int i = 0; i < test->n; i++) {
        const operand *o = &test->operands[i];
        if (!o->is_result && !o->is_scratch) assert_memory_equal(got[i], o->data, bytes_of(o));
        if (o->is_result && !test->no_cpu) compare(test, i, got[i], want[i]);
    }
}

/* Runs the test and frees its arrays. Sums are cut by the number of multiprocessors. */
static inline void check_kernel(kernel_test *test)
{
    static const int n_sms[] = {1, 6, 132};
    void *want[N_OPERANDS], *got[N_OPERANDS], *again[N_OPERANDS], *odd[N_OPERANDS];
    target.n_sms = n_sms[test_between(&seed, 0, 2)];
    run_on_cpu(test, want);
    run_on_gpu(test, 0, got);
    run_on_gpu(test, 0, again);
    run_on_gpu(test, 1, odd);
    check_run(test, got, want);
    check_run(test, odd, want);
    for (int i = 0; i < test->n; i++) {
        const operand *o = &test->operands[i];
        if (!o->is_scratch) assert_memory_equal(got[i], again[i], bytes_of(o));
        void *const all[] = {want[i], got[i], again[i], odd[i], o->data, o->bounds};
        for (int k = 0; k < 6; k++)
            if (all[k]) test_free(all[k]);
    }
    test->n = 0;
}

/* Sizes around those where something changes: packs, warps, blocks; 0 and 1 often. */
static inline int64_t random_size(int64_t most)
{
    static const int64_t marks[] = {0, 1, 2, 4, 8, 16, 31, 32, 33, 64, 128, 256, 512, 1024};
    const int64_t size = marks[test_between(&seed, 0, 13)] + test_between(&seed, -1, 1) * test_between(&seed, 0, 1);
    return size < 0 ? 0 : size > most ? most : size;
}

static inline kernel_test test_of(qdri_kernel_kind kind, qdr_dtype dtype)
{
    return (kernel_test){.kernel = {.kind = kind, .dtype = dtype}};
}

#endif
