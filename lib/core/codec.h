/* SPDX-License-Identifier: Apache-2.0 */
/* Facts about codecs that need no data. Pure functions. */
#ifndef QDRI_CORE_CODEC_H
#define QDRI_CORE_CODEC_H

#include "core/status.h"
#include "quadrille/codec.h"

/* The codecs but RAW, in order: the name, the bits of an integer (0: no integers), and the flags that it may have. */
#define QDRI_CODECS(CODEC)                                                                                             \
    CODEC("bf16", BF16, 0, 0)                                                                                          \
    CODEC("int16", INT16, 16, QDR_CODEC_FEEDBACK | QDR_CODEC_STOCHASTIC)                                               \
    CODEC("int8", INT8, 8, QDR_CODEC_FEEDBACK | QDR_CODEC_STOCHASTIC | QDR_CODEC_HADAMARD)                             \
    CODEC("int4", INT4, 4, QDR_CODEC_FEEDBACK | QDR_CODEC_STOCHASTIC | QDR_CODEC_HADAMARD)                             \
    CODEC("lossless", LOSSLESS, 0, 0)                                                                                  \
    CODEC("zfp", ZFP, 0, 0)

int qdri_codec_bits(const qdr_codec *codec); /* of its integers; 0: it has none */
int qdri_codec_block(const qdr_codec *codec); /* elements */
const char *qdri_traffic_name(qdr_traffic_class class); /* "activation-gradient" */
/* Whether it makes messages of a type shorter; else they are sent raw. */
int qdri_codec_shortens(const qdr_codec *codec, qdr_dtype dtype);
/* Whether nothing is coded. */
int qdri_codecs_are_none(const qdr_codecs *codecs);
int qdri_codecs_are_same(const qdr_codecs *a, const qdr_codecs *b);
/* @retval QDR_ERR_ARGUMENT  a member is out of range; the message begins with "WHO: " */
QDR_NODISCARD qdr_status qdri_codec_check(const qdr_codec *codec, const char *who);
QDR_NODISCARD qdr_status qdri_codecs_check(const qdr_codecs *codecs, const char *who);
/* The same for a stack of this type. */
QDR_NODISCARD qdr_status qdri_codecs_check_for(const qdr_codecs *codecs, qdr_dtype dtype, const char *who);

#endif
