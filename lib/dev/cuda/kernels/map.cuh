/* SPDX-License-Identifier: Apache-2.0 */
/* Applying an operation to each element. Results may be operands. */
#ifndef QDRI_DEV_CUDA_KERNELS_MAP_CUH
#define QDRI_DEV_CUDA_KERNELS_MAP_CUH

#include "dev/cuda/kernels/launch.cuh"

constexpr int packs_each = 2; /* per thread, as far apart as the block has threads */

/* y = Op(a, b, y, factor), 1 unless it is stated. WIDE: n is a multiple of the packs' width, and they are aligned. */
template <typename Op, typename A, typename B, typename Y, bool WIDE>
__global__ void map(int64_t n, const A *a, const B *b, Y *y, real_of<A> factor)
{
    constexpr int V = pack_width<A>;
    typedef real_of<A> R;
    const int64_t first = ((int64_t)blockIdx.x * packs_each * blockDim.x + threadIdx.x) * V;
    const int64_t step = (int64_t)blockDim.x * V;
    pack<A, V> x[packs_each];
    pack<B, V> z[packs_each] = {};
    pack<Y, V> out[packs_each] = {};
#pragma unroll
    for (int i = 0; i < packs_each; i++) {
        x[i] = load_row<WIDE, V>(a, first + i * step, n);
        if (Op::reads_b) z[i] = load_row<WIDE, V>(b, first + i * step, n);
        if (Op::reads_y) out[i] = load_row<WIDE, V>(y, first + i * step, n);
    }
#pragma unroll
    for (int i = 0; i < packs_each; i++) {
        if (first + i * step >= n) return;
#pragma unroll
        for (int k = 0; k < V; k++)
            out[i].at[k] = put<Y>(Op::of(get(x[i].at[k]), (R)get(z[i].at[k]), (R)get(out[i].at[k]), factor));
        store_row<WIDE, V>(y, first + i * step, n, out[i]);
    }
}

template <typename Op, bool WIDE, typename A, typename B, typename Y>
cudaError_t launch_some(const qdri_cuda_target *target, int64_t n, const A *a, const B *b, Y *y, real_of<A> factor)
{
    const int64_t n_threads = ceil_div(ceil_div(n, pack_width<A>), packs_each);
    if (n == 0) return cudaSuccess;
    return launch_each(target, n_threads, map<Op, A, B, Y, WIDE>, n, a, b, y, factor);
}

/* Whole packs, then the remainder. */
template <typename Op, typename A, typename B, typename Y>
cudaError_t launch_map(const qdri_cuda_target *target, int64_t n, const A *a, const B *b, Y *y, double factor = 1)
{
    constexpr int V = pack_width<A>;
    const int64_t whole = is_wide<V>(a, b, y) ? n - n % V : 0;
    LAUNCH_TRY((launch_some<Op, true>(target, whole, a, b, y, (real_of<A>)factor)));
    return launch_some<Op, false>(target, n - whole, a + whole, Op::reads_b ? b + whole : b, y + whole,
                                  (real_of<A>)factor);
}

#endif
