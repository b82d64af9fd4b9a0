/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32 from its definition. */
#ifndef QDR_TESTS_SLOW_CRC_H
#define QDR_TESTS_SLOW_CRC_H

#include <stddef.h>
#include <stdint.h>

/* By x, modulo the polynomial; the highest bit is the coefficient of 1. */
static inline uint32_t times_x(uint32_t a) { return a & 1 ? a >> 1 ^ 0xedb88320u : a >> 1; }

/* Bit by bit, from the definition. */
static inline uint32_t slow_crc(const unsigned char *bytes, size_t n)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = times_x(crc);
    }
    return ~crc;
}

#endif
