/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels on f64 elements. */
#include <stdint.h>

#include "dev/cpu/kernels/real_f64.h"

typedef double elem;
#define ELEM_IS_REAL 1
#define TABLE_NAME_(isa) qdri_kernels_f64_##isa
#define PRODUCT_NAME_(isa) qdri_product_f64_##isa
static inline real get(elem x) { return x; }
static inline elem put(real x) { return x; }

#include "dev/cpu/kernels/body.h"
