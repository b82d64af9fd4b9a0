/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise kernels on a GPU, behind plain C: what the device calls, and what is compiled from the .cu files of this
 * folder. Sums are cut into parts that depend on the shape and on n_sms only, and added in a fixed order: the same call
 * gives the same bits. */
#ifndef QDRI_DEV_CUDA_KERNELS_LAUNCH_H
#define QDRI_DEV_CUDA_KERNELS_LAUNCH_H

#include <cuda_runtime_api.h>

#include "core/dtype.h"
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

/* In fp32, layer norm's two sums of 8192 columns from 128 blocks; an H100 has 132 multiprocessors. */
#define QDRI_CUDA_SCRATCH_BYTES ((size_t)8 << 20)

/* Where kernels run. */
typedef struct qdri_cuda_place {
    int n_sms;
    void *scratch; /* QDRI_CUDA_SCRATCH_BYTES of device memory, this stream's own, aligned to 256; NULL where
                      qdri_cuda_takes_scratch() says no */
    qdri_cuda_fault *fault; /* host memory that the GPU writes */
    cudaStream_t stream;
} qdri_cuda_place;

int qdri_cuda_takes_scratch(qdri_kernel_kind kind);
/* Enqueues a kernel whose arguments have been checked (dev/check.c); arrays of the description are copied. Kernels of
 * size 0 do what is left to do (clear a sum) or nothing.
 * @return what the launch said; cudaErrorNotSupported: no such kernel for these types */
cudaError_t qdri_cuda_launch(const qdri_kernel *kernel, const qdri_cuda_place *place);
#define QDRI_CUDA_FP8_PARTS 256

/* A factor of a product on its way to fp8, sizes at least 1. */
typedef struct qdri_cuda_rounded {
    const void *x; /* [n_rows, n_cols] of F32 or BF16 */
    qdr_dtype dtype;
    int64_t n_rows, n_cols, stride;
    int is_turned; /* 1: the product's steps are the rows, 0: the columns */
    qdri_rounding rounding;
    void *y; /* [columns, rows] if turned, else [rows, columns], the steps padded by zeros; aligned to 16 */
    int64_t y_stride; /* steps, a multiple of 16 */
    int is_widened; /* 1: the rounded numbers as BF16, scaled back; 0: their codes */
    uint32_t *parts; /* QDRI_CUDA_FP8_PARTS, for the while */
    float *back; /* by which a code's number is multiplied to give the rounded one */
} qdri_cuda_rounded;
cudaError_t qdri_cuda_round(const qdri_cuda_rounded *rounded, int n_sms, cudaStream_t stream);
/* Writes the GPU's clock, nanoseconds of its own, to *nanosecs (host memory that the GPU writes) when the stream comes
 * here. */
cudaError_t qdri_cuda_launch_stamp(int64_t *nanosecs, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
