/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels on f64 elements. Sums and gradients in f64, where accuracy matters more than speed: the C library's
 * functions. */
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef double real;
#define REAL_IS_FLOAT 0
#define REAL_GEMM cblas_dgemm
/* Beyond this limit the logistic function in GELU is 0 or 1; up to it, its exp is finite. */
#define GELU_LIMIT 20
#define NORMAL_LIMIT 38 /* beyond, the normal distribution is 0 or 1 */
#define EXP_LIMIT 700

static inline real real_exp(real x) { return exp(x); }
static inline real real_exp_normal(real x) { return exp(x); }
static inline real real_exp_minus(real x) { return exp(x < -EXP_LIMIT ? EXP_LIMIT : -x); }
static inline real real_sqrt(real x) { return sqrt(x); }
static inline real real_tanh(real x) { return tanh(x); }
static inline real real_normal(real x) { return 0.5 * erfc(x * -0.70710678118654752440); }

typedef double elem;
#define ELEM_IS_REAL 1
#define TABLE_NAME_(isa) qdri_kernels_f64_##isa
#define PRODUCT_NAME_(isa) qdri_product_f64_##isa
static inline real get(elem x) { return x; }
static inline elem put(real x) { return x; }

#include "dev/cpu/kernels/body.h"
