/* SPDX-License-Identifier: Apache-2.0 */
/* The lossless codec: every bit comes back, on every instruction set; its sizes; damaged messages. */
#include <math.h>

#include "codec_sets.h"
#include "core/codec.h"
#include "core/codec_format.h"
#include "dev/dev.h"
#include "dev/device.h"
#include "narrow.h"
#include "qdr_test.h"

enum { MOST = 1000, WIRE_BYTES = 5 * MOST, N_ROUNDS = 2000 };

typedef struct message {
    qdr_dtype dtype;
    int64_t n, n_bytes;
    unsigned char x[4 * MOST], wire[WIRE_BYTES], y[4 * MOST];
} message;

static qdri_kernel kernel_of(message *m, qdri_kernel_kind kind, int accumulate)
{
    qdri_kernel kernel = {.kind = kind, .dtype = m->dtype};
    kernel.u.codec.n = m->n;
    kernel.u.codec.x = m->x;
    kernel.u.codec.wire = m->wire + 1; /* nothing is aligned */
    kernel.u.codec.y = m->y;
    kernel.u.codec.n_bytes = &m->n_bytes;
    kernel.accumulate = accumulate;
    assert_int_equal(qdri_kernel_check(&kernel), QDR_OK);
    return kernel;
}

static void pack(message *m, int set)
{
    memset(m->wire, 0xa5, sizeof m->wire);
    const qdri_kernel kernel = kernel_of(m, QDRI_K_PACK, 0);
    table(set)[QDRI_K_PACK](&kernel);
    assert_int_equal(m->wire[0], 0xa5);
    assert_int_equal(m->wire[1 + m->n_bytes], 0xa5);
}

static size_t bytes_of(const message *m) { return (size_t)m->n * qdr_dtype_bytes(m->dtype); }

/* All bits: random ones; exponents that are near one another; zeros, subnormal numbers, Inf and NaN among them. */
static void draw(message *m, uint64_t *seed, int round)
{
    m->dtype = round % 2 ? QDR_BF16 : QDR_F32;
    m->n = test_between(seed, 1, round % 4 ? 300 : MOST);
    const int base = (int)test_between(seed, 0, 255), width = (int)test_between(seed, 1, 18);
    for (int64_t i = 0; i < m->n; i++) {
        uint32_t bits = (uint32_t)test_random(seed);
        int exponent = base - (int)test_between(seed, 0, width - 1);
        if (round % 5 == 0 && test_between(seed, 0, 9) == 0) exponent = 0;
        if (round % 7 == 0 && test_between(seed, 0, 9) == 0) exponent = 255;
        if (round % 3) bits = (bits & 0x807fffffu) | (uint32_t)(exponent < 0 ? 0 : exponent) << 23;
        const uint16_t narrow = (uint16_t)(bits >> 16);
        memcpy(m->x + i * (m->dtype == QDR_F32 ? 4 : 2), m->dtype == QDR_F32 ? (void *)&bits : (void *)&narrow,
               m->dtype == QDR_F32 ? 4 : 2);
    }
}

TEST(all_bits)
{
    static message m, other;
    uint64_t seed = test_seed();
    int n_shorter = 0;
    for (int round = 0; round < N_ROUNDS; round++) {
        const qdr_codec codec = {.kind = QDR_CODEC_LOSSLESS};
        draw(&m, &seed, round);
        other = m;
        pack(&m, QDRI_KERNELS_BASE);
        assert_true(m.n_bytes <= qdr_codec_bytes(&codec, m.dtype, m.n));
        n_shorter += m.n_bytes < (int64_t)bytes_of(&m);
        const qdri_kernel unpack = kernel_of(&m, QDRI_K_UNPACK, 0);
        table(QDRI_KERNELS_BASE)[QDRI_K_UNPACK](&unpack);
        assert_memory_equal(m.y, m.x, bytes_of(&m));
        for (int set = QDRI_KERNELS_AVX2; set < QDRI_N_KERNEL_SETS; set++) {
            if (!has_set(set)) continue;
            pack(&other, set);
            assert_int_equal(other.n_bytes, m.n_bytes);
            assert_memory_equal(other.wire, m.wire, sizeof m.wire);
            memset(other.y, 0, sizeof other.y);
            const qdri_kernel kernel = kernel_of(&other, QDRI_K_UNPACK, 0);
            table(set)[QDRI_K_UNPACK](&kernel);
            assert_memory_equal(other.y, m.x, bytes_of(&m));
        }
    }
    assert_in_range(n_shorter, N_ROUNDS / 10, N_ROUNDS);
}

/* Of normal numbers nearly all blocks are packed: 2 + 64 + 3 * 128 bytes of 512, and 2 + 64 + 128 of 256. */
TEST(sizes)
{
    static message m;
    uint64_t seed = test_seed();
    for (int t = 0; t < 2; t++) {
        m.dtype = t ? QDR_BF16 : QDR_F32;
        m.n = 7 * QDRI_LOSSLESS_BLOCK + 5;
        for (int64_t i = 0; i < m.n; i++) {
            const float value = 1 + (float)test_between(&seed, 0, 1000) / 300;
            const uint16_t narrow = narrow_bits(QDR_BF16, (double)value);
            memcpy(m.x + i * (t ? 2 : 4), t ? (const void *)&narrow : (const void *)&value, t ? 2 : 4);
        }
        pack(&m, QDRI_KERNELS_BASE);
        assert_int_equal(m.n_bytes, t ? 7 * 194 + 2 + 10 : 7 * 450 + 2 + 20);
    }
}

TEST(adds)
{
    static message m;
    for (int t = 0; t < 2; t++) {
        m.dtype = t ? QDR_BF16 : QDR_F32;
        m.n = 300;
        for (int64_t i = 0; i < m.n; i++) {
            const float value = (float)(i % 50), old = 0.25f;
            const uint16_t narrow = narrow_bits(QDR_BF16, (double)value), narrow_old = narrow_bits(QDR_BF16, 0.25);
            memcpy(m.x + i * (t ? 2 : 4), t ? (const void *)&narrow : (const void *)&value, t ? 2 : 4);
            memcpy(m.y + i * (t ? 2 : 4), t ? (const void *)&narrow_old : (const void *)&old, t ? 2 : 4);
        }
        pack(&m, QDRI_KERNELS_BASE);
        const qdri_kernel kernel = kernel_of(&m, QDRI_K_UNPACK, 1);
        table(QDRI_KERNELS_BASE)[QDRI_K_UNPACK](&kernel);
        for (int64_t i = 0; i < m.n; i++) {
            float wide;
            uint16_t narrow;
            memcpy(&wide, m.y + 4 * i, sizeof wide);
            memcpy(&narrow, m.y + 2 * i, sizeof narrow);
            const double wanted = (double)(i % 50) + 0.25;
            if (t)
                assert_int_equal(narrow, narrow_bits(QDR_BF16, wanted));
            else
                assert_true(fabs((double)wide - wanted) <= 0);
        }
    }
}

/* Arbitrary bytes are refused, or read no further than they are long: memory is exactly that. */
TEST(damaged)
{
    static message m;
    uint64_t seed = test_seed();
    int n_refused = 0;
    for (int round = 0; round < 600; round++) {
        qdri_dev *dev = NULL;
        qdr_stream *stream = NULL;
        draw(&m, &seed, round);
        pack(&m, QDRI_KERNELS_BASE);
        int64_t n_bytes = m.n_bytes - (round % 3 ? 0 : test_between(&seed, 1, m.n_bytes));
        unsigned char *wire = test_malloc((size_t)n_bytes + 1);
        unsigned char *exact = wire + 1;
        memcpy(exact, m.wire + 1, (size_t)n_bytes);
        for (int i = 0; i < 3 && n_bytes > 0 && round % 3; i++)
            exact[round % 2 ? 1 : test_between(&seed, 0, n_bytes - 1)] = (unsigned char)test_random(&seed);
        qdri_kernel kernel = kernel_of(&m, QDRI_K_UNPACK, 0);
        kernel.u.codec.wire = exact;
        kernel.u.codec.n_bytes = &n_bytes;
        CHECK_OK(qdri_dev_create_cpu(1, &dev));
        CHECK_OK(qdri_stream_create(dev, QDRI_STREAM_COMPUTE, &stream));
        CHECK_OK(qdri_kernel_run(stream, &kernel));
        const qdr_status status = qdri_stream_synchronize(stream);
        assert_true(status == QDR_OK || status == QDR_ERR_ARGUMENT);
        if (status != QDR_OK)
            assert_non_null(strstr(qdr_last_error(),
                                   "had another number of them (QDR_CHECK=1 names both calls), or it is damaged"));
        n_refused += status != QDR_OK;
        qdri_stream_destroy(&stream);
        qdri_dev_destroy(&dev);
        test_free(wire);
    }
    assert_in_range(n_refused, 200, 599);
}
