/* SPDX-License-Identifier: Apache-2.0 */
/* The implementations of a product on the CPU. */
#ifndef QDRI_DEV_CPU_GEMM_H
#define QDRI_DEV_CPU_GEMM_H

#include "dev/cpu/cpu.h"

/* Converted products work on blocks of at most this many rows, columns and steps; panels of A, B and C in fp32. */
#define QDRI_PANEL_EDGE 512
#define QDRI_PANELS_BYTES ((size_t)3 * QDRI_PANEL_EDGE * QDRI_PANEL_EDGE * sizeof(float))

/* gemm_blas.c, or gemm_plain.c in a build without BLAS.
 * Enclose calls of BLAS, which then uses n_threads. Afterwards the number is the host program's again, unless the
 * program has set another one meanwhile. */
void qdri_blas_begin(int n_threads);
void qdri_blas_end(void);
/* The number that BLAS uses now. */
int qdri_blas_threads(void);
/* F32 or F64, extents that fit into int, m, n and k at least 1. */
void qdri_gemm_blas(const qdri_gemm *gemm);
/* BF16 or F16, or F32 with rounded factors: fp32 sums, C rounded once. panels: QDRI_PANELS_BYTES. */
void qdri_gemm_converted(const qdri_gemm *gemm, float *panels);

/* 1 if oneDNN was built in and this machine has instructions for BF16 products. */
int qdri_bf16_native(void);
/* BF16, or F32 for tests on machines without BF16 instructions. Extents must be at least 1. */
qdr_status qdri_gemm_onednn(const qdri_gemm *gemm, int n_threads);

#endif
