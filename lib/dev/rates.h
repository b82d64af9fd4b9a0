/* SPDX-License-Identifier: Apache-2.0 */
/* Whether all ranks take a step at the same rate, from sums that travel with that of the gradient norm. Shared by CPU
 * and GPUs. */
#ifndef QDRI_DEV_RATES_H
#define QDRI_DEV_RATES_H

#include <string.h>

#include "core/kernels.h"
#include "dev/host_device.h"

/* What this rank adds: the bits of its rate in pieces of 16, and their squares. Sums of whole numbers are exact in any
 * order, up to 2^21 ranks. */
QDRI_HOST_DEVICE void qdri_rate_pieces(qdri_adamw_numbers *numbers)
{
    uint64_t bits;
    memcpy(&bits, &numbers->lr, sizeof bits);
    for (int i = 0; i < QDRI_RATE_PIECES; i++) {
        const double piece = (double)(bits >> 16 * i & 0xffff);
        numbers->rate[i] = piece;
        numbers->rate_squared[i] = piece * piece;
    }
}

/* From the sums: n·Σu² = (Σu)² only if all u are equal, and all ranks see the same. */
QDRI_HOST_DEVICE int qdri_rates_differ(const qdri_adamw_numbers *numbers, int n_ranks)
{
    int differ = 0;
    for (int i = 0; n_ranks > 1 && i < QDRI_RATE_PIECES; i++)
        differ |= n_ranks * numbers->rate_squared[i] != numbers->rate[i] * numbers->rate[i];
    return differ;
}

#endif
