/* SPDX-License-Identifier: Apache-2.0 */
/* Products in a build without BLAS, in the plain C of kernels/body_product.h: on one thread, with the machine's best
 * instruction set. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/kernels/kernels.h"

void qdri_blas_begin(int n_threads) { (void)n_threads; }

void qdri_blas_end(void) {}

int qdri_blas_threads(void) { return 1; }

#define PRODUCT(isa) (is_f64 ? qdri_product_f64_##isa : qdri_product_f32_##isa)

static qdri_product_fn best_product(int is_f64)
{
#ifdef __x86_64__
    const int set = qdri_cpu_kernels_best();
    if (set == QDRI_KERNELS_AVX512) return PRODUCT(avx512);
    if (set == QDRI_KERNELS_AVX2) return PRODUCT(avx2);
#endif
    return PRODUCT(base);
}

void qdri_gemm_blas(const qdri_gemm *gemm) { best_product(gemm->dtype == QDR_F64)(gemm); }

const char *qdri_cpu_products(const qdri_dev *dev)
{
    (void)dev;
    return "plain C (built without BLAS)";
}
