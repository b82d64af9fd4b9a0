/* SPDX-License-Identifier: Apache-2.0 */
/* Products of the CUDA device. If cuBLASLt cannot fuse an operation with a product, a kernel performs it after the
 * product. */
#include "dev/cuda/cuda.h"

/* For k = 0: beta·C, by a step of zeros if necessary. */
static qdr_status scale(qdr_stream *stream, const qdri_gemm *g)
{
    const qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    const size_t each = qdr_dtype_bytes(g->c_dtype), most = QDRI_CUDA_SCRATCH_BYTES / each;
    void *zeros;
    if (g->beta == 1) return QDR_OK;
    if (g->beta == 0) {
        QDRI_CUDA_TRY(dev, cudaMemset2DAsync(g->c, (size_t)g->ldc * each, 0, (size_t)g->n * each, (size_t)g->m,
                                             qdri_cuda_handle(stream)));
        return QDR_OK;
    }
    if ((size_t)g->m > most || (size_t)g->n > most)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "cuda: a product with k = 0, beta = %g and %" PRId64 " x %" PRId64
                        " results; at most %zu either way, or beta 0 or 1",
                        g->beta, g->m, g->n, most);
    QDR_TRY(qdri_cuda_find_space(stream, QDRI_SPACE_KERNELS, QDRI_CUDA_SCRATCH_BYTES, &zeros));
    QDR_TRY(qdri_cuda_fill_zero(stream, zeros, QDRI_CUDA_SCRATCH_BYTES));
    qdri_gemm step = *g;
    step.a = step.b = zeros;
    step.k = step.lda = 1;
    step.ldb = g->n;
    step.trans_a = step.trans_b = 0;
    step.round_a = step.round_b = QDRI_AS_STORED;
    return qdri_cuda_gemm(stream, &step);
}

/* ---- fused operations: a bias, GELU, the gradient through GELU ---- */

static int is_aligned(const void *data) { return (uintptr_t)data % 16 == 0; }

/* cuBLASLt's GELU is the tanh form, like this library's. Its accuracy is not documented: it is sufficient for two-byte
 * types. On Ampere it is slower than a kernel. */
int qdri_cuda_fuses(const qdri_dev *base, const qdri_gemm *g)
{
    const qdri_cuda_dev *dev = (const qdri_cuda_dev *)base;
    const int is_plain = g->dtype != QDR_F64 && !g->round_a && g->c_dtype == g->dtype && g->ldc == g->n;
    if (!g->gelu && !g->gelu_of) return is_plain;
    if ((g->gelu && g->gelu_of) || (g->gelu_of && g->bias)) return 0;
    return is_plain && !dev->opts.no_gelu && dev->gpu.major >= 9 && qdri_is_narrow(g->dtype) && g->beta == 0 &&
           g->ldc % 8 == 0 && is_aligned(g->c) && is_aligned(g->gelu) && is_aligned(g->gelu_of);
}

/* The product, followed by a kernel for the last of its fused operations. */
static qdr_status multiply_in_steps(qdr_stream *stream, const qdri_gemm *gemm)
{
    qdri_kernel last = {.dtype = gemm->c_dtype};
    qdri_gemm product = *gemm;
    if (gemm->gelu || gemm->gelu_of) {
        last.kind = gemm->gelu ? QDRI_K_ACTIVATION_FORWARD : QDRI_K_ACTIVATION_BACKWARD;
        last.u.activation.n_rows = gemm->m;
        last.u.activation.n_cols = gemm->n;
        last.u.activation.function = QDR_GELU_TANH;
        last.u.activation.x = qdri_cuda_auxiliary_of(gemm);
        last.u.activation.y = gemm->gelu;
        last.u.activation.dy = last.u.activation.dx = gemm->c;
        product.gelu = NULL;
        product.gelu_of = NULL;
    } else {
        last.kind = QDRI_K_BIAS_ADD;
        last.u.rows.n_rows = gemm->m;
        last.u.rows.n_cols = gemm->n;
        last.u.rows.y = gemm->c;
        last.u.rows.p = (void *)(uintptr_t)gemm->bias;
        product.bias = NULL;
    }
    QDR_TRY(qdri_cuda_gemm(stream, &product));
    return qdri_cuda_kernel(stream, &last);
}

/* Uses a copy of a bias that is not aligned to 16 bytes: a separate kernel would round C once more. */
static qdr_status multiply_odd_bias(qdr_stream *stream, const qdri_gemm *gemm)
{
    const size_t bytes = (size_t)gemm->n * qdr_dtype_bytes(gemm->c_dtype);
    qdri_gemm product = *gemm;
    void *copy;
    if (bytes > QDRI_CUDA_SCRATCH_BYTES) return multiply_in_steps(stream, gemm);
    QDR_TRY(qdri_cuda_find_space(stream, QDRI_SPACE_KERNELS, QDRI_CUDA_SCRATCH_BYTES, &copy));
    QDR_TRY(qdri_cuda_copy(stream, copy, gemm->bias, bytes));
    product.bias = copy;
    return qdri_cuda_gemm(stream, &product);
}

qdr_status qdri_cuda_gemm(qdr_stream *stream, const qdri_gemm *gemm)
{
    const int is_fused = gemm->bias || gemm->gelu || gemm->gelu_of;
    QDRI_CUDA_ENTER(qdri_cuda_dev_of(stream));
    if (gemm->k == 0) return is_fused ? multiply_in_steps(stream, gemm) : scale(stream, gemm);
    if (gemm->bias && !is_aligned(gemm->bias)) return multiply_odd_bias(stream, gemm);
    if (gemm->round_a) return qdri_cuda_gemm_rounded(stream, gemm);
    const qdr_status status = qdri_cuda_multiply(stream, gemm, NULL);
    if (status == QDR_ERR_UNSUPPORTED && is_fused) return multiply_in_steps(stream, gemm);
    return status;
}
