/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's codecs: the same bits as the CPU's. */
#include "../accesses.h"
#include "dev/device.h"
#include "kernels.h"

enum { N_ROUNDS = 150, MOST = 1200, MOST_SOURCES = 5 };

static const qdr_dtype types[] = {QDR_F32, QDR_BF16, QDR_F16};

/* Element i of source s of a sum of BF16. */
static float source_at(const qdri_kernel *k, int s, int64_t i)
{
    const int own = k->u.codec.own, message = s - (own >= 0 && s > own);
    const char *wire = (const char *)k->u.codec.sources + (size_t)message * k->u.codec.stride;
    uint16_t bits;
    if (s == own) return ((const float *)k->u.codec.x)[i];
    memcpy(&bits, wire + 2 * i, sizeof bits);
    return (float)narrow_value(QDR_BF16, bits);
}

/* Codecs of BF16, of which the CPU makes casts and sums. */
static void code_bf16(const qdri_kernel *k)
{
    uint16_t *wire = k->u.codec.wire;
    float *y = k->u.codec.y;
    for (int64_t i = 0; i < k->u.codec.n; i++) {
        float x = 0;
        if (k->kind == QDRI_K_ENCODE) x = ((const float *)k->u.codec.x)[i];
        if (k->kind == QDRI_K_DECODE) x = (float)narrow_value(QDR_BF16, wire[i]);
        if (k->kind == QDRI_K_DECODE && k->accumulate) x = y[i] + x;
        for (int s = 0; k->kind == QDRI_K_DECODE_SUM && s < k->u.codec.n_sources; s++)
            x = s ? x + source_at(k, s, i) : source_at(k, s, i);
        if (k->kind != QDRI_K_DECODE && wire) {
            wire[i] = narrow_bits(QDR_BF16, (double)x);
            x = (float)narrow_value(QDR_BF16, wire[i]);
        }
        if (y) y[i] = x;
    }
}

static kernel_test codec_test(qdri_kernel_kind kind, int round)
{
    static const int bits[] = {4, 8, 16, 0}, flags[] = {0, QDR_CODEC_HADAMARD, QDR_CODEC_STOCHASTIC, 7};
    kernel_test test = test_of(kind, types[round % 3]);
    const int64_t n = random_size(MOST);
    test.kernel.u.codec.n = n;
    test.kernel.u.codec.run = round % 2 ? 0 : test_between(&seed, 1, 300);
    test.kernel.u.codec.bits = bits[round / 3 % 4];
    test.kernel.u.codec.block = 32 << test_between(&seed, 0, 3);
    test.kernel.u.codec.flags = flags[test_between(&seed, 0, 3)];
    test.kernel.u.codec.seed = test_random(&seed);
    test.kernel.u.codec.own = -1;
    if (test.kernel.u.codec.bits) return test;
    test.kernel.dtype = QDR_F32;
    test.kernel.u.codec.block = 128;
    test.kernel.u.codec.flags = 0;
    test.on_cpu = code_bf16;
    return test;
}

/* Blocks of all sizes of numbers. */
static operand *add_elements(kernel_test *test, size_t where, qdr_dtype dtype, int64_t n)
{
    operand *o = add_random(test, where, dtype, n, -1, 1);
    for (int64_t i = 0; i < n; i++) {
        const int exponent = (int)((i / 37 * 29) % (dtype == QDR_F16 ? 20 : 200));
        set_value(dtype, o->data, i, ldexp(value_of(dtype, o->data, i), i % 5 ? -exponent : -exponent / 2));
    }
    return o;
}

/* A message of random elements, by the CPU. */
static void encode_message(const kernel_test *like, void *wire)
{
    qdri_kernel kernel = like->kernel;
    const int64_t n = kernel.u.codec.n;
    void *x = test_calloc((size_t)n + 1, 8);
    for (int64_t i = 0; i < n; i++) set_value(kernel.dtype, x, i, uniform(-2, 2));
    kernel.kind = QDRI_K_ENCODE;
    kernel.u.codec.x = x;
    kernel.u.codec.wire = wire;
    run_kernel_on_cpu(like, &kernel);
    test_free(x);
}

static void add_feedback(kernel_test *test)
{
    operand *o = add_elements(test, AT(codec.feedback), QDR_F32, test->kernel.u.codec.n);
    o->is_result = o->is_exact = 1;
}

/* Messages of integers may begin anywhere, those of BF16 where an element may. */
static operand *add_messages(kernel_test *test, size_t where, int64_t bytes)
{
    operand *o = add_operand(test, where, test->on_cpu ? QDR_BF16 : QDR_U8, test->on_cpu ? bytes / 2 : bytes);
    o->is_exact = 1;
    return o;
}

static operand *add_wire(kernel_test *test)
{
    return add_messages(test, AT(codec.wire), (int64_t)fake_message_bytes(&test->kernel));
}

TEST(encode)
{
    for (int round = 0; round < cases(N_ROUNDS); round++) {
        kernel_test test = codec_test(QDRI_K_ENCODE, round);
        add_elements(&test, AT(codec.x), test.kernel.dtype, test.kernel.u.codec.n);
        add_wire(&test)->is_result = 1;
        if (round % 3) add_feedback(&test);
        check_kernel(&test);
    }
}

TEST(decode)
{
    for (int round = 0; round < cases(N_ROUNDS); round++) {
        kernel_test test = codec_test(QDRI_K_DECODE, round);
        test.kernel.accumulate = round % 2;
        encode_message(&test, add_wire(&test)->data);
        add_result(&test, AT(codec.y), test.kernel.dtype, test.kernel.u.codec.n, round % 2, 0)->is_exact = 1;
        check_kernel(&test);
    }
}

TEST(decode_sum)
{
    for (int round = 0; round < cases(N_ROUNDS); round++) {
        kernel_test test = codec_test(QDRI_K_DECODE_SUM, round);
        const int n_sources = (int)test_between(&seed, 1, MOST_SOURCES);
        const int64_t bytes = (int64_t)fake_message_bytes(&test.kernel);
        const int64_t stride = bytes + test_between(&seed, 0, 10) * (test.on_cpu ? 2 : 1);
        test.kernel.u.codec.n_sources = n_sources;
        test.kernel.u.codec.own = (int)test_between(&seed, -1, n_sources - 1);
        test.kernel.u.codec.stride = (size_t)stride;
        char *messages = add_messages(&test, AT(codec.sources), stride * n_sources)->data;
        for (int i = 0; i < n_sources; i++) encode_message(&test, messages + stride * i);
        add_elements(&test, AT(codec.x), test.kernel.dtype, test.kernel.u.codec.n);
        if (round % 4) add_wire(&test)->is_result = 1;
        if (round % 4 > 1) add_feedback(&test);
        add_result(&test, AT(codec.y), test.kernel.dtype, test.kernel.u.codec.n, 0, 0)->is_exact = 1;
        check_kernel(&test);
    }
}

/* Memory that the host and the GPU see, of the given numbers. */
static void *managed(const void *from, size_t bytes)
{
    void *data = NULL;
    CHECK_CUDA(cudaMallocManaged(&data, bytes + 1, 1));
    memcpy(data, from, bytes);
    return data;
}

typedef struct several {
    qdri_code_part parts[2][QDRI_CODE_PARTS_MOST]; /* at once, and one by one */
} several;

static void add_part(const kernel_test *like, several *all, int i)
{
    kernel_test test = *like;
    qdri_kernel *k = &test.kernel;
    k->u.codec.n = test_between(&seed, 0, k->u.codec.n);
    k->u.codec.seed = test_random(&seed);
    const size_t bytes = fake_message_bytes(k), n = (size_t)k->u.codec.n;
    void *x = add_elements(&test, AT(codec.x), k->dtype, (int64_t)n)->data;
    void *feedback = add_elements(&test, AT(codec.feedback), QDR_F32, (int64_t)n)->data;
    void *wire = test_calloc(bytes + 1, 1);
    if (k->kind == QDRI_K_DECODE) encode_message(&test, wire);
    for (int way = 0; way < 2; way++)
        all->parts[way][i] = (qdri_code_part){.n = (int64_t)n,
                                              .seed = k->u.codec.seed,
                                              .x = managed(x, n * qdr_dtype_bytes(k->dtype)),
                                              .wire = managed(wire, bytes),
                                              .y = managed(x, n * qdr_dtype_bytes(k->dtype)),
                                              .feedback = i % 3 ? managed(feedback, n * sizeof(float)) : NULL};
    test_free(wire);
    test_free(feedback);
    test_free(x);
}

/* Several messages at once have the bits of each alone. */
TEST(parts)
{
    for (int round = 0; round < cases(N_ROUNDS / 3); round++) {
        static several all;
        const kernel_test test = codec_test(round % 2 ? QDRI_K_ENCODE : QDRI_K_DECODE, round / 2);
        const int n = (int)test_between(&seed, 1, QDRI_CODE_PARTS_MOST);
        for (int i = 0; i < n; i++) add_part(&test, &all, i);
        qdri_kernel kernel = test.kernel;
        kernel.u.codec.n_parts = n;
        kernel.u.codec.parts = all.parts[0];
        CHECK_CUDA(qdri_cuda_launch(&kernel, &target));
        kernel.u.codec.parts = all.parts[1];
        for (int i = 0; i < n; i++) {
            const qdri_kernel one = fake_code_part(&kernel, i);
            CHECK_CUDA(qdri_cuda_launch(&one, &target));
        }
        CHECK_CUDA(cudaStreamSynchronize(target.stream));
        for (int i = 0; i < n; i++) {
            const qdri_code_part *a = &all.parts[0][i], *b = &all.parts[1][i];
            const qdri_kernel one = fake_code_part(&kernel, i);
            assert_memory_equal(a->wire, b->wire, fake_message_bytes(&one));
            assert_memory_equal(a->y, b->y, (size_t)a->n * qdr_dtype_bytes(kernel.dtype));
            if (a->feedback) assert_memory_equal(a->feedback, b->feedback, (size_t)a->n * sizeof(float));
            for (int way = 0; way < 2; way++) {
                CHECK_CUDA(cudaFree((void *)(uintptr_t)all.parts[way][i].x));
                CHECK_CUDA(cudaFree(all.parts[way][i].wire));
                CHECK_CUDA(cudaFree(all.parts[way][i].y));
                CHECK_CUDA(cudaFree(all.parts[way][i].feedback));
            }
        }
    }
}

TEST(wrong_parts)
{
    float x[2] = {0}, wire[16];
    const qdri_code_part cases_of[] = {
        {.n = 2, .x = x, .wire = wire}, {.n = 3, .x = x, .wire = wire}, {.n = 2, .x = x}};
    static const qdr_status statuses[] = {QDR_OK, QDR_ERR_SHAPE, QDR_ERR_ARGUMENT};
    kernel_test test = codec_test(QDRI_K_ENCODE, 0);
    test.kernel.u.codec.n = 2;
    test.kernel.u.codec.n_parts = 1;
    for (int i = 0; i < 3; i++) {
        test.kernel.u.codec.parts = &cases_of[i];
        assert_int_equal(qdri_kernel_check(&test.kernel), statuses[i]);
    }
    test.kernel.u.codec.n_parts = QDRI_CODE_PARTS_MOST + 1;
    assert_int_equal(qdri_kernel_check(&test.kernel), QDR_ERR_SHAPE);
}

/* Blocks that are all zeros, or decode to NaN. */
TEST(special_numbers)
{
    static const double special[] = {0, -0.0, NAN, INFINITY, -INFINITY, 3e38, -3e38, 0x1p-130, 0x1p-101, 1};
    for (int round = 0; round < cases(N_ROUNDS); round++) {
        kernel_test test = codec_test(QDRI_K_ENCODE, round);
        if (test.on_cpu) continue; /* of the special numbers, a NaN of BF16 has many bits */
        test.kernel.u.codec.flags &= ~QDR_CODEC_HADAMARD;
        operand *x = add_elements(&test, AT(codec.x), test.kernel.dtype, test.kernel.u.codec.n);
        for (int64_t i = 0; i < x->n; i++)
            if (test_between(&seed, 0, 60) == 0) set_value(x->dtype, x->data, i, special[test_between(&seed, 0, 9)]);
        add_wire(&test)->is_result = 1;
        if (round % 3) {
            add_feedback(&test);
            test.operands[test.n - 1].is_exact = 0; /* Inf and NaN have many bits */
        }
        check_kernel(&test);
    }
}

int main(void) { return run_all_tests(open_devices, close_devices); }
