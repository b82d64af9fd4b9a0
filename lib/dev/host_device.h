/* SPDX-License-Identifier: Apache-2.0 */
/* How functions in headers are declared that kernels of the CPU and of GPUs share. */
#ifndef QDRI_DEV_HOST_DEVICE_H
#define QDRI_DEV_HOST_DEVICE_H

#ifdef __CUDACC__
#define QDRI_HOST_DEVICE static __host__ __device__ inline
#else
#define QDRI_HOST_DEVICE static inline
#endif

#endif
