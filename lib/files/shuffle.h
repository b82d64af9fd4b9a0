/* SPDX-License-Identifier: Apache-2.0 */
/* Orders that follow from a key, without a list in memory. */
#ifndef QDRI_FILES_SHUFFLE_H
#define QDRI_FILES_SHUFFLE_H

#include <stdint.h>

/* The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection that mixes all bits. */
static inline uint64_t qdri_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Element i of a permutation of 0 … n - 1 that depends on the key: four Feistel rounds, repeated until the result is
 * below n. */
static inline uint64_t qdri_shuffled(uint64_t i, uint64_t n, uint64_t key)
{
    int bits = 1; /* of each half */
    while (bits < 31 && UINT64_C(1) << 2 * bits < n) bits++;
    const uint64_t mask = (UINT64_C(1) << bits) - 1;
    do {
        uint64_t left = i >> bits, right = i & mask;
        for (uint64_t round = 0; round < 4; round++) {
            const uint64_t next = left ^ (qdri_mix(key ^ qdri_mix(4 * right + round)) & mask);
            left = right;
            right = next;
        }
        i = left << bits | right;
    } while (i >= n);
    return i;
}

#endif
