/* SPDX-License-Identifier: Apache-2.0 */
/* Products whose factors are rounded to fp8: the rounding itself is compared with a search over all codes, the products
 * with long double sums of factors rounded by that search. */
#include "dev/cpu/narrow.h"
#include "device.h"
#include "fp8.h"

static const qdri_rounding roundings[] = {QDRI_E4M3, QDRI_E5M2};

/* ---- the rounding of the CPU ---- */

static void check_nearest(qdri_rounding rounding, float x)
{
    const double want = fp8_nearest(rounding, (double)x);
    const float got = qdri_fp8_nearest(rounding, x);
    if (isnan(want) && isnan(got)) return;
    if (want == (double)got && !signbit(want) == !signbit(got)) return;
    print_error("way %d: %a gives %a, not %a\n", (int)rounding, (double)x, (double)got, want);
    fail();
}

TEST(codes_stay_what_they_are)
{
    for (int i = 0; i < 2; i++)
        for (int code = 0; code < 256; code++) {
            const double value = fp8_value(roundings[i], code);
            const float got = qdri_fp8_nearest(roundings[i], (float)value);
            assert_true(isnan(value) ? isnan(got) : (double)got == value);
            assert_true(isnan(value) || !signbit(got) == !signbit(value));
        }
}

/* The midpoints between neighbours, and the floats next to them. */
TEST(middles_go_to_the_even_one)
{
    for (int i = 0; i < 2; i++)
        for (int code = 0; code < 0x7f; code++) {
            const double low = fp8_value(roundings[i], code), high = fp8_value(roundings[i], code + 1);
            const float middle = (float)(0.5 * (low + high));
            if (!isfinite(high)) continue;
            check_nearest(roundings[i], middle);
            check_nearest(roundings[i], -middle);
            check_nearest(roundings[i], nextafterf(middle, 0));
            check_nearest(roundings[i], nextafterf(middle, INFINITY));
        }
}

TEST(numbers_go_to_the_nearest)
{
    static const float ends[] = {0.0f,     -0.0f, 448.0f, 449.0f, 464.0f, 480.0f,   57344.0f,  61440.0f,
                                 65536.0f, 3e38f, -3e38f, 1e-45f, 1e-30f, INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 2; i++) {
        for (size_t j = 0; j < sizeof ends / sizeof *ends; j++) check_nearest(roundings[i], ends[j]);
        for (int j = 0; j < 20000; j++)
            check_nearest(roundings[i], (float)ldexp(uniform(-1, 1), (int)test_between(&seed, -20, 18)));
        for (int j = 0; j < 2000; j++) check_nearest(roundings[i], qdri_float_of_bits((uint32_t)test_random(&seed)));
    }
}

TEST(scales_bring_the_largest_in)
{
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 20000; j++) {
            const uint32_t bits = (uint32_t)test_random(&seed) & 0x7fffffffu;
            const int exponent = qdri_fp8_scale_exponent(roundings[i], bits);
            const double most = (double)qdri_float_of_bits(bits);
            assert_true(ldexp(1, exponent) == fp8_scale(roundings[i], most));
        }
}

/* ---- products ---- */

#define SKIP_OLD_GPU()                                                                                                 \
    do {                                                                                                               \
        if (qdri_dev_check_rounding(device) != QDR_OK) skip();                                                         \
    } while (0)

typedef struct fp8_case {
    int64_t m, n, k;
    int trans_a, trans_b, a_exponent, b_exponent, is_even; /* even: rows of C in units of 16 bytes */
    double alpha, beta;
    qdr_dtype dtype, c_dtype;
    qdri_rounding round_a, round_b;
} fp8_case;

/* make() and drop() know no boundaries; this is one of 16 bytes, or of one element. */
typedef struct placed {
    array room, data;
} placed;

static placed make_placed(qdr_dtype dtype, int64_t n, int is_aligned)
{
    const int64_t each = (int64_t)qdr_dtype_bytes(dtype), skipped = is_aligned ? 16 / each - 1 : 0;
    const array room = make(dtype, n + skipped);
    const placed p = {room, {dtype, n, (char *)room.data + skipped * each}};
    assert_true(!is_aligned || (uintptr_t)p.data.data % 16 == 0);
    return p;
}

/* A factor: as stored, and rounded; by columns and rows of what is multiplied. */
typedef struct factor {
    array room, stored, rounded; /* stored lies in room */
    qdri_rounding rounding;
    int64_t n_rows, n_cols, stride; /* as stored */
    int trans;
    double scale;
} factor;

static void round_factor(factor *f)
{
    double most = 0;
    for (int64_t r = 0; r < f->n_rows; r++)
        for (int64_t c = 0; c < f->n_cols; c++) {
            const double size = (double)fabsl(get(&f->stored, r * f->stride + c));
            most = size > most || isnan(size) ? size : most;
        }
    f->scale = fp8_scale(f->rounding, most);
    f->rounded = make(QDR_F64, f->stored.n);
    for (int64_t r = 0; r < f->n_rows; r++)
        for (int64_t c = 0; c < f->n_cols; c++) {
            const int64_t at = r * f->stride + c;
            const double x = (double)get(&f->stored, at);
            set(&f->rounded, at, fp8_nearest(f->rounding, x * f->scale) / f->scale);
        }
}

/* Of op(A)[m,k] or op(B)[k,n]. Numbers of many sizes, as those of gradients; the gaps between rows are NaN. */
static factor make_factor(qdr_dtype dtype, int64_t n_rows, int64_t n_cols, int trans, int exponent,
                          qdri_rounding rounding)
{
    factor f = {.rounding = rounding, .trans = trans};
    f.n_rows = trans ? n_cols : n_rows;
    f.n_cols = trans ? n_rows : n_cols;
    f.stride = f.n_cols + test_between(&seed, 0, 1) * test_between(&seed, 0, 17);
    const placed p = make_placed(dtype, f.n_rows * f.stride, (int)test_between(&seed, 0, 1));
    f.room = p.room;
    f.stored = p.data;
    for (int64_t r = 0; r < f.n_rows; r++)
        for (int64_t c = 0; c < f.n_cols; c++)
            set(&f.stored, r * f.stride + c, ldexp(uniform(-1, 1), exponent - (int)test_between(&seed, 0, 20)));
    round_factor(&f);
    return f;
}

static void drop_factor(factor *f)
{
    drop(&f->room);
    drop(&f->rounded);
}

static int64_t place_of(const factor *f, int64_t row, int64_t col)
{
    return f->trans ? col * f->stride + row : row * f->stride + col;
}

/* How far rounding may move x: half a step, relative to x or that of the smallest numbers. */
static ref rounding_error(const factor *f, ref x)
{
    const ref share = ldexpl(1, -fp8_fraction(f->rounding) - 1);
    return share * fabsl(x) + ldexpl(1, fp8_lowest(f->rounding) - 1) / (ref)f->scale;
}

/* Tensor cores of Hopper keep some 14 bits of sums before they add them up in fp32. */
static ref hardware_error(void)
{
    const char *plugin = getenv("QDR_CUDA_PLUGIN");
    return on_cuda() && !(plugin && strstr(plugin, "fake")) ? 0x1p-8L : 0;
}

/* The rounded factors' product, up to roundings of its sum; and that of those that were given, up to what their
 * rounding may do. */
static void check_element(const qdri_gemm *g, const factor *a, const factor *b, ref old, const array *c, int64_t i,
                          int64_t j)
{
    ref sum = 0, size = 0, exact = 0, moved = 0;
    for (int64_t l = 0; l < g->k; l++) {
        const int64_t at_a = place_of(a, i, l), at_b = place_of(b, l, j);
        const ref x = get(&a->rounded, at_a), y = get(&b->rounded, at_b);
        const ref x0 = get(&a->stored, at_a), y0 = get(&b->stored, at_b);
        const ref dx = rounding_error(a, x0), dy = rounding_error(b, y0);
        sum += x * y;
        size += fabsl(x * y);
        exact += x0 * y0;
        moved += fabsl(x0) * dy + dx * fabsl(y0) + dx * dy;
    }
    const ref alpha = (ref)g->alpha, bound = (gamma_of(g->dtype, g->k + 3) + hardware_error()) * fabsl(alpha) * size +
                                             gamma_of(g->dtype, g->k + 3) * fabsl(old);
    const ref stored = g->beta != 0 && on_cuda() ? storing_error(g->c_dtype, alpha * sum, bound)
                                                 : 0; /* before adding */
    check_near(c, i * g->ldc + j, alpha * sum + old, bound + stored, "rounded product");
    check_near(c, i * g->ldc + j, alpha * exact + old, bound + stored + fabsl(alpha) * moved, "product");
}

static void run_case(const fp8_case *t)
{
    qdri_gemm g = {.m = t->m,
                   .n = t->n,
                   .k = t->k,
                   .trans_a = t->trans_a,
                   .trans_b = t->trans_b,
                   .alpha = t->alpha,
                   .beta = t->beta,
                   .dtype = t->dtype,
                   .c_dtype = t->c_dtype,
                   .round_a = t->round_a,
                   .round_b = t->round_b};
    factor a = make_factor(t->dtype, t->m, t->k, t->trans_a, t->a_exponent, t->round_a);
    factor b = make_factor(t->dtype, t->k, t->n, t->trans_b, t->b_exponent, t->round_b);
    g.ldc = t->n + test_between(&seed, 0, 1) * (t->is_even ? 16 : test_between(&seed, 0, 9));
    const placed p = make_placed(t->c_dtype, t->m * g.ldc, t->is_even);
    const array c = p.data;
    array room = p.room, before = make_random(t->c_dtype, t->m * g.ldc, 1);
    g.a = a.stored.data;
    g.b = b.stored.data;
    g.c = c.data;
    g.lda = a.stride;
    g.ldb = b.stride;
    if (t->beta != 0) memcpy(c.data, before.data, (size_t)c.n * qdr_dtype_bytes(c.dtype));
    CHECK_OK(qdri_gemm_run(stream, &g));
    CHECK_OK(qdri_stream_synchronize(stream));
    for (int64_t i = 0; i < g.m; i++)
        for (int64_t j = 0; j < g.n; j++) {
            const ref old = g.beta == 0 ? 0 : (ref)g.beta * get(&before, i * g.ldc + j);
            check_element(&g, &a, &b, old, &c, i, j);
        }
    drop_factor(&a);
    drop_factor(&b);
    drop(&room);
    drop(&before);
}

static const struct {
    qdr_dtype dtype, c_dtype;
    qdri_rounding round_a, round_b;
} kinds[] = {{QDR_BF16, QDR_BF16, QDRI_E4M3, QDRI_E4M3}, {QDR_BF16, QDR_BF16, QDRI_E5M2, QDRI_E4M3},
             {QDR_BF16, QDR_F32, QDRI_E5M2, QDRI_E4M3},  {QDR_BF16, QDR_F32, QDRI_E4M3, QDRI_E5M2},
             {QDR_F32, QDR_F32, QDRI_E4M3, QDRI_E4M3},   {QDR_F32, QDR_F32, QDRI_E5M2, QDRI_E4M3}};
enum { N_KINDS = 6 };

static void run_kind(int kind, int64_t m, int64_t n, int64_t k, int is_even)
{
    static const double factors[] = {0.0, 1.0, -0.5};
    const fp8_case t = {.m = m,
                        .n = n,
                        .k = k,
                        .trans_a = (int)test_between(&seed, 0, 1),
                        .trans_b = (int)test_between(&seed, 0, 1),
                        .a_exponent = (int)test_between(&seed, -50, 50),
                        .b_exponent = (int)test_between(&seed, -50, 50),
                        .alpha = factors[test_between(&seed, 1, 2)],
                        .beta = factors[test_between(&seed, 0, 2)],
                        .is_even = is_even,
                        .dtype = kinds[kind].dtype,
                        .c_dtype = kinds[kind].c_dtype,
                        .round_a = kinds[kind].round_a,
                        .round_b = kinds[kind].round_b};
    run_case(&t);
}

TEST(products_of_odd_sizes)
{
    SKIP_OLD_GPU();
    for (int round = 0; round < 60; round++)
        for (int kind = 0; kind < N_KINDS; kind++)
            run_kind(kind, odd_sizes[test_between(&seed, 0, 11)], odd_sizes[test_between(&seed, 0, 11)],
                     odd_sizes[test_between(&seed, 0, N_SIZES - 1)], 0);
}

/* Those that cuBLASLt has at once: C in units of 16 bytes, any m and k. */
TEST(products_of_even_sizes)
{
    SKIP_OLD_GPU();
    for (int round = 0; round < 40; round++)
        for (int kind = 0; kind < N_KINDS; kind++)
            run_kind(kind, odd_sizes[test_between(&seed, 1, 13)], 16 * test_between(&seed, 1, 5),
                     odd_sizes[test_between(&seed, 1, N_SIZES - 1)], 1);
}

/* More than one panel of the CPU's conversion. */
TEST(products_of_several_panels)
{
    SKIP_OLD_GPU();
    run_kind(0, 515, 3, 1030, 0);
    run_kind(2, 3, 1029, 514, 0);
    run_kind(5, 16, 528, 1040, 1);
}

/* Sizes at both ends of fp32, and one factor of zeros. */
TEST(products_of_huge_and_tiny_factors)
{
    static const int exponents[][2] = {{127, -120}, {-126, 120}, {-140, 100}, {120, -110}};
    SKIP_OLD_GPU();
    for (int i = 0; i < 4; i++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            fp8_case t = {.is_even = kind % 2,
                          .m = 16,
                          .n = 32,
                          .k = 17,
                          .a_exponent = exponents[i][0],
                          .b_exponent = exponents[i][1],
                          .alpha = 1,
                          .dtype = kinds[kind].dtype,
                          .c_dtype = kinds[kind].c_dtype,
                          .round_a = kinds[kind].round_a,
                          .round_b = kinds[kind].round_b};
            run_case(&t);
            t.a_exponent = -2000;
            run_case(&t);
        }
}

/* What is not finite comes out, and only where it went in. */
TEST(products_hide_nothing)
{
    SKIP_OLD_GPU();
    for (int size = 3; size <= 16; size += 13)
        for (int kind = 0; kind < N_KINDS; kind++)
            for (int bad = 0; bad < 4; bad++) {
                array a = make_random(kinds[kind].dtype, size * size, 1);
                array b = make_random(kinds[kind].dtype, size * size, 1);
                placed room = make_placed(kinds[kind].c_dtype, size * size, size == 16);
                const array c = room.data;
                const qdri_gemm g = {.m = size,
                                     .n = size,
                                     .k = size,
                                     .a = a.data,
                                     .b = b.data,
                                     .c = c.data,
                                     .lda = size,
                                     .ldb = size,
                                     .ldc = size,
                                     .alpha = 1,
                                     .dtype = kinds[kind].dtype,
                                     .c_dtype = kinds[kind].c_dtype,
                                     .round_a = kinds[kind].round_a,
                                     .round_b = kinds[kind].round_b};
                set(bad < 2 ? &a : &b, size + 1, (double)(bad % 2 ? INFINITY : NAN));
                CHECK_OK(qdri_gemm_run(stream, &g));
                CHECK_OK(qdri_stream_synchronize(stream));
                for (int i = 0; i < size * size; i++) {
                    const int is_bad = bad < 2 ? i / size == 1 : i % size == 1;
                    assert_int_equal(!isfinite((double)get(&c, i)), is_bad);
                }
                drop(&a);
                drop(&b);
                drop(&room.room);
            }
}

static void *run_into(const qdri_gemm *like, int64_t n, void *c)
{
    qdri_gemm g = *like;
    g.m = g.n = g.k = g.lda = g.ldb = g.ldc = n;
    g.c = c;
    CHECK_OK(qdri_gemm_run(stream, &g));
    return c;
}

/* A recorded product keeps its memory when a larger one takes more. */
static void run_recorded(void)
{
    enum { SMALL = 16, LARGE = 80 };
    array x = make_random(QDR_BF16, LARGE * LARGE, 1);
    array once = make(QDR_F32, SMALL * SMALL), again = make(QDR_F32, SMALL * SMALL);
    array large = make(QDR_F32, LARGE * LARGE);
    const qdri_gemm like = {.alpha = 1,
                            .a = x.data,
                            .b = x.data,
                            .dtype = QDR_BF16,
                            .c_dtype = QDR_F32,
                            .round_a = QDRI_E5M2,
                            .round_b = QDRI_E4M3};
    void *record = NULL;
    run_into(&like, SMALL, once.data);
    CHECK_OK(qdri_record_begin(stream));
    run_into(&like, SMALL, again.data);
    CHECK_OK(qdri_record_end(stream, &record));
    run_into(&like, LARGE, large.data);
    CHECK_OK(qdri_record_run(stream, record));
    CHECK_OK(qdri_stream_synchronize(stream));
    assert_memory_equal(once.data, again.data, sizeof(float) * SMALL * SMALL);
    qdri_record_free(device, record);
    drop(&x);
    drop(&once);
    drop(&again);
    drop(&large);
}

TEST(recorded_products_last)
{
    SKIP_OLD_GPU();
    if (!on_cuda()) skip(); /* which alone records */
    run_recorded();
}

/* With the argument "old", on a GPU that has none. */
static void old_gpus_refuse(void **state)
{
    array x = make_random(QDR_BF16, 4, 1), c = make(QDR_F32, 4);
    const qdri_gemm g = {.m = 2,
                         .n = 2,
                         .k = 2,
                         .a = x.data,
                         .b = x.data,
                         .c = c.data,
                         .lda = 2,
                         .ldb = 2,
                         .ldc = 2,
                         .dtype = QDR_BF16,
                         .c_dtype = QDR_F32,
                         .round_a = QDRI_E4M3,
                         .round_b = QDRI_E4M3};
    (void)state;
    CHECK_FAILS(qdri_gemm_run(stream, &g), QDR_ERR_UNSUPPORTED, "8.9 (Ada) or later");
    CHECK_FAILS(qdri_dev_check_rounding(device), QDR_ERR_UNSUPPORTED, "--products stored");
    drop(&x);
    drop(&c);
}

TEST(bad_products_are_refused)
{
    float x[4] = {0};
    const qdri_gemm good = {.m = 2,
                            .n = 2,
                            .k = 2,
                            .a = x,
                            .b = x,
                            .c = x,
                            .lda = 2,
                            .ldb = 2,
                            .ldc = 2,
                            .alpha = 1,
                            .round_a = QDRI_E4M3,
                            .round_b = QDRI_E5M2};
    qdri_gemm g = good;
    g.round_b = QDRI_AS_STORED;
    CHECK_FAILS(qdri_gemm_run(stream, &g), QDR_ERR_ARGUMENT, "B in way 0");
    g.round_a = g.round_b = QDRI_E5M2;
    CHECK_FAILS(qdri_gemm_run(stream, &g), QDR_ERR_ARGUMENT, "A in way 2");
    g.round_a = (qdri_rounding)3;
    CHECK_FAILS(qdri_gemm_run(stream, &g), QDR_ERR_ARGUMENT, "A in way 3");
    g = good;
    g.dtype = g.c_dtype = QDR_F16;
    CHECK_FAILS(qdri_gemm_run(stream, &g), QDR_ERR_DTYPE, "f16");
    assert_int_equal(qdri_dev_status(device), QDR_OK);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest old[] = {cmocka_unit_test(old_gpus_refuse)};
    if (argc > 1 && strcmp(argv[1], "old") == 0) return cmocka_run_group_tests(old, device_open, device_close);
    return run_all_tests(device_open, device_close);
}
