/* SPDX-License-Identifier: Apache-2.0 */
/* Operations fused with products: a bias, GELU, the gradient through GELU. If cuBLASLt cannot fuse one, a kernel
 * performs it after the product. */
#include "dev/cuda/cuda.h"

static int is_aligned(const void *data) { return (uintptr_t)data % 16 == 0; }

/* cuBLASLt's GELU is the tanh form, like this library's. Its accuracy is not documented: it is sufficient for two-byte
 * types. On Ampere it is slower than a kernel. */
static int fuses_gelu(const qdri_cuda_dev *dev, const qdri_gemm *g)
{
    if ((g->gelu && g->gelu_of) || (g->gelu_of && g->bias)) return 0;
    return !dev->opts.no_gelu && dev->gpu.major >= 9 && qdri_is_narrow(g->dtype) && g->beta == 0 && g->ldc % 8 == 0 &&
           is_aligned(g->c) && is_aligned(g->gelu) && is_aligned(g->gelu_of);
}

int qdri_cuda_fuses(const qdri_dev *dev, const qdri_gemm *g)
{
    const int is_plain = g->dtype != QDR_F64 && !g->round_a && g->c_dtype == g->dtype && g->ldc == g->n;
    if (!g->gelu && !g->gelu_of) return is_plain;
    return is_plain && fuses_gelu((const qdri_cuda_dev *)dev, g);
}

static qdri_kernel gelu_kernel(const qdri_gemm *g)
{
    qdri_kernel kernel = {.kind = g->gelu ? QDRI_K_GELU_FORWARD : QDRI_K_GELU_BACKWARD, .dtype = g->c_dtype};
    kernel.u.binary.n = g->m * g->n;
    kernel.u.binary.a = qdri_cuda_auxiliary(g);
    kernel.u.binary.b = g->c;
    kernel.u.binary.y = qdri_cuda_result(g);
    return kernel;
}

static qdri_kernel bias_kernel(const qdri_gemm *g)
{
    qdri_kernel kernel = {.kind = QDRI_K_BIAS_ADD, .dtype = g->c_dtype};
    kernel.u.rows.n_rows = g->m;
    kernel.u.rows.n_cols = g->n;
    kernel.u.rows.y = g->c;
    kernel.u.rows.p = (void *)(uintptr_t)g->bias;
    return kernel;
}

qdr_status qdri_cuda_gemm_in_steps(qdr_stream *stream, const qdri_gemm *gemm)
{
    const int has_gelu = gemm->gelu || gemm->gelu_of;
    const qdri_kernel last = has_gelu ? gelu_kernel(gemm) : bias_kernel(gemm);
    qdri_gemm product = *gemm;
    product.gelu = NULL;
    product.gelu_of = NULL;
    if (!has_gelu) product.bias = NULL;
    QDR_TRY(qdri_cuda_gemm(stream, &product));
    return qdri_cuda_kernel(stream, &last);
}

qdr_status qdri_cuda_gemm_odd_bias(qdr_stream *stream, const qdri_gemm *gemm)
{
    const size_t bytes = (size_t)gemm->n * qdr_dtype_bytes(gemm->c_dtype);
    qdri_gemm product = *gemm;
    void *copy;
    if (bytes > QDRI_CUDA_SCRATCH_BYTES) return qdri_cuda_gemm_in_steps(stream, gemm);
    QDR_TRY(qdri_cuda_find_space(stream, QDRI_SPACE_KERNELS, QDRI_CUDA_SCRATCH_BYTES, &copy));
    QDR_TRY(qdri_cuda_copy(stream, copy, gemm->bias, bytes));
    product.bias = copy;
    return qdri_cuda_gemm(stream, &product);
}
