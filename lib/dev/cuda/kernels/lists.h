/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of addresses that are passed to a kernel by value. */
#ifndef QDRI_DEV_CUDA_KERNELS_LISTS_H
#define QDRI_DEV_CUDA_KERNELS_LISTS_H

#include "dev/kernels.h"

typedef struct qdri_cuda_lists {
    const void *sources[QDRI_REDUCE_MOST];
    void *results[QDRI_REDUCE_MOST];
} qdri_cuda_lists;

#endif
