/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels on bf16 elements: converted to fp32 on load, rounded on store. */
#include <stdint.h>

#include "dev/cpu/kernels/real_f32.h"

typedef uint16_t elem;
#define ELEM_IS_REAL 0
#define TABLE_NAME_(isa) qdri_kernels_bf16_##isa
static inline real get(elem x) { return qdri_bf16_load(x); }
static inline elem put(real x) { return qdri_bf16_round(x); }

#include "dev/cpu/kernels/body.h"
