/* SPDX-License-Identifier: Apache-2.0 */
/* Products of BF16 and F16 on machines without such products, and of factors rounded to fp8: blocks of A and B are
 * converted to fp32, multiplied by sgemm, and summed over k in fp32; C is rounded once, at the end. */
#include "core/operands.h"
#include "core/size.h"
#include "dev/cpu/cpu.h"
#include "dev/cpu/narrow.h"
#include "dev/cpu/pool.h"

#define EDGE QDRI_PANEL_EDGE

/* A or B. */
typedef struct operand {
    qdr_dtype dtype;
    const void *data;
    int64_t stride;
    int trans;
    qdri_rounding rounding;
    float scale;
} operand;

/* Converts a stored row to fp32. */
static void load_row(const operand *x, float *to, int64_t row, int64_t col, int64_t n_cols)
{
    const size_t at = (size_t)(row * x->stride + col);
    if (x->dtype == QDR_F32)
        memcpy(to, (const float *)x->data + at, (size_t)n_cols * sizeof *to);
    else
        qdri_widen(x->dtype, to, (const uint16_t *)x->data + at, n_cols);
}

/* Converts the block whose rows (of op) begin at `row` and columns at `col` to a dense fp32 panel, as stored
 * (transposed or not). */
static void load_operand(const operand *x, float *panel, int64_t row, int64_t col, int64_t n_rows, int64_t n_cols)
{
    const float back = 1 / x->scale;
    const int64_t n = x->trans ? n_rows : n_cols;
    for (int64_t r = 0; r < (x->trans ? n_cols : n_rows); r++, panel += n) {
        load_row(x, panel, (x->trans ? col : row) + r, x->trans ? row : col, n);
        for (int64_t i = 0; x->rounding && i < n; i++)
            panel[i] = back * qdri_fp8_nearest(x->rounding, x->scale * panel[i]);
    }
}

/* Sets the scale of a matrix of n_rows by n_cols, as stored, from its largest number. */
static void find_scale(operand *x, float *panel, int64_t n_rows, int64_t n_cols)
{
    uint32_t most = 0;
    if (!x->rounding) return;
    for (int64_t r = 0; r < n_rows; r++) {
        for (int64_t c = 0; c < n_cols; c += EDGE) {
            const int64_t n = qdri_least(EDGE, n_cols - c);
            load_row(x, panel, r, c, n);
            for (int64_t i = 0; i < n; i++) {
                const uint32_t size = qdri_float_bits(panel[i]) & 0x7fffffffu;
                most = size > most ? size : most;
            }
        }
    }
    x->scale = qdri_float_of_bits(qdri_fp8_power(qdri_fp8_scale_exponent(x->rounding, most)));
}

/* C = alpha·panel + beta·C, rounded. */
static void store_panel(const qdri_gemm *g, const float *panel, int64_t i, int64_t j, int64_t m, int64_t n)
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

/* One block of C, over all of k. */
static void gemm_block(const qdri_gemm *g, const operand *factors, float *panels, int64_t i, int64_t j)
{
    const int64_t m = qdri_least(EDGE, g->m - i);
    const int64_t n = qdri_least(EDGE, g->n - j);
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
        part.k = qdri_least(EDGE, g->k - l);
        part.lda = g->trans_a ? m : part.k;
        part.ldb = g->trans_b ? part.k : n;
        load_operand(&factors[0], a, i, l, m, part.k);
        load_operand(&factors[1], b, l, j, part.k, n);
        qdri_gemm_blas(&part);
        part.beta = 1.0;
    }
    if (!direct) store_panel(g, sums, i, j, m, n);
}

typedef struct converted {
    const qdri_gemm *gemm;
    operand factors[2];
    float *panels;
    int64_t n_cols; /* of blocks */
} converted;

static qdr_status run_block(const void *user, int64_t piece, int thread)
{
    const converted *self = user;
    float *panels = self->panels + (size_t)thread * (QDRI_PANELS_BYTES / sizeof(float));
    qdri_address_space_use();
    gemm_block(self->gemm, self->factors, panels, piece / self->n_cols * EDGE, piece % self->n_cols * EDGE);
    return QDR_OK;
}

qdr_status qdri_gemm_converted(const qdri_gemm *g, float *panels, qdri_pool *pool, int n_threads)
{
    converted self = {.gemm = g,
                      .factors = {{g->dtype, g->a, g->lda, g->trans_a, g->round_a, 1},
                                  {g->dtype, g->b, g->ldb, g->trans_b, g->round_b, 1}},
                      .panels = panels,
                      .n_cols = (g->n + EDGE - 1) / EDGE};
    find_scale(&self.factors[0], panels, g->trans_a ? g->k : g->m, g->trans_a ? g->m : g->k);
    find_scale(&self.factors[1], panels, g->trans_b ? g->n : g->k, g->trans_b ? g->k : g->n);
    return qdri_pool_run(pool, n_threads, (g->m + EDGE - 1) / EDGE * self.n_cols, run_block, &self);
}
