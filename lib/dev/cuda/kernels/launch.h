/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise kernels on a GPU, behind plain C: what the device calls, and what is compiled from
 * the .cu files of this folder. Sums are cut into parts that depend on the shape and on n_sms only,
 * and added in a fixed order: the same call gives the same bits. */
#ifndef QDRI_DEV_CUDA_KERNELS_LAUNCH_H
#define QDRI_DEV_CUDA_KERNELS_LAUNCH_H

#include <cuda_runtime_api.h>

#include "dev/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A token or target beyond the vocabulary, as a kernel found it. */
typedef struct qdri_cuda_fault {
    int32_t found; /* 0: none; the rest is the first one's */
    int32_t is_target, id;
    int32_t claimed; /* by the kernel that writes the rest */
    int64_t row, vocab;
} qdri_cuda_fault;

#define QDRI_CUDA_SCRATCH_BYTES ((size_t)4 << 20)

/* Where kernels run. */
typedef struct qdri_cuda_place {
    int n_sms;
    void *scratch; /* QDRI_CUDA_SCRATCH_BYTES of device memory, this stream's own, aligned to 256;
                      NULL where qdri_cuda_takes_scratch() says no */
    qdri_cuda_fault *fault; /* host memory that the GPU writes */
    cudaStream_t stream;
} qdri_cuda_place;

int qdri_cuda_takes_scratch(qdri_kernel_kind kind);
/* Enqueues a kernel whose arguments have been checked (dev/check.c); arrays of the description are
 * copied. Kernels of size 0 do what is left to do (clear a sum) or nothing.
 * @return what the launch said; cudaErrorNotSupported: no such kernel for these types */
cudaError_t qdri_cuda_launch(const qdri_kernel *kernel, const qdri_cuda_place *place);
/* Writes the GPU's clock, nanoseconds of its own, to *nanosecs (host memory that the GPU writes)
 * when the stream comes here. */
cudaError_t qdri_cuda_launch_stamp(int64_t *nanosecs, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
