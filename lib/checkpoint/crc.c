/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32 by runs, with zlib. */
#include "checkpoint/crc.h"

#include <zlib.h>

/* A CRC without constants, multiplied by x^(8n). */
static uint32_t shifted(uint32_t crc, int64_t n_bytes) { return (uint32_t)crc32_combine(crc, 0, (z_off_t)n_bytes); }

/* What the constants make of a tensor of zeros. */
static uint32_t of_zeros(int64_t n_bytes) { return shifted(UINT32_MAX, n_bytes) ^ UINT32_MAX; }

uint32_t qdri_crc(uint32_t crc, const void *bytes, size_t n_bytes) { return (uint32_t)crc32_z(crc, bytes, n_bytes); }

uint32_t qdri_crc_share(const void *run, size_t n_bytes, int64_t n_after)
{
    return shifted(qdri_crc(0, run, n_bytes) ^ of_zeros((int64_t)n_bytes), n_after);
}

uint32_t qdri_crc_of_shares(uint32_t shares, int64_t n_bytes) { return shares ^ of_zeros(n_bytes); }
