/* SPDX-License-Identifier: Apache-2.0 */
/* Products computed directly by cuBLASLt. */
#include "lt.h"

enum { N_RUNS = 5 };
/* More than the library takes: the best that there is, whatever it costs. */
static const size_t workspace_bytes = (size_t)128 << 20;

lt_place lt_open(cudaStream_t stream)
{
    lt_place place = {.workspace_bytes = workspace_bytes, .stream = stream};
    LT_OK(cublasLtCreate(&place.handle));
    CUDA_OK(cudaMalloc(&place.workspace, workspace_bytes));
    return place;
}

void lt_close(lt_place *place)
{
    CUDA_OK(cudaFree(place->workspace));
    LT_OK(cublasLtDestroy(place->handle));
}

/* cuBLAS counts columns first: it computes C' = op(B)'·op(A)'. */
static void describe(lt_product *p)
{
    const cublasOperation_t op_b = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_a = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int64_t b_cols = p->trans_b ? p->k : p->n, a_cols = p->trans_a ? p->m : p->k;
    const int64_t b_rows = p->trans_b ? p->n : p->k, a_rows = p->trans_a ? p->k : p->m;
    LT_OK(cublasLtMatmulDescCreate(&p->description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    LT_OK(cublasLtMatmulDescSetAttribute(p->description, CUBLASLT_MATMUL_DESC_TRANSA, &op_b, sizeof op_b));
    LT_OK(cublasLtMatmulDescSetAttribute(p->description, CUBLASLT_MATMUL_DESC_TRANSB, &op_a, sizeof op_a));
    if (p->n_units > 0)
        LT_OK(cublasLtMatmulDescSetAttribute(p->description, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &p->n_units,
                                             sizeof p->n_units));
    LT_OK(cublasLtMatrixLayoutCreate(&p->layouts[0], CUDA_R_16BF, (uint64_t)b_cols, (uint64_t)b_rows, b_cols));
    LT_OK(cublasLtMatrixLayoutCreate(&p->layouts[1], CUDA_R_16BF, (uint64_t)a_cols, (uint64_t)a_rows, a_cols));
    LT_OK(cublasLtMatrixLayoutCreate(&p->layouts[2], p->c_type, (uint64_t)p->n, (uint64_t)p->m, p->n));
}

static int list_algorithms(const lt_place *place, const lt_product *p,
                           cublasLtMatmulHeuristicResult_t found[LT_MOST_ALGORITHMS])
{
    cublasLtMatmulPreference_t preference;
    int n_found = 0;
    LT_OK(cublasLtMatmulPreferenceCreate(&preference));
    LT_OK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &place->workspace_bytes, sizeof place->workspace_bytes));
    LT_OK(cublasLtMatmulAlgoGetHeuristic(place->handle, p->description, p->layouts[0], p->layouts[1], p->layouts[2],
                                         p->layouts[2], preference, LT_MOST_ALGORITHMS, found, &n_found));
    LT_OK(cublasLtMatmulPreferenceDestroy(preference));
    if (n_found == 0) gpu_leave("cuBLASLt knows no algorithm for a product");
    return n_found;
}

static cublasStatus_t multiply(const lt_place *place, const lt_product *p, const cublasLtMatmulAlgo_t *algorithm)
{
    const float one = 1, zero = 0;
    return cublasLtMatmul(place->handle, p->description, &one, p->b, p->layouts[0], p->a, p->layouts[1], &zero, p->c,
                          p->layouts[2], p->c, p->layouts[2], algorithm, place->workspace, place->workspace_bytes,
                          place->stream);
}

/* The median of a few runs; negative: the algorithm does not run here. */
static double time_algorithm(const lt_place *place, const lt_product *p, gpu_marks *marks,
                             const cublasLtMatmulAlgo_t *algorithm)
{
    double samples[N_RUNS];
    if (multiply(place, p, algorithm) != CUBLAS_STATUS_SUCCESS) return -1;
    gpu_marks_reset(marks);
    gpu_mark(marks);
    for (int i = 0; i < N_RUNS; i++) {
        LT_OK(multiply(place, p, algorithm));
        gpu_mark(marks);
    }
    gpu_marks_wait(marks);
    for (int i = 0; i < N_RUNS; i++) samples[i] = gpu_between(marks, i);
    return gpu_median(samples, N_RUNS);
}

void lt_prepare(const lt_place *place, lt_product *p)
{
    cublasLtMatmulHeuristicResult_t found[LT_MOST_ALGORITHMS];
    gpu_marks marks = gpu_marks_make(place->stream);
    describe(p);
    const int n_found = list_algorithms(place, p, found);
    p->best_ms = -1;
    for (int i = 0; i < n_found; i++) {
        if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
        const double ms = time_algorithm(place, p, &marks, &found[i].algo);
        if (ms < 0) continue;
        if (p->n_algorithms++ == 0) p->first_ms = ms;
        if (p->best_ms >= 0 && p->best_ms <= ms) continue;
        p->best_ms = ms;
        p->algorithm = found[i].algo;
    }
    gpu_marks_free(&marks);
    if (p->best_ms < 0) gpu_leave("none of cuBLASLt's %d algorithms runs a product", n_found);
}

void lt_run(const lt_place *place, const lt_product *p) { LT_OK(multiply(place, p, &p->algorithm)); }

void lt_free(lt_product *p)
{
    for (int i = 0; i < 3; i++) LT_OK(cublasLtMatrixLayoutDestroy(p->layouts[i]));
    LT_OK(cublasLtMatmulDescDestroy(p->description));
}
