/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's kernels for norms, embedding and cross-entropy compared with the CPU's; ids outside the vocabulary;
 * reductions. */
#include "kernels.h"

enum { N_ROUNDS = 40 };

/* ---- norms ---- */

/* A layer norm or an RMS norm, of rows that may be parts of longer ones. */
static kernel_test norm_of(qdri_kernel_kind kind, qdr_dtype dtype, int64_t n_rows, int64_t n_cols)
{
    kernel_test test = test_of(kind, dtype);
    test.kernel.u.norm.n_rows = n_rows;
    test.kernel.u.norm.n_cols = n_cols;
    test.kernel.u.norm.stride = n_cols + test_between(&seed, 0, 3) / 3 * test_between(&seed, 1, 8);
    test.kernel.u.norm.n_features = n_cols + 3;
    test.kernel.u.norm.is_rms = (int)test_between(&seed, 0, 1);
    test.kernel.u.norm.one_plus = (int)test_between(&seed, 0, 1);
    test.kernel.u.norm.epsilon = 1e-5;
    test.kernel.u.norm.n_parts = 1;
    return test;
}

static int64_t n_elements(const kernel_test *test) { return test->kernel.u.norm.n_rows * test->kernel.u.norm.stride; }

/* Numbers for each row, of which an RMS norm has one. */
static int64_t n_numbers(const kernel_test *test, int64_t each)
{
    return test->kernel.u.norm.n_rows * (test->kernel.u.norm.is_rms ? 1 : each);
}

/* x, gamma and stats; x within 2, 1/sigma at most 2: |x̂| at most 6; gamma and 1 + gamma within 2. */
static void add_inputs(kernel_test *test)
{
    const qdr_dtype dtype = test->kernel.dtype;
    add_random(test, AT(norm.x), dtype, n_elements(test), -2, 2);
    add_random(test, AT(norm.gamma), dtype, test->kernel.u.norm.n_cols, -1, 1);
    operand *stats = add_random(test, AT(norm.stats), sum_type(dtype), n_numbers(test, 2), -1, 1);
    for (int64_t r = 0; r < stats->n; r++)
        if (r % 2 || test->kernel.u.norm.is_rms) set_value(stats->dtype, stats->data, r, uniform(0.5, 2));
}

/* mean: n + 1 roundings of numbers up to 2; M2: n + 4 of squares up to 16. */
static void moments(qdr_dtype dtype, int64_t n_rows, int64_t n_cols)
{
    kernel_test test = norm_of(QDRI_K_NORM_MOMENTS, dtype, n_rows, n_cols);
    add_random(&test, AT(norm.x), dtype, n_elements(&test), -2, 2);
    add_result(&test, AT(norm.work), sum_type(dtype), n_numbers(&test, 3), 0,
               roundings(dtype, n_cols) * 16 * (double)(n_cols + 1));
    check_kernel(&test);
}

static void merge(qdr_dtype dtype, int64_t n_rows, int64_t n_cols)
{
    kernel_test test = norm_of(QDRI_K_NORM_MERGE, dtype, n_rows, n_cols);
    const qdr_dtype sums = sum_type(dtype);
    const int is_rms = test.kernel.u.norm.is_rms;
    const int64_t n_parts = is_rms ? 1 : test_between(&seed, 1, 5);
    test.kernel.u.norm.n_parts = (int)n_parts;
    operand *work = add_random(&test, AT(norm.work), sums, n_numbers(&test, 3) * n_parts, 0.1, 2);
    for (int64_t i = 0; i < n_rows * n_parts && !is_rms; i++)
        set_value(sums, work->data, 3 * i, (double)test_between(&seed, 0, 3));
    add_result(&test, AT(norm.stats), sums, n_numbers(&test, 2), 0, 1e-12);
    check_kernel(&test);
}

static void apply(qdr_dtype dtype, int64_t n_rows, int64_t n_cols)
{
    kernel_test test = norm_of(QDRI_K_NORM_APPLY, dtype, n_rows, n_cols);
    add_inputs(&test);
    if (!test.kernel.u.norm.is_rms) add_random(&test, AT(norm.beta), dtype, n_cols, -1, 1);
    add_result(&test, AT(norm.y), dtype, n_elements(&test), 0, roundings(dtype, 7) * 14);
    check_kernel(&test);
}

static void sums(qdr_dtype dtype, int64_t n_rows, int64_t n_cols)
{
    kernel_test test = norm_of(QDRI_K_NORM_SUMS, dtype, n_rows, n_cols);
    const qdr_dtype type = sum_type(dtype);
    const int accumulate = (int)test_between(&seed, 0, 1), has = (int)test_between(&seed, 0, 3);
    const double by_row = roundings(dtype, n_cols + 7) * 12 * (double)(n_cols + 1);
    const double by_column = roundings(dtype, n_rows + 6) * 6 * (double)(n_rows + 1);
    test.kernel.accumulate = accumulate;
    add_inputs(&test);
    add_random(&test, AT(norm.dy), dtype, n_elements(&test), -1, 1);
    add_result(&test, AT(norm.work), type, n_numbers(&test, 2), 0, by_row);
    if (has & 1) add_result(&test, AT(norm.dgamma), type, n_cols, accumulate, by_column);
    if (has & 2) add_result(&test, AT(norm.dbeta), type, n_cols, accumulate, by_column);
    check_kernel(&test);
}

static void backward(qdr_dtype dtype, int64_t n_rows, int64_t n_cols)
{
    kernel_test test = norm_of(QDRI_K_NORM_BACKWARD, dtype, n_rows, n_cols);
    test.kernel.accumulate = (int)test_between(&seed, 0, 1);
    add_inputs(&test);
    add_random(&test, AT(norm.dy), dtype, n_elements(&test), -1, 1);
    add_random(&test, AT(norm.work), sum_type(dtype), n_numbers(&test, 2), -1, 1);
    add_result(&test, AT(norm.dx), dtype, n_elements(&test), test.kernel.accumulate, roundings(dtype, 11) * 24);
    check_kernel(&test);
}

TEST(norms)
{
    static void (*const kinds[])(qdr_dtype, int64_t, int64_t) = {moments, merge, apply, sums, backward};
    for (int round = 0; round < cases(N_ROUNDS * 5 * N_TYPES); round++) {
        const int64_t n_cols = random_size(1030);
        kinds[round % 5](float_types[round / 5 % N_TYPES], random_size(n_cols > 100 ? 20 : 600), n_cols);
    }
    for (int i = 0; i < 5 * N_TYPES; i++) { /* rows that registers do not hold */
        kinds[i % 5](float_types[i / 5], 3, 17000);
        kinds[i % 5](float_types[i / 5], 700, 24);
        kinds[i % 5](float_types[i / 5], 45, i / 5 == 1 ? 1500 : 4500); /* a block to each row */
    }
}

/* ---- cross-entropy ---- */

static int32_t *targets_of(kernel_test *test, size_t where, int64_t n, int64_t vocab)
{
    operand *o = add_operand(test, where, QDR_I32, n);
    int32_t *ids = o->data;
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)test_between(&seed, -1, vocab - 1);
    return ids;
}

static kernel_test entropy_of(qdri_kernel_kind kind, qdr_dtype dtype, int64_t n_rows, int64_t n_cols)
{
    kernel_test test = test_of(kind, dtype);
    const qdr_dtype type = sum_type(dtype);
    test.kernel.u.ce.n_rows = n_rows;
    test.kernel.u.ce.n_cols = n_cols;
    test.kernel.u.ce.begin = test_between(&seed, 0, 20);
    test.kernel.u.ce.vocab = test.kernel.u.ce.begin + n_cols + test_between(&seed, 0, 20);
    test.kernel.u.ce.scale = 0.125;
    test.kernel.factor = (double)test_between(&seed, -2, 2) / 2; /* 0: 1 */
    test.kernel.u.ce.cap = 20 * (double)test_between(&seed, 0, 1);
    test.kernel.u.ce.z_loss = (double)test_between(&seed, 0, 1) / 64;
    if (kind != QDRI_K_CE_LOSS) add_random(&test, AT(ce.logits), dtype, n_rows * n_cols, -9, 9);
    if (kind == QDRI_K_CE_SUMS || kind == QDRI_K_CE_LOSS) add_random(&test, AT(ce.work), type, n_rows, 9, 10);
    if (kind != QDRI_K_CE_MAX) targets_of(&test, AT(ce.targets), n_rows, test.kernel.u.ce.vocab);
    return test;
}

/* exp of at least -19 within 2u of itself and 20u for its argument; it is at most 1. With a cap of 20, its argument is
 * off by 20 times as much. */
static void entropy(qdri_kernel_kind kind, qdr_dtype dtype, int64_t n_rows, int64_t n_cols)
{
    kernel_test test = entropy_of(kind, dtype, n_rows, n_cols);
    const qdr_dtype type = sum_type(dtype);
    const double more = test.kernel.u.ce.cap > 0 ? 20 : 1, z_loss = test.kernel.u.ce.z_loss; /* of log Σ exp up to 20 */
    switch (kind) {
    case QDRI_K_CE_MAX:
        add_result(&test, AT(ce.work), type, n_rows, 0, more > 1 ? more * roundings(dtype, 20) : 0);
        break;
    case QDRI_K_CE_SUMS:
        add_result(&test, AT(ce.work2), type, 2 * n_rows, 0,
                   more * roundings(dtype, n_cols + 30) * (double)(n_cols + 1));
        break;
    case QDRI_K_CE_LOSS:
        add_random(&test, AT(ce.work2), type, 2 * n_rows, 0.5, 2);
        add_result(&test, AT(ce.saved), type, 2 * n_rows, 0, 0x1p-52);
        add_result(&test, AT(ce.result), QDR_F64, 2, 0,
                   roundings(QDR_F64, n_rows) * (3 + 400 * z_loss) * (double)(n_rows + 1));
        break;
    default:
        add_random(&test, AT(ce.saved), type, 2 * n_rows, 9, 10);
        add_result(&test, AT(ce.dlogits), dtype, n_rows * n_cols, 0,
                   (1 + 40 * z_loss) * more * roundings(dtype, 44) * 0.125);
    }
    check_kernel(&test);
}

TEST(entropies)
{
    static const qdri_kernel_kind kinds[] = {QDRI_K_CE_MAX, QDRI_K_CE_SUMS, QDRI_K_CE_LOSS, QDRI_K_CE_BACKWARD};
    for (int round = 0; round < cases(N_ROUNDS * 4 * N_TYPES); round++) {
        const int64_t n_cols = random_size(1030);
        entropy(kinds[round % 4], float_types[round / 4 % N_TYPES], random_size(n_cols > 100 ? 20 : 1000), n_cols);
    }
    for (int i = 0; i < 4 * N_TYPES; i++) entropy(kinds[i % 4], float_types[i / 4], 2, 30001);
    entropy(QDRI_K_CE_LOSS, QDR_F32, 5000, 3);
}

/* ---- embedding ---- */

static void embed(qdri_kernel_kind kind, qdr_dtype dtype, int64_t n_rows, int64_t n_cols, int64_t n_words)
{
    kernel_test test = test_of(kind, dtype);
    const int64_t begin = test_between(&seed, 0, 9);
    test.kernel.u.embed.n_rows = n_rows;
    test.kernel.u.embed.n_cols = n_cols;
    test.kernel.u.embed.begin = begin;
    test.kernel.u.embed.end = begin + n_words;
    test.kernel.u.embed.vocab = begin + n_words + test_between(&seed, 0, 9);
    test.kernel.accumulate = (int)test_between(&seed, 0, 1);
    test.kernel.factor = 0.75 * (double)test_between(&seed, 0, 1);
    int32_t *ids = targets_of(&test, AT(embed.tokens), n_rows, test.kernel.u.embed.vocab);
    for (int64_t r = 0; r < n_rows / 2; r++) /* words that come often */
        ids[r] = (int32_t)(test.kernel.u.embed.vocab * (r % 3) / 4);
    if (kind == QDRI_K_EMBED_FORWARD) {
        add_random(&test, AT(embed.e), dtype, n_words * n_cols, -1, 1);
        add_result(&test, AT(embed.y), dtype, n_rows * n_cols, 0, 0);
    } else {
        add_random(&test, AT(embed.dy), dtype, n_rows * n_cols, -1, 1);
        add_result(&test, AT(embed.de), sum_type(dtype), n_words * n_cols, test.kernel.accumulate,
                   roundings(dtype, n_rows) * (double)(n_rows + 1));
    }
    check_kernel(&test);
}

TEST(embeddings)
{
    for (int round = 0; round < cases(N_ROUNDS * 2 * N_TYPES); round++) {
        const int64_t n_cols = random_size(520);
        embed(round % 2 ? QDRI_K_EMBED_FORWARD : QDRI_K_EMBED_BACKWARD, float_types[round / 2 % N_TYPES],
              random_size(n_cols > 100 ? 40 : 1000), n_cols, 1 + random_size(100));
    }
    embed(QDRI_K_EMBED_BACKWARD, QDR_F32, 60, 1, 600000); /* more words than the scratch holds */
    embed(QDRI_K_EMBED_BACKWARD, QDR_BF16, 3000, 9, 40);
}

/* The first fault is noted, once; the result is that of a row without a token. */
TEST(faults_are_noted)
{
    enum { N = 3000, VOCAB = 50, WRONG = 77 };
    for (int kind = 0; kind < 2; kind++) {
        kernel_test test = kind ? entropy_of(QDRI_K_CE_SUMS, QDR_F32, N, VOCAB)
                                : test_of(QDRI_K_EMBED_BACKWARD, QDR_F32);
        int32_t *ids;
        if (kind) {
            ids = test.operands[2].data;
            test.kernel.u.ce.begin = 0;
            test.kernel.u.ce.vocab = VOCAB;
            add_result(&test, AT(ce.work2), QDR_F32, 2 * N, 0, 0);
        } else {
            test.kernel.u.embed.n_rows = N;
            test.kernel.u.embed.n_cols = 2;
            test.kernel.u.embed.end = test.kernel.u.embed.vocab = VOCAB;
            ids = targets_of(&test, AT(embed.tokens), N, VOCAB);
            add_random(&test, AT(embed.dy), QDR_F32, 2 * N, -1, 1);
            add_result(&test, AT(embed.de), QDR_F32, 2 * VOCAB, 0, 0);
        }
        for (int64_t i = 0; i < N; i++) ids[i] = (int32_t)test_between(&seed, -1, VOCAB - 1);
        ids[2500] = WRONG + 1;
        ids[1200] = WRONG;
        ids[1201] = VOCAB;
        test.no_cpu = 1;
        check_kernel(&test);
        assert_int_equal(target.fault->found, 1);
        assert_int_equal(target.fault->kind, kind);
        assert_int_equal(target.fault->id, WRONG);
        assert_int_equal(target.fault->row, 1200);
        assert_int_equal(target.fault->most, VOCAB - 1);
        *target.fault = (qdri_cuda_fault){0};
    }
}

/* ---- reductions, which the CPU device leaves to its communicators ---- */

static double reduced(qdr_reduce op, qdr_dtype dtype, double a, double b)
{
    if (op == QDR_MAX) return isnan(a) || isnan(b) ? NAN : b > a ? b : a;
    if (op == QDR_MIN) return isnan(a) || isnan(b) ? NAN : b < a ? b : a;
    if (dtype == QDR_I32) return (double)(int32_t)((uint32_t)(int32_t)a + (uint32_t)(int32_t)b);
    return dtype == QDR_F64 ? a + b : (double)((float)a + (float)b);
}

static void reduce(qdr_dtype dtype, qdr_reduce op, int64_t n, int n_sources, int n_results)
{
    const size_t size = qdr_dtype_bytes(dtype), bytes = (size_t)n * size;
    void *memory[QDRI_REDUCE_MOST + 1];
    const void *sources[QDRI_REDUCE_MOST];
    void *results[QDRI_REDUCE_MOST];
    char *values = test_calloc((size_t)n_sources * (size_t)n + 1, size);
    char *got = test_calloc((size_t)n + 1, size);
    for (int64_t i = 0; i < n * n_sources; i++) {
        if (dtype == QDR_I32) ((int32_t *)(void *)values)[i] = (int32_t)test_random(&seed);
        set_value(dtype, values, i, test_between(&seed, 0, 40) ? uniform(-2, 2) : (double)NAN);
    }
    for (int s = 0; s < n_sources; s++) {
        CHECK_CUDA(cudaMalloc(&memory[s], bytes + 64));
        sources[s] = (char *)memory[s] + (test_between(&seed, 0, 1) ? size : 0);
        move_bytes((void *)(uintptr_t)sources[s], values + (size_t)s * bytes, bytes);
    }
    CHECK_CUDA(cudaMalloc(&memory[n_sources], bytes + 64));
    for (int i = 0; i < n_results; i++) /* the first result is new, the others are sources */
        results[i] = i ? (void *)(uintptr_t)sources[i - 1] : memory[n_sources];
    qdri_kernel kernel = {.kind = QDRI_K_REDUCE, .dtype = dtype};
    kernel.u.gather.n = n;
    kernel.u.gather.n_sources = n_sources;
    kernel.u.gather.n_results = n_results;
    kernel.u.gather.op = op;
    kernel.u.gather.sources = sources;
    kernel.u.gather.results = results;
    CHECK_CUDA(qdri_cuda_launch(&kernel, &target));
    memset(sources, 0, sizeof sources); /* the lists are the launch's own */
    CHECK_CUDA(cudaStreamSynchronize(target.stream));
    for (int i = 0; i < n_results; i++) {
        move_bytes(got, results[i], bytes);
        for (int64_t k = 0; k < n; k++) {
            double want = value_of(dtype, values, k);
            for (int s = 1; s < n_sources; s++) want = reduced(op, dtype, want, value_of(dtype, values, s * n + k));
            const operand o = {.dtype = dtype};
            assert_true(is_narrow(dtype) ? is_near(&o, 0, value_of(dtype, got, k), want)
                        : isnan(want)    ? isnan(value_of(dtype, got, k))
                                         : value_of(dtype, got, k) == want);
        }
    }
    for (int s = 0; s <= n_sources; s++) CHECK_CUDA(cudaFree(memory[s]));
    test_free(values);
    test_free(got);
}

TEST(reductions)
{
    static const qdr_dtype types[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16, QDR_I32};
    for (int round = 0; round < cases(N_ROUNDS * 15); round++) {
        const int n_sources = round < 15 ? QDRI_REDUCE_MOST : (int)test_between(&seed, 1, 9);
        const int n_results = (int)test_between(&seed, 1, n_sources);
        reduce(types[round % 5], (qdr_reduce)(round / 5 % 3), random_size(600), n_sources, n_results);
    }
}

static int64_t key_at(qdr_dtype dtype, const char *keys, int i)
{
    int32_t narrow;
    int64_t wide;
    if (dtype == QDR_F64)
        memcpy(&wide, keys + 8 * i, 8);
    else
        memcpy(&narrow, keys + 4 * i, 4);
    return dtype == QDR_F64 ? wide : narrow;
}

/* Keys are in the order of the numbers; a NaN is above or below all; and they are the numbers again. */
TEST(keys)
{
    static const qdr_dtype types[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    static const double numbers[] = {-INFINITY, -3, -2, -1e-7, -0.0, 0.0, 1e-7, 2, 3, INFINITY, NAN, -NAN};
    enum { N = sizeof numbers / sizeof *numbers, N_ORDERED = N - 2 };
    for (int type = 0; type < 4; type++)
        for (int round = 0; round < 4; round++) {
            const qdr_dtype dtype = types[type];
            const qdr_reduce op = round % 2 ? QDR_MIN : QDR_MAX;
            const int is_in_place = round / 2 && !is_narrow(dtype);
            char values[8 * N], got[8 * N], as_keys[8 * N];
            void *x, *y;
            for (int i = 0; i < N; i++) set_value(dtype, values, i, numbers[i]);
            CHECK_CUDA(cudaMalloc(&x, sizeof values));
            CHECK_CUDA(cudaMalloc(&y, sizeof values));
            move_bytes(x, values, N * qdr_dtype_bytes(dtype));
            const void *sources[] = {x};
            void *results[] = {is_in_place ? x : y};
            qdri_kernel kernel = {.kind = QDRI_K_TO_KEYS, .dtype = dtype};
            kernel.u.gather.n = N;
            kernel.u.gather.n_sources = kernel.u.gather.n_results = 1;
            kernel.u.gather.op = op;
            kernel.u.gather.sources = sources;
            kernel.u.gather.results = results;
            CHECK_CUDA(qdri_cuda_launch(&kernel, &target));
            CHECK_CUDA(cudaStreamSynchronize(target.stream));
            move_bytes(as_keys, results[0], sizeof as_keys);
            kernel.kind = QDRI_K_FROM_KEYS;
            sources[0] = results[0];
            results[0] = x;
            CHECK_CUDA(qdri_cuda_launch(&kernel, &target));
            CHECK_CUDA(cudaStreamSynchronize(target.stream));
            move_bytes(got, x, N * qdr_dtype_bytes(dtype));
            for (int i = 0; i < N_ORDERED; i++) {
                assert_true(value_of(dtype, got, i) == value_of(dtype, values, i));
                assert_true(i == 0 || key_at(dtype, as_keys, i) >= key_at(dtype, as_keys, i - 1));
                for (int nan = N_ORDERED; nan < N; nan++) {
                    const int64_t over = key_at(dtype, as_keys, nan), under = key_at(dtype, as_keys, i);
                    assert_true(op == QDR_MAX ? over > under : over < under);
                }
            }
            for (int nan = N_ORDERED; nan < N; nan++) assert_true(isnan(value_of(dtype, got, nan)));
            CHECK_CUDA(cudaFree(x));
            CHECK_CUDA(cudaFree(y));
        }
}

TEST(stamps)
{
    int64_t *times;
    CHECK_CUDA(cudaHostAlloc((void **)&times, 2 * sizeof *times, cudaHostAllocMapped));
    for (int i = 0; i < 2; i++) CHECK_CUDA(qdri_cuda_launch_stamp(times + i, target.stream));
    CHECK_CUDA(cudaStreamSynchronize(target.stream));
    assert_true(times[0] > 0 && times[1] >= times[0]);
    CHECK_CUDA(cudaFreeHost(times));
}

int main(void) { return run_all_tests(open_devices, close_devices); }
