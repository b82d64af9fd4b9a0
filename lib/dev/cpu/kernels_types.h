/* SPDX-License-Identifier: Apache-2.0 */
/* No guard: included once per type by kernels_isa.c, which defines T (stored), A (computed with),
 * LOAD, STORE, EXP, TANH, LOG, SQRT, GEMM and SUFFIX. Brings all kernels of that type, and takes
 * the definitions back. */
#define N(name) JOIN(name, SUFFIX)

static inline A N(add_lanes)(const A lanes[N_LANES])
{
    A sum = 0;
    for (int l = 0; l < N_LANES; l++) sum += lanes[l];
    return sum;
}

#include "dev/cpu/kernels_pointwise.h"

#include "dev/cpu/kernels_norm.h"

#include "dev/cpu/kernels_tokens.h"

#include "dev/cpu/kernels_attention.h"

#undef N
#undef T
#undef A
#undef LOAD
#undef STORE
#undef EXP
#undef TANH
#undef LOG
#undef SQRT
#undef SUFFIX
#undef GEMM
#undef CONVERTS
