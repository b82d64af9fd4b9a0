/* SPDX-License-Identifier: Apache-2.0 */
/* Products of factors that are rounded to fp8. Both are rounded into memory of the stream, the
 * steps of the product last, as cuBLASLt wants them; nothing is read back. Where it has no product
 * of codes for a shape, the rounded numbers are multiplied as bf16, which has them all exactly. */
#include "core/size.h"
#include "dev/cuda/cuda.h"

#define FP8_UNIT 16 /* bytes, to which cuBLASLt wants rows of codes and of results aligned */
#define HEAD_BYTES ((size_t)4096) /* in front of the factors: what their scales are made from */

typedef struct head {
    uint32_t parts[QDRI_CUDA_FP8_PARTS];
    _Alignas(16) float back;
} head;
_Static_assert(2 * sizeof(head) <= HEAD_BYTES, "it has room for those of A and B");

qdr_status qdri_cuda_check_rounding(const qdri_dev *dev)
{
    const qdri_gpu *gpu = &((const qdri_cuda_dev *)dev)->gpu;
    if (10 * gpu->major + gpu->minor >= 89) return QDR_OK;
    return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                    "cuda: GPU %d, %.100s, has compute capability %d.%d, products in fp8 need 8.9 "
                    "(Ada) or later; compute in bf16 (QDR_PRODUCT_AS_STORED)",
                    gpu->number, gpu->name, gpu->major, gpu->minor);
}

/* ---- products ---- */

/* Gives both rounded factors their place in the room. */
static qdr_status place_factors(qdr_stream *stream, qdri_cuda_rounded factors[2],
                                const int64_t n_rows[2])
{
    const size_t each = factors[0].is_widened ? 2 : 1;
    size_t bytes[2];
    char *room = NULL;
    for (int i = 0; i < 2; i++) bytes[i] = (size_t)(n_rows[i] * factors[i].y_stride) * each;
    const size_t a_bytes = (size_t)qdri_round_up((int64_t)bytes[0], 256);
    QDR_TRY(qdri_cuda_find_space(stream, &((qdri_cuda_stream *)stream)->rounded, "factors in fp8",
                                 HEAD_BYTES + a_bytes + bytes[1], &room));
    for (int i = 0; i < 2; i++) {
        head *of_factor = (head *)(void *)room + i; /* an address of the GPU */
        factors[i].parts = of_factor->parts;
        factors[i].back = &of_factor->back;
    }
    factors[0].y = room + HEAD_BYTES;
    factors[1].y = room + HEAD_BYTES + a_bytes;
    return QDR_OK;
}

/* The product of what both were rounded to. */
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

/* Whether results have the shape of a product of codes. */
static int is_even(const qdri_gemm *g)
{
    const int64_t row_bytes = g->ldc * (int64_t)qdr_dtype_bytes(g->c_dtype);
    return g->n % FP8_UNIT == 0 && row_bytes % FP8_UNIT == 0 && (uintptr_t)g->c % FP8_UNIT == 0;
}

static qdr_status round_factors(qdr_stream *stream, const qdri_cuda_rounded factors[2])
{
    const qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    for (int i = 0; i < 2; i++)
        QDRI_CUDA_TRY(dev, qdri_cuda_round(&factors[i], dev->gpu.n_sms, qdri_cuda_handle(stream)));
    return QDR_OK;
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

qdr_status qdri_cuda_gemm_rounded(qdr_stream *stream, const qdri_gemm *g)
{
    qdri_cuda_rounded factors[2] = {factor_of(g, 0), factor_of(g, 1)};
    const int64_t n_rows[2] = {g->m, g->n};
    QDR_TRY(place_factors(stream, factors, n_rows));
    qdri_gemm product = product_of(g, factors);
    const int is_fp8 = is_even(g) && qdri_cuda_has_fp8(stream, &product);
    if (!is_fp8) {
        factors[0].is_widened = factors[1].is_widened = 1;
        QDR_TRY(place_factors(stream, factors, n_rows));
        product = product_of(g, factors);
    }
    QDR_TRY(round_factors(stream, factors));
    if (!is_fp8) return qdri_cuda_gemm(stream, &product);
    const qdri_cuda_scales scales = {factors[0].back, factors[1].back};
    return qdri_cuda_gemm_fp8(stream, &product, &scales);
}
