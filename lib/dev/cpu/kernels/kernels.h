/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of element-wise kernels: one per element type and instruction set. */
#ifndef QDRI_DEV_CPU_KERNELS_KERNELS_H
#define QDRI_DEV_CPU_KERNELS_KERNELS_H

#include "core/kernels.h"
#include "core/operands.h"
#include "dev/dev.h"

typedef void (*qdri_kernel_fn)(const qdri_kernel *kernel);
/* Products in plain C, compiled in builds without BLAS. Extents must be at least 1. */
typedef void (*qdri_product_fn)(const qdri_gemm *gemm);

#define QDRI_KERNELS_FOR(isa)                                                                                          \
    extern const qdri_kernel_fn qdri_kernels_f32_##isa[QDRI_N_KERNELS];                                                \
    extern const qdri_kernel_fn qdri_kernels_f64_##isa[QDRI_N_KERNELS];                                                \
    extern const qdri_kernel_fn qdri_kernels_bf16_##isa[QDRI_N_KERNELS];                                               \
    extern const qdri_kernel_fn qdri_kernels_f16_##isa[QDRI_N_KERNELS];                                                \
    extern const qdri_kernel_fn qdri_codec_kernels_##isa[QDRI_N_KERNELS]; /* for all types */                          \
    extern void qdri_pack_##isa(const qdri_kernel *kernel);                                                            \
    extern void qdri_unpack_##isa(const qdri_kernel *kernel);                                                          \
    extern void qdri_product_f32_##isa(const qdri_gemm *gemm);                                                         \
    extern void qdri_product_f64_##isa(const qdri_gemm *gemm);
QDRI_KERNELS_FOR(base)
QDRI_KERNELS_FOR(avx2)
QDRI_KERNELS_FOR(avx512)

/* gemm_onednn.c: F32 with extents of at least 1. @return 0: without oneDNN, or memory, nothing is done */
int qdri_sgemm_onednn(const qdri_gemm *gemm);

/* Attention whose products do: that of heads that are turned, or share keys. Those of GPT keep the bits that they have
 * had. */
static inline int qdri_attention_takes_onednn(const qdri_kernel *kernel)
{
    return qdri_attention_turns(kernel) || kernel->u.attention.n_kv_heads < kernel->u.attention.n_heads;
}

/* Asks for memory that is soon read. */
static inline void qdri_fetch(const void *from, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i += 64) __builtin_prefetch((const char *)from + i);
}

/* Instruction sets, from the most basic to the best. */
enum {
    QDRI_KERNELS_AS_TOLD = -1, /* by QDR_KERNELS */
    QDRI_KERNELS_BASE = 0,
    QDRI_KERNELS_AVX2 = 1,
    QDRI_KERNELS_AVX512 = 2,
    QDRI_N_KERNEL_SETS = 3
};

/* For tests: from now on, uses kernels for this instruction set at most. Returns 1 if the machine has this set. */
int qdri_cpu_kernels_limit(int set);
/* The best set that the machine has and the limit allows, at first QDRI_KERNELS_AS_TOLD. */
int qdri_cpu_kernels_best(void);

#endif
