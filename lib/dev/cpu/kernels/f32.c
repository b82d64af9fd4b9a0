/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels on f32 elements. */
#include <stdint.h>

#include "dev/cpu/kernels/real_f32.h"

typedef float elem;
#define ELEM_IS_REAL 1
#define TABLE_NAME_(isa) qdri_kernels_f32_##isa
#define PRODUCT_NAME_(isa) qdri_product_f32_##isa
static inline real get(elem x) { return x; }
static inline elem put(real x) { return x; }

#include "dev/cpu/kernels/body.h"
