/* SPDX-License-Identifier: Apache-2.0 */
/** @file codec.h  Codecs: how collectives shorten what crosses a slow link, and by how much they change it.
 *
 * A codec turns n elements into a shorter message, the wire format, and back. There is one for each axis of the grid
 * and class of traffic, because these tolerate different errors: activations little, sums of gradients over d much.
 *
 * Wire formats. An integer codec of b bits cuts a run of n elements into blocks of B, the last of which may be
 * shorter. Each has an fp32 scale s = m / L, where m = max |x| and L = 2^(b-1) - 1; each element is the integer
 * nearest to x / s, ties to even. First come ceil(n/B) scales, then ceil(n·b/8) bytes of integers, of int4 the even
 * element in the lower half of a byte. A block with a NaN or an Inf has the scale NaN, and decodes to NaN; one whose m
 * is less than 2^-100 has the scale 0, and decodes to zeros. With HADAMARD, whole blocks are first multiplied by fixed
 * random signs and by the Walsh-Hadamard matrix over √B, and blocks whose m is 2^123 or more decode to NaN. BF16
 * rounds to nearest even. LOSSLESS has for each 128 elements a byte with the largest exponent and a byte 0, 4 bits for
 * the distance of each exponent from it (15: the exponent is 0), and planes of the bytes that are left, the last with
 * the sign; or where a distance is more than 14, and for fewer than 128, a byte 0, a byte 1, and the elements as they
 * are. ZFP has the blocks of four elements of zfp's fixed-rate mode in one dimension, filled up to 8 bytes; a block
 * with a NaN, an Inf or an element of 2^124 or more decodes to NaN, one below 2^-96 to zeros. LOSSLESS and ZFP run on
 * CPUs only. */
#ifndef QUADRILLE_CODEC_H
#define QUADRILLE_CODEC_H

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum qdr_codec_kind {
    QDR_CODEC_RAW = 0, /**< as it is */
    QDR_CODEC_BF16,
    QDR_CODEC_INT16,
    QDR_CODEC_INT8,
    QDR_CODEC_INT4,
    QDR_CODEC_LOSSLESS, /**< the same bits, in fewer where exponents are similar; the length depends on the data */
    QDR_CODEC_ZFP, /**< zfp with a fixed rate, if the library was built with it */
    QDR_N_CODECS
} qdr_codec_kind;

enum {
    QDR_CODEC_HADAMARD = 1, /**< rotates each block, which spreads outliers; int8 and int4, blocks of a power of two */
    QDR_CODEC_FEEDBACK = 2, /**< adds what the last message lost to the next one; integer codecs, gradients */
    QDR_CODEC_STOCHASTIC = 4 /**< rounds up or down at random, right on average; integer codecs */
};

/** No members will be added: what else a codec needs to know becomes a flag, or a kind. */
typedef struct qdr_codec {
    qdr_codec_kind kind;
    int block; /**< elements, 32, 64, 128 or 256; 0: 128; integer codecs */
    int rate; /**< bits an element, 4 to 24; ZFP */
    int flags; /**< sum of QDR_CODEC_HADAMARD, … */
} qdr_codec;

/** What a collective carries. */
typedef enum qdr_traffic_class {
    QDR_TRAFFIC_ACTIVATION = 0,
    QDR_TRAFFIC_ACTIVATION_GRADIENT,
    QDR_TRAFFIC_WEIGHT,
    QDR_TRAFFIC_GRADIENT, /**< of weights */
    QDR_N_TRAFFIC_CLASSES
} qdr_traffic_class;

/** Length of arrays that have an entry for each class, and room for later ones. */
#define QDR_MAX_TRAFFIC_CLASSES 8

/** The codecs of a stack. No members will be added: it is part of qdr_plan. All members may stay zero: nothing is
 * coded. */
typedef struct qdr_codecs {
    size_t size; /**< QDR_INIT(qdr_codecs) */
    qdr_codec of[QDR_N_AXES][QDR_MAX_TRAFFIC_CLASSES]; /**< by qdr_axis and qdr_traffic_class */
    int64_t least_bytes; /**< shorter parts are sent raw; 0: 16 KiB */
    int inside; /**< 1: also between ranks of one node */
} qdr_codecs;

/** Reads "int8", "int8/64" (blocks of 64), "int4/128+hadamard+feedback+stochastic", "zfp:16" (16 bits an element),
 * "bf16", "int16", "lossless" or "raw". Local, thread-safe.
 *  @retval QDR_ERR_ARGUMENT  NULL, an unknown name (the message has the nearest), a block or a rate out of range, a
 *                            flag that the codec lacks, or something given twice; *codec is then raw */
QDR_API QDR_NODISCARD qdr_status qdr_codec_parse(const char *text, qdr_codec *codec);
/** The other way. Returns the length of the text, without its terminating null; writes at most `capacity` bytes. */
QDR_API size_t qdr_codec_text(const qdr_codec *codec, char *text, size_t capacity);
/** Reads a preset, or one codec for everything, and what differs from it: "hybrid", "int8/64",
 * "hybrid,d.gradient=int4/128,xy.activation=bf16,least=64K,inside". Without a class, as in "xy=int8", a codec is for
 * all classes; of these only gradients of weights get HADAMARD and FEEDBACK. Presets:
 *
 *    preset      x, y: activations and gradients   z: weights   z: gradients   d: gradients
 *    none        raw                               raw          raw            raw
 *    lossless    lossless                          lossless     lossless       lossless
 *    safe        bf16                              bf16         bf16           bf16
 *    hybrid      int16                             int16        int16          int8
 *    zhybrid     zfp:16                            zfp:16       zfp:16         zfp:8
 *    mzhybrid    lossless                          lossless     lossless       zfp:8
 *    aggressive  int8/64                           int8         int8           int4+hadamard+feedback
 *    naive       zfp:8                             zfp:8        zfp:8          zfp:8
 *
 * Left of "=" stand axes, a dot and a class: activation, activation-gradient, weight or gradient. Local, thread-safe.
 *  @retval QDR_ERR_ARGUMENT  as qdr_codec_parse(); all of *codecs is then raw */
QDR_API QDR_NODISCARD qdr_status qdr_codecs_parse(const char *text, qdr_codecs *codecs);
/** The other way: the nearest preset, or d.gradient's codec for everything if that is nearer, and what differs. Returns
 * the length of the text, without its terminating null; writes at most `capacity` bytes. Local, thread-safe. */
QDR_API size_t qdr_codecs_text(const qdr_codecs *codecs, char *text, size_t capacity);
/** Bytes of the wire format of n elements; of LOSSLESS, at most. Those of a codec that would not shorten the type, and
 * of F64, I32 and U8, are the raw ones: such messages are not coded. 0 for n ≤ 0, INT64_MAX for n > 2^58. Local,
 * thread-safe. */
QDR_API int64_t qdr_codec_bytes(const qdr_codec *codec, qdr_dtype dtype, int64_t n_elems);
/** The largest error of an element of a block with max |x| = block_max, or with HADAMARD, of a block whose rotated
 * elements have it: m/2L + 2⁻²¹m, or with HADAMARD √B·(m/2L + 2⁻¹⁹m); STOCHASTIC doubles the first term. 2⁻⁸m for BF16;
 * 0 for RAW and LOSSLESS; less than 0: none is known (ZFP). Local, thread-safe. */
QDR_API double qdr_codec_bound(const qdr_codec *codec, double block_max);

/** Encodes n_elems elements. Local, stream-ordered on `stream` (NULL: the context's).
 *  @param x         device memory (on CPUs any memory); neither changed nor freed before the stream has run the call
 *  @param feedback  with FEEDBACK, n_elems floats of device memory, zeros at first: what earlier messages lost. It is
 *                   added to x, and receives what this message loses. NULL without
 *  @param seed      of STOCHASTIC: another one for each message
 *  @param wire      device memory, qdr_codec_bytes() bytes, aligned to 4
 *  @param[out] bytes  of the message; of LOSSLESS the stream writes them when it runs the call, and at no other time.
 *                     Unchanged after an error
 *  @retval QDR_ERR_ARGUMENT     NULL, a codec that qdr_codec_parse() would refuse, arrays that overlap, feedback
 *                               without FEEDBACK or the other way
 *  @retval QDR_ERR_SHAPE        n_elems is out of range
 *  @retval QDR_ERR_DTYPE        an unknown type
 *  @retval QDR_ERR_UNSUPPORTED  this library or device has no such codec
 *
 * Not thread-safe per context. */
QDR_API QDR_NODISCARD qdr_status qdr_codec_encode(qdr_context *ctx, const qdr_codec *codec, qdr_dtype dtype,
                                                  const void *x, int64_t n_elems, float *feedback, uint64_t seed,
                                                  void *wire, int64_t *bytes, qdr_stream *stream);
/** The other way: y = what the message holds, or with `add`, y += that, in fp32 and rounded once. As
 * qdr_codec_encode().
 *  @retval QDR_ERR_SHAPE  also if `bytes` is not what n_elems elements need. A damaged message of LOSSLESS is an error
 *                         of the stream's work: QDR_ERR_ARGUMENT, from then on */
QDR_API QDR_NODISCARD qdr_status qdr_codec_decode(qdr_context *ctx, const qdr_codec *codec, qdr_dtype dtype,
                                                  const void *wire, int64_t bytes, int64_t n_elems, int add, void *y,
                                                  qdr_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
