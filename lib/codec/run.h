/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs at work: elements to messages and back, on streams. */
#ifndef QDRI_CODEC_RUN_H
#define QDRI_CODEC_RUN_H

#include "core/codec.h"
#include "dev/dev.h"

/* What is coded, and how. */
typedef struct qdri_message {
    const qdr_codec *codec; /* one that would not shorten the type copies */
    qdr_dtype dtype;
    int64_t n, run; /* elements; blocks begin anew after each run of them, 0: n */
    const int64_t *n_bytes; /* of a message of LOSSLESS that is decoded, in memory of a CPU: its bytes, read from the
                             * stream; NULL: they are passed */
} qdri_message;

/* Bytes of the message; of LOSSLESS, at most. */
int64_t qdri_message_bytes(const qdri_message *message);
/* Whether messages of this codec and type can be made here: by this device, and this library.
 * @retval QDR_ERR_UNSUPPORTED  not; the message begins with "WHO: " and says why */
QDR_NODISCARD qdr_status qdri_codec_check_dev(const qdr_codec *codec, qdr_dtype dtype, const qdri_dev *dev,
                                              const char *who);
/* Enqueues: x -> wire. feedback: n, or NULL; seed: of STOCHASTIC. bytes: receives those of the message, of LOSSLESS
 * from the stream. */
QDR_NODISCARD qdr_status qdri_encode(qdr_stream *stream, const qdri_message *message, const void *x, float *feedback,
                                     uint64_t seed, void *wire, int64_t *bytes);
/* Enqueues: wire -> y, or added to y. bytes: of the message. */
QDR_NODISCARD qdr_status qdri_decode(qdr_stream *stream, const qdri_message *message, const void *wire, int64_t bytes,
                                     int is_added, void *y);

/* Whether the device codes several messages of this codec at once; and enqueues that: ENCODE or DECODE of at most
 * QDRI_CODE_PARTS_MOST messages, each of as many elements as its part says. */
int qdri_codes_parts(const qdri_message *message, const qdri_dev *dev);
QDR_NODISCARD qdr_status qdri_code_parts(qdr_stream *stream, qdri_kernel_kind kind, const qdri_message *message,
                                         const qdri_code_part *parts, int n_parts);

/* A sum of versions of the same elements. y may be x. */
typedef struct qdri_message_sum {
    int n_sources, own; /* own: the version that is x; -1: none. The others are messages, */
    const void *x, *sources; /* one every `stride` bytes */
    size_t stride;
    const int64_t *lengths; /* of LOSSLESS: by version, the bytes of its message, read from the stream */
    void *wire; /* receives the sum, encoded, and y what is decoded from that; NULL: y is the sum itself */
    int64_t *wire_bytes; /* of LOSSLESS: receives its bytes from the stream */
    float *feedback; /* of that encoding; NULL: none */
    uint64_t seed;
    void *y, *scratch; /* scratch: qdri_sum_scratch_bytes() */
} qdri_message_sum;
size_t qdri_sum_scratch_bytes(const qdri_message *message);
/* Enqueues: y = the sum, in order, in fp32, rounded once. */
QDR_NODISCARD qdr_status qdri_decode_sum(qdr_stream *stream, const qdri_message *message, const qdri_message_sum *sum);

#endif
