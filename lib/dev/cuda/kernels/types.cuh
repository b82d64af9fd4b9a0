/* SPDX-License-Identifier: Apache-2.0 */
/* Elements as stored, numbers as computed, and packs of elements that are moved together. */
#ifndef QDRI_DEV_CUDA_KERNELS_TYPES_CUH
#define QDRI_DEV_CUDA_KERNELS_TYPES_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "dev/cuda/kernels/intrinsics.cuh"

typedef __nv_bfloat16 bf16;
typedef __half f16;

/* The type in which T is computed and summed. */
template <typename T> using real_of = std::conditional_t<sizeof(T) == 2, float, T>;

__device__ inline float get(float x) { return x; }
__device__ inline double get(double x) { return x; }
__device__ inline int32_t get(int32_t x) { return x; }
__device__ inline uint32_t get(uint32_t x) { return x; }
__device__ inline float get(bf16 x) { return __bfloat162float(x); }
__device__ inline float get(f16 x) { return __half2float(x); }

template <typename T, typename R> __device__ inline T put(R x)
{
    if constexpr (std::is_same_v<T, bf16>) return __float2bfloat16_rn((float)x);
    if constexpr (std::is_same_v<T, f16>) return __float2half_rn((float)x);
    if constexpr (sizeof(T) != 2) return (T)x;
}

__device__ inline float real_exp(float x) { return expf(x); }
__device__ inline double real_exp(double x) { return exp(x); }
__device__ inline float real_log(float x) { return logf(x); }
__device__ inline double real_log(double x) { return log(x); }
__device__ inline float real_sqrt(float x) { return sqrtf(x); }
__device__ inline double real_sqrt(double x) { return sqrt(x); }
__device__ inline float real_tanh(float x) { return tanhf(x); }
__device__ inline double real_tanh(double x) { return tanh(x); }

/* Two-byte results do not need the last bits of fp32, and their kernels have no time to compute them. */
template <typename T> constexpr bool is_quick = sizeof(T) == 2;
constexpr float log2_of_e = 1.4426950408889634f;

template <bool QUICK, typename R> __device__ inline R exp_of(R x)
{
    if constexpr (QUICK) return fast_exp2(x * log2_of_e);
    return real_exp(x);
}

template <bool QUICK, typename R> __device__ inline R quotient(R a, R b)
{
    if constexpr (QUICK) return fast_divide(a, b);
    return a / b;
}

template <typename R> __device__ inline R minus_infinity() { return -(R)INFINITY; }

/* ---- packs ---- */

constexpr int pack_bytes = 16;
/* Number of elements moved by one access. */
template <typename T> constexpr int pack_width = pack_bytes / (int)sizeof(T);

template <typename T, int V> struct alignas(sizeof(T) * V < pack_bytes ? sizeof(T) * V : pack_bytes) pack {
    T at[V];
};

/* The unit of one access: the compiler does not split accesses of these types. */
template <int BYTES>
using short_words = std::conditional_t<BYTES == 4, unsigned, std::conditional_t<BYTES == 8, uint2, uint4>>;
template <int BYTES> using words_type = std::conditional_t<(BYTES <= 16), short_words<BYTES>, pack<uint4, BYTES / 16>>;
template <typename T, int V> using words_of = words_type<(int)sizeof(T) * V>;

/* Elements at, at + 1, … of a row of n; zeros after its end. wide: packs are aligned. Loaded values stay words until
 * they are used: as elements they would be unpacked immediately, which would wait for them. */
template <int V, typename T> __device__ inline pack<T, V> load(const T *row, int64_t at, int64_t n, bool wide)
{
    pack<T, V> x;
    words_of<T, V> all;
    if (wide && at + V <= n) {
        all = *(const words_of<T, V> *)(row + at);
    } else {
#pragma unroll
        for (int k = 0; k < V; k++) x.at[k] = at + k < n ? row[at + k] : put<T>(0.0f);
        memcpy(&all, &x, sizeof all);
    }
    memcpy(&x, &all, sizeof x);
    return x;
}

/* Stores all words at once, instead of element by element. */
template <int V, typename T> __device__ inline void store_words(T *at, const pack<T, V> &x)
{
    words_of<T, V> all;
    memcpy(&all, &x, sizeof all);
    if constexpr (sizeof all == sizeof(uint4)) {
        store_at_once(at, all);
    } else {
        *(words_of<T, V> *)at = all;
    }
}

template <int V, typename T> __device__ inline void store(T *row, int64_t at, int64_t n, bool wide, const pack<T, V> &x)
{
    if (wide && at + V <= n) {
        store_words(row + at, x);
        return;
    }
#pragma unroll
    for (int k = 0; k < V; k++)
        if (at + k < n) row[at + k] = x.at[k];
}

/* The same in a kernel for one kind of row. WIDE: packs are aligned, and n is a multiple of V. */
template <bool WIDE, int V, typename T> __device__ inline pack<T, V> load_row(const T *row, int64_t at, int64_t n)
{
    if (!WIDE) return load<V>(row, at, n, false);
    words_of<T, V> all = {};
    if (at < n) all = *(const words_of<T, V> *)(row + at);
    pack<T, V> x;
    memcpy(&x, &all, sizeof x);
    return x;
}

template <bool WIDE, int V, typename T>
__device__ inline void store_row(T *row, int64_t at, int64_t n, const pack<T, V> &x)
{
    if (WIDE) {
        store_words(row + at, x);
    } else {
        store<V>(row, at, n, false, x);
    }
}

#endif
