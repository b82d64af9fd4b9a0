/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of zfp: the bytes and the elements that the library's own functions for whole arrays give. */
#include "codec/zfp.h"

#include <math.h>

#include "codec/run.h"
#include "config.h"
#include "qdr_test.h"
#include "quadrille/quadrille.h"

#if QDRI_HAVE_ZFP
#include <zfp.h>

enum { MOST = 10000 };

static qdri_dev *dev;
static qdr_stream *stream;

FIXTURE(open_device)
{
    CHECK_OK(qdri_dev_create_cpu(1, &dev));
    CHECK_OK(qdri_stream_create(dev, QDRI_STREAM_COMPUTE, &stream));
    return 0;
}

FIXTURE(close_device)
{
    qdri_stream_destroy(&stream);
    qdri_dev_destroy(&dev);
    return 0;
}

/* A whole array, as others compress it. */
static void compress(float *x, int64_t n, int rate, void *wire, size_t capacity, float *back)
{
    zfp_field *field = zfp_field_1d(x, zfp_type_float, (size_t)n), *to = zfp_field_1d(back, zfp_type_float, (size_t)n);
    bitstream *bits = stream_open(wire, capacity);
    zfp_stream *zfp = zfp_stream_open(bits);
    zfp_stream_set_rate(zfp, rate, zfp_type_float, 1, zfp_false);
    zfp_stream_rewind(zfp);
    const size_t bytes = zfp_compress(zfp, field);
    zfp_stream_rewind(zfp);
    assert_int_equal(zfp_decompress(zfp, to), bytes);
    zfp_stream_close(zfp);
    stream_close(bits);
    zfp_field_free(field);
    zfp_field_free(to);
}

static void fill(float *x, int64_t n, uint64_t *seed)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = ldexpf((float)test_between(seed, -4000, 4000), (int)test_between(seed, -20, 20));
}

static void check_run(int64_t n, int64_t run, int rate, int shift, uint64_t *seed)
{
    static float x[MOST], y[MOST], want[MOST];
    static uint64_t wire[MOST], own[MOST];
    const qdr_codec codec = {.kind = QDR_CODEC_ZFP, .rate = rate};
    const qdri_message message = {.codec = &codec, .dtype = QDR_F32, .n = n, .run = run};
    char *at = (char *)wire + shift;
    size_t bytes = 0;
    int64_t told = 0;
    fill(x, n, seed);
    memset(own, 0, sizeof own);
    for (int64_t first = 0, left; first < n; first += left) {
        left = run && run < n - first ? run : n - first;
        compress(x + first, left, rate, (char *)own + bytes, sizeof own - bytes, want + first);
        bytes += (size_t)qdr_codec_bytes(&codec, QDR_F32, left); /* filled up with zeros */
    }
    CHECK_OK(qdri_encode(stream, &message, x, NULL, 0, at, &told));
    CHECK_OK(qdri_decode(stream, &message, at, told, 0, y));
    CHECK_OK(qdri_stream_synchronize(stream));
    assert_int_equal(told, bytes);
    assert_memory_equal(at, own, bytes);
    assert_memory_equal(y, want, (size_t)n * sizeof *y);
    CHECK_OK(qdri_decode(stream, &message, at, told, 1, y));
    CHECK_OK(qdri_stream_synchronize(stream));
    for (int64_t i = 0; i < n; i++) assert_true(fabsf(y[i] - 2 * want[i]) <= 0);
}

TEST(bytes_of_the_library)
{
    static const int64_t sizes[] = {1, 3, 4, 5, 64, 4095, 4096, 4097, MOST};
    uint64_t seed = test_seed();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int rate = 4; rate <= 24; rate += 4) check_run(sizes[i], 0, rate, (int)test_between(&seed, 0, 7), &seed);
    for (int round = 0; round < 30; round++)
        check_run(test_between(&seed, 1, 3000), test_between(&seed, 1, 700), (int)test_between(&seed, 4, 24), 0, &seed);
}

TEST(narrow_types)
{
    static const qdr_dtype types[] = {QDR_BF16, QDR_F16};
    const qdr_codec codec = {.kind = QDR_CODEC_ZFP, .rate = 12};
    for (int t = 0; t < 2; t++) {
        enum { N = 1001 };
        uint16_t x[N], y[N];
        uint64_t wire[N];
        int64_t bytes;
        const qdri_message message = {.codec = &codec, .dtype = types[t], .n = N};
        const int one = types[t] == QDR_BF16 ? 0x3f80 : 0x3c00; /* bits of 1 */
        for (int i = 0; i < N; i++) x[i] = (uint16_t)(one + (types[t] == QDR_BF16 ? i % 64 : i));
        CHECK_OK(qdri_encode(stream, &message, x, NULL, 0, wire, &bytes));
        CHECK_OK(qdri_decode(stream, &message, wire, bytes, 0, y));
        CHECK_OK(qdri_stream_synchronize(stream));
        /* Elements are 1 to 2 here: their bits are as far apart as they are, in units of the last one. */
        for (int i = 0; i < N; i++) assert_true(abs(x[i] - y[i]) <= (types[t] == QDR_BF16 ? 1 : 8));
    }
}

TEST(what_it_lacks_is_nan)
{
    static const float special[] = {NAN, INFINITY, -INFINITY, 0x1p124F, 0x1p126F, -0x1.8p127F};
    for (int rate = 4; rate <= 24; rate++)
        for (size_t s = 0; s < sizeof special / sizeof *special; s++) {
            float x[9] = {1, 2, 3, 4, 0, 0, 0, 0, 0x1.fffffep123F}, y[9];
            uint64_t wire[9];
            int64_t bytes;
            const qdr_codec codec = {.kind = QDR_CODEC_ZFP, .rate = rate};
            const qdri_message message = {.codec = &codec, .dtype = QDR_F32, .n = 9};
            x[5] = special[s];
            CHECK_OK(qdri_encode(stream, &message, x, NULL, 0, wire, &bytes));
            CHECK_OK(qdri_decode(stream, &message, wire, bytes, 0, y));
            CHECK_OK(qdri_stream_synchronize(stream));
            for (int i = 0; i < 9; i++) assert_int_equal(isnan(y[i]) != 0, i / 4 == 1);
        }
}

/* Below 2^-96 blocks are zeros; no block gets larger than twice what it was, and zeros among small numbers stay
 * small. */
TEST(small_numbers_stay_small)
{
    for (int rate = 4; rate <= 24; rate++)
        for (int exponent = -149; exponent < -60; exponent++) {
            const float most = ldexpf(1, exponent), x[8] = {0, most, -most / 2, 0, most, most, most, most};
            float y[8];
            uint64_t wire[8];
            int64_t bytes;
            const qdr_codec codec = {.kind = QDR_CODEC_ZFP, .rate = rate};
            const qdri_message message = {.codec = &codec, .dtype = QDR_F32, .n = 8};
            CHECK_OK(qdri_encode(stream, &message, x, NULL, 0, wire, &bytes));
            CHECK_OK(qdri_decode(stream, &message, wire, bytes, 0, y));
            CHECK_OK(qdri_stream_synchronize(stream));
            for (int i = 0; i < 8; i++) {
                assert_true(fabsf(y[i]) <= 2 * most);
                if (exponent < -96) assert_true(y[i] == 0);
                if (exponent >= -96 && rate >= 16) assert_true(fabsf(y[i] - x[i]) <= most / 64);
            }
        }
}

int main(void) { return run_all_tests(open_device, close_device); }
#else
int main(void) { return QDR_TEST_SKIP; }
#endif
