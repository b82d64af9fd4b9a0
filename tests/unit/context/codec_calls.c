/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs through the public functions: sizes, bounds, feedback, refusals. */
#include <math.h>

#include "narrow.h"
#include "qdr_test.h"
#include "quadrille/quadrille.h"

enum { N = 1000 };

static double value_of(qdr_dtype dtype, const void *data, int i)
{
    if (dtype == QDR_F64) return ((const double *)data)[i];
    if (dtype == QDR_F32) return (double)((const float *)data)[i];
    return narrow_value(dtype, ((const uint16_t *)data)[i]);
}

static void set_value(qdr_dtype dtype, void *data, int i, double value)
{
    if (dtype == QDR_F64) ((double *)data)[i] = value;
    if (dtype == QDR_F32) ((float *)data)[i] = (float)value;
    if (is_narrow(dtype)) ((uint16_t *)data)[i] = narrow_bits(dtype, value);
}

static double roundoff(qdr_dtype dtype)
{
    return is_narrow(dtype) ? narrow_roundoff(dtype) : dtype == QDR_F64 ? 0 : 0x1p-24;
}

/* Encoded and decoded, the elements change by at most the bound, and their own rounding. */
static void check_codec(qdr_context *ctx, const char *text, qdr_dtype dtype, uint64_t *seed)
{
    qdr_codec codec;
    int64_t bytes = -1;
    CHECK_OK(qdr_codec_parse(text, &codec));
    const int64_t expected = qdr_codec_bytes(&codec, dtype, N);
    unsigned char *x = test_calloc(N, 8), *y = test_calloc(N, 8), *wire = test_calloc((size_t)expected + 1, 1);
    wire[expected] = 0xa5;
    for (int i = 0; i < N; i++) {
        set_value(dtype, x, i, (double)test_between(seed, -1000, 1000) / 1000);
        set_value(dtype, y, i, i % 7);
    }
    CHECK_OK(qdr_codec_encode(ctx, &codec, dtype, x, N, NULL, 1, wire, &bytes, NULL));
    CHECK_OK(qdr_stream_synchronize(qdr_context_stream(ctx)));
    if (codec.kind == QDR_CODEC_LOSSLESS)
        assert_in_range(bytes, 1, expected);
    else
        assert_int_equal(bytes, expected);
    CHECK_OK(qdr_codec_decode(ctx, &codec, dtype, wire, bytes, N, 1, y, NULL));
    CHECK_OK(qdr_stream_synchronize(qdr_context_stream(ctx)));
    assert_int_equal(wire[expected], 0xa5);
    const int is_coded = expected < N * (int64_t)qdr_dtype_bytes(dtype);
    const double error = is_coded ? qdr_codec_bound(&codec, 1) : 0;
    for (int i = 0; i < N; i++) {
        const double added = value_of(dtype, y, i), wanted = i % 7 + value_of(dtype, x, i);
        assert_true(fabs(added - wanted) <= error + 8 * roundoff(dtype));
    }
    CHECK_OK(qdr_codec_decode(ctx, &codec, dtype, wire, bytes, N, 0, y, NULL));
    CHECK_OK(qdr_stream_synchronize(qdr_context_stream(ctx)));
    for (int i = 0; i < N; i++) {
        const double bound = error > 0 ? error + roundoff(dtype) : 0;
        assert_true(fabs(value_of(dtype, y, i) - value_of(dtype, x, i)) <= bound);
    }
    test_free(x);
    test_free(y);
    test_free(wire);
}

TEST(codecs_and_types)
{
    static const char *const codecs[] = {
        "raw", "bf16", "int16", "int8/32", "int4/64", "int4/256+hadamard", "int8+stochastic", "lossless"};
    static const qdr_dtype types[] = {QDR_F32, QDR_BF16, QDR_F16, QDR_F64};
    uint64_t seed = test_seed();
    qdr_context *ctx = NULL;
    CHECK_OK(qdr_context_create_self(NULL, &ctx));
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) check_codec(ctx, codecs[i], types[t], &seed);
    qdr_context_destroy(&ctx);
}

/* The caller's number of bytes is left alone while the stream may still write it: for the thread sanitizer. */
TEST(one_number_of_bytes)
{
    enum { LONG = 1 << 18, SHORT = 4 }; /* the long one takes a while */
    int64_t bytes = -1, expected = -1;
    qdr_codec codec;
    qdr_context *ctx = NULL;
    CHECK_OK(qdr_context_create_self(NULL, &ctx));
    CHECK_OK(qdr_codec_parse("lossless", &codec));
    float *x = test_calloc(LONG, sizeof *x);
    unsigned char *wire = test_calloc((size_t)qdr_codec_bytes(&codec, QDR_F32, LONG), 1);
    for (int message = 0; message < 8; message++)
        CHECK_OK(qdr_codec_encode(ctx, &codec, QDR_F32, x, LONG, NULL, 0, wire, &bytes, NULL));
    CHECK_OK(qdr_codec_encode(ctx, &codec, QDR_F32, x, SHORT, NULL, 0, wire, &bytes, NULL));
    CHECK_OK(qdr_stream_synchronize(qdr_context_stream(ctx)));
    CHECK_OK(qdr_codec_encode(ctx, &codec, QDR_F32, x, SHORT, NULL, 0, wire, &expected, NULL));
    CHECK_OK(qdr_stream_synchronize(qdr_context_stream(ctx)));
    assert_int_equal(bytes, expected);
    test_free(x);
    test_free(wire);
    qdr_context_destroy(&ctx);
}

/* What one message loses is in the next one. */
TEST(feedback)
{
    static const float x[4] = {1, 0.05f, -0.05f, 0};
    float lost[4] = {0}, y[4] = {0};
    _Alignas(4) unsigned char wire[64];
    int64_t bytes;
    qdr_codec codec;
    qdr_context *ctx = NULL;
    CHECK_OK(qdr_context_create_self(NULL, &ctx));
    CHECK_OK(qdr_codec_parse("int4+feedback", &codec));
    for (int message = 0; message < 100; message++) {
        CHECK_OK(qdr_codec_encode(ctx, &codec, QDR_F32, x, 4, lost, 0, wire, &bytes, NULL));
        CHECK_OK(qdr_codec_decode(ctx, &codec, QDR_F32, wire, bytes, 4, 1, y, NULL));
    }
    CHECK_OK(qdr_stream_synchronize(qdr_context_stream(ctx)));
    for (int i = 0; i < 4; i++) assert_true(fabs((double)(y[i] + lost[i] - 100 * x[i])) < 1e-4);
    qdr_context_destroy(&ctx);
}

TEST(refusals)
{
    float x[8] = {0}, lost[8] = {0};
    _Alignas(4) unsigned char wire[64];
    int64_t bytes = 5;
    qdr_codec codec = {.kind = QDR_CODEC_INT8}, wrong = {.kind = QDR_CODEC_INT8, .block = 48};
    qdr_context *ctx = NULL;
    CHECK_OK(qdr_context_create_self(NULL, &ctx));
#define ENCODE(codec, dtype, x, n, lost, wire) qdr_codec_encode(ctx, codec, dtype, x, n, lost, 0, wire, &bytes, NULL)
    CHECK_FAILS(ENCODE(NULL, QDR_F32, x, 8, NULL, wire), QDR_ERR_ARGUMENT, "NULL");
    assert_int_equal(bytes, 5); /* unchanged */
    CHECK_FAILS(ENCODE(&wrong, QDR_F32, x, 8, NULL, wire), QDR_ERR_ARGUMENT, "48");
    CHECK_FAILS(ENCODE(&codec, (qdr_dtype)99, x, 8, NULL, wire), QDR_ERR_DTYPE, "99");
    CHECK_FAILS(ENCODE(&codec, QDR_F32, x, -1, NULL, wire), QDR_ERR_SHAPE, "-1 elements");
    CHECK_FAILS(ENCODE(&codec, QDR_F32, NULL, 8, NULL, wire), QDR_ERR_ARGUMENT, "x is NULL");
    CHECK_FAILS(ENCODE(&codec, QDR_F32, x, 8, NULL, NULL), QDR_ERR_ARGUMENT, "the message is NULL; pass memory of 12");
    CHECK_FAILS(ENCODE(&codec, QDR_F32, x, 8, lost, wire), QDR_ERR_ARGUMENT, "+feedback");
    CHECK_FAILS(ENCODE(&codec, QDR_F32, x, 8, NULL, x), QDR_ERR_ARGUMENT, "overlap");
    codec.flags = QDR_CODEC_FEEDBACK;
    CHECK_FAILS(ENCODE(&codec, QDR_F32, x, 8, NULL, wire), QDR_ERR_ARGUMENT, "pass 8 floats");
    CHECK_FAILS(ENCODE(&codec, QDR_F32, x, 8, x, wire), QDR_ERR_ARGUMENT, "overlap");
    codec.flags = 0;
    CHECK_OK(ENCODE(&codec, QDR_F32, NULL, 0, NULL, NULL));
    CHECK_OK(ENCODE(&codec, QDR_F32, x, 8, NULL, wire));
    CHECK_FAILS(qdr_codec_decode(ctx, &codec, QDR_F32, wire, 11, 8, 0, x, NULL), QDR_ERR_SHAPE, "8 elements need 12");
    CHECK_FAILS(qdr_codec_decode(ctx, &codec, QDR_F32, wire, 12, 8, 0, NULL, NULL), QDR_ERR_ARGUMENT, "y is NULL");
    codec = (qdr_codec){.kind = QDR_CODEC_ZFP, .rate = 8};
    if (strcmp(qdr_get_versions()->zfp, "none") == 0)
        CHECK_FAILS(ENCODE(&codec, QDR_F32, x, 8, NULL, wire), QDR_ERR_UNSUPPORTED,
                    "zfp:8: this library was built without");
    qdr_context_destroy(&ctx);
}
