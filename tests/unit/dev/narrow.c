/* SPDX-License-Identifier: Apache-2.0 */
/* BF16 and F16 to fp32 and back, compared with their definition in double: all bit patterns, all midpoints between
 * neighbours, and random numbers; one by one, and with every kernel set. */
#include "dev/cpu/narrow.h"

#include "dev/cpu/kernels/kernels.h"
#include "narrow.h"
#include "qdr_test.h"
#include "quadrille/convert.h"

enum { N_ALL = 1 << 16 };
static const qdr_dtype types[] = {QDR_BF16, QDR_F16};

static void check_bits(qdr_dtype dtype, float value, uint16_t got, uint16_t want)
{
    if (got == want) return;
    print_error("%s: %a is rounded to 0x%04x, not 0x%04x\n", qdr_dtype_name(dtype), (double)value, got, want);
    fail();
}

/* A NaN is quiet when it comes back, with its other bits. */
static uint16_t quiet(qdr_dtype dtype, uint16_t bits)
{
    const int is_nan = isnan(narrow_value(dtype, bits));
    return (uint16_t)(bits | (is_nan ? 1 << (narrow_fraction(dtype) - 1) : 0));
}

TEST(all_bits_are_read)
{
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < N_ALL; i++) {
            const uint16_t bits = (uint16_t)i;
            const float got = qdri_narrow_load(types[t], bits);
            const double want = narrow_value(types[t], bits);
            assert_true(isnan(want) ? isnan(got) : (double)got == want);
            assert_int_equal(signbit(got) != 0, bits >> 15);
            check_bits(types[t], got, qdri_narrow_round(types[t], got), quiet(types[t], bits));
        }
}

static void check_rounding(qdr_dtype dtype, float value)
{
    const uint16_t got = qdri_narrow_round(dtype, value);
    check_bits(dtype, value, got, narrow_bits(dtype, (double)value));
}

/* Halfway between neighbours, and next to it on both sides; after the largest comes Inf. */
TEST(middles_go_to_even)
{
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < N_ALL; i++) {
            const double low = narrow_value(types[t], (uint16_t)i);
            double high = narrow_value(types[t], (uint16_t)(i + 1));
            if (!isfinite(low) || isnan(high)) continue;
            if (isinf(high)) high = 2 * low - narrow_value(types[t], (uint16_t)(i - 1));
            const float middle = (float)((low + high) / 2);
            check_rounding(types[t], middle);
            check_rounding(types[t], nextafterf(middle, INFINITY));
            check_rounding(types[t], nextafterf(middle, -INFINITY));
        }
}

TEST(random_numbers_are_rounded)
{
    uint64_t seed = test_seed();
    for (int i = 0; i < 2000000; i++) {
        const uint32_t bits = (uint32_t)(test_random(&seed) >> 32);
        float any, near;
        memcpy(&any, &bits, sizeof any);
        near = ldexpf((float)(int32_t)bits, (int)test_between(&seed, -60, -14));
        if (isnan(any)) continue;
        for (int t = 0; t < 2; t++) {
            check_rounding(types[t], any);
            check_rounding(types[t], near);
        }
    }
}

/* Loops of vector code give the same bits, with NaN and Inf among the others. */
TEST(loops_give_the_same)
{
    static float wide[N_ALL], more[N_ALL];
    static uint16_t all[N_ALL], back[N_ALL];
    uint64_t seed = test_seed();
    for (int i = 0; i < N_ALL; i++) all[i] = (uint16_t)i;
    for (int level = 0; level < QDRI_N_KERNEL_SETS; level++) {
        if (!qdri_cpu_kernels_limit(level)) continue;
        for (int t = 0; t < 2; t++) {
            qdri_widen(types[t], wide, all, N_ALL);
            for (int i = 0; i < N_ALL; i++) {
                const float want = qdri_narrow_load(types[t], (uint16_t)i);
                assert_memory_equal(&wide[i], &want, sizeof want);
                const uint32_t bits = (uint32_t)(test_random(&seed) >> 32);
                memcpy(&more[i], &bits, sizeof bits);
                if (i % 2) more[i] = wide[i] * (1 + ldexpf((float)(bits >> 8), -34));
            }
            qdri_narrow(types[t], back, more, N_ALL);
            for (int i = 0; i < N_ALL; i++)
                check_bits(types[t], more[i], back[i], qdri_narrow_round(types[t], more[i]));
        }
    }
    qdri_cpu_kernels_limit(QDRI_KERNELS_AVX512);
}

/* ---- convert.h ---- */

static void widen(qdr_dtype dtype, float *to, const uint16_t *from, int64_t n)
{
    if (dtype == QDR_F16)
        qdr_f32_from_f16(to, from, n);
    else
        qdr_f32_from_bf16(to, from, n);
}

static void narrow(qdr_dtype dtype, uint16_t *to, const float *from, int64_t n)
{
    if (dtype == QDR_F16)
        qdr_f16_from_f32(to, from, n);
    else
        qdr_bf16_from_f32(to, from, n);
}

/* All bits there and back; the middles after each and their neighbours. */
TEST(public_arrays_follow_the_definition)
{
    static uint16_t all[N_ALL], back[3 * N_ALL];
    static float wide[3 * N_ALL];
    for (int i = 0; i < N_ALL; i++) all[i] = (uint16_t)i;
    for (int t = 0; t < 2; t++) {
        widen(types[t], wide, all, N_ALL);
        narrow(types[t], back, wide, N_ALL);
        for (int i = 0; i < N_ALL; i++) {
            const double want = narrow_value(types[t], all[i]);
            assert_true(isnan(want) ? isnan(wide[i]) : (double)wide[i] == want);
            assert_int_equal(signbit(wide[i]) != 0, i >> 15);
            check_bits(types[t], wide[i], back[i], quiet(types[t], all[i]));
        }
        for (int i = 0; i < N_ALL; i++) {
            const double low = narrow_value(types[t], all[i]), high = narrow_value(types[t], (uint16_t)(i + 1));
            const float middle = isfinite(low) && isfinite(high) ? (float)((low + high) / 2) : 0;
            wide[3 * i] = middle;
            wide[3 * i + 1] = nextafterf(middle, INFINITY);
            wide[3 * i + 2] = nextafterf(middle, -INFINITY);
        }
        narrow(types[t], back, wide, 3 * N_ALL);
        for (int i = 0; i < 3 * N_ALL; i++)
            check_bits(types[t], wide[i], back[i], narrow_bits(types[t], (double)wide[i]));
    }
}

/* Any length and start: nothing is written outside. */
TEST(public_arrays_end_where_they_end)
{
    uint16_t bits[72], source[72];
    float wide[72];
    for (int t = 0; t < 2; t++)
        for (int n = -1; n < 65; n++) {
            for (int i = 0; i < 72; i++) {
                wide[i] = 7;
                bits[i] = 0xabcd;
                source[i] = narrow_bits(types[t], i);
            }
            widen(types[t], wide + 3, source + 3, n);
            for (int i = 0; i < 72; i++) assert_true(wide[i] == (i >= 3 && i < 3 + n ? (float)i : 7.0f));
            for (int i = 0; i < 72; i++) wide[i] = (float)i;
            narrow(types[t], bits + 3, wide + 3, n);
            for (int i = 0; i < 72; i++) assert_int_equal(bits[i], i >= 3 && i < 3 + n ? source[i] : 0xabcd);
        }
}
