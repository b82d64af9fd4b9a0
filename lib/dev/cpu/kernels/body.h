/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels for one element type. Defined before it is included: elem (as stored), real (as computed), get and put to
 * convert between them, real_exp, real_sqrt, real_normal. Included once per type; compiled once per instruction set,
 * with QDRI_ISA set.
 *
 * Loops marked SIMD have no dependences between iterations; those marked SIMD_SUM add in lanes. The lanes depend only
 * on the instruction set and on the length, so the same call gives the same bits. */
#include "dev/cpu/kernels/kernels.h"
#include "dev/cpu/narrow.h"
#include "dev/moments.h"
#include "dev/rates.h"

#define PRAGMA(text) _Pragma(#text)
#define SIMD PRAGMA(omp simd)
#define SIMD_SUM(...) PRAGMA(omp simd reduction(+ : __VA_ARGS__))
#define SIMD_MAX(name) PRAGMA(omp simd reduction(max : name))

/* Loops that are compiled for each function with which they are called. */
#define ONE_FUNCTION static inline __attribute__((always_inline))

/* The columns, or key heads, of this part of a kernel. */
typedef struct span {
    int64_t first, n;
} span;

static inline span span_of(const qdri_kernel *kernel, int64_t n)
{
    return kernel->only.n ? (span){kernel->only.first, kernel->only.n} : (span){0, n};
}

/* y = factor · x; without a factor its bits */
static inline void row_scale(int64_t n, elem *y, const elem *x, real factor)
{
    if (factor == 1)
        memmove(y, x, (size_t)n * sizeof *y);
    else
        SIMD for (int64_t c = 0; c < n; c++) y[c] = put(factor * get(x[c]));
}

/* p += x, a row */
static inline void row_sum(int64_t n, real *p, const elem *x)
{
    SIMD for (int64_t c = 0; c < n; c++) p[c] += get(x[c]);
}

#include "dev/cpu/kernels/body_product.h"

#include "dev/cpu/kernels/body_activation.h"
#include "dev/cpu/kernels/body_attention.h"
#include "dev/cpu/kernels/body_cross_entropy.h"
#include "dev/cpu/kernels/body_elements.h"
#include "dev/cpu/kernels/body_norm.h"
#include "dev/cpu/kernels/body_optim.h"
#include "dev/cpu/kernels/body_rows.h"

#define TABLE_NAME(isa) TABLE_NAME_(isa)

#define NONE NULL
const qdri_kernel_fn TABLE_NAME(QDRI_ISA)[QDRI_N_KERNELS] = {
#define KERNEL(constant, name, family, function) function,
#include "core/kernel_list.h"
#undef KERNEL
};
