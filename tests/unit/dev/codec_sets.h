/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of codecs for each instruction set. */
#ifndef UNIT_DEV_CODEC_SETS_H
#define UNIT_DEV_CODEC_SETS_H

#include "dev/cpu/kernels/kernels.h"

static inline const qdri_kernel_fn *table(int set)
{
    (void)set; /* other processors have one */
#ifdef __x86_64__
    if (set == QDRI_KERNELS_AVX512) return qdri_codec_kernels_avx512;
    if (set == QDRI_KERNELS_AVX2) return qdri_codec_kernels_avx2;
#endif
    return qdri_codec_kernels_base;
}

static inline int has_set(int set)
{
    const int has = qdri_cpu_kernels_limit(set);
    qdri_cpu_kernels_limit(QDRI_N_KERNEL_SETS - 1);
    return has;
}

#endif
