/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatches each kind of kernel to the file that implements it. */
#include "dev/cuda/kernels/intrinsics.cuh"
#include "dev/cuda/kernels/launch.cuh"

cudaError_t qdri_cuda_launch(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    switch (qdri_family_of(kernel->kind)) {
    case QDRI_OF_BINARY:
    case QDRI_OF_PARTS: return qdri_cuda_elements(kernel, target);
    case QDRI_OF_ROWS: return qdri_cuda_rows(kernel, target);
    case QDRI_OF_ACTIVATION: return qdri_cuda_activation(kernel, target);
    case QDRI_OF_NORM: return qdri_cuda_norm(kernel, target);
    case QDRI_OF_ATTENTION: return qdri_cuda_attention(kernel, target);
    case QDRI_OF_EMBED: return qdri_cuda_embed(kernel, target);
    case QDRI_OF_CE: return qdri_cuda_cross_entropy(kernel, target);
    case QDRI_OF_REDUCE:
    case QDRI_OF_ADAMW: return qdri_cuda_optimizer(kernel, target);
    case QDRI_OF_BLOCK:
        if (kernel->kind != QDRI_K_COPY_BLOCK) return cudaErrorNotSupported; /* copies and zeros need no kernel */
        return qdri_cuda_moves(kernel, target);
    case QDRI_OF_GATHER: return qdri_cuda_moves(kernel, target);
    case QDRI_OF_CODEC: return qdri_cuda_codec(kernel, target);
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
