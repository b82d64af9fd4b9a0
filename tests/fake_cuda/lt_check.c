/* SPDX-License-Identifier: Apache-2.0 */
/* Which products are supported, and the algorithms offered for each. */
#include <stdlib.h>
#include <string.h>

#include "lt.h"

static int is_half(int type) { return type == CUDA_R_16F || type == CUDA_R_16BF; }

static int has_inputs(const fake_product *p)
{
    const int a = p->a.type, b = p->b.type;
    if (fake_type_is_fp8(a) && fake_type_is_fp8(b))
        return fake_get_settings()->capability >= 89 && !(a == CUDA_R_8F_E5M2 && b == a) && !getenv("FAKE_CUDA_NO_FP8");
    return a == b && (a == CUDA_R_32F || a == CUDA_R_64F || is_half(a));
}

static int has_outputs(const fake_product *p)
{
    const int a = p->a.type, d = p->d.type;
    if (p->c.type != d) return 0;
    if (fake_type_is_fp8(a)) return d == CUDA_R_32F || is_half(d);
    return d == a || (is_half(a) && d == CUDA_R_32F);
}

static int has_sums(const fake_product *p)
{
    const int compute = p->desc.compute;
    if (p->a.type == CUDA_R_64F) return compute == CUBLAS_COMPUTE_64F && p->desc.scale_type == CUDA_R_64F;
    if (compute == CUBLAS_COMPUTE_32F_FAST_TF32 || compute == CUBLAS_COMPUTE_32F_FAST_16BF)
        return p->a.type == CUDA_R_32F && p->desc.scale_type == CUDA_R_32F;
    return compute == CUBLAS_COMPUTE_32F && p->desc.scale_type == CUDA_R_32F;
}

static int layout_fits(const fake_layout *l, uint64_t rows, uint64_t cols)
{
    return l->rows == rows && l->cols == cols && rows > 0 && cols > 0 && l->ld >= (int64_t)rows;
}

static int shapes_fit(const fake_product *p)
{
    const uint64_t m = p->d.rows, n = p->d.cols, k = p->desc.trans_a ? p->a.rows : p->a.cols;
    return layout_fits(&p->a, p->desc.trans_a ? k : m, p->desc.trans_a ? m : k) &&
           layout_fits(&p->b, p->desc.trans_b ? n : k, p->desc.trans_b ? k : n) && layout_fits(&p->c, m, n) &&
           layout_fits(&p->d, m, n);
}

/* fp8: A transposed, B not; everything in 16 bytes. */
static int fp8_fits(const fake_product *p)
{
    if (!fake_type_is_fp8(p->a.type)) return !p->desc.a_scale && !p->desc.b_scale;
    return p->desc.trans_a && !p->desc.trans_b && p->a.rows % 16 == 0 && p->a.ld % 16 == 0 && p->b.ld % 16 == 0 &&
           p->d.rows % 16 == 0 && p->d.ld % 16 == 0;
}

/* What goes into GELU: rows in whole units of 8, 16 bytes where it is known to lie. */
static int aux_fits(const fake_product *p)
{
    return p->desc.aux_ld % 8 == 0 && p->desc.aux_ld >= (int64_t)p->d.rows && (uintptr_t)p->desc.aux % 16 == 0;
}

static int has_epilogue(const fake_product *p)
{
    switch (p->desc.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS: return 1;
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU: return aux_fits(p);
    default: return 0;
    }
}

cublasStatus_t fake_check_product(const fake_product *p)
{
    if (!shapes_fit(p)) return CUBLAS_STATUS_INVALID_VALUE;
    if (p->desc.trans_a > CUBLAS_OP_T || p->desc.trans_b > CUBLAS_OP_T) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!has_inputs(p) || !has_outputs(p) || !has_sums(p) || !fp8_fits(p) || !has_epilogue(p))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- what is offered: with an epilogue the last one first ---- */

static const struct {
    uint64_t workspace_bytes;
    int id, n_splits;
} offers[] = {{(uint64_t)4 << 20, 66, 4}, {0, 66, 1}, {0, 67, 1}, {(uint64_t)1 << 20, 67, 2}};

static uint16_t pointer_align(const void *pointer)
{
    const uintptr_t low = (uintptr_t)pointer & 255u;
    return low ? (uint16_t)(low & (~low + 1)) : 256;
}

static int is_scaled(const fake_product *p) { return p->desc.a_scale && p->desc.b_scale; }

/* How parts of a sum are added up, the least exact way that is allowed; 0: none is. */
static uint32_t reduction_of(const fake_preference *preference, const fake_product *p)
{
    const uint32_t allowed = preference->reduction_mask;
    if (is_half(p->d.type) && (allowed & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE))
        return CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    return allowed & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

/* Fast ones read 16 bytes at a time, where they were told that they may. */
static void need(const fake_preference *preference, const fake_product *p, fake_algo *algo)
{
    const int types[4] = {p->a.type, p->b.type, p->c.type, p->d.type};
    for (int i = 0; i < 4; i++) {
        const uint32_t given = preference->align[i] < 16 ? preference->align[i] : 16;
        const uint32_t least = (uint32_t)fake_type_bytes(types[i]);
        algo->align[i] = (uint8_t)(given > least ? given : least);
    }
    algo->align_bias = pointer_align(p->desc.bias);
    algo->is_scaled = (uint8_t)is_scaled(p);
}

/* One that does not work: only its state may be read. */
static cublasLtMatmulHeuristicResult_t idle_offer(void)
{
    cublasLtMatmulHeuristicResult_t idle = {.state = CUBLAS_STATUS_NOT_SUPPORTED};
    memset(&idle.algo, 0xa5, sizeof idle.algo);
    return idle;
}

static int offer(const fake_product *p, const fake_preference *preference, int most,
                 cublasLtMatmulHeuristicResult_t *results)
{
    enum { N_OFFERS = sizeof offers / sizeof *offers };
    int n = 0;
    for (int at = 0; at < N_OFFERS && n < most; at++) {
        const int i = p->desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT ? at : N_OFFERS - 1 - at;
        const uint32_t reduction = offers[i].n_splits > 1 ? reduction_of(preference, p) : 0;
        if (offers[i].workspace_bytes > preference->workspace_bytes) continue;
        if (offers[i].n_splits > 1 && !reduction) continue;
        if (at == 1) results[n++] = idle_offer();
        if (n == most) break;
        fake_algo algo = {.magic = FAKE_ALGO_MAGIC,
                          .workspace_bytes = offers[i].workspace_bytes,
                          .id = offers[i].id,
                          .n_splits = offers[i].n_splits,
                          .reduction = reduction,
                          .tile = FAKE_FIRST_TILE + (uint32_t)i,
                          .stages = 8};
        need(preference, p, &algo);
        results[n] = (cublasLtMatmulHeuristicResult_t){
            .workspaceSize = offers[i].workspace_bytes, .state = CUBLAS_STATUS_SUCCESS, .wavesCount = 1};
        memcpy(&results[n++].algo, &algo, sizeof algo);
    }
    return n;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t results[], int *n)
{
    *n = 0;
    fake_count("heuristic");
    if (fake_handle_device(handle) < 0) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (most < 1 || !fake_find_desc(desc) || !fake_find_layout(a) || !fake_find_layout(b) || !fake_find_layout(c) ||
        !fake_find_layout(d))
        return CUBLAS_STATUS_INVALID_VALUE;
    const fake_product product = {.desc = *fake_find_desc(desc),
                                  .a = *fake_find_layout(a),
                                  .b = *fake_find_layout(b),
                                  .c = *fake_find_layout(c),
                                  .d = *fake_find_layout(d)};
    const cublasStatus_t status = fake_check_product(&product);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    *n = offer(&product, (const fake_preference *)(const void *)preference, most, results);
    return *n ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
