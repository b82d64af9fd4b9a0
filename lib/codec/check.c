/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/check.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/codec_format.h"
#include "core/size.h"
#include "dev/cpu/narrow.h"

/* Of fp32 arithmetic, relative: one division; a rotation, whose maximum the kernels find in fp32. */
static const double scale_slack = 0x1p-21, rotated_slack = 0x1p-16;
static const double least_max = 0x1p-100;
static const float least_zfp_nan = 0x1p124F;
static const double least_rotated_nan = 0x1p123;
enum { ZFP_BLOCK = 4 };

/* One block of a message. */
typedef struct block {
    const qdr_codec *codec;
    const float *exact, *decoded, *feedback;
    const char *scale; /* of integer codecs: in the message */
    int n;
    int64_t first; /* number of its first element */
    int is_sum;
} block;

typedef struct finding {
    qdri_message_errors *errors;
    char *text;
    size_t capacity;
} finding;

static int says(const finding *found, const block *b, int i, double allowed)
{
    char name[64];
    qdr_codec_text(b->codec, name, sizeof name);
    snprintf(found->text, found->capacity, "element %" PRId64 ", %.9g, decodes to %.9g; %s may change it by %.3g",
             b->first + i, (double)b->exact[i], (double)b->decoded[i], name, allowed);
    return i;
}

static int is_finite(const block *b)
{
    for (int i = 0; i < b->n; i++)
        if (!isfinite(b->exact[i])) return 0;
    return 1;
}

/* @return the first element that is not NaN; -1: all are */
static int all_nan(const finding *found, const block *b)
{
    for (int i = 0; i < b->n; i++)
        if (!isnan(b->decoded[i])) {
            snprintf(found->text, found->capacity,
                     "element %" PRId64 " decodes to %.9g; its block has an element that is NaN or Inf, or too large "
                     "to be coded, and decodes to NaN",
                     b->first + i, (double)b->decoded[i]);
            return i;
        }
    return -1;
}

/* @return the first element that is off by more than is allowed; -1: none; allowed < 0: nothing is known */
static int compare(const finding *found, const block *b, double allowed)
{
    qdri_message_errors *errors = found->errors;
    for (int i = 0; i < b->n; i++) {
        const double error = fabs((double)b->decoded[i] - (double)b->exact[i]);
        if (allowed >= 0 && !(error <= allowed)) return says(found, b, i, allowed);
        if (!isfinite(error)) continue;
        errors->n_elems++;
        errors->squares += (double)b->exact[i] * (double)b->exact[i];
        errors->errors += error * error;
        if (allowed > 0) errors->of_bound = fmax(errors->of_bound, error / allowed);
    }
    return -1;
}

/* ---- integers ---- */

static int is_rotated(const block *b)
{
    return (b->codec->flags & QDR_CODEC_HADAMARD) && b->n == qdri_codec_block(b->codec);
}

/* The largest element of what is coded: of the block, or of its Walsh-Hadamard transform. */
static double largest(const block *b)
{
    static const uint32_t signs[] = {QDRI_CODEC_SIGNS(QDRI_CODEC_LISTED)};
    double x[QDRI_CODEC_MOST_BLOCK] = {0}, most = 0;
    for (int i = 0; i < b->n; i++)
        x[i] = is_rotated(b) && (signs[i / 32] << i % 32 & 0x80000000u) ? -(double)b->exact[i] : (double)b->exact[i];
    for (int half = 1; half < b->n && is_rotated(b); half *= 2)
        for (int i = 0; i < b->n; i++) {
            if (i & half) continue;
            const double sum = x[i] + x[i + half];
            x[i + half] = x[i] - x[i + half];
            x[i] = sum;
        }
    for (int i = 0; i < b->n; i++) most = fmax(most, fabs(x[i]));
    return is_rotated(b) ? most / sqrt(b->n) : most;
}

static int wrong_scale(const finding *found, const block *b, float scale, double most, double slack)
{
    const double levels = (double)((1 << (qdri_codec_bits(b->codec) - 1)) - 1);
    if (fabs((double)scale * levels - most) <= slack * most) return 0;
    snprintf(found->text, found->capacity,
             "the block that begins with element %" PRId64 " has the scale %.9g, but %.9g is its largest one / %g",
             b->first, (double)scale, most / levels, levels);
    return 1;
}

/* What a message loses is exactly what is left of its elements, in fp32. */
static int wrong_feedback(const finding *found, const block *b, int is_zero)
{
    for (int i = 0; b->feedback && i < b->n; i++) {
        const float left = is_zero ? 0 : b->exact[i] - b->decoded[i];
        if (b->feedback[i] == left) continue;
        snprintf(found->text, found->capacity,
                 "element %" PRId64 ", %.9g, decodes to %.9g, but its feedback is %.9g instead of %.9g", b->first + i,
                 (double)b->exact[i], (double)b->decoded[i], (double)b->feedback[i], (double)left);
        return i;
    }
    return -1;
}

/* A block that is too small to be coded is sent as zeros. */
static int wrong_zeros(const finding *found, const block *b)
{
    for (int i = 0; i < b->n; i++)
        if (b->decoded[i] != 0) return says(found, b, i, fabs((double)b->exact[i]));
    return -1;
}

static int wrong_integers(const finding *found, const block *b)
{
    const double slack = is_rotated(b) ? rotated_slack : scale_slack;
    qdr_codec codec = *b->codec;
    if (!is_finite(b)) return all_nan(found, b);
    const double most = largest(b);
    const double limit = b->codec->flags & QDR_CODEC_HADAMARD ? least_rotated_nan : (double)FLT_MAX;
    const int may_be_nan = most > (1 - slack) * limit;
    if (most > (1 + slack) * limit || (may_be_nan && isnan(b->decoded[0]))) return all_nan(found, b);
    float scale;
    memcpy(&scale, b->scale, sizeof scale);
    const int is_zero = most < (1 - slack) * least_max || (most < (1 + slack) * least_max && scale == 0);
    if (wrong_scale(found, b, scale, is_zero ? 0 : most, slack)) return 0;
    if (!is_rotated(b)) codec.flags &= ~QDR_CODEC_HADAMARD;
    const int at = is_zero ? wrong_zeros(found, b) : compare(found, b, qdr_codec_bound(&codec, most));
    return at >= 0 ? at : wrong_feedback(found, b, is_zero);
}

/* ---- other codecs, whose blocks are elements, or have no bounds ---- */

static int wrong_bf16(const finding *found, const block *b)
{
    const float x = *b->exact, y = *b->decoded;
    if (isnan(x) && isnan(y)) return -1;
    if (isinf(y) && signbit(x) == signbit(y) && fabsf(x) >= 0x1.ffp127F) return -1;
    return compare(found, b, 0x1p-8 * fabs((double)x) + 0x1p-134);
}

static int wrong_lossless(const finding *found, const block *b)
{
    for (int i = 0; i < b->n; i++) {
        const int is_same = qdri_float_bits(b->exact[i]) == qdri_float_bits(b->decoded[i]);
        /* Which of two NaN a sum keeps depends on the order of the operands, which is the compiler's. */
        if (!is_same && !(b->is_sum && isnan(b->exact[i]) && isnan(b->decoded[i]))) return says(found, b, i, 0);
    }
    return compare(found, b, -1);
}

static int wrong_zfp(const finding *found, const block *b)
{
    for (int i = 0; i < b->n; i++)
        if (!(fabsf(b->exact[i]) < least_zfp_nan)) return all_nan(found, b);
    return compare(found, b, -1);
}

/* ---- messages ---- */

static int wrong_block(const finding *found, const block *b)
{
    const qdr_codec_kind kind = b->codec->kind;
    if (qdri_codec_bits(b->codec)) return wrong_integers(found, b);
    return kind == QDR_CODEC_BF16  ? wrong_bf16(found, b)
           : kind == QDR_CODEC_ZFP ? wrong_zfp(found, b)
                                   : wrong_lossless(found, b);
}

static int block_elems(const qdr_codec *codec)
{
    if (qdri_codec_bits(codec)) return qdri_codec_block(codec);
    return codec->kind == QDR_CODEC_BF16 ? 1 : codec->kind == QDR_CODEC_ZFP ? ZFP_BLOCK : QDRI_LOSSLESS_BLOCK;
}

int64_t qdri_message_wrong(const qdri_message *message, const qdri_message_copy *copy, int64_t first,
                           qdri_message_errors *errors, char *text, size_t capacity)
{
    const finding found = {errors, text, capacity};
    const int64_t run = message->run && message->run < message->n ? message->run : message->n;
    const int most = block_elems(message->codec);
    const char *wire = copy->wire;
    errors->n_messages++;
    for (int64_t begin = 0; begin < message->n; begin += run) {
        const int64_t end = qdri_least(begin + run, message->n);
        for (int64_t at = begin; at < end; at += most) {
            const block b = {.codec = message->codec,
                             .exact = copy->exact + at,
                             .decoded = copy->decoded + at,
                             .feedback = copy->feedback ? copy->feedback + at : NULL,
                             .scale = wire + (at - begin) / most * (int64_t)sizeof(float),
                             .n = (int)(end - at < most ? end - at : most),
                             .first = first + at,
                             .is_sum = copy->is_sum};
            const int wrong = wrong_block(&found, &b);
            if (wrong >= 0) return at + wrong;
        }
        wire += qdr_codec_bytes(message->codec, message->dtype, end - begin);
    }
    return -1;
}
