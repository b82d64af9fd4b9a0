/* SPDX-License-Identifier: Apache-2.0 */
/* Products of BF16 and F16 where the machine has none: blocks of A and B are converted to fp32,
 * multiplied by sgemm, and summed over k in fp32; C is rounded once, at the end. */
#include "dev/cpu/gemm.h"
#include "dev/cpu/narrow.h"

#define EDGE QDRI_PANEL_EDGE

/* A block of a matrix, as stored (transposed or not), to a dense fp32 panel. */
static void load_panel(qdr_dtype dtype, float *panel, const uint16_t *from, int64_t stride,
                       int64_t n_rows, int64_t n_cols)
{
    for (int64_t r = 0; r < n_rows; r++)
        qdri_widen(dtype, panel + r * n_cols, from + r * stride, n_cols);
}

/* C = alpha·panel + beta·C, rounded. */
static void store_panel(const qdri_gemm *g, const float *panel, int64_t i, int64_t j, int64_t m,
                        int64_t n)
{
    const float alpha = (float)g->alpha;
    const float beta = (float)g->beta;
    for (int64_t r = 0; r < m; r++) {
        const float *from = panel + r * n;
        uint16_t *to = (uint16_t *)g->c + (i + r) * g->ldc + j;
        for (int64_t c = 0; c < n; c++) {
            const float old = g->beta == 0.0 ? 0.0f : beta * qdri_narrow_load(g->dtype, to[c]);
            to[c] = qdri_narrow_round(g->dtype, alpha * from[c] + old);
        }
    }
}

/* The block of A or B whose rows (of op) begin at `row` and columns at `col`. */
static void load_operand(qdr_dtype dtype, float *panel, const void *data, int64_t stride, int trans,
                         int64_t row, int64_t col, int64_t n_rows, int64_t n_cols)
{
    const uint16_t *from = data;
    if (trans) {
        load_panel(dtype, panel, from + col * stride + row, stride, n_cols, n_rows);
    } else {
        load_panel(dtype, panel, from + row * stride + col, stride, n_rows, n_cols);
    }
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* One block of C: all of k. */
static void gemm_block(const qdri_gemm *g, float *panels, int64_t i, int64_t j)
{
    const int64_t m = least(EDGE, g->m - i);
    const int64_t n = least(EDGE, g->n - j);
    float *a = panels;
    float *b = a + (size_t)EDGE * EDGE;
    float *sums = b + (size_t)EDGE * EDGE;
    const int direct = g->c_dtype == QDR_F32;
    qdri_gemm part = {.m = m, .n = n, .a = a, .b = b, .c = sums, .ldc = n, .alpha = 1.0};
    part.trans_a = g->trans_a;
    part.trans_b = g->trans_b;
    if (direct) {
        part.c = (float *)g->c + i * g->ldc + j;
        part.ldc = g->ldc;
        part.alpha = g->alpha;
        part.beta = g->beta;
    }
    for (int64_t l = 0; l < g->k; l += EDGE) {
        part.k = least(EDGE, g->k - l);
        part.lda = g->trans_a ? m : part.k;
        part.ldb = g->trans_b ? part.k : n;
        load_operand(g->dtype, a, g->a, g->lda, g->trans_a, i, l, m, part.k);
        load_operand(g->dtype, b, g->b, g->ldb, g->trans_b, l, j, part.k, n);
        qdri_gemm_blas(&part);
        part.beta = 1.0;
    }
    if (!direct) store_panel(g, sums, i, j, m, n);
}

void qdri_gemm_converted(const qdri_gemm *gemm, float *panels)
{
    for (int64_t i = 0; i < gemm->m; i += EDGE) {
        for (int64_t j = 0; j < gemm->n; j += EDGE) gemm_block(gemm, panels, i, j);
    }
}
