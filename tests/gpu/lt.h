/* SPDX-License-Identifier: Apache-2.0 */
/* Products computed directly by cuBLASLt: every algorithm listed by its heuristic is timed. */
#ifndef QDR_TESTS_GPU_LT_H
#define QDR_TESTS_GPU_LT_H

#include "gpu.h"

enum { LT_MOST_ALGORITHMS = 64 };

/* C[m,n] = op(A)·op(B), row-major and dense: A is [m,k] ([k,m] if trans_a), B is [k,n] ([n,k] if trans_b), both BF16;
 * sums in fp32. */
typedef struct lt_product {
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    int trans_a, trans_b;
    cudaDataType_t c_type;
    int n_units; /* multiprocessors for which algorithms are chosen; 0: all */
    /* made by lt_open() */
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t layouts[3]; /* of B, A, C */
    cublasLtMatmulAlgo_t algorithm; /* the fastest */
    int n_algorithms; /* that were timed */
    double first_ms, best_ms; /* the heuristic's first choice, and the fastest */
} lt_product;

/* Where products run. */
typedef struct lt_place {
    cublasLtHandle_t handle;
    void *workspace;
    size_t workspace_bytes;
    cudaStream_t stream;
} lt_place;

lt_place lt_open(cudaStream_t stream);
void lt_close(lt_place *place);
/* Makes a product and finds its fastest algorithm. Overwrites C. */
void lt_prepare(const lt_place *place, lt_product *product);
void lt_run(const lt_place *place, const lt_product *product);
void lt_free(lt_product *product);

#endif
