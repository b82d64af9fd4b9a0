/* SPDX-License-Identifier: Apache-2.0 */
/* Products in f32 and f64 through CBLAS. */
#include "dev/cpu/cpu.h"

#include <cblas.h>
#include <string.h>

#define CLEAR_BYTES_MAX ((size_t)4 << 20)

/* OpenBLAS has one number of threads for the whole process (0.3.21; openblas_set_num_threads_local() of later versions
 * sets the same one), and it belongs to the host program. So the library changes it only while products run, on any
 * thread, and then restores it. */
static struct {
    pthread_mutex_t lock;
    int n_products; /* running at the moment */
    int theirs; /* the program's number */
    int ours; /* the number set last */
} threads = {.lock = PTHREAD_MUTEX_INITIALIZER};

void qdri_blas_begin(int n_threads)
{
    pthread_mutex_lock(&threads.lock);
    const int now = openblas_get_num_threads();
    if (threads.n_products++ == 0 || now != threads.ours) threads.theirs = now; /* or set meanwhile */
    if (now != n_threads) openblas_set_num_threads(n_threads);
    threads.ours = openblas_get_num_threads(); /* it may be limited */
    pthread_mutex_unlock(&threads.lock);
}

void qdri_blas_end(void)
{
    pthread_mutex_lock(&threads.lock);
    const int is_ours = openblas_get_num_threads() == threads.ours;
    if (--threads.n_products == 0 && is_ours && threads.theirs != threads.ours)
        openblas_set_num_threads(threads.theirs);
    pthread_mutex_unlock(&threads.lock);
}

int qdri_blas_threads(void) { return openblas_get_num_threads(); }

static CBLAS_TRANSPOSE blas_trans(int trans) { return trans ? CblasTrans : CblasNoTrans; }

void qdri_gemm_blas(const qdri_gemm *g)
{
    const CBLAS_TRANSPOSE trans_a = blas_trans(g->trans_a), trans_b = blas_trans(g->trans_b);
    const int m = (int)g->m, n = (int)g->n, k = (int)g->k, lda = (int)g->lda, ldb = (int)g->ldb, ldc = (int)g->ldc;
    const size_t elem_bytes = g->dtype == QDR_F64 ? sizeof(double) : sizeof(float), row_bytes = (size_t)n * elem_bytes;
    double beta = g->beta;
    /* OpenBLAS first multiplies C by beta in a plain loop. If C fits into caches, zeroing it here and adding to it is
     * up to a tenth faster when k is small. */
    if (beta == 0.0 && row_bytes * (size_t)m <= CLEAR_BYTES_MAX) {
        for (int64_t r = 0; r < m; r++) memset((char *)g->c + (size_t)(r * g->ldc) * elem_bytes, 0, row_bytes);
        beta = 1.0;
    }
    if (g->dtype == QDR_F64)
        cblas_dgemm(CblasRowMajor, trans_a, trans_b, m, n, k, g->alpha, g->a, lda, g->b, ldb, beta, g->c, ldc);
    else
        cblas_sgemm(CblasRowMajor, trans_a, trans_b, m, n, k, (float)g->alpha, g->a, lda, g->b, ldb, (float)beta, g->c,
                    ldc);
}

const char *qdri_cpu_products(const qdri_dev *dev)
{
    (void)dev;
    return openblas_get_config();
}
