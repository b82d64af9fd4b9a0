/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that sizes, and the kernels of all devices, share: see quadrille/codec.h. */
#ifndef QDRI_CORE_CODEC_FORMAT_H
#define QDRI_CORE_CODEC_FORMAT_H

#include <stddef.h>
#include <stdint.h>

enum {
    QDRI_CODEC_LEAST_BLOCK = 32,
    QDRI_CODEC_MOST_BLOCK = 256,
    QDRI_CODEC_ABOVE_FINITE = 0x7f800000, /* bits of Inf; of a NaN or Inf at least */
    QDRI_CODEC_ABOVE_ROTATED = 0x7d000000, /* bits of 2^123: 16 = √256 times as much is finite, turned back */
    QDRI_CODEC_NAN = 0x7fc00000,
    QDRI_CODEC_LEAST_MAX = 0x0d800000, /* bits of 2^-100 */
    QDRI_CODEC_WORDS = QDRI_CODEC_MOST_BLOCK / 4 /* of random bits in a block: one for 4 elements, 16 bits each */
};
#define QDRI_CODEC_ROUND 12582912.0f /* 1.5·2^23: adding it leaves the nearest integer in the lowest bits */

/* WORD of each word of the signs by which a rotation first multiplies the elements of every block: 32 elements a word,
 * the first one in bit 31. */
#define QDRI_CODEC_SIGNS(WORD)                                                                                         \
    WORD(0xe220a839u)                                                                                                  \
    WORD(0x7b1dcdafu)                                                                                                  \
    WORD(0x6e789e6au) WORD(0xa1b965f4u) WORD(0x06c45d18u) WORD(0x8009454fu) WORD(0xf88bb8a8u) WORD(0x724c81ecu)
#define QDRI_CODEC_LISTED(word) word,

/* The random word `counter` of a seed (SplitMix64), in three steps. */
#define QDRI_CODEC_RANDOM(seed, counter, x)                                                                            \
    ((x) = (seed) + 0x9e3779b97f4a7c15u * ((counter) + 1), (x) = ((x) ^ (x) >> 30) * 0xbf58476d1ce4e5b9u,              \
     (x) = ((x) ^ (x) >> 27) * 0x94d049bb133111ebu, (x) ^ (x) >> 31)

/* Blocks of the lossless codec begin with the largest exponent, and with how they are stored. */
enum { QDRI_LOSSLESS_BLOCK = 128, QDRI_LOSSLESS_HEADER = 2, QDRI_LOSSLESS_PACKED = 0, QDRI_LOSSLESS_PLAIN = 1 };

/* Bytes of a block of n elements of this size. Packed ones are whole: 4 bits for an exponent of 8. */
static inline size_t qdri_lossless_bytes(int how, size_t elem_bytes, int64_t n)
{
    const size_t plain = (size_t)n * elem_bytes, saved = how == QDRI_LOSSLESS_PACKED ? QDRI_LOSSLESS_BLOCK / 2 : 0;
    return QDRI_LOSSLESS_HEADER + plain - saved;
}

#endif
