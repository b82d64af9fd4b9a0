/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's element-wise and row kernels, AdamW, copies and reductions, compared with the CPU's. */
#include "kernels.h"

enum { N_ROUNDS = 40 };

static void binary(qdri_kernel_kind kind, qdr_dtype dtype, qdr_dtype dtype2, int64_t n)
{
    kernel_test test = test_of(kind, dtype);
    const int is_cast = kind == QDRI_K_CAST;
    test.kernel.u.binary.n = n;
    test.kernel.u.binary.dtype2 = dtype2;
    add_random(&test, AT(binary.a), dtype, n, -12, 12);
    if (kind == QDRI_K_ADD) add_random(&test, AT(binary.b), dtype2, n, -2, 2);
    if (!is_cast || dtype == dtype2) test.kernel.factor = 0.75 * (double)test_between(&seed, 0, 1);
    /* one side may round the product of a sum, at most 1.5 */
    const double bound = is_cast || test.kernel.factor == 0 ? 0 : roundings(dtype, 1);
    add_result(&test, AT(binary.y), is_cast ? dtype2 : dtype, n, 0, bound);
    check_kernel(&test);
}

TEST(elements)
{
    for (int round = 0; round < cases(N_ROUNDS); round++) {
        for (int t = 0; t < N_TYPES; t++) {
            const int64_t n = random_size(2000);
            for (int t2 = 0; t2 < N_TYPES; t2++) {
                binary(QDRI_K_ADD, float_types[t], float_types[t2], n);
                binary(QDRI_K_CAST, float_types[t], float_types[t2], n);
            }
        }
    }
}

/* The argument of an exp is off by 5u of at most 160, exp, tail and quotient by 20u; the factors are at most 2, slopes
 * but ReLU's 1.13, and what is large is nearly exact. */
static void activation(qdri_kernel_kind kind, qdr_dtype dtype, qdr_activation_function function, int gated)
{
    kernel_test test = test_of(kind, dtype);
    const int64_t n_cols = random_size(1030), n = n_cols * random_size(n_cols > 100 ? 7 : 100), n_in = n * (1 + gated);
    const double bound = 4 * roundings(dtype, 20);
    test.kernel.u.activation.n_rows = n_cols ? n / n_cols : 0;
    test.kernel.u.activation.n_cols = n_cols;
    test.kernel.u.activation.function = function;
    test.kernel.u.activation.gated = gated;
    test.kernel.accumulate = (int)test_between(&seed, 0, 1);
    operand *x = add_random(&test, AT(activation.x), dtype, n_in, -12, 12);
    for (int64_t i = 0; i < n_in && gated; i++) /* what the gate multiplies */
        if (i / n_cols % 2) set_value(dtype, x->data, i, uniform(-2, 2));
    if (kind == QDRI_K_ACTIVATION_FORWARD) {
        add_result(&test, AT(activation.y), dtype, n, 0, bound);
    } else {
        add_random(&test, AT(activation.dy), dtype, n, -2, 2);
        add_result(&test, AT(activation.dx), dtype, n_in, test.kernel.accumulate, bound);
    }
    check_kernel(&test);
}

TEST(activations)
{
    for (int round = 0; round < cases(8 * N_ROUNDS * N_TYPES); round++) {
        const qdr_activation_function function = (qdr_activation_function)(round / N_TYPES % QDRI_N_ACTIVATIONS);
        const int gated = (int)test_between(&seed, 0, 1);
        activation(QDRI_K_ACTIVATION_FORWARD, float_types[round % N_TYPES], function, gated);
        activation(QDRI_K_ACTIVATION_BACKWARD, float_types[round % N_TYPES], function, gated);
    }
}

TEST(parts)
{
    for (int round = 0; round < cases(N_ROUNDS * N_TYPES); round++) {
        kernel_test test = test_of(QDRI_K_SUM_PARTS, float_types[round % N_TYPES]);
        const int64_t n = random_size(1000), n_parts = test_between(&seed, 1, 9);
        test.kernel.u.parts.n = n;
        test.kernel.u.parts.n_parts = (int)n_parts;
        add_random(&test, AT(parts.x), test.kernel.dtype, n * n_parts, -2, 2);
        add_result(&test, AT(parts.y), test.kernel.dtype, n, 0, 0);
        check_kernel(&test);
    }
}

static void rows(qdri_kernel_kind kind, qdr_dtype dtype, int64_t n_rows, int64_t n_cols)
{
    kernel_test test = test_of(kind, dtype);
    const int64_t context = test_between(&seed, 1, 40);
    const int is_sum = kind == QDRI_K_COLUMN_SUM || kind == QDRI_K_POSITION_SUM;
    const int has_positions = kind == QDRI_K_POSITION_ADD || kind == QDRI_K_POSITION_SUM;
    const int64_t n = n_cols * (has_positions ? context : 1);
    test.kernel.u.rows.n_rows = n_rows;
    test.kernel.u.rows.n_cols = n_cols;
    test.kernel.u.rows.row0 = test_between(&seed, 0, 100);
    test.kernel.u.rows.context = context;
    test.kernel.accumulate = (int)test_between(&seed, 0, 1);
    if (is_sum) {
        add_random(&test, AT(rows.x), dtype, n_rows * n_cols, -1, 1);
        add_result(&test, AT(rows.p), sum_type(dtype), n, test.kernel.accumulate,
                   roundings(dtype, n_rows) * (double)(n_rows + 1));
    } else {
        add_random(&test, AT(rows.p), dtype, n, -1, 1);
        add_result(&test, AT(rows.y), dtype, n_rows * n_cols, 1, 0);
    }
    check_kernel(&test);
}

TEST(rows_of_all_kinds)
{
    static const qdri_kernel_kind kinds[] = {QDRI_K_BIAS_ADD, QDRI_K_COLUMN_SUM, QDRI_K_POSITION_ADD,
                                             QDRI_K_POSITION_SUM};
    for (int round = 0; round < cases(N_ROUNDS * 4 * N_TYPES); round++) {
        const int64_t n_cols = random_size(1030);
        rows(kinds[round % 4], float_types[round / 4 % N_TYPES], random_size(n_cols > 100 ? 40 : 1000), n_cols);
    }
    rows(QDRI_K_COLUMN_SUM, QDR_BF16, 3000, 40); /* many parts */
    rows(QDRI_K_COLUMN_SUM, QDR_F64, 20, 70000); /* no room for many */
}

TEST(squares)
{
    for (int round = 0; round < cases(N_ROUNDS * N_TYPES); round++) {
        kernel_test test = test_of(QDRI_K_SUM_SQUARES, float_types[round % N_TYPES]);
        const int64_t n = round < N_TYPES ? 50000 + round : random_size(3000);
        test.kernel.u.reduce.n = n;
        test.kernel.accumulate = (int)test_between(&seed, 0, 1);
        add_random(&test, AT(reduce.a), test.kernel.dtype, n, -2, 2);
        add_result(&test, AT(reduce.result), QDR_F64, 1, test.kernel.accumulate,
                   roundings(QDR_F64, n) * 4 * (double)(n + 1));
        check_kernel(&test);
    }
}

enum { N_NUMBERS = sizeof(qdri_adamw_numbers) / sizeof(double) };

static void adamw_rate(void)
{
    kernel_test test = test_of(QDRI_K_ADAMW_RATE, QDR_F32);
    add_result(&test, AT(adamw.numbers), QDR_F64, N_NUMBERS, 1, 0);
    test.kernel.u.adamw.lr = uniform(0, 1);
    check_kernel(&test);
}

static void adamw_begin_on(qdr_dtype dtype, double norm_squared)
{
    kernel_test test = test_of(QDRI_K_ADAMW_BEGIN, dtype);
    operand *numbers = add_result(&test, AT(adamw.numbers), QDR_F64, N_NUMBERS, 1, 0x1p-49);
    const qdri_adamw_numbers step = {.norm_squared = norm_squared,
                                     .n_begun = 7,
                                     .n_steps = (double)test_between(&seed, 0, 5),
                                     .lr = 0.5,
                                     .factor = 1,
                                     .correction1 = 2,
                                     .correction2 = 3};
    memcpy(numbers->data, &step, sizeof step);
    test.kernel.u.adamw.beta1 = 0.9;
    test.kernel.u.adamw.beta2 = 0.95;
    test.kernel.u.adamw.clip_norm = (double)test_between(&seed, 0, 3);
    test.kernel.u.adamw.grad_scale = ldexp(1, (int)test_between(&seed, 0, 12));
    test.kernel.u.adamw.skips = (int)test_between(&seed, 0, 1);
    check_kernel(&test);
}

static void adamw_on(qdr_dtype dtype, int64_t n, int is_skipped)
{
    kernel_test test = test_of(QDRI_K_ADAMW, dtype);
    const qdr_dtype sums = sum_type(dtype);
    const double bound = roundings(dtype, 20) * 4;
    test.kernel.u.adamw.n = n;
    test.kernel.u.adamw.beta1 = 0.9;
    test.kernel.u.adamw.beta2 = 0.95;
    test.kernel.u.adamw.epsilon = 1e-8;
    test.kernel.u.adamw.weight_decay = 0.1;
    operand *numbers = add_operand(&test, AT(adamw.numbers), QDR_F64, N_NUMBERS);
    const qdri_adamw_numbers step = {.norm_squared = 9,
                                     .n_steps = (double)test_between(&seed, 1, 2),
                                     .lr = 0.01,
                                     .factor = uniform(0.1, 1),
                                     .correction1 = is_skipped ? 0 : 1 / (1 - 0.9 * 0.9),
                                     .correction2 = 1 / (1 - 0.95 * 0.95)};
    memcpy(numbers->data, &step, sizeof step);
    add_random(&test, AT(adamw.g), sums, n, -1, 1);
    add_result(&test, AT(adamw.p), dtype, n, 1, bound);
    add_result(&test, AT(adamw.m), sums, n, 1, bound);
    operand *v = add_result(&test, AT(adamw.v), sums, n, 1, bound);
    for (int64_t i = 0; i < n; i++) set_value(sums, v->data, i, uniform(0.01, 1));
    if (is_narrow(dtype)) add_result(&test, AT(adamw.master), QDR_F32, n, 1, bound);
    check_kernel(&test);
}

/* Two ranks whose rates differ by one bit: noted, once, and the step does nothing. */
TEST(rates_are_compared)
{
    for (int differ = 0; differ < 2; differ++) {
        qdri_adamw_numbers *numbers = NULL;
        qdri_kernel kernel = {.kind = QDRI_K_ADAMW_BEGIN, .dtype = QDR_F32};
        CHECK_CUDA(cudaMallocManaged((void **)&numbers, sizeof *numbers, cudaMemAttachGlobal));
        *numbers = (qdri_adamw_numbers){.norm_squared = 4, .lr = 0.5};
        numbers->rate[0] = differ;
        numbers->rate_squared[0] = differ;
        numbers->rate[3] = 2 * 0x3fe0; /* of 0.5 */
        numbers->rate_squared[3] = 2.0 * 0x3fe0 * 0x3fe0;
        kernel.u.adamw.numbers = numbers;
        kernel.u.adamw.grad_scale = 1;
        kernel.u.adamw.n_ranks = 2;
        CHECK_CUDA(qdri_cuda_launch(&kernel, &target));
        CHECK_CUDA(cudaStreamSynchronize(target.stream));
        assert_int_equal(target.fault->found, differ);
        assert_true(!differ || (target.fault->kind == QDRI_FAULT_RATE && target.fault->lr == 0.5));
        assert_true((numbers->correction1 == 0) == differ && numbers->n_steps == !differ);
        assert_true(numbers->rate[0] == 0 && numbers->rate[3] == 0x3fe0);
        *target.fault = (qdri_cuda_fault){0};
        CHECK_CUDA(cudaFree(numbers));
    }
}

TEST(optimizer)
{
    adamw_rate();
    for (int round = 0; round < cases(N_ROUNDS * N_TYPES); round++)
        adamw_on(float_types[round % N_TYPES], random_size(2000), round % 7 == 0);
    for (int round = 0; round < cases(N_ROUNDS * N_TYPES); round++) {
        const double norms[] = {NAN, INFINITY, uniform(0, 9), uniform(0, 1e6)};
        adamw_begin_on(float_types[round % N_TYPES], norms[test_between(&seed, 0, 3)]);
    }
}

TEST(blocks)
{
    for (int round = 0; round < cases(6 * N_ROUNDS); round++) {
        kernel_test test = test_of(QDRI_K_COPY_BLOCK, QDR_U8);
        const size_t unit = (size_t)1 << test_between(&seed, 0, 5);
        const int64_t n_rows = random_size(40);
        const size_t bytes = (size_t)random_size(300) * unit;
        test.kernel.u.block.n_rows = n_rows;
        test.kernel.u.block.row_bytes = bytes;
        test.kernel.u.block.x_stride = bytes + unit * (size_t)test_between(&seed, 0, 3);
        test.kernel.u.block.y_stride = bytes + unit * (size_t)test_between(&seed, 0, 3);
        operand *x = add_operand(&test, AT(block.x), QDR_U8, n_rows * (int64_t)test.kernel.u.block.x_stride);
        for (int64_t i = 0; i < x->n; i++) ((unsigned char *)x->data)[i] = (unsigned char)test_random(&seed);
        add_result(&test, AT(block.y), QDR_U8, n_rows * (int64_t)test.kernel.u.block.y_stride, 0, 0);
        check_kernel(&test);
    }
}

int main(void) { return run_all_tests(open_devices, close_devices); }
