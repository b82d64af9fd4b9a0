/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of cublasLt's descriptors, and a product as run by a stream. */
#ifndef FAKE_CUDA_LT_H
#define FAKE_CUDA_LT_H

#include <cublasLt.h>

#include "internal.h"

/* What this library asks of a product; attributes of anything else are not supported. */
typedef struct fake_desc {
    uint64_t magic;
    int32_t compute, scale_type, trans_a, trans_b, sm_target;
    uint32_t epilogue;
    int64_t aux_ld;
    void *bias, *aux;
    const float *a_scale, *b_scale;
} fake_desc;

typedef struct fake_layout {
    uint64_t magic;
    int32_t type;
    uint64_t rows, cols;
    int64_t ld;
} fake_layout;

typedef struct fake_preference {
    uint64_t magic, workspace_bytes;
    uint32_t reduction_mask, align[4]; /* of A, B, C, D */
} fake_preference;

typedef struct fake_algo {
    uint64_t magic;
    uint64_t workspace_bytes;
    int32_t id, n_splits; /* k is summed in so many parts */
    uint32_t tile, stages, swizzling, reduction, custom;
    uint16_t inner_shape, cluster_shape;
    uint8_t align[4]; /* that it needs of A, B, C, D */
    uint16_t align_bias; /* what the description's pointer had when it was offered; NULL: 256 */
    uint8_t is_scaled; /* the description had the scales of A and B then */
} fake_algo;

/* Bits of cublasLt's epilogues: with an auxiliary matrix, and the slope of GELU there. */
#define FAKE_EPILOGUE_AUX 128u
#define FAKE_EPILOGUE_SLOPE 64u

#define FAKE_FIRST_TILE 20u /* of FAKE_TILES */
#define FAKE_TILES 4u
#define FAKE_ALGO_MAGIC 0x66616b65616c676fu

_Static_assert(sizeof(fake_desc) <= sizeof(cublasLtMatmulDescOpaque_t), "fits");
_Static_assert(sizeof(fake_layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "fits");
_Static_assert(sizeof(fake_preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "fits");
_Static_assert(sizeof(fake_algo) <= sizeof(cublasLtMatmulAlgo_t), "fits");

/* The description that a handle points to, or NULL and a report. */
const fake_desc *fake_find_desc(const void *handle);
const fake_layout *fake_find_layout(const void *handle);
int fake_handle_device(const void *handle); /* -1 and a report: none */

/* ---- lt_check.c ---- */

typedef struct fake_product {
    fake_desc desc;
    fake_layout a, b, c, d;
    const void *a_data, *b_data, *c_data;
    void *d_data, *workspace;
    size_t workspace_bytes;
    double alpha, beta;
    int n_splits;
    uint32_t reduction;
} fake_product;

/* Whether there is such a product. */
cublasStatus_t fake_check_product(const fake_product *product);

/* ---- number_types.c ---- */

int fake_type_bytes(int type); /* 0: not known */
int fake_type_is_fp8(int type);
double fake_load(const void *data, int64_t index, int type);
void fake_store(void *data, int64_t index, int type, double value);
float fake_round_tf32(float value);

/* ---- product_run.c ---- */

void fake_run_product(void *product);

#endif
