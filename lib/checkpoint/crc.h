/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32 (that of zlib and gzip) of a tensor from runs of its bytes, in any order and on any ranks.
 *
 * Without the constants that begin and end it, a CRC is linear over GF(2): that of a tensor is the exclusive or of
 * those of its runs, each with zeros in place of the other bytes. Zeros before a run do not change it, and n zeros
 * after it multiply it by x^(8n) modulo the polynomial. So a rank adds its runs to a share, shares are combined by
 * exclusive or, and one call adds the constants. Pure; thread-safe. */
#ifndef QDRI_CHECKPOINT_CRC_H
#define QDRI_CHECKPOINT_CRC_H

#include <stddef.h>
#include <stdint.h>

/* The usual CRC-32 of n_bytes; crc: that of the bytes before, 0 at the beginning. */
uint32_t qdri_crc(uint32_t crc, const void *bytes, size_t n_bytes);

/* The share of equally long runs at equal distances, in their order. */
typedef struct qdri_crc_runs {
    uint32_t step; /* multiplies by x^(8·distance) */
    uint32_t zeros; /* the CRC of as many zeros as a run has bytes */
    uint32_t sum;
} qdri_crc_runs;
/* distance: from the end of a run to that of the next one; any if there is only one. */
qdri_crc_runs qdri_crc_runs_begin(int64_t n_bytes, int64_t distance);
/* The next run, by its usual CRC-32. */
void qdri_crc_runs_add(qdri_crc_runs *runs, uint32_t crc);
/* n_after: bytes of the tensor after the last run. */
uint32_t qdri_crc_runs_share(const qdri_crc_runs *runs, int64_t n_after);

/* The share of a single run that is followed by n_after bytes of the tensor. */
uint32_t qdri_crc_share(const void *run, size_t n_bytes, int64_t n_after);
/* The CRC-32 of a tensor of n_bytes whose shares, of disjoint runs that cover it, are combined. */
uint32_t qdri_crc_of_shares(uint32_t shares, int64_t n_bytes);

#endif
