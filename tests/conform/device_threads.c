/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels and products of CPU devices of 1 to 8 threads: the same bits. */
#define KERNEL_CASE_ROWS 201
#define KERNEL_CASE_COLS 300
#define KERNEL_CASE_BYTES (8 << 20)
#include "../fake_cuda/kernel_cases.h"
#include "dev/cpu/cpu.h"
#include "dev/cpu/kernels/kernels.h"

enum { MOST_THREADS = 8 };

static uint64_t seed;

typedef struct place {
    qdri_dev *dev;
    qdr_stream *stream;
} place;

static place open_place(int n_threads)
{
    place made = {NULL, NULL};
    CHECK_OK(qdri_dev_create_cpu(n_threads, &made.dev));
    CHECK_OK(qdri_stream_create(made.dev, QDRI_STREAM_COMPUTE, &made.stream));
    return made;
}

static void close_place(place *of)
{
    qdri_stream_destroy(&of->stream);
    qdri_dev_destroy(&of->dev);
}

static int is_on_cpus(qdri_kernel_kind kind)
{
    const qdri_kernel_family family = qdri_family_of(kind);
    return family != QDRI_OF_GATHER && family != QDRI_OF_PACK;
}

static void run_case(place at, kernel_case *c, qdri_kernel_kind kind, qdr_dtype dtype, int number)
{
    make_case(c, kind, dtype, number);
    qdri_reserve_kernel(at.stream, qdri_kernel_bytes(at.stream, &c->kernel));
    CHECK_OK(qdri_kernel_run(at.stream, &c->kernel));
    CHECK_OK(qdri_stream_synchronize(at.stream));
    memset(c->arena + c->work_begin, 0, c->work_bytes);
}

static void compare_kernels(int n_threads)
{
    static kernel_case one, several;
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    place alone = open_place(1), team = open_place(n_threads);
    for (int kind = 0; kind < QDRI_N_KERNELS; kind++)
        for (int i = 0; i < 4 * N_CASES && is_on_cpus((qdri_kernel_kind)kind); i++) {
            const qdr_dtype dtype = dtypes[i / N_CASES];
            run_case(alone, &one, (qdri_kernel_kind)kind, dtype, i % N_CASES);
            run_case(team, &several, (qdri_kernel_kind)kind, dtype, i % N_CASES);
            if (memcmp(one.arena, several.arena, one.used) != 0)
                fail_msg("%s in %s, case %d: %d threads give other bits", qdri_kernel_name((qdri_kernel_kind)kind),
                         qdr_dtype_name(dtype), i % N_CASES, n_threads);
        }
    close_place(&alone);
    close_place(&team);
}

TEST(kernels_have_the_same_bits)
{
    static const int numbers[] = {2, 3, MOST_THREADS};
    qdri_cpu_part_elems = 1000;
    for (int i = 0; i < 3; i++) compare_kernels(numbers[i]);
    qdri_cpu_part_elems = 32768;
}

/* Which kernels are divided: all but those whose result is one number, or merges what little ranks exchange. */
TEST(kernels_are_divided)
{
    static kernel_case c;
    static const qdri_kernel_kind whole[] = {
        QDRI_K_NORM_MERGE, QDRI_K_NORM_SUMS, QDRI_K_CE_LOSS, QDRI_K_SUM_SQUARES, QDRI_K_ADAMW_RATE, QDRI_K_ADAMW_BEGIN,
        QDRI_K_COPY_BLOCK, QDRI_K_COPY,      QDRI_K_ZERO,    QDRI_K_ENCODE,      QDRI_K_DECODE,     QDRI_K_DECODE_SUM};
    for (int kind = 0; kind < QDRI_N_KERNELS; kind++) {
        int is_whole = !is_on_cpus((qdri_kernel_kind)kind);
        for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) is_whole |= (int)whole[i] == kind;
        if (is_whole) continue;
        make_case(&c, (qdri_kernel_kind)kind, QDR_F32, 0);
        const qdri_division division = qdri_kernel_division(&c.kernel);
        if (division.n_rows == 0 && division.n_cols == 0) fail_msg("%s", qdri_kernel_name((qdri_kernel_kind)kind));
    }
}

typedef struct matrices {
    qdri_gemm gemm;
    size_t c_bytes;
    void *a, *b, *before;
} matrices;

static void *random_elems(qdr_dtype dtype, int64_t n)
{
    void *data = test_calloc((size_t)n, qdr_dtype_bytes(dtype));
    for (int64_t i = 0; i < n; i++) {
        const double value = (double)test_between(&seed, -1000, 1000) / 1000;
        if (dtype == QDR_F64) ((double *)data)[i] = value;
        if (dtype == QDR_F32) ((float *)data)[i] = (float)value;
        if (is_narrow(dtype)) ((uint16_t *)data)[i] = narrow_bits(dtype, value);
    }
    return data;
}

static matrices make_matrices(qdr_dtype dtype, qdr_dtype c_dtype)
{
    const double factors[] = {0, 1, 0.5};
    matrices made = {.gemm = {.m = test_between(&seed, 200, 900),
                              .n = test_between(&seed, 200, 900),
                              .k = test_between(&seed, 60, 700),
                              .trans_a = (int)test_between(&seed, 0, 1),
                              .trans_b = (int)test_between(&seed, 0, 1),
                              .alpha = factors[test_between(&seed, 1, 2)],
                              .beta = factors[test_between(&seed, 0, 2)],
                              .dtype = dtype,
                              .c_dtype = c_dtype}};
    qdri_gemm *g = &made.gemm;
    g->lda = (g->trans_a ? g->m : g->k) + test_between(&seed, 0, 3);
    g->ldb = (g->trans_b ? g->k : g->n) + test_between(&seed, 0, 3);
    g->ldc = g->n + test_between(&seed, 0, 3);
    g->a = made.a = random_elems(dtype, (g->trans_a ? g->k : g->m) * g->lda);
    g->b = made.b = random_elems(dtype, (g->trans_b ? g->n : g->k) * g->ldb);
    made.before = random_elems(c_dtype, g->m * g->ldc);
    made.c_bytes = (size_t)(g->m * g->ldc) * qdr_dtype_bytes(c_dtype);
    return made;
}

static void *multiply(const place *at, const matrices *of)
{
    qdri_gemm gemm = of->gemm;
    gemm.c = test_calloc(of->c_bytes, 1);
    memcpy(gemm.c, of->before, of->c_bytes);
    CHECK_OK(qdri_gemm_run(at->stream, &gemm));
    CHECK_OK(qdri_stream_synchronize(at->stream));
    return gemm.c;
}

TEST(products_have_the_same_bits)
{
    static const qdr_dtype dtypes[][2] = {{QDR_F32, QDR_F32},  {QDR_F64, QDR_F64}, {QDR_BF16, QDR_BF16},
                                          {QDR_BF16, QDR_F32}, {QDR_F16, QDR_F16}, {QDR_F32, QDR_F32}};
    seed = test_seed();
    place places[MOST_THREADS];
    for (int i = 0; i < MOST_THREADS; i++) places[i] = open_place(i + 1);
    for (int round = 0; round < 24; round++) {
        matrices of = make_matrices(dtypes[round % 6][0], dtypes[round % 6][1]);
        if (round % 6 == 5) of.gemm.round_a = of.gemm.round_b = QDRI_E4M3;
        void *one = multiply(&places[0], &of);
        for (int i = 1; i < MOST_THREADS; i++) {
            void *several = multiply(&places[i], &of);
            if (memcmp(one, several, of.c_bytes) != 0)
                fail_msg("%s, %" PRId64 "x%" PRId64 "x%" PRId64
                         ", transposed %d %d, %g, %g: %d threads give other bits",
                         qdr_dtype_name(of.gemm.dtype), of.gemm.m, of.gemm.n, of.gemm.k, of.gemm.trans_a,
                         of.gemm.trans_b, of.gemm.alpha, of.gemm.beta, i + 1);
            test_free(several);
        }
        test_free(one);
        test_free(of.a);
        test_free(of.b);
        test_free(of.before);
    }
    for (int i = 0; i < MOST_THREADS; i++) close_place(&places[i]);
}
