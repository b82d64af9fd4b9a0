/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatches each kind of kernel to the file that implements it. */
#include "dev/cuda/kernels/intrinsics.cuh"
#include "dev/cuda/kernels/launch.cuh"

cudaError_t qdri_cuda_launch(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    switch (kernel->kind) {
    case QDRI_K_ADD:
    case QDRI_K_SUM_PARTS:
    case QDRI_K_CAST:
    case QDRI_K_GELU_FORWARD:
    case QDRI_K_GELU_BACKWARD: return qdri_cuda_elements(kernel, target);
    case QDRI_K_BIAS_ADD:
    case QDRI_K_COLUMN_SUM:
    case QDRI_K_POSITION_ADD:
    case QDRI_K_POSITION_SUM: return qdri_cuda_rows(kernel, target);
    case QDRI_K_NORM_MOMENTS:
    case QDRI_K_NORM_MERGE:
    case QDRI_K_NORM_APPLY:
    case QDRI_K_NORM_SUMS:
    case QDRI_K_NORM_BACKWARD: return qdri_cuda_norm(kernel, target);
    case QDRI_K_EMBED_FORWARD:
    case QDRI_K_EMBED_BACKWARD: return qdri_cuda_embed(kernel, target);
    case QDRI_K_CE_MAX:
    case QDRI_K_CE_SUMS:
    case QDRI_K_CE_LOSS:
    case QDRI_K_CE_BACKWARD: return qdri_cuda_cross_entropy(kernel, target);
    case QDRI_K_SUM_SQUARES:
    case QDRI_K_ADAMW_RATE:
    case QDRI_K_ADAMW_BEGIN:
    case QDRI_K_ADAMW: return qdri_cuda_optimizer(kernel, target);
    case QDRI_K_COPY_BLOCK:
    case QDRI_K_REDUCE:
    case QDRI_K_TO_KEYS:
    case QDRI_K_FROM_KEYS: return qdri_cuda_moves(kernel, target);
    case QDRI_K_ENCODE:
    case QDRI_K_DECODE:
    case QDRI_K_DECODE_SUM: return qdri_cuda_codec(kernel, target);
    case QDRI_K_ATTENTION_FORWARD:
    case QDRI_K_ATTENTION_BACKWARD: return qdri_cuda_attention(kernel, target);
    default: return cudaErrorNotSupported;
    }
}

namespace
{
__global__ void stamp(int64_t *nanosecs) { *nanosecs = nanosecs_now(); }
} // namespace

cudaError_t qdri_cuda_launch_stamp(int64_t *nanosecs, cudaStream_t stream)
{
    const qdri_cuda_target target = {0, nullptr, nullptr, stream};
    return launch(&target, dim3(1), dim3(1), 0, stamp, nanosecs);
}
