/* SPDX-License-Identifier: Apache-2.0 */
/* What CUDA C++ has no words for. */
#ifndef QDRI_DEV_CUDA_KERNELS_INTRINSICS_CUH
#define QDRI_DEV_CUDA_KERNELS_INTRINSICS_CUH

__device__ inline int64_t nanosecs_now()
{
    int64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

#endif
