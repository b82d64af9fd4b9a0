/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels on elements and rows in every type, against long double references. */
#include "device.h"

static qdri_kernel kernel_of(qdri_kernel_kind kind, qdr_dtype dtype)
{
    return (qdri_kernel){.kind = kind, .dtype = dtype};
}

TEST(sums_of_mixed_types)
{
    for (int t = 0; t < N_TYPES * N_TYPES * N_SIZES; t++) {
        const int64_t n = odd_sizes[t / (N_TYPES * N_TYPES)];
        qdri_kernel k = kernel_of(QDRI_K_ADD, float_types[t % N_TYPES]);
        array a = make_random(k.dtype, n, 2);
        array b = make_random(float_types[t / N_TYPES % N_TYPES], n, 2);
        array y = make(k.dtype, n);
        k.u.binary.n = n;
        k.u.binary.a = a.data;
        k.u.binary.b = b.data;
        k.u.binary.y = y.data;
        k.u.binary.dtype2 = b.dtype;
        k.factor = (double)test_between(&seed, -4, 4) / 4; /* 0: 1 */
        run(&k);
        for (int64_t i = 0; i < n; i++) {
            const ref more = (k.factor == 0 ? 1 : (ref)k.factor) * get(&b, i), size = fabsl(get(&a, i)) + fabsl(more);
            check_near(&y, i, get(&a, i) + more, gamma_of(k.dtype, 3) * size, "add");
        }
        k.u.binary.y = a.data; /* in place: the same bits */
        run(&k);
        assert_memory_equal(a.data, y.data, (size_t)n * qdr_dtype_bytes(k.dtype));
        drop(&a);
        drop(&b);
        drop(&y);
    }
}

/* What `dtype` makes of a number that was computed in fp32, or for F64 in f64. */
static ref as_stored(qdr_dtype dtype, float single, double wide)
{
    if (dtype == QDR_F64) return (ref)wide;
    return is_narrow(dtype) ? (ref)narrow_value(dtype, narrow_bits(dtype, (double)single)) : (ref)single;
}

/* In the order of the parts, in the accumulation type, rounded once. */
TEST(parts_are_summed_in_order)
{
    enum { N_PARTS = 5 };
    for (int t = 0; t < N_TYPES * N_SIZES; t++) {
        const int64_t n = odd_sizes[t / N_TYPES];
        qdri_kernel k = kernel_of(QDRI_K_SUM_PARTS, float_types[t % N_TYPES]);
        array x = make_random(k.dtype, n * N_PARTS, 2);
        array y = make(k.dtype, n);
        k.u.parts.n = n;
        k.u.parts.n_parts = N_PARTS;
        k.u.parts.x = x.data;
        k.u.parts.y = y.data;
        run(&k);
        for (int64_t i = 0; i < n; i++) {
            double wide = (double)get(&x, i);
            float single = (float)wide;
            for (int part = 1; part < N_PARTS; part++) {
                wide += (double)get(&x, part * n + i);
                single += (float)get(&x, part * n + i);
            }
            assert_true(get(&y, i) == as_stored(k.dtype, single, wide));
        }
        drop(&x);
        drop(&y);
    }
}

/* Casts round once, to nearest even (those of f64 to two bytes by way of fp32); NaN, Inf and -0 survive. Among the
 * numbers are middles, those around F16's largest and its smallest. */
TEST(casts_round_once)
{
    static const double special[] = {NAN,         INFINITY,    -INFINITY, -0.0,    1.00390625,  1.01171875,
                                     1 + 0x1p-11, 1 + 0x3p-11, 3.4e38,    65519,   65520,       -65504,
                                     0x1p-25,     0x1.004p-25, -0x3p-25,  0x1p-14, 0x1.ffep-15, 0x1.ff8p-15};
    enum { N_SPECIAL = sizeof special / sizeof special[0] };
    for (int t = 0; t < N_TYPES * N_TYPES * N_SIZES; t++) {
        const int64_t n = odd_sizes[t / (N_TYPES * N_TYPES)];
        qdri_kernel k = kernel_of(QDRI_K_CAST, float_types[t % N_TYPES]);
        array a = make_random(k.dtype, n, 100);
        array y = make(float_types[t / N_TYPES % N_TYPES], n);
        for (int64_t i = 0; i < n && i < N_SPECIAL; i++) set(&a, i, special[i]);
        k.u.binary.n = n;
        k.u.binary.a = a.data;
        k.u.binary.y = y.data;
        k.u.binary.dtype2 = y.dtype;
        k.factor = y.dtype == a.dtype && n % 2 ? 0.5 : 0;
        run(&k);
        for (int64_t i = 0; i < n; i++) {
            const ref want = (k.factor == 0 ? 1 : 0.5L) * get(&a, i);
            const ref stored = as_stored(y.dtype, (float)want, (double)want);
            assert_true(isnan(want) ? isnan(get(&y, i)) : get(&y, i) == stored);
            assert_int_equal(signbit(get(&y, i)) != 0, signbit(want) != 0);
        }
        drop(&a);
        drop(&y);
    }
}

/* Rows of [n_rows, n_cols] with a vector or a table p, in both directions. */
static void run_rows(qdr_dtype dtype, int64_t n_rows, int64_t n_cols, int64_t context, int64_t row0)
{
    const int64_t p_rows = context ? context : 1;
    qdri_kernel k = kernel_of(context ? QDRI_K_POSITION_ADD : QDRI_K_BIAS_ADD, dtype);
    array x = make_random(dtype, n_rows * n_cols, 1);
    array y = copy_of(&x);
    array p = make_random(dtype, p_rows * n_cols, 1);
    k.u.rows.n_rows = n_rows;
    k.u.rows.n_cols = n_cols;
    k.u.rows.context = context;
    k.u.rows.row0 = row0;
    k.u.rows.x = x.data;
    k.u.rows.y = y.data;
    k.u.rows.p = p.data;
    run(&k);
    for (int64_t i = 0; i < n_rows * n_cols; i++) {
        const ref add = get(&p, (i / n_cols + row0) % p_rows * n_cols + i % n_cols);
        const ref size = fabsl(get(&x, i)) + fabsl(add);
        check_near(&y, i, get(&x, i) + add, gamma_of(dtype, 1) * size, "row + p");
    }
    k.kind = context ? QDRI_K_POSITION_SUM : QDRI_K_COLUMN_SUM;
    for (k.accumulate = 0; k.accumulate < 2; k.accumulate++) {
        array sums = make(sum_type(dtype), p_rows * n_cols);
        for (int64_t i = 0; k.accumulate && i < sums.n; i++) set(&sums, i, uniform(-1, 1));
        array before = copy_of(&sums);
        k.u.rows.p = sums.data;
        run(&k);
        for (int64_t i = 0; i < p_rows * n_cols; i++) {
            ref want = k.accumulate ? get(&before, i) : 0;
            ref size = fabsl(want);
            for (int64_t r = 0; r < n_rows; r++) {
                if ((r + row0) % p_rows != i / n_cols) continue;
                want += get(&x, r * n_cols + i % n_cols);
                size += fabsl(get(&x, r * n_cols + i % n_cols));
            }
            check_near(&sums, i, want, gamma_of(dtype, n_rows + 1) * size, "sum of rows");
        }
        drop(&sums);
        drop(&before);
    }
    drop(&x);
    drop(&y);
    drop(&p);
}

TEST(bias_and_positions)
{
    for (int t = 0; t < N_TYPES * N_SIZES; t++) {
        const int64_t n_rows = odd_sizes[test_between(&seed, 0, N_SIZES - 1)];
        run_rows(float_types[t % N_TYPES], n_rows, odd_sizes[t / N_TYPES], 0, 0);
        run_rows(float_types[t % N_TYPES], n_rows, odd_sizes[t / N_TYPES], test_between(&seed, 1, 20),
                 test_between(&seed, 0, 50));
    }
}

/* Rows of E [begin, end) for tokens inside and outside it, and sums of rows of dy. */
static void run_embed(qdr_dtype dtype, int64_t n_rows, int64_t n_cols, int64_t begin, int64_t end)
{
    qdri_kernel k = kernel_of(QDRI_K_EMBED_FORWARD, dtype);
    const int64_t n_e = (end - begin) * n_cols;
    array e = make_random(dtype, n_e, 1);
    array y = make(dtype, n_rows * n_cols);
    int32_t *tokens = make_tokens(n_rows, -2, 12);
    k.u.embed.n_rows = n_rows;
    k.u.embed.n_cols = n_cols;
    k.u.embed.begin = begin;
    k.u.embed.end = end;
    k.u.embed.tokens = tokens;
    k.u.embed.e = e.data;
    k.u.embed.y = y.data;
    k.factor = test_between(&seed, 0, 1) ? uniform(-2, 2) : 0;
    const ref factor = k.factor == 0 ? 1 : (ref)k.factor;
    run(&k);
    for (int64_t i = 0; i < n_rows * n_cols; i++) {
        const int64_t token = tokens[i / n_cols];
        const int here = token >= 0 && token >= begin && token < end;
        const ref want = here ? factor * get(&e, (token - begin) * n_cols + i % n_cols) : 0;
        if (factor == 1)
            assert_true(get(&y, i) == want);
        else
            check_near(&y, i, want, gamma_of(dtype, 2) * fabsl(want), "embed");
    }
    k.kind = QDRI_K_EMBED_BACKWARD;
    k.u.embed.dy = y.data;
    for (k.accumulate = 0; k.accumulate < 2; k.accumulate++) {
        array de = make(sum_type(dtype), n_e);
        for (int64_t i = 0; k.accumulate && i < n_e; i++) set(&de, i, uniform(-1, 1));
        array before = copy_of(&de);
        k.u.embed.de = de.data;
        run(&k);
        for (int64_t i = 0; i < n_e; i++) {
            ref want = k.accumulate ? get(&before, i) : 0;
            ref size = fabsl(want);
            for (int64_t r = 0; r < n_rows; r++) {
                if (tokens[r] < 0 || tokens[r] - begin != i / n_cols) continue;
                want += factor * get(&y, r * n_cols + i % n_cols);
                size += fabsl(factor * get(&y, r * n_cols + i % n_cols));
            }
            check_near(&de, i, want, gamma_of(dtype, n_rows + 3) * size, "dE");
        }
        drop(&de);
        drop(&before);
    }
    drop(&e);
    drop(&y);
    memory_drop(tokens);
}

TEST(embedding_looks_up_and_sums)
{
    for (int t = 0; t < N_TYPES * N_SIZES; t++) {
        const int64_t begin = test_between(&seed, 0, 5);
        run_embed(float_types[t % N_TYPES], odd_sizes[test_between(&seed, 0, N_SIZES - 1)], odd_sizes[t / N_TYPES],
                  begin, begin + test_between(&seed, 0, 7));
    }
}

TEST(blocks_are_copied)
{
    enum { BYTES = 17 };
    char *from = memory_new(BYTES), *to = memory_new(BYTES);
    qdri_kernel k = kernel_of(QDRI_K_COPY_BLOCK, QDR_U8);
    memcpy(from, "abcdefghijklmnop", BYTES);
    memcpy(to, "----------------", BYTES);
    k.u.block.n_rows = 3;
    k.u.block.row_bytes = 2;
    k.u.block.x_stride = 5;
    k.u.block.y_stride = 3;
    k.u.block.x = from;
    k.u.block.y = to;
    run(&k);
    assert_string_equal(to, "ab-fg-kl--------");
    k.u.block.x_stride = 1;
    CHECK_FAILS(qdri_kernel_run(stream, &k), QDR_ERR_SHAPE, "strides of 1 and 3");
    memory_drop(from);
    memory_drop(to);
}

TEST(bad_kernels_are_refused)
{
    float x[4] = {0};
    qdri_kernel k = kernel_of(QDRI_K_ADD, QDR_F32);
    CHECK_FAILS(qdri_kernel_run(stream, NULL), QDR_ERR_ARGUMENT, "NULL");
    k.u.binary.n = 4;
    k.u.binary.a = x;
    k.u.binary.y = x;
    CHECK_FAILS(qdri_kernel_run(stream, &k), QDR_ERR_ARGUMENT, "b is NULL");
    k.u.binary.b = x;
    k.u.binary.n = -1;
    CHECK_FAILS(qdri_kernel_run(stream, &k), QDR_ERR_SHAPE, "-1");
    k.u.binary.n = 4;
    k.u.binary.dtype2 = QDR_U8;
    CHECK_FAILS(qdri_kernel_run(stream, &k), QDR_ERR_DTYPE, "u8");
    k.dtype = QDR_I32;
    CHECK_FAILS(qdri_kernel_run(stream, &k), QDR_ERR_DTYPE, "i32");
    k = kernel_of(QDRI_K_SUM_PARTS, QDR_F32);
    CHECK_FAILS(qdri_kernel_run(stream, &k), QDR_ERR_SHAPE, "0 parts");
    k = kernel_of(QDRI_N_KERNELS, QDR_F32);
    CHECK_FAILS(qdri_kernel_run(stream, &k), QDR_ERR_ARGUMENT, "no kernel");
    k = kernel_of(QDRI_K_POSITION_ADD, QDR_F32);
    CHECK_FAILS(qdri_kernel_run(stream, &k), QDR_ERR_SHAPE, "context 0");
    assert_int_equal(qdri_dev_status(device), QDR_OK);
}

int main(void) { return run_each_set(); }
