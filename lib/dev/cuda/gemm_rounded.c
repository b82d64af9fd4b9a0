/* SPDX-License-Identifier: Apache-2.0 */
/* Products of factors rounded to fp8. Both factors are rounded into memory of the stream, with the product's steps (k)
 * as the last dimension, as required by cuBLASLt; nothing is read back. If cuBLASLt has no product of fp8 codes for a
 * shape, the rounded numbers are multiplied as bf16, which represents them exactly. */
#include "core/size.h"
#include "dev/cuda/cuda.h"

#define FP8_UNIT 16 /* bytes to which cuBLASLt requires rows of codes and of results to be aligned */
#define HEAD_BYTES ((size_t)4096) /* before the factors: data from which their scales are computed */

typedef struct head {
    uint32_t parts[QDRI_CUDA_FP8_PARTS];
    _Alignas(16) float back;
} head;
_Static_assert(2 * sizeof(head) <= HEAD_BYTES, "it has room for those of A and B");

qdr_status qdri_cuda_check_rounding(const qdri_dev *dev)
{
    const qdr_gpu *gpu = &((const qdri_cuda_dev *)dev)->gpu;
    if (10 * gpu->major + gpu->minor >= 89) return QDR_OK;
    return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                    "cuda: GPU %d, %.100s, has compute capability %d.%d, but products in fp8 need 8.9 (Ada) or later; "
                    "compute as stored (QDR_PRODUCT_AS_STORED, --products stored)",
                    gpu->number, gpu->name, gpu->major, gpu->minor);
}

/* Each rounded factor starts at a multiple of 256 bytes. */
static size_t factor_bytes(const qdri_cuda_rounded *factor, int64_t n_rows)
{
    const int64_t each = factor->is_widened ? 2 : 1;
    return (size_t)qdri_round_up(n_rows * factor->y_stride * each, 256);
}

static size_t space_bytes(const qdri_cuda_rounded factors[2], const qdri_gemm *g)
{
    return HEAD_BYTES + factor_bytes(&factors[0], g->m) + factor_bytes(&factors[1], g->n);
}

static void place_factors(qdri_cuda_rounded factors[2], const qdri_gemm *g, char *space)
{
    for (int i = 0; i < 2; i++) {
        head *of_factor = (head *)(void *)space + i; /* a device address */
        factors[i].parts = of_factor->parts;
        factors[i].back = &of_factor->back;
    }
    factors[0].y = space + HEAD_BYTES;
    factors[1].y = space + HEAD_BYTES + factor_bytes(&factors[0], g->m);
}

/* The product of the rounded factors. */
static qdri_gemm product_of(const qdri_gemm *g, const qdri_cuda_rounded factors[2])
{
    qdri_gemm product = *g;
    product.a = factors[0].y;
    product.b = factors[1].y;
    product.k = product.lda = product.ldb = factors[0].y_stride;
    product.trans_a = 0;
    product.trans_b = 1;
    if (!factors[0].is_widened) return product;
    product.dtype = QDR_BF16;
    product.round_a = product.round_b = QDRI_AS_STORED;
    return product;
}

static qdri_cuda_rounded factor_of(const qdri_gemm *g, int is_b)
{
    const int64_t n = is_b ? g->n : g->m;
    const int is_turned = is_b ? !g->trans_b : g->trans_a != 0;
    return (qdri_cuda_rounded){.x = is_b ? g->b : g->a,
                               .dtype = g->dtype,
                               .n_rows = is_turned ? g->k : n,
                               .n_cols = is_turned ? n : g->k,
                               .stride = is_b ? g->ldb : g->lda,
                               .is_turned = is_turned,
                               .rounding = is_b ? g->round_b : g->round_a,
                               .y_stride = qdri_round_up(g->k, FP8_UNIT)};
}

/* Determines how the product will run. @return 1: as a product of codes */
static int choose(qdr_stream *stream, const qdri_gemm *g, qdri_cuda_rounded factors[2])
{
    factors[0] = factor_of(g, 0);
    factors[1] = factor_of(g, 1);
    place_factors(factors, g, (char *)(uintptr_t)HEAD_BYTES); /* with the alignment of the real memory */
    const qdri_gemm product = product_of(g, factors);
    const int64_t row_bytes = g->ldc * (int64_t)qdr_dtype_bytes(g->c_dtype);
    const int is_even = g->n % FP8_UNIT == 0 && row_bytes % FP8_UNIT == 0 && (uintptr_t)g->c % FP8_UNIT == 0;
    const int is_fp8 = is_even && qdri_cuda_has_fp8(stream, &product);
    factors[0].is_widened = factors[1].is_widened = !is_fp8;
    return is_fp8;
}

size_t qdri_cuda_product_bytes(qdr_stream *stream, const qdri_gemm *g)
{
    qdri_cuda_rounded factors[2];
    if (!g->round_a) return 0;
    QDRI_CUDA_VISIT(qdri_cuda_dev_of(stream));
    if (visited != cudaSuccess) return 0;
    (void)choose(stream, g, factors);
    return space_bytes(factors, g);
}

qdr_status qdri_cuda_reserve_product(qdr_stream *stream, size_t bytes)
{
    void *space = NULL;
    QDR_TRY(qdri_cuda_find_space(stream, QDRI_SPACE_PRODUCTS, QDRI_CUDA_WORKSPACE_BYTES, &space));
    QDR_TRY(qdri_cuda_find_space(stream, QDRI_SPACE_KERNELS, QDRI_CUDA_SCRATCH_BYTES, &space));
    return bytes ? qdri_cuda_find_space(stream, QDRI_SPACE_ROUNDED, bytes, &space) : QDR_OK;
}

qdr_status qdri_cuda_gemm_rounded(qdr_stream *stream, const qdri_gemm *g)
{
    qdri_cuda_rounded factors[2];
    void *space = NULL;
    const qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    const int is_fp8 = choose(stream, g, factors);
    QDR_TRY(qdri_cuda_find_space(stream, QDRI_SPACE_ROUNDED, space_bytes(factors, g), &space));
    place_factors(factors, g, space);
    const qdri_gemm product = product_of(g, factors);
    for (int i = 0; i < 2; i++)
        QDRI_CUDA_TRY(dev, qdri_cuda_round(&factors[i], dev->gpu.n_sms, qdri_cuda_handle(stream)));
    if (!is_fp8) return qdri_cuda_multiply(stream, &product, NULL);
    const qdri_cuda_scales scales = {factors[0].back, factors[1].back};
    const qdr_status status = qdri_cuda_multiply(stream, &product, &scales);
    /* If none of the listed algorithms runs, the product counts as unsupported from now on. */
    return status == QDR_ERR_UNSUPPORTED ? qdri_cuda_gemm_rounded(stream, g) : status;
}
