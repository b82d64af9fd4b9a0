/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32 by runs, with zlib. */
#include "checkpoint/crc.h"

#include <zlib.h>

#include "checkpoint/crc_fold.h"

/* A CRC without constants, multiplied by x^(8n). */
static uint32_t shifted(uint32_t crc, int64_t n_bytes) { return (uint32_t)crc32_combine(crc, 0, (z_off_t)n_bytes); }

/* What the constants make of zeros. */
static uint32_t of_zeros(int64_t n_bytes) { return shifted(UINT32_MAX, n_bytes) ^ UINT32_MAX; }

uint32_t qdri_crc(uint32_t crc, const void *bytes, size_t n_bytes)
{
    const char *rest = bytes;
    if (n_bytes >= QDRI_CRC_FOLD_LEAST && qdri_crc_can_fold()) {
        const size_t n = n_bytes / QDRI_CRC_FOLD_STEP * QDRI_CRC_FOLD_STEP;
        crc = qdri_crc_fold(crc, bytes, n);
        rest += n;
        n_bytes -= n;
    }
    return (uint32_t)crc32_z(crc, (const unsigned char *)rest, n_bytes);
}

qdri_crc_runs qdri_crc_runs_begin(int64_t n_bytes, int64_t distance)
{
    return (qdri_crc_runs){.step = (uint32_t)crc32_combine_gen((z_off_t)distance), .zeros = of_zeros(n_bytes)};
}

void qdri_crc_runs_add(qdri_crc_runs *runs, uint32_t crc)
{
    runs->sum = (uint32_t)crc32_combine_op(runs->sum, crc ^ runs->zeros, runs->step);
}

uint32_t qdri_crc_runs_share(const qdri_crc_runs *runs, int64_t n_after) { return shifted(runs->sum, n_after); }

uint32_t qdri_crc_share(const void *run, size_t n_bytes, int64_t n_after)
{
    qdri_crc_runs runs = qdri_crc_runs_begin((int64_t)n_bytes, 0);
    qdri_crc_runs_add(&runs, qdri_crc(0, run, n_bytes));
    return qdri_crc_runs_share(&runs, n_after);
}

uint32_t qdri_crc_of_shares(uint32_t shares, int64_t n_bytes) { return shares ^ of_zeros(n_bytes); }
