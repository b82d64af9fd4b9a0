/* SPDX-License-Identifier: Apache-2.0 */
/* Two numbers of 4 bits in a byte, the first one in its lower half: 32 at a time. Other bits are ignored. */
#ifndef QDRI_DEV_CPU_KERNELS_NIBBLES_H
#define QDRI_DEV_CPU_KERNELS_NIBBLES_H

#include <stdint.h>
#include <string.h>

enum { N_NIBBLES = 32 };
typedef uint8_t nibbles __attribute__((vector_size(N_NIBBLES))); /* a byte each */

static inline void pack_nibbles(const nibbles *from, void *to)
{
    typedef uint16_t pairs __attribute__((vector_size(N_NIBBLES)));
    typedef uint8_t bytes __attribute__((vector_size(N_NIBBLES / 2)));
    const pairs two = (pairs)*from & 0x0f0f;
    const bytes packed = __builtin_convertvector((two | two >> 4) & 0xff, bytes);
    memcpy(to, &packed, sizeof packed);
}

static inline void unpack_nibbles(const void *from, nibbles *to)
{
    typedef uint16_t pairs __attribute__((vector_size(N_NIBBLES)));
    typedef uint8_t bytes __attribute__((vector_size(N_NIBBLES / 2)));
    bytes packed;
    memcpy(&packed, from, sizeof packed);
    const pairs wide = __builtin_convertvector(packed, pairs);
    *to = (nibbles)((wide | wide << 4) & 0x0f0f);
}

#endif
