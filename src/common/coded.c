/* SPDX-License-Identifier: Apache-2.0 */
#include "common/coded.h"

#include <math.h>

/* MANY_ELEMS: so many that scales do not matter. */
enum { MANY_ELEMS = 1 << 16, USUAL_BLOCK = 128 };

int codec_is_lossy(const qdr_codec *codec, qdr_dtype dtype)
{
    if (!codec || qdr_codec_bound(codec, 1) == 0) return 0;
    return qdr_codec_bytes(codec, dtype, MANY_ELEMS) < MANY_ELEMS * (int64_t)qdr_dtype_bytes(dtype);
}

/* What is decoded, in fp32, is rounded to the type. */
double gather_change(const qdr_codec *codec, qdr_dtype dtype, double most)
{
    if (!codec_is_lossy(codec, dtype)) return 0;
    const double change = qdr_codec_bound(codec, most);
    if (dtype == QDR_BF16) return change + 0x1p-8 * (most + change);
    if (dtype == QDR_F16) return change + fmax(0x1p-11 * (most + change), 0x1p-25);
    return change;
}

/* Messages whose max |x| add up to `most`: bounds are linear in these. A block that is rotated is bounded by its
 * length, which a rotation keeps, and so is what it has lost. */
static double message_change(const coded_sum *sum, double most, double *lost)
{
    qdr_codec codec = *sum->codec;
    const int block = codec.block ? codec.block : USUAL_BLOCK;
    if (sum->n_elems < block) codec.flags &= ~QDR_CODEC_HADAMARD; /* blocks that are not whole are not rotated */
    const double length = codec.flags & QDR_CODEC_HADAMARD ? sqrt(block) * most : most;
    const double before = *lost, change = qdr_codec_bound(&codec, length + before);
    if (codec.flags & QDR_CODEC_FEEDBACK) *lost = change; /* all messages so far have lost that together */
    return change - before;
}

double sum_change(coded_sum *sum, double versions, double most)
{
    if (sum->n_members == 1 || !codec_is_lossy(sum->codec, sum->dtype)) return 0;
    const double change = message_change(sum, versions, &sum->lost[0]);
    if (!sum->is_all || sum->n_members == 2) return change;
    return change + message_change(sum, most + sum->lost[0] + change, &sum->lost[1]);
}
