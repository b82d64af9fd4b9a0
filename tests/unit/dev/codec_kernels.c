/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of integer codecs against their format, read in double: all types, tails, runs and instruction sets. */
#include <float.h>
#include <math.h>

#include "codec_sets.h"
#include "core/codec.h"
#include "dev/device.h"
#include "narrow.h"
#include "qdr_test.h"

enum { MOST = 1000, WIRE_BYTES = 6 * MOST + 64, N_ROUNDS = 3000 };
static const unsigned char guard = 0xa5;

static uint64_t state_of_random = 20261125;

static uint32_t random_below(uint32_t n)
{
    state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state_of_random >> 33) % n);
}

static float random_float(void) { return (float)random_below(1 << 24) / (1 << 23) - 1; }

/* A kernel with its arrays. */
typedef struct codec_case {
    qdr_codec codec;
    qdr_dtype dtype;
    int n, run;
    uint64_t seed;
    float x[MOST]; /* what the elements are in fp32 */
    unsigned char stored[4 * MOST]; /* the elements, of the type */
    unsigned char wire[WIRE_BYTES]; /* begins one byte late: nothing is aligned */
    unsigned char y[4 * MOST];
    float lost[MOST];
} codec_case;

static float load(qdr_dtype dtype, const unsigned char *stored, int i)
{
    float wide;
    uint16_t narrow;
    if (dtype == QDR_F32) {
        memcpy(&wide, stored + 4 * i, sizeof wide);
        return wide;
    }
    memcpy(&narrow, stored + 2 * i, sizeof narrow);
    return (float)narrow_value(dtype, narrow);
}

static void store(qdr_dtype dtype, unsigned char *stored, int i, float value)
{
    const uint16_t narrow = dtype == QDR_F32 ? 0 : narrow_bits(dtype, (double)value);
    if (dtype == QDR_F32)
        memcpy(stored + 4 * i, &value, sizeof value);
    else
        memcpy(stored + 2 * i, &narrow, sizeof narrow);
}

static void set_elements(codec_case *c, float (*value)(int i))
{
    for (int i = 0; i < c->n; i++) {
        store(c->dtype, c->stored, i, value(i));
        c->x[i] = load(c->dtype, c->stored, i);
    }
}

static qdri_kernel kernel_of(codec_case *c, qdri_kernel_kind kind)
{
    qdri_kernel kernel = {.kind = kind, .dtype = c->dtype};
    kernel.u.codec.n = c->n;
    kernel.u.codec.run = c->run;
    kernel.u.codec.bits = qdri_codec_bits(&c->codec);
    kernel.u.codec.block = qdri_codec_block(&c->codec);
    kernel.u.codec.flags = c->codec.flags;
    kernel.u.codec.seed = c->seed;
    kernel.u.codec.x = c->stored;
    kernel.u.codec.wire = c->wire + 1;
    kernel.u.codec.y = c->y;
    return kernel;
}

static void encode(codec_case *c, int set, float *feedback)
{
    qdri_kernel kernel = kernel_of(c, QDRI_K_ENCODE);
    kernel.u.codec.feedback = feedback;
    memset(c->wire, guard, sizeof c->wire);
    assert_int_equal(qdri_kernel_check(&kernel), QDR_OK);
    table(set)[QDRI_K_ENCODE](&kernel);
}

static void decode(codec_case *c, int set, int accumulate)
{
    qdri_kernel kernel = kernel_of(c, QDRI_K_DECODE);
    kernel.accumulate = accumulate;
    table(set)[QDRI_K_DECODE](&kernel);
}

/* ---- the format, read independently ---- */

static int64_t wire_bytes(const codec_case *c)
{
    const int run = c->run ? c->run : c->n;
    int64_t bytes = 0;
    for (int at = 0; at < c->n; at += run)
        bytes += qdr_codec_bytes(&c->codec, QDR_F32, c->n - at < run ? c->n - at : run);
    return bytes;
}

static int code_of(const unsigned char *codes, int bits, int i)
{
    if (bits == 8) return codes[i] < 128 ? codes[i] : codes[i] - 256;
    if (bits == 4) {
        const int code = i % 2 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
        return code < 8 ? code : code - 16;
    }
    const int code = codes[2 * i] | codes[2 * i + 1] << 8;
    return code < 32768 ? code : code - 65536;
}

/* The block of element i: its scale, what its code says, and max |x| of the block. */
typedef struct element {
    double scale, value, most;
    int code, n_block;
} element;

static element read_element(const codec_case *c, int i)
{
    const int bits = qdri_codec_bits(&c->codec), block = qdri_codec_block(&c->codec), run = c->run ? c->run : c->n;
    const int first = i / run * run, n_run = c->n - first < run ? c->n - first : run, within = i - first;
    const unsigned char *wire = c->wire + 1;
    for (int at = 0; at < first; at += run) wire += qdr_codec_bytes(&c->codec, QDR_F32, run);
    const unsigned char *codes = wire + 4 * ((n_run + block - 1) / block);
    float scale;
    memcpy(&scale, wire + 4 * (within / block), sizeof scale);
    element e = {.scale = (double)scale};
    const int begin = first + within / block * block,
              end = begin + block < first + n_run ? begin + block : first + n_run;
    /* By fmax, which has an instruction on aarch64, this is a loop on which GCC 12 fails there. */
    for (int j = begin; j < end; j++) e.most = fabs((double)c->x[j]) > e.most ? fabs((double)c->x[j]) : e.most;
    e.n_block = end - begin;
    e.code = code_of(codes + (int64_t)(within / block) * block * bits / 8, bits, within % block);
    e.value = e.code * e.scale;
    return e;
}

/* ---- tests ---- */

static const char *const codecs[] = {"int4", "int8", "int16", "int4/32", "int8/64", "int16/256"};
static const qdr_dtype types[] = {QDR_F32, QDR_BF16, QDR_F16};

static void draw_case(codec_case *c, int round)
{
    memset(c, 0, sizeof *c);
    assert_int_equal(qdr_codec_parse(codecs[round % 6], &c->codec), QDR_OK);
    c->dtype = types[round % 3];
    c->n = 1 + (int)random_below(round % 4 ? 300 : MOST);
    c->run = round % 2 ? 0 : 1 + (int)random_below((uint32_t)c->n + 20);
    c->seed = (uint64_t)round;
}

static float exponent;
static float scattered(int i)
{
    (void)i;
    return ldexpf(random_float(), (int)random_below(12)) * exponent;
}

TEST(within_the_bound)
{
    static codec_case c;
    for (int round = 0; round < N_ROUNDS; round++) {
        draw_case(&c, round);
        exponent = c.dtype == QDR_F16 ? 1 : ldexpf(1, (int)random_below(200) - 100);
        set_elements(&c, scattered);
        encode(&c, QDRI_KERNELS_BASE, NULL);
        assert_int_equal(c.wire[0], guard);
        for (int i = 0; i < 32; i++) assert_int_equal(c.wire[1 + wire_bytes(&c) + i], guard);
        decode(&c, QDRI_KERNELS_BASE, 0);
        for (int i = 0; i < c.n; i++) {
            const element e = read_element(&c, i);
            const double bound = qdr_codec_bound(&c.codec, e.most);
            if (!(fabs(e.value - (double)c.x[i]) <= bound))
                fail_msg("%s, %d of %d: %a became %a; bound %g", codecs[round % 6], i, c.n, (double)c.x[i], e.value,
                         bound);
            /* What is decoded is the code's value, in fp32 and then in the type. */
            const float wide = (float)e.code * (float)e.scale;
            unsigned char rounded[4];
            store(c.dtype, rounded, 0, wide);
            assert_memory_equal(c.y + (c.dtype == QDR_F32 ? 4 : 2) * i, rounded, c.dtype == QDR_F32 ? 4 : 2);
        }
    }
}

TEST(adds)
{
    static codec_case c;
    exponent = 1;
    for (int round = 0; round < 300; round++) {
        draw_case(&c, round);
        set_elements(&c, scattered);
        encode(&c, QDRI_KERNELS_BASE, NULL);
        for (int i = 0; i < c.n; i++) store(c.dtype, c.y, i, (float)i);
        decode(&c, QDRI_KERNELS_BASE, 1);
        for (int i = 0; i < c.n; i++) {
            const element e = read_element(&c, i);
            const float wide = (float)e.code * (float)e.scale;
            unsigned char old[4], rounded[4];
            store(c.dtype, old, 0, (float)i);
            store(c.dtype, rounded, 0, load(c.dtype, old, 0) + wide);
            assert_true(load(c.dtype, c.y, i) == load(c.dtype, rounded, 0));
        }
    }
}

/* Sources in order, in fp32; then encoded as the sum's elements would be. */
TEST(sums_of_messages)
{
    enum { N_SOURCES = 3, OWN = 1 };
    static codec_case c, sum;
    static unsigned char messages[N_SOURCES][WIRE_BYTES], y[4 * MOST];
    static float total[MOST], lost[MOST];
    static const int flags[] = {0, QDR_CODEC_HADAMARD | QDR_CODEC_FEEDBACK, QDR_CODEC_FEEDBACK};
    exponent = 1;
    for (int round = 0; round < 600; round++) {
        draw_case(&c, round);
        c.codec.flags = flags[round / 6 % 3];
        memset(total, 0, sizeof total);
        for (int i = 0; i < N_SOURCES; i++) {
            set_elements(&c, scattered);
            encode(&c, QDRI_KERNELS_BASE, NULL);
            if (i != OWN) memcpy(messages[i - (i > OWN)], c.wire + 1, WIRE_BYTES - 1);
            c.dtype = QDR_F32;
            decode(&c, QDRI_KERNELS_BASE, 0);
            c.dtype = types[round % 3];
            for (int k = 0; k < c.n; k++) total[k] += i == OWN ? c.x[k] : load(QDR_F32, c.y, k);
            if (i == OWN) memcpy(sum.stored, c.stored, sizeof sum.stored);
        }
        const int is_coded = round % 2;
        for (int k = 0; k < c.n; k++) lost[k] = random_float();
        qdri_kernel kernel = kernel_of(&c, QDRI_K_DECODE_SUM);
        kernel.u.codec.x = sum.stored;
        kernel.u.codec.y = y;
        kernel.u.codec.sources = messages;
        kernel.u.codec.stride = WIRE_BYTES;
        kernel.u.codec.n_sources = N_SOURCES;
        kernel.u.codec.own = OWN;
        if (!is_coded) kernel.u.codec.wire = NULL;
        if (c.codec.flags & QDR_CODEC_FEEDBACK) kernel.u.codec.feedback = c.lost;
        memcpy(c.lost, lost, sizeof lost);
        memset(c.wire, guard, sizeof c.wire);
        assert_int_equal(qdri_kernel_check(&kernel), QDR_OK);
        table(QDRI_KERNELS_BASE)[QDRI_K_DECODE_SUM](&kernel);
        if (is_coded) { /* the same from the sum in fp32 */
            sum.codec = c.codec;
            sum.dtype = QDR_F32;
            sum.n = c.n;
            sum.run = c.run;
            memcpy(sum.stored, total, sizeof total);
            memcpy(sum.lost, lost, sizeof lost);
            encode(&sum, QDRI_KERNELS_BASE, c.codec.flags & QDR_CODEC_FEEDBACK ? sum.lost : NULL);
            assert_memory_equal(c.wire, sum.wire, sizeof c.wire);
            assert_memory_equal(c.lost, sum.lost, sizeof c.lost);
            decode(&sum, QDRI_KERNELS_BASE, 0);
            memcpy(total, sum.y, sizeof total);
        }
        for (int k = 0; k < c.n; k++) {
            unsigned char rounded[4];
            store(c.dtype, rounded, 0, total[k]);
            assert_memory_equal(y + (c.dtype == QDR_F32 ? 4 : 2) * k, rounded, c.dtype == QDR_F32 ? 4 : 2);
        }
    }
}

static float adversarial(int i)
{
    static const float values[] = {0,          -0.0f,     FLT_MAX,          -FLT_MAX, FLT_MIN, 0x1p-149f,
                                   -0x1p-149f, 0x1p-100f, 0x1.fffffep-101f, 1,        -127,    INFINITY,
                                   -INFINITY,  NAN};
    static uint32_t which;
    if (i % 64 == 0) which = random_below(20); /* blocks of one kind, and mixed ones */
    const uint32_t n = sizeof values / sizeof *values;
    if (which < n - 3) return i % 7 ? values[which] : -values[which];
    return values[random_below(which < 18 ? n - 3 : n)];
}

/* Blocks of zeros, tiny and huge numbers, NaN and Inf. */
TEST(special_numbers)
{
    static codec_case c;
    for (int round = 0; round < N_ROUNDS; round++) {
        draw_case(&c, round);
        set_elements(&c, adversarial);
        encode(&c, QDRI_KERNELS_BASE, NULL);
        decode(&c, QDRI_KERNELS_BASE, 0);
        for (int i = 0; i < c.n; i++) {
            const element e = read_element(&c, i);
            const int block = qdri_codec_block(&c.codec), run = c.run ? c.run : c.n;
            int is_finite = 1;
            const int begin = i / run * run + i % run / block * block;
            for (int j = begin; j < begin + e.n_block; j++) is_finite &= isfinite(c.x[j]) != 0;
            assert_int_equal(isfinite(e.scale) != 0, is_finite);
            if (!is_finite) {
                assert_true(isnan(load(c.dtype, c.y, i)));
                continue;
            }
            assert_true(isfinite((float)e.code * (float)e.scale));
            if (!(fabs(e.value - (double)c.x[i]) <= qdr_codec_bound(&c.codec, e.most)))
                fail_msg("%s: %a became %a", codecs[round % 6], (double)c.x[i], e.value);
        }
    }
}

/* A rotated block near the end of fp32: none of a few sorts of huge numbers makes an infinite number, nor feedback that
 * stays. Its length is an upper bound of its largest rotated element. */
TEST(rotated_blocks_of_huge_numbers)
{
    static codec_case c;
    for (int round = 0; round < 8 * 4 * 60; round++) {
        const int block = 32 << round % 4, n_huge = 1 + (round / 8 % 3 ? (int)random_below((uint32_t)block) : 0);
        const float size = ldexpf(1 + fabsf(random_float()), 110 + (int)random_below(18));
        double squares = 0;
        c = (codec_case){.codec = {round / 4 % 2 ? QDR_CODEC_INT8 : QDR_CODEC_INT4, block, 0, QDR_CODEC_HADAMARD},
                         .n = block};
        for (int i = 0; i < c.n; i++) {
            c.x[i] = i < n_huge ? fminf(size, FLT_MAX) * (random_below(2) ? 1 : -1) : 0;
            squares += (double)c.x[i] * (double)c.x[i];
            store(QDR_F32, c.stored, i, c.x[i]);
        }
        const double bound = qdr_codec_bound(&c.codec, sqrt(squares));
        encode(&c, QDRI_KERNELS_BASE, c.lost);
        decode(&c, QDRI_KERNELS_BASE, 0);
        const int is_nan = isnan(load(QDR_F32, c.y, 0)) != 0;
        if (sqrt(squares) < 0x1p123) assert_int_equal(is_nan, 0);
        for (int i = 0; i < c.n; i++) {
            const float y = load(QDR_F32, c.y, i);
            assert_true(isfinite(c.lost[i]));
            assert_true(is_nan ? isnan(y) : fabs((double)y - (double)c.x[i]) <= bound);
            store(QDR_F32, c.stored, i, 1);
        }
        memset(c.lost, 0, sizeof c.lost);
        encode(&c, QDRI_KERNELS_BASE, c.lost);
        decode(&c, QDRI_KERNELS_BASE, 0);
        for (int i = 0; i < c.n; i++) assert_true(fabsf(load(QDR_F32, c.y, i) - 1) < 1.2F);
    }
}

/* With flags, too. */
TEST(sets_give_the_same_bits)
{
    static codec_case c, other;
    static const int flags[] = {0, QDR_CODEC_HADAMARD, QDR_CODEC_STOCHASTIC, QDR_CODEC_HADAMARD | QDR_CODEC_STOCHASTIC};
    for (int set = QDRI_KERNELS_AVX2; set < QDRI_N_KERNEL_SETS; set++) {
        if (!has_set(set)) continue;
        for (int round = 0; round < N_ROUNDS; round++) {
            draw_case(&c, round);
            c.codec.flags = flags[round / 6 % 4];
            exponent = 1;
            set_elements(&c, round % 5 ? scattered : adversarial);
            for (int i = 0; i < c.n; i++) c.lost[i] = random_float();
            other = c;
            encode(&c, QDRI_KERNELS_BASE, round % 3 ? c.lost : NULL);
            encode(&other, set, round % 3 ? other.lost : NULL);
            assert_memory_equal(c.wire, other.wire, sizeof c.wire);
            decode(&c, QDRI_KERNELS_BASE, 0);
            decode(&other, set, 0);
            for (int i = 0; i < c.n; i++) {
                const float a = load(c.dtype, c.y, i), b = load(c.dtype, other.y, i);
                assert_true(a == b || (isnan(a) && isnan(b)));
                assert_true(c.lost[i] == other.lost[i] || (isnan(c.lost[i]) && isnan(other.lost[i])));
            }
        }
    }
}

static float spiky(int i) { return i % 128 == 5 ? 1000 : random_float(); }

/* A rotated block spreads an outlier, and its error: at most sqrt(B) times that of its largest rotated element, which
 * is at most the length of the block. */
TEST(rotations)
{
    static codec_case c;
    for (int round = 0; round < 300; round++) {
        double plain = 0, rotated = 0;
        draw_case(&c, 3 * round);
        assert_int_equal(qdr_codec_parse("int4/128", &c.codec), QDR_OK);
        c.n = MOST;
        c.run = 0;
        set_elements(&c, spiky);
        encode(&c, QDRI_KERNELS_BASE, NULL);
        decode(&c, QDRI_KERNELS_BASE, 0);
        for (int i = 0; i < c.n / 128 * 128; i++) plain += fabs((double)(load(c.dtype, c.y, i) - c.x[i])) / c.n;
        c.codec.flags = QDR_CODEC_HADAMARD;
        encode(&c, QDRI_KERNELS_BASE, NULL);
        decode(&c, QDRI_KERNELS_BASE, 0);
        for (int block = 0; block < c.n / 128; block++) {
            double length = 0;
            for (int i = 128 * block; i < 128 * block + 128; i++) length += (double)c.x[i] * (double)c.x[i];
            const double bound = qdr_codec_bound(&c.codec, sqrt(length)) * (1 + 1e-5);
            for (int i = 128 * block; i < 128 * block + 128; i++) {
                const double error = fabs((double)(load(c.dtype, c.y, i) - c.x[i]));
                assert_true(error <= bound);
                rotated += error / c.n;
            }
        }
        assert_true(plain > 0.4); /* all but the outlier are lost */
        assert_true(rotated < 20);
    }
}

static float steady(int i) { return (float)(i % 100) / 100; }

/* The mean of many messages is the element, within 4 standard deviations of it. */
TEST(stochastic_rounding)
{
    enum { N_MESSAGES = 4000 };
    static codec_case c;
    static double sum[MOST];
    memset(sum, 0, sizeof sum);
    draw_case(&c, 0);
    c.n = 256;
    c.run = 0;
    assert_int_equal(qdr_codec_parse("int4+stochastic", &c.codec), QDR_OK);
    set_elements(&c, steady);
    for (int message = 0; message < N_MESSAGES; message++) {
        c.seed = (uint64_t)message;
        encode(&c, QDRI_KERNELS_BASE, NULL);
        for (int i = 0; i < c.n; i++) {
            const element e = read_element(&c, i);
            assert_true(fabs(e.value - (double)c.x[i]) <= qdr_codec_bound(&c.codec, e.most));
            sum[i] += e.value;
        }
    }
    const double step = 0.99 / 7, deviation = step / 2 / sqrt(N_MESSAGES);
    for (int i = 0; i < c.n; i++)
        assert_true(fabs(sum[i] / N_MESSAGES - (double)c.x[i]) <= 4.5 * deviation + step * 0x1p-16);
}

static float growing(int i) { return (float)(1 + i % 10) * 0.01f * (1 + random_float()); }

/* Σ of what was decoded = Σ of what was to be sent, less what is still kept. */
TEST(feedback_loses_nothing)
{
    enum { N_MESSAGES = 256 };
    static codec_case c;
    static double wanted[MOST], got[MOST];
    static const char *const names[] = {"int4+feedback", "int8+feedback", "int16+feedback", "int4+hadamard+feedback",
                                        "int4+stochastic+feedback"};
    for (int k = 0; k < 5; k++) {
        memset(wanted, 0, sizeof wanted);
        memset(got, 0, sizeof got);
        draw_case(&c, 0);
        c.n = 300;
        c.run = 0;
        assert_int_equal(qdr_codec_parse(names[k], &c.codec), QDR_OK);
        for (int message = 0; message < N_MESSAGES; message++) {
            c.seed = (uint64_t)message;
            set_elements(&c, growing);
            encode(&c, QDRI_KERNELS_BASE, c.lost);
            decode(&c, QDRI_KERNELS_BASE, 0);
            for (int i = 0; i < c.n; i++) {
                wanted[i] += (double)c.x[i];
                got[i] += (double)load(QDR_F32, c.y, i);
            }
        }
        for (int i = 0; i < c.n; i++) /* each message rounds two sums of numbers below 1 */
            assert_true(fabs(got[i] + (double)c.lost[i] - wanted[i]) <= N_MESSAGES * 0x1p-24);
    }
}

/* Embeddings of tokens that do not come shrink from step to step, until nothing is left; NaN leaves what was kept. */
TEST(feedback_of_special_blocks)
{
    static codec_case c;
    draw_case(&c, 0);
    c.n = 64;
    c.run = 0;
    assert_int_equal(qdr_codec_parse("int4/32+feedback", &c.codec), QDR_OK);
    for (int i = 0; i < c.n; i++) c.lost[i] = 0x1p-110f;
    memset(c.stored, 0, sizeof c.stored);
    encode(&c, QDRI_KERNELS_BASE, c.lost);
    for (int i = 0; i < c.n; i++) assert_true(c.lost[i] == 0);
    for (int i = 0; i < c.n; i++) c.lost[i] = 0.5f;
    store(QDR_F32, c.stored, 40, NAN);
    encode(&c, QDRI_KERNELS_BASE, c.lost);
    for (int i = 0; i < 32; i++) assert_true(fabsf(c.lost[i]) < 1e-6f);
    for (int i = 32; i < c.n; i++) assert_true(c.lost[i] == 0.5f);
}

static uint64_t hash_more(uint64_t hash, const unsigned char *bytes, int64_t n)
{
    for (int64_t i = 0; i < n; i++) hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash;
}

/* Messages, and what they decode to, are those of x86-64, where the number was printed: ranks may run on both. */
TEST(processors_give_the_same_bits)
{
    static const char *const names[] = {"int4",          "int8/64",         "int16",
                                        "int4+hadamard", "int8+stochastic", "int4+hadamard+stochastic"};
    static codec_case c;
    uint64_t hash = 14695981039346656037u;
    state_of_random = 1;
    for (int k = 0; k < 18; k++) {
        c.dtype = types[k % 3];
        c.n = MOST - k;
        c.run = 0;
        c.seed = (uint64_t)k;
        assert_int_equal(qdr_codec_parse(names[k / 3], &c.codec), QDR_OK);
        set_elements(&c, growing);
        encode(&c, QDRI_KERNELS_BASE, NULL);
        decode(&c, QDRI_KERNELS_BASE, 0);
        hash = hash_more(hash, c.wire + 1, wire_bytes(&c));
        hash = hash_more(hash, c.y, c.n * (c.dtype == QDR_F32 ? 4 : 2));
    }
    assert_true(hash == 0x0dc582f45e9f0233u);
}

TEST(wrong_arguments)
{
    static codec_case c;
    draw_case(&c, 0);
    const qdri_kernel good = kernel_of(&c, QDRI_K_ENCODE);
    qdri_kernel wrong = good;
    assert_int_equal(qdri_kernel_check(&wrong), QDR_OK);
    wrong.dtype = QDR_F64;
    assert_int_equal(qdri_kernel_check(&wrong), QDR_ERR_DTYPE);
    wrong = good;
    wrong.u.codec.bits = 5;
    assert_int_equal(qdri_kernel_check(&wrong), QDR_ERR_ARGUMENT);
    wrong = good;
    wrong.u.codec.block = 96;
    assert_int_equal(qdri_kernel_check(&wrong), QDR_ERR_ARGUMENT);
    wrong = good;
    wrong.u.codec.n = -1;
    assert_int_equal(qdri_kernel_check(&wrong), QDR_ERR_SHAPE);
    wrong = good;
    wrong.u.codec.run = -1;
    assert_int_equal(qdri_kernel_check(&wrong), QDR_ERR_SHAPE);
    wrong = good;
    wrong.u.codec.wire = NULL;
    assert_int_equal(qdri_kernel_check(&wrong), QDR_ERR_ARGUMENT);
    wrong.u.codec.n = 0;
    assert_int_equal(qdri_kernel_check(&wrong), QDR_OK);
    wrong = good;
    wrong.kind = QDRI_K_DECODE_SUM;
    wrong.u.codec.sources = c.wire;
    wrong.u.codec.own = 2;
    wrong.u.codec.n_sources = 2;
    assert_int_equal(qdri_kernel_check(&wrong), QDR_ERR_ARGUMENT);
    wrong.u.codec.own = 1;
    assert_int_equal(qdri_kernel_check(&wrong), QDR_OK);
    wrong.u.codec.sources = NULL;
    assert_int_equal(qdri_kernel_check(&wrong), QDR_ERR_ARGUMENT);
}
