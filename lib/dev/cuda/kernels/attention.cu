/* SPDX-License-Identifier: Apache-2.0 */
#include "dev/cuda/kernels/launch.cuh"
cudaError_t qdri_cuda_attention_forward(const qdri_kernel *, const qdri_cuda_place *)
{
    return cudaErrorNotSupported;
}
cudaError_t qdri_cuda_attention_backward(const qdri_kernel *, const qdri_cuda_place *)
{
    return cudaErrorNotSupported;
}
