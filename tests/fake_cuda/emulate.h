/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA C++ for g++: if included before a .cu file, it turns the kernels into host functions. The blocks of a grid run
 * one after the other on the stream's thread, in every other grid from the last to the first; the threads of a block
 * are fibers, which take turns whenever the block or a warp waits for all of its threads. */
#ifndef FAKE_CUDA_EMULATE_H
#define FAKE_CUDA_EMULATE_H

#define cudaLaunchKernelEx emulate_no_launch /* the toolkit's, which asks the driver */
#include <cuda_runtime.h>
#undef cudaLaunchKernelEx
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstring>
#include <ctime>
#include <tuple>
#include <utility>

#include "dev/cuda/kernels/launch.h"
#include "fake.h"

/* Static shared memory is the thread's, as blocks run one after the other. Each thread that uses any of it has all of
 * it, zeroed: kernels of several types had better share it. */
#undef __shared__
#define __shared__ thread_local
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__
#ifdef __clang__
#define __constinit __attribute__((require_constant_initialization))
#endif
#define EMULATE_SHARED_BYTES 232448 /* of a block on Hopper */

#define EMULATE_FAST_TLS __constinit thread_local
extern EMULATE_FAST_TLS uint3 threadIdx;
extern EMULATE_FAST_TLS uint3 blockIdx;
extern EMULATE_FAST_TLS dim3 blockDim;
extern EMULATE_FAST_TLS dim3 gridDim;
extern EMULATE_FAST_TLS unsigned char *shared_bytes; /* dynamic shared memory */

/* ---- grids ---- */

typedef struct emulate_grid {
    dim3 grid, block;
    size_t shared_bytes;
    void (*thread)(const void *args); /* what each thread does */
    const void *args;
} emulate_grid;
void emulate_run(const emulate_grid *grid);
/* What a GPU would say of the grid's sizes. */
cudaError_t emulate_check(const cudaLaunchConfig_t *config, const void *kernel);
/* Dynamic shared memory that this kernel may have, beyond what any may. */
cudaError_t emulate_allow_shared(const void *kernel, size_t bytes);

/* ---- meetings of threads ---- */

/* All threads of the block that have not ended; `line` and `file` must be the same. */
void emulate_block_meets(int line, const char *file);
/* All lanes of the mask: the last to come calls finish(all), where all[lane] is that lane's `mine`. */
void emulate_warp_meets(unsigned mask, void *mine, void (*finish)(void *const *all, unsigned mask), int line,
                        const char *file);
unsigned emulate_lane();

#define EMULATE_WHERE int line = __builtin_LINE(), const char *file = __builtin_FILE()

inline void __syncthreads(EMULATE_WHERE) { emulate_block_meets(line, file); }

inline void __syncwarp(unsigned mask = ~0u, EMULATE_WHERE)
{
    emulate_warp_meets(
        mask, nullptr, [](void *const *, unsigned) {}, line, file);
}

template <typename T> struct emulate_shuffle {
    T value, result;
    unsigned from;
};

template <typename T> T emulate_shuffled(unsigned mask, T value, unsigned from, int line, const char *file)
{
    emulate_shuffle<T> mine = {value, value, from};
    emulate_warp_meets(
        mask, &mine,
        [](void *const *all, unsigned lanes) {
            for (unsigned i = 0; i < 32; i++) {
                if (!(lanes >> i & 1)) continue;
                emulate_shuffle<T> *to = (emulate_shuffle<T> *)all[i];
                if (lanes >> to->from & 1) to->result = ((const emulate_shuffle<T> *)all[to->from])->value;
            }
        },
        line, file);
    return mine.result;
}

template <typename T> T __shfl_sync(unsigned mask, T value, int from, int width = 32, EMULATE_WHERE)
{
    const unsigned base = emulate_lane() & ~(unsigned)(width - 1);
    return emulate_shuffled(mask, value, base | ((unsigned)from & (unsigned)(width - 1)), line, file);
}

template <typename T> T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, EMULATE_WHERE)
{
    (void)width;
    return emulate_shuffled(mask, value, (emulate_lane() ^ (unsigned)lanes) & 31u, line, file);
}

template <typename T> T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int width = 32, EMULATE_WHERE)
{
    const unsigned lane = emulate_lane();
    const bool inside = lane % (unsigned)width + lanes < (unsigned)width;
    return emulate_shuffled(mask, value, inside ? lane + lanes : lane, line, file);
}

inline unsigned __ballot_sync(unsigned mask, int says, EMULATE_WHERE)
{
    emulate_shuffle<unsigned> mine = {(unsigned)(says != 0), 0, 0};
    emulate_warp_meets(
        mask, &mine,
        [](void *const *all, unsigned lanes) {
            unsigned votes = 0;
            for (unsigned i = 0; i < 32; i++)
                if (lanes >> i & 1) votes |= ((const emulate_shuffle<unsigned> *)all[i])->value << i;
            for (unsigned i = 0; i < 32; i++)
                if (lanes >> i & 1) ((emulate_shuffle<unsigned> *)all[i])->result = votes;
        },
        line, file);
    return mine.result;
}

/* ---- what a thread does alone ---- */

inline int atomicCAS(int *at, int old, int value)
{
    __atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return old;
}

inline int atomicMin(int *at, int value)
{
    int old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (value < old && !__atomic_compare_exchange_n(at, &old, value, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {}
    return old;
}

inline int atomicAdd(int *at, int value) { return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST); }

inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline unsigned __float_as_uint(float x)
{
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline float __uint_as_float(unsigned bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
inline float __fmul_rn(float a, float b) { return a * b; }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
template <typename T> T __ldg(const T *at) { return *at; }

/* ---- what the product writes in assembly (kernels/intrinsics.cuh) ---- */

#define QDRI_DEV_CUDA_KERNELS_INTRINSICS_CUH

inline int64_t nanosecs_now()
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Subnormal numbers are 0, and so is what is divided by a number beyond 2^126. */
inline float emulate_flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }
inline float fast_exp2(float x) { return emulate_flush(exp2f(emulate_flush(x))); }
inline float fast_divide(float a, float b)
{
    if (fabsf(b) > 0x1p126f) return 0 * a;
    return emulate_flush(emulate_flush(a) / emulate_flush(b));
}
inline void store_at_once(void *to, uint4 x) { *(uint4 *)to = x; }
inline void *dynamic_shared() { return shared_bytes; }
inline unsigned dynamic_shared_address() { return 0; } /* offsets in shared_bytes */

/* Made when they are waited for, not before. */
void copy_later(unsigned to, const void *from, bool is_there);
void copy_word_later(unsigned to, const void *from, bool is_there);
void end_copies();
void wait_for_copies();

void emulate_load_matrices(unsigned *to, unsigned from, bool transposed, int line, const char *file);
void emulate_multiply_add(bool is_f16, float *c, const unsigned *a, unsigned b0, unsigned b1, int line,
                          const char *file);

template <bool TRANSPOSED> void load_matrices(unsigned (&to)[4], unsigned from, EMULATE_WHERE)
{
    emulate_load_matrices(to, from, TRANSPOSED, line, file);
}

template <bool IS_F16> void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, EMULATE_WHERE)
{
    emulate_multiply_add(IS_F16, c, a, b0, b1, line, file);
}

/* ---- launches ---- */

/* Arguments that are device addresses become the host's. */
template <typename T> auto emulate_members(T &shape, int) -> decltype((void)shape.first_keys)
{
    shape.first_keys = (const int32_t *)fake_translate(shape.first_keys);
}
template <typename T> void emulate_members(T &, long) {}
template <typename T> void emulate_argument(T &argument)
{
    emulate_members(argument, 0);
} /* attention's shape has one */
template <typename T> void emulate_argument(T *&pointer) { pointer = (T *)fake_translate((const void *)pointer); }

inline void emulate_argument(qdri_cuda_lists &lists)
{
    for (const void *&source : lists.sources) source = fake_translate(source);
    for (void *&result : lists.results) result = fake_translate(result);
}

inline void emulate_argument(qdri_cuda_code_parts &parts)
{
    for (qdri_code_part &part : parts.at) {
        part.x = fake_translate(part.x);
        part.wire = fake_translate(part.wire);
        part.y = fake_translate(part.y);
        part.feedback = (float *)fake_translate(part.feedback);
    }
}

template <typename... E> struct emulate_call {
    emulate_grid grid;
    void (*kernel)(E...);
    std::tuple<E...> args;
};

template <typename... E> void emulate_thread(const void *call)
{
    const auto *self = (const emulate_call<E...> *)call;
    std::apply(self->kernel, self->args);
}

template <typename... E> void emulate_enqueued(void *args)
{
    auto *call = (emulate_call<E...> *)args;
    std::apply([](auto &...argument) { (emulate_argument(argument), ...); }, call->args);
    call->grid.args = call;
    emulate_run(&call->grid);
}

template <typename... E, typename... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(E...), A &&...args)
{
    const cudaError_t error = emulate_check(config, (const void *)kernel);
    if (error != cudaSuccess) return error;
    emulate_call<E...> call = {
        {config->gridDim, config->blockDim, config->dynamicSmemBytes, emulate_thread<E...>, nullptr},
        kernel,
        std::tuple<E...>(std::forward<A>(args)...)};
    fake_enqueue(config->stream, emulate_enqueued<E...>, &call, sizeof call);
    return cudaSuccess;
}

template <typename... E> cudaError_t cudaFuncSetAttribute(void (*kernel)(E...), cudaFuncAttribute attribute, int value)
{
    return attribute == cudaFuncAttributeMaxDynamicSharedMemorySize
               ? emulate_allow_shared((const void *)kernel, (size_t)value)
               : cudaSuccess;
}

#endif
