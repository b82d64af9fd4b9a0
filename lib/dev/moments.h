/* SPDX-License-Identifier: Apache-2.0 */
/* Moments of a row that is in parts (Chan, Golub, LeVeque 1983). Shared by CPU and GPUs. */
#ifndef QDRI_DEV_MOMENTS_H
#define QDRI_DEV_MOMENTS_H

#include "dev/host_device.h"

/* Of n numbers: their mean, and the sum of (number - mean)². */
typedef struct qdri_moments {
    double n, mean, m2;
} qdri_moments;

/* Adds those of a part to the sum of the parts before it. */
QDRI_HOST_DEVICE void qdri_moments_add(qdri_moments *sum, qdri_moments part)
{
    const double delta = part.mean - sum->mean, n = sum->n + part.n;
    if (part.n == 0) return;
    sum->mean += delta * (part.n / n);
    sum->m2 += part.m2 + delta * delta * (sum->n * part.n / n);
    sum->n = n;
}

#endif
