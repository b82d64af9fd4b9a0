/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the host code of the .cu files: choice of type, launches, and their entry points. */
#ifndef QDRI_DEV_CUDA_KERNELS_LAUNCH_CUH
#define QDRI_DEV_CUDA_KERNELS_LAUNCH_CUH

#include <cuda_runtime.h>

#include <utility>

#include "dev/cuda/kernels/launch.h"
#include "dev/cuda/kernels/types.cuh"

cudaError_t qdri_cuda_elements(const qdri_kernel *kernel, const qdri_cuda_target *target);
cudaError_t qdri_cuda_activation(const qdri_kernel *kernel, const qdri_cuda_target *target);
cudaError_t qdri_cuda_rows(const qdri_kernel *kernel, const qdri_cuda_target *target);
cudaError_t qdri_cuda_norm(const qdri_kernel *kernel, const qdri_cuda_target *target);
cudaError_t qdri_cuda_embed(const qdri_kernel *kernel, const qdri_cuda_target *target);
cudaError_t qdri_cuda_cross_entropy(const qdri_kernel *kernel, const qdri_cuda_target *target);
cudaError_t qdri_cuda_optimizer(const qdri_kernel *kernel, const qdri_cuda_target *target);
cudaError_t qdri_cuda_moves(const qdri_kernel *kernel, const qdri_cuda_target *target);
cudaError_t qdri_cuda_codec(const qdri_kernel *kernel, const qdri_cuda_target *target);
cudaError_t qdri_cuda_attention(const qdri_kernel *kernel, const qdri_cuda_target *target);
/* Records the first of ids[n] that is `vocab` or more. vocab = 0: any id is valid. */
cudaError_t qdri_cuda_check_ids(const int32_t *ids, int64_t n, int64_t vocab, bool is_target,
                                const qdri_cuda_target *target);

/* The result of f(a T), T being the type. */
template <typename F> cudaError_t with_type(qdr_dtype dtype, F f)
{
    switch (dtype) {
    case QDR_F32: return f(float());
    case QDR_F64: return f(double());
    case QDR_BF16: return f(bf16());
    case QDR_F16: return f(f16());
    default: return cudaErrorNotSupported;
    }
}

#define LAUNCH_TRY(call)                                                                                               \
    do {                                                                                                               \
        const cudaError_t launch_error = (call);                                                                       \
        if (launch_error != cudaSuccess) return launch_error;                                                          \
    } while (0)

template <typename... E, typename... A>
cudaError_t launch(const qdri_cuda_target *target, dim3 grid, dim3 block, size_t shared_bytes, void (*kernel)(E...),
                   A &&...args)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = target->stream;
    return cudaLaunchKernelEx(&config, kernel, std::forward<A>(args)...);
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Whether packs of V elements at `data` are aligned; NULL is. */
template <int V, typename... T> bool is_wide(const T *...data)
{
    return (((uintptr_t)data % alignof(pack<T, V>) == 0) && ...);
}

constexpr int block_threads = 256;

/* Threads per block for n items, one per thread. */
inline unsigned threads_for(int64_t n) { return (unsigned)least(block_threads, ceil_div(most(n, 1), 32) * 32); }

/* One thread for each of n > 0 items. */
template <typename... E, typename... A>
cudaError_t launch_each(const qdri_cuda_target *target, int64_t n, void (*kernel)(E...), A &&...args)
{
    const unsigned threads = threads_for(n);
    return launch(target, dim3((unsigned)ceil_div(n, threads)), dim3(threads), 0, kernel, std::forward<A>(args)...);
}

__device__ inline int64_t thread_number() { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }

#endif
