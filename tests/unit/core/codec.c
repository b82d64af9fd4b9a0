/* SPDX-License-Identifier: Apache-2.0 */
/* Names, presets, sizes and bounds of codecs. */
#include "core/codec.h"

#include <math.h>

#include "qdr_test.h"

static qdr_codec read(const char *text)
{
    qdr_codec codec;
    assert_int_equal(qdr_codec_parse(text, &codec), QDR_OK);
    return codec;
}

/* ---- one codec ---- */

TEST(test_texts)
{
    static const char *const same[] = {
        "raw",    "bf16",     "int16/128",         "int8/64", "int4/256+hadamard+feedback",
        "zfp:16", "lossless", "int8/32+stochastic"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        char text[64];
        const qdr_codec codec = read(same[i]);
        assert_int_equal(qdr_codec_text(&codec, text, sizeof text), strlen(same[i]));
        assert_string_equal(text, same[i]);
    }
    const qdr_codec plain = read("int4"), mixed = read("int4+feedback/32+hadamard");
    assert_int_equal(qdri_codec_block(&plain), 128);
    assert_int_equal(mixed.block, 32);
    assert_int_equal(mixed.flags, QDR_CODEC_FEEDBACK | QDR_CODEC_HADAMARD);
}

static void assert_refused(const char *text, const char *said)
{
    qdr_codec codec = {QDR_CODEC_INT8, 64, 1, 1};
    assert_int_equal(qdr_codec_parse(text, &codec), QDR_ERR_ARGUMENT);
    if (!strstr(qdr_last_error(), said)) fail_msg("%s: '%s' lacks '%s'", text, qdr_last_error(), said);
    assert_int_equal(codec.kind, QDR_CODEC_RAW);
    assert_int_equal(codec.block + codec.rate + codec.flags, 0);
}

TEST(test_wrong_texts)
{
    assert_refused("int9", "nearest: int8, int4, int16");
    assert_refused("", "no codec is named ''");
    assert_refused("int8/48", "blocks of 48; use 32, 64, 128 or 256");
    assert_refused("int8/512", "use 32");
    assert_refused("int8/", "no number");
    assert_refused("int8/64k", "'64k' after '/' is no number");
    assert_refused("int8/-64", "no number");
    assert_refused("zfp", "use 4 to 24");
    assert_refused("zfp:3", "use 4 to 24");
    assert_refused("zfp:25", "use 4 to 24");
    assert_refused("bf16/64", "bf16 has no blocks");
    assert_refused("int8:4", "int8 has no rate");
    assert_refused("int16+hadamard", "only int8 and int4 have");
    assert_refused("lossless+feedback", "only int16, int8 and int4 have");
    assert_refused("int8+feedbac", "nearest: feedback");
    assert_refused("int8/64/64", "'/64' and '/64' in one codec; leave one out");
    assert_refused("zfp:8:16", "':8' and ':16' in one codec");
    assert_refused("int4+feedback+hadamard+feedback", "'+feedback' stands there twice");
    assert_refused("int8+", "no flag is named ''");
    assert_refused("a very long name, longer than any word that a codec may have, and then some more", "80 characters");
    assert_refused("int8/00000000000000000000000000000000000000000000000000000000000064junk", "66 characters");
    assert_int_equal(qdr_codec_parse(NULL, NULL), QDR_ERR_ARGUMENT);
}

/* 4 bytes of scale for each block, and the integers. */
TEST(test_sizes)
{
    static const struct {
        const char *codec;
        qdr_dtype dtype;
        int64_t n, bytes;
    } cases[] = {
        {"raw", QDR_F32, 5, 20},         {"int8", QDR_F32, 1, 5},
        {"int8", QDR_F32, 128, 132},     {"int8", QDR_BF16, 129, 137},
        {"int8/32", QDR_F16, 129, 149},  {"int4", QDR_F32, 129, 8 + 65},
        {"int4/32", QDR_F32, 32, 20},    {"int16", QDR_F32, 1000, 32 + 2000},
        {"int16", QDR_BF16, 1000, 2000}, /* would not be shorter: raw */
        {"bf16", QDR_F32, 7, 14},        {"bf16", QDR_F16, 7, 14},
        {"int4", QDR_F64, 7, 56},        {"int4", QDR_I32, 7, 28},
        {"lossless", QDR_F16, 7, 14},    {"zfp:8", QDR_F32, 5, 8}, /* two blocks of 4 */
        {"zfp:8", QDR_F32, 64, 64},      {"zfp:16", QDR_BF16, 64, 128},
        {"int8", QDR_F32, 0, 0},         {"int8", QDR_F32, INT64_C(1) << 40, (INT64_C(1) << 40) + (INT64_C(1) << 35)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const qdr_codec codec = read(cases[i].codec);
        assert_int_equal(qdr_codec_bytes(&codec, cases[i].dtype, cases[i].n), cases[i].bytes);
    }
    assert_int_equal(qdr_codec_bytes(NULL, QDR_F32, 4), 0);
    /* The bytes of 2^58 elements, which are more than any memory holds, and of more. */
    static const char *const codecs[] = {"raw", "bf16", "int16/32", "int8/32", "int4", "lossless", "zfp:24"};
    const int64_t most = INT64_C(1) << 58;
    for (int i = 0; i < 7 * 6; i++) {
        const qdr_codec codec = read(codecs[i / 6]);
        const int64_t bytes = qdr_codec_bytes(&codec, (qdr_dtype)(i % 6), most);
        assert_true(bytes >= most / 2 && bytes < INT64_MAX);
        assert_true(qdr_codec_bytes(&codec, (qdr_dtype)(i % 6), most + 1) == INT64_MAX);
        assert_true(qdr_codec_bytes(&codec, (qdr_dtype)(i % 6), INT64_MAX) == INT64_MAX);
    }
}

static double bound(const char *text, double block_max)
{
    const qdr_codec codec = read(text);
    return qdr_codec_bound(&codec, block_max);
}

static void assert_near(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-12 * wanted)) fail_msg("%g, not %g", got, wanted);
}

TEST(test_bounds)
{
    const double four_ulp = 4 * 0x1p-23;
    assert_near(bound("int16", 65534), 1 + 65534 * four_ulp);
    assert_near(bound("int8", 254), 1 + 254 * four_ulp);
    assert_near(bound("int4", 14), 1 + 14 * four_ulp);
    assert_near(bound("int4+stochastic", 14), 2 + 14 * four_ulp);
    assert_near(bound("int4/64+hadamard", 14), 8 * (1 + 14 * 4 * four_ulp));
    assert_near(bound("bf16", 256), 1);
    assert_near(bound("int8", 0x1p-120), 0x1p-120); /* is sent as zeros */
    assert_true(bound("int8", 0) <= 0);
    assert_true(bound("raw", 5) <= 0 && bound("raw", 5) >= 0);
    assert_true(bound("lossless", 5) <= 0 && bound("lossless", 5) >= 0);
    assert_true(bound("zfp:8", 5) < 0);
    assert_true(qdr_codec_bound(NULL, 5) < 0);
}

/* ---- all codecs of a stack ---- */

static void assert_codec(const qdr_codecs *codecs, qdr_axis axis, qdr_traffic_class class, const char *wanted)
{
    char text[64];
    qdr_codec_text(&codecs->of[axis][class], text, sizeof text);
    assert_string_equal(text, wanted);
}

TEST(test_presets)
{
    qdr_codecs codecs;
    assert_int_equal(qdr_codecs_parse("hybrid", &codecs), QDR_OK);
    assert_int_equal(codecs.size, sizeof codecs);
    assert_codec(&codecs, QDR_X, QDR_TRAFFIC_ACTIVATION, "int16/128");
    assert_codec(&codecs, QDR_Y, QDR_TRAFFIC_ACTIVATION_GRADIENT, "int16/128");
    assert_codec(&codecs, QDR_Z, QDR_TRAFFIC_WEIGHT, "int16/128");
    assert_codec(&codecs, QDR_Z, QDR_TRAFFIC_GRADIENT, "int16/128");
    assert_codec(&codecs, QDR_D, QDR_TRAFFIC_GRADIENT, "int8/128");
    assert_int_equal(qdr_codecs_parse("aggressive,d.gradient=int8/64,xy.activation=bf16,least=64K,inside", &codecs),
                     QDR_OK);
    assert_codec(&codecs, QDR_D, QDR_TRAFFIC_GRADIENT, "int8/64");
    assert_codec(&codecs, QDR_X, QDR_TRAFFIC_ACTIVATION, "bf16");
    assert_codec(&codecs, QDR_Y, QDR_TRAFFIC_ACTIVATION, "bf16");
    assert_codec(&codecs, QDR_Y, QDR_TRAFFIC_ACTIVATION_GRADIENT, "int8/64");
    assert_int_equal(codecs.least_bytes, 65536);
    assert_int_equal(codecs.inside, 1);
    assert_int_equal(qdr_codecs_parse("int4+hadamard", &codecs), QDR_OK);
    assert_codec(&codecs, QDR_X, QDR_TRAFFIC_ACTIVATION, "int4/128");
    assert_codec(&codecs, QDR_Z, QDR_TRAFFIC_GRADIENT, "int4/128+hadamard");
    static const char *const others[] = {"none", "lossless", "safe", "zhybrid", "mzhybrid", "naive"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(qdr_codecs_parse(others[i], &codecs), QDR_OK);
    assert_codec(&codecs, QDR_D, QDR_TRAFFIC_GRADIENT, "zfp:8");
}

TEST(test_texts_of_all)
{
    static const char *const texts[] = {"none",
                                        "naive",
                                        "hybrid,d.gradient=int4/128",
                                        "aggressive,x.activation=raw,least=65536,inside",
                                        "int8/64",
                                        "int4/128+hadamard+feedback,z.weight=bf16",
                                        "none,d.gradient=int16/32+stochastic"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        qdr_codecs codecs;
        char text[256];
        assert_int_equal(qdr_codecs_parse(texts[i], &codecs), QDR_OK);
        assert_int_equal(qdr_codecs_text(&codecs, text, sizeof text), strlen(texts[i]));
        assert_string_equal(text, texts[i]);
        assert_int_equal(qdr_codecs_text(&codecs, text, 5), strlen(texts[i]));
        assert_int_equal(strlen(text), 4);
    }
}

static void assert_all_refused(const char *text, const char *said)
{
    qdr_codecs codecs = {.inside = 1}, raw = {QDR_INIT(qdr_codecs)};
    assert_int_equal(qdr_codecs_parse(text, &codecs), QDR_ERR_ARGUMENT);
    if (!strstr(qdr_last_error(), said)) fail_msg("%s: '%s' lacks '%s'", text, qdr_last_error(), said);
    assert_memory_equal(&codecs, &raw, sizeof raw);
}

TEST(test_wrong_presets)
{
    assert_all_refused("hybird", "nearest: hybrid");
    assert_all_refused("", "no preset or codec");
    assert_all_refused("hybrid,", "'' does not follow a comma");
    assert_all_refused("hybrid,safe", "'safe' does not follow a comma");
    assert_all_refused("hybrid,w.gradient=int8", "names no axes");
    assert_all_refused("hybrid,.gradient=int8", "names no axes");
    assert_all_refused("hybrid,d.gradients=int8", "nearest: gradient");
    assert_all_refused("hybrid,d.gradient=int9", "nearest: int8, int4");
    assert_all_refused("hybrid,xy.activation=int8+feedback", "x.activation has feedback");
    assert_all_refused("hybrid,z.weight=int8+hadamard", "z.weight has hadamard");
    assert_all_refused("hybrid,least=16k", "give bytes");
    assert_all_refused("hybrid,least=", "give bytes");
    assert_all_refused("hybrid,least=-1", "give bytes");
    assert_all_refused("hybrid,least=1K,least=2K", "'least' stands there twice");
    assert_all_refused("hybrid,inside,inside", "'inside' stands there twice");
    assert_int_equal(qdr_codecs_parse("none", NULL), QDR_ERR_ARGUMENT);
}
