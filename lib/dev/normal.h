/* SPDX-License-Identifier: Apache-2.0 */
/* The tail of the normal distribution in fp32. Shared by CPU and GPUs. */
#ifndef QDRI_DEV_NORMAL_H
#define QDRI_DEV_NORMAL_H

#include "dev/host_device.h"

#define QDRI_NORMAL_SCALE 0.211f

/* Φ(-a), 0 ≤ a ≤ 13, from t = 1/(1 + QDRI_NORMAL_SCALE·a) and e = exp(-a²/2), with at most 10 units of roundoff besides
 * the errors of t and e. The polynomial is the interpolation of Φ(-a)/(t·e) at the Chebyshev points of these t, whose
 * relative error is below 2^-25. */
QDRI_HOST_DEVICE float qdri_normal_tail(float t, float e)
{
    float p = -0.06937882356f;
    p = p * t + 0.2690084820f;
    p = p * t - 0.3050970789f;
    p = p * t + 0.3254225530f;
    p = p * t - 0.08042212821f;
    p = p * t + 0.1205105649f;
    p = p * t + 0.07047623915f;
    p = p * t + 0.08536514953f;
    p = p * t + 0.08411503394f;
    return e * (t * p);
}

#endif
