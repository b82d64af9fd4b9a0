/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise kernels on a GPU, with a plain C interface: functions called by the device and implemented in the .cu
 * files of this folder. Sums are divided into parts that depend only on the shape and on n_sms, and added in a fixed
 * order: the same call gives the same bits. */
#ifndef QDRI_DEV_CUDA_KERNELS_LAUNCH_H
#define QDRI_DEV_CUDA_KERNELS_LAUNCH_H

#include <cuda_runtime_api.h>

#include "core/dtype.h"
#include "core/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum qdri_cuda_fault_kind {
    QDRI_FAULT_TOKEN,
    QDRI_FAULT_TARGET,
    QDRI_FAULT_FIRST_KEY,
    QDRI_FAULT_RATE
} qdri_cuda_fault_kind;

/* A token or target outside the vocabulary, a first key that its row cannot have, or rates of a step that differ,
 * recorded by a kernel. */
typedef struct qdri_cuda_fault {
    int32_t found; /* 0: none; the other fields describe the first one */
    int32_t kind; /* qdri_cuda_fault_kind */
    int32_t claimed; /* set by the kernel that writes the other fields */
    int32_t id, least; /* of a token, target or first key; least and most: what it may be */
    int64_t row, most;
    double lr; /* this rank's */
} qdri_cuda_fault;

/* Enough for layer norm's two sums of 8192 columns from 128 blocks in fp32; an H100 has 132 multiprocessors. */
#define QDRI_CUDA_SCRATCH_BYTES ((size_t)8 << 20)

/* Where kernels run. */
typedef struct qdri_cuda_target {
    int n_sms;
    void *scratch; /* QDRI_CUDA_SCRATCH_BYTES of device memory belonging to this stream, aligned to 256; NULL if
                    * qdri_cuda_takes_scratch() returns 0 */
    qdri_cuda_fault *fault; /* host memory that the GPU can write */
    cudaStream_t stream;
} qdri_cuda_target;

/* Lists of addresses that are passed to a kernel by value. */
typedef struct qdri_cuda_lists {
    const void *sources[QDRI_REDUCE_MOST];
    void *results[QDRI_REDUCE_MOST];
} qdri_cuda_lists;

typedef struct qdri_cuda_code_parts {
    qdri_code_part at[QDRI_CODE_PARTS_MOST];
} qdri_cuda_code_parts;

int qdri_cuda_takes_scratch(qdri_kernel_kind kind);
/* Enqueues a kernel whose arguments have been checked (dev/check.c); arrays in the description are copied. Kernels of
 * size 0 do what remains (clear a sum) or nothing.
 * @return the result of the launch; cudaErrorNotSupported: no such kernel for these types */
cudaError_t qdri_cuda_launch(const qdri_kernel *kernel, const qdri_cuda_target *target);
#define QDRI_CUDA_FP8_PARTS 256

/* A factor of a product that is to be rounded to fp8; extents must be at least 1. */
typedef struct qdri_cuda_rounded {
    const void *x; /* [n_rows, n_cols] of F32 or BF16 */
    qdr_dtype dtype;
    int64_t n_rows, n_cols, stride;
    int is_turned; /* 1: the product's steps are the rows; 0: the columns */
    qdri_rounding rounding;
    void *y; /* [columns, rows] if is_turned, else [rows, columns], with the steps padded with zeros; aligned to 16 */
    int64_t y_stride; /* steps, a multiple of 16 */
    int is_widened; /* 1: the rounded numbers as BF16, scaled back; 0: their codes */
    uint32_t *parts; /* QDRI_CUDA_FP8_PARTS, temporary */
    float *back; /* receives the factor that turns the number of a code into the rounded number */
} qdri_cuda_rounded;
cudaError_t qdri_cuda_round(const qdri_cuda_rounded *rounded, int n_sms, cudaStream_t stream);
/* Writes the GPU's clock, in nanoseconds, to *nanosecs (host memory that the GPU can write) when the stream reaches
 * this point. */
cudaError_t qdri_cuda_launch_stamp(int64_t *nanosecs, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
