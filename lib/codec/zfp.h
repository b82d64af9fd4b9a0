/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of zfp, on CPUs. The home of its headers is zfp.c. */
#ifndef QDRI_CODEC_ZFP_H
#define QDRI_CODEC_ZFP_H

#include "codec/run.h"

int qdri_has_zfp(void); /* 1: the library was built with zfp */
/* Enqueue: as qdri_encode() and qdri_decode(). A block with an element that is NaN, or not less than 2^126, decodes to
 * NaN. */
QDR_NODISCARD qdr_status qdri_zfp_encode(qdr_stream *stream, const qdri_message *message, const void *x, void *wire);
QDR_NODISCARD qdr_status qdri_zfp_decode(qdr_stream *stream, const qdri_message *message, const void *wire,
                                         int is_added, void *y);

#endif
