/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels in all types, for the instruction set that this file is compiled for (QDRI_ISA names
 * it). */
#include <math.h>
#include <string.h>

#include <cblas.h>

#include "dev/cpu/kernels.h"

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define UNUSED __attribute__((unused))

/* Sums run in lanes that are added in order at the end: the compiler can use vectors, and results
 * do not depend on where data lies. */
enum { N_LANES = 16 };

static inline float f32_of_bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* To nearest, ties to even; a NaN stays one. */
static inline uint16_t bf16_of_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    return (uint16_t)((value != value ? (bits | 0x400000u) : rounded) >> 16);
}

/* exp with an error below 2 ulp: x = n·ln 2 + r, a polynomial in r, and n into the exponent (Cody,
 * Waite 1980). Branch-free, so that loops over it become vectors. */
static inline float exp_f32(float x)
{
    const float limited = x > 88.0f ? 88.0f : x < -87.0f ? -87.0f : x;
    const float scaled = limited * 1.44269504f;
    const int32_t n = (int32_t)(scaled + (scaled < 0 ? -0.5f : 0.5f));
    const float r = (limited - (float)n * 0.693359375f) + (float)n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const uint32_t bits = (uint32_t)(n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    const float value = p * power;
    return x > 88.7f ? HUGE_VALF : x < -87.0f ? 0.0f : x != x ? x : value;
}

static inline float tanh_f32(float x) { return 1.0f - 2.0f / (exp_f32(2.0f * x) + 1.0f); }

static inline int least(int64_t a, int b) { return a < b ? (int)a : b; }

#define T float
#define A float
#define LOAD(p, i) ((p)[i])
#define STORE(p, i, v) ((p)[i] = (v))
#define EXP exp_f32
#define TANH tanh_f32
#define LOG logf
#define SQRT sqrtf
#define SUFFIX _f32
#define GEMM cblas_sgemm
#include "dev/cpu/kernels_types.h"

#define T double
#define A double
#define LOAD(p, i) ((p)[i])
#define STORE(p, i, v) ((p)[i] = (v))
#define EXP exp
#define TANH tanh
#define LOG log
#define SQRT sqrt
#define SUFFIX _f64
#define GEMM cblas_dgemm
#include "dev/cpu/kernels_types.h"

#define T uint16_t
#define A float
#define LOAD(p, i) f32_of_bf16((p)[i])
#define STORE(p, i, v) ((p)[i] = bf16_of_f32(v))
#define EXP exp_f32
#define TANH tanh_f32
#define LOG logf
#define SQRT sqrtf
#define SUFFIX _bf16
#define GEMM cblas_sgemm
#define CONVERTS 1
#include "dev/cpu/kernels_types.h"

static void copy_block(const qdri_kernel *kernel)
{
    const char *x = kernel->u.block.x;
    char *y = kernel->u.block.y;
    for (int64_t r = 0; r < kernel->u.block.n_rows; r++)
        memcpy(y + (size_t)r * kernel->u.block.y_stride, x + (size_t)r * kernel->u.block.x_stride,
               kernel->u.block.row_bytes);
}

#define ALL_TYPES(kind, name) [kind] = {name##_f32, name##_f64, name##_bf16}
const qdri_cpu_kernels JOIN(qdri_cpu_kernels_, QDRI_ISA) = {
    .run = {
        ALL_TYPES(QDRI_K_ADD, add),
        ALL_TYPES(QDRI_K_CAST, cast),
        ALL_TYPES(QDRI_K_BIAS_ADD, bias_add),
        ALL_TYPES(QDRI_K_COLUMN_SUM, column_sum),
        ALL_TYPES(QDRI_K_GELU_FORWARD, gelu_forward),
        ALL_TYPES(QDRI_K_GELU_BACKWARD, gelu_backward),
        ALL_TYPES(QDRI_K_NORM_MOMENTS, norm_moments),
        ALL_TYPES(QDRI_K_NORM_MERGE, norm_merge),
        ALL_TYPES(QDRI_K_NORM_APPLY, norm_apply),
        ALL_TYPES(QDRI_K_NORM_SUMS, norm_sums),
        ALL_TYPES(QDRI_K_NORM_BACKWARD, norm_backward),
        ALL_TYPES(QDRI_K_ATTENTION_FORWARD, attention_forward),
        ALL_TYPES(QDRI_K_ATTENTION_BACKWARD, attention_backward),
        ALL_TYPES(QDRI_K_EMBED_FORWARD, embed_forward),
        ALL_TYPES(QDRI_K_EMBED_BACKWARD, embed_backward),
        ALL_TYPES(QDRI_K_POSITION_ADD, position_add),
        ALL_TYPES(QDRI_K_POSITION_SUM, position_sum),
        ALL_TYPES(QDRI_K_CE_MAX, ce_max),
        ALL_TYPES(QDRI_K_CE_SUMS, ce_sums),
        ALL_TYPES(QDRI_K_CE_LOSS, ce_loss),
        ALL_TYPES(QDRI_K_CE_BACKWARD, ce_backward),
        ALL_TYPES(QDRI_K_SUM_SQUARES, sum_squares),
        ALL_TYPES(QDRI_K_ADAMW, adamw),
        [QDRI_K_COPY_BLOCK] = {copy_block},
    }};
