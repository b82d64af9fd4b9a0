/* SPDX-License-Identifier: Apache-2.0 */
/* C[m,n] = alpha·op(A)·op(B) + beta·C in `real`, whatever types `gemm` states; extents of at least 1 that fit into int.
 * By BLAS; in a build without BLAS, in plain C: blocks of op(B) are copied into a panel, from which each pair of rows
 * of C gets four steps of k at a time. */
#include "config.h"

#if QDRI_HAVE_BLAS

#include <cblas.h>

static void real_product(const qdri_gemm *g)
{
    REAL_GEMM(CblasRowMajor, g->trans_a ? CblasTrans : CblasNoTrans, g->trans_b ? CblasTrans : CblasNoTrans, (int)g->m,
              (int)g->n, (int)g->k, (real)g->alpha, g->a, (int)g->lda, g->b, (int)g->ldb, (real)g->beta, g->c,
              (int)g->ldc);
}

#else

#define STEPS 64 /* of k, a multiple of 4 */
#define COLUMNS 256
#define ROWS 2

static int64_t product_least(int64_t a, int64_t b) { return a < b ? a : b; }

static void product_scale(const qdri_gemm *g)
{
    const real beta = (real)g->beta;
    for (int64_t r = 0; r < g->m && g->beta != 1.0; r++) {
        real *c = (real *)g->c + r * g->ldc;
        for (int64_t j = 0; j < g->n; j++) c[j] = g->beta == 0.0 ? 0 : beta * c[j];
    }
}

/* Copies steps from l on of columns from j on; padded with zeros to a multiple of 4 steps. */
static void load_columns(const qdri_gemm *g, int64_t l, int64_t j, int64_t k, int64_t n, real panel[STEPS][COLUMNS])
{
    const int64_t step = g->trans_b ? 1 : g->ldb, column = g->trans_b ? g->ldb : 1;
    const real *b = (const real *)g->b + l * step + j * column;
    for (int64_t s = 0; s < (k + 3) / 4 * 4; s++)
        for (int64_t c = 0; c < n; c++) panel[s][c] = s < k ? b[s * step + c * column] : 0;
}

/* Copies rows of alpha·op(A) from i on; zeros beyond the last row. */
static void load_rows(const qdri_gemm *g, int64_t i, int64_t l, int64_t k, real rows[ROWS][STEPS])
{
    const int64_t row = g->trans_a ? 1 : g->lda, step = g->trans_a ? g->lda : 1;
    const real *a = (const real *)g->a + i * row + l * step;
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t s = 0; s < (k + 3) / 4 * 4; s++)
            rows[r][s] = s < k && i + r < g->m ? (real)g->alpha * a[r * row + s * step] : 0;
}

static void add_steps(int64_t k, int64_t n, const real rows[ROWS][STEPS], const real panel[STEPS][COLUMNS], real *c,
                      real *d)
{
    for (int64_t s = 0; s < k; s += 4) {
        const real *x = rows[0] + s, *y = rows[1] + s;
        const real *b0 = panel[s], *b1 = panel[s + 1], *b2 = panel[s + 2], *b3 = panel[s + 3];
        SIMD for (int64_t j = 0; j < n; j++)
        {
            c[j] += x[0] * b0[j] + x[1] * b1[j] + x[2] * b2[j] + x[3] * b3[j];
            d[j] += y[0] * b0[j] + y[1] * b1[j] + y[2] * b2[j] + y[3] * b3[j];
        }
    }
}

static void add_block(const qdri_gemm *g, int64_t l, int64_t j)
{
    const int64_t k = product_least(STEPS, g->k - l), n = product_least(COLUMNS, g->n - j);
    real panel[STEPS][COLUMNS], rows[ROWS][STEPS], unused[COLUMNS] = {0};
    load_columns(g, l, j, k, n, panel);
    for (int64_t i = 0; i < g->m; i += ROWS) {
        real *c = (real *)g->c + i * g->ldc + j;
        load_rows(g, i, l, k, rows);
        add_steps(k, n, (const real(*)[STEPS])rows, (const real(*)[COLUMNS])panel, c,
                  i + 1 < g->m ? c + g->ldc : unused);
    }
}

static void real_product(const qdri_gemm *g)
{
    product_scale(g);
    for (int64_t l = 0; l < g->k; l += STEPS)
        for (int64_t j = 0; j < g->n; j += COLUMNS) add_block(g, l, j);
}

#ifdef PRODUCT_NAME_
#define PRODUCT_NAME(isa) PRODUCT_NAME_(isa)
void PRODUCT_NAME(QDRI_ISA)(const qdri_gemm *gemm) { real_product(gemm); }
#endif

#endif
