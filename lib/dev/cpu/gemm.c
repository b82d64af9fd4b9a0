/* SPDX-License-Identifier: Apache-2.0 */
/* Products on the CPU: f32 and f64 through BLAS, or plain C without BLAS; bf16 through oneDNN if the machine has bf16
 * instructions, else converted, as f16 always is. Each library computes on one thread, and the device's threads share
 * C, so that no second team of threads waits for work. */
#include "core/operands.h"
#include "core/size.h"
#include "dev/cpu/cpu.h"
#include "dev/cpu/narrow.h"
#include "dev/cpu/pool.h"

#include <limits.h>

/* C = beta·C, for products with k = 0. beta = 0 writes zeros without reading. */
#define SCALE_LOOP(type, load, store)                                                                                  \
    for (int64_t r = 0; r < g->m; r++) {                                                                               \
        type *row = (type *)g->c + r * g->ldc;                                                                         \
        for (int64_t c = 0; c < g->n; c++) {                                                                           \
            row[c] = g->beta == 0.0 ? 0 : store(g->beta * (double)load(row[c]));                                       \
        }                                                                                                              \
    }
#define SAME(x) (x)
#define TO_F32(x) (float)(x)
#define FROM_NARROW(x) qdri_narrow_load(g->c_dtype, x)
#define TO_NARROW(x) qdri_narrow_round(g->c_dtype, (float)(x))

static void gemm_scale(const qdri_gemm *g)
{
    switch (g->c_dtype) {
    case QDR_F64: SCALE_LOOP(double, SAME, SAME) break;
    case QDR_BF16:
    case QDR_F16: SCALE_LOOP(uint16_t, FROM_NARROW, TO_NARROW) break;
    default: SCALE_LOOP(float, SAME, TO_F32) break;
    }
}

static int is_type_converted(qdr_dtype dtype) { return qdri_cpu_converts(dtype, qdri_bf16_native()); }

static int is_converted(const qdri_gemm *gemm) { return gemm->round_a || is_type_converted(gemm->dtype); }

typedef struct gemm_args {
    qdri_gemm gemm;
    qdri_cpu_dev *dev;
} gemm_args;

static int runs_in_onednn(const qdri_gemm *gemm) { return gemm->dtype == QDR_BF16 && !is_converted(gemm); }

/* Parts of C's rows, or columns, in whole units; the last one has the rest, too. */
typedef struct gemm_parts {
    const qdri_gemm *gemm;
    int by_cols;
    int64_t n, unit, n_parts; /* n: rows, or columns */
} gemm_parts;

/* With 24 rows and at least a million multiplications OpenBLAS computes each element as in the whole; parts of columns
 * have other bits. */
#define PART_PRODUCTS 4194304.0 /* multiplications of the smallest part: about 50 µs in f32 */
enum { BLAS_ROWS = 24, ONEDNN_UNIT = 64, ONEDNN_LEAST = 256, ONEDNN_PARTS_MOST = 64 };

static int64_t bound_of(const gemm_parts *of, int64_t part)
{
    return part == of->n_parts ? of->n : of->n / of->unit * part / of->n_parts * of->unit;
}

/* The order of oneDNN's sums depends on the size of a part, for which it may choose another algorithm. So the parts
 * depend on sizes alone, also for one thread. Those of less than 256 rows take more time than the whole. */
static gemm_parts divide_for_onednn(const qdri_gemm *g, double products)
{
    const int64_t rows = g->m / ONEDNN_LEAST, cols = g->n / ONEDNN_LEAST;
    int64_t n_parts = 1;
    for (double needed = 16; products >= needed && n_parts < ONEDNN_PARTS_MOST; needed *= n_parts < 8 ? 2 : 4)
        n_parts *= 2;
    const int by_cols = rows < n_parts && rows < cols;
    while (n_parts > 1 && n_parts > (by_cols ? cols : rows)) n_parts /= 2;
    return (gemm_parts){g, by_cols, by_cols ? g->n : g->m, ONEDNN_UNIT, n_parts};
}

/* Otherwise one part for each thread: larger parts take less time. */
static gemm_parts divide(const qdri_gemm *g, int n_threads)
{
    const double products = (double)g->m * (double)g->n * (double)g->k / PART_PRODUCTS;
    if (runs_in_onednn(g)) return divide_for_onednn(g, products);
    const int64_t n_parts = products < (double)n_threads ? (int64_t)products : n_threads;
    const int64_t most = qdri_least(n_parts, g->m / BLAS_ROWS);
    return (gemm_parts){g, 0, g->m, BLAS_ROWS, most < 1 ? 1 : most};
}

static qdr_status run_part(const void *user, int64_t piece, int thread)
{
    const gemm_parts *self = user;
    const qdri_gemm *g = self->gemm;
    const int64_t first = bound_of(self, piece), n = bound_of(self, piece + 1) - first;
    const int64_t each = (int64_t)qdr_dtype_bytes(g->dtype), c_each = (int64_t)qdr_dtype_bytes(g->c_dtype);
    qdri_gemm part = *g;
    (void)thread;
    qdri_address_space_use();
    if (self->by_cols) {
        part.n = n;
        part.b = (const char *)g->b + first * (g->trans_b ? g->ldb : 1) * each;
        part.c = (char *)g->c + first * c_each;
    } else {
        part.m = n;
        part.a = (const char *)g->a + first * (g->trans_a ? 1 : g->lda) * each;
        part.c = (char *)g->c + first * g->ldc * c_each;
    }
    if (runs_in_onednn(g)) return qdri_gemm_onednn(&part);
    qdri_gemm_blas(&part);
    return QDR_OK;
}

static qdr_status gemm_run(void *args)
{
    const gemm_args *self = args;
    qdri_cpu_dev *dev = self->dev;
    qdr_status status = QDR_OK;
    if (self->gemm.k == 0) {
        gemm_scale(&self->gemm);
        return QDR_OK;
    }
    qdri_blas_begin(1);
    if (is_converted(&self->gemm)) {
        pthread_mutex_lock(&dev->panels_lock);
        status = qdri_gemm_converted(&self->gemm, dev->panels, dev->pool, dev->n_threads);
        pthread_mutex_unlock(&dev->panels_lock);
    } else {
        const gemm_parts parts = divide(&self->gemm, dev->n_threads);
        status = qdri_pool_run(dev->pool, dev->n_threads, parts.n_parts, run_part, &parts);
    }
    qdri_blas_end();
    return status;
}

static size_t panels_bytes(const qdri_dev *dev)
{
    return qdri_cpu_panels_bytes(((const qdri_cpu_dev *)dev)->n_threads);
}

qdr_status qdri_cpu_gemm(qdr_stream *stream, const qdri_gemm *gemm)
{
    const gemm_args args = {*gemm, (qdri_cpu_dev *)stream->dev};
    const int64_t dims[] = {gemm->m, gemm->n, gemm->k, gemm->lda, gemm->ldb, gemm->ldc};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        if (dims[i] > INT_MAX)
            return QDR_FAIL(QDR_ERR_SHAPE,
                            "product: a size of %" PRId64
                            " exceeds what BLAS can index (%d); use more ranks on that axis",
                            dims[i], INT_MAX);
    }
    if (is_converted(gemm) && !args.dev->panels)
        QDR_TRY(qdri_mem_alloc(stream->dev, panels_bytes(stream->dev), &args.dev->panels));
    if (runs_in_onednn(gemm)) return qdri_cpu_enqueue_own(stream, gemm_run, &args, sizeof args);
    return qdri_cpu_enqueue(stream, gemm_run, NULL, &args, sizeof args);
}

size_t qdri_cpu_fixed_bytes(const qdri_dev *dev, qdr_dtype dtype)
{
    return is_type_converted(dtype) ? panels_bytes(dev) : 0;
}

/* The same panels, for types that would not need them. */
size_t qdri_cpu_product_bytes(qdr_stream *stream, const qdri_gemm *gemm)
{
    return is_converted(gemm) && !is_type_converted(gemm->dtype) ? panels_bytes(stream->dev) : 0;
}
