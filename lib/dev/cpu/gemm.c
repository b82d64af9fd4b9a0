/* SPDX-License-Identifier: Apache-2.0 */
/* Products on the CPU: f32 and f64 through BLAS, or plain C without BLAS; bf16 through oneDNN if the machine has bf16
 * instructions, else converted, as f16 always is. Each library computes on one thread, and the device's threads share C,
 * so that no second team of threads waits for work. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/narrow.h"
#include "dev/cpu/pool.h"

#include <limits.h>

int64_t qdri_cpu_part_products = (int64_t)1 << 22;

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

static int is_type_converted(qdr_dtype dtype)
{
    return qdri_is_narrow(dtype) && !(dtype == QDR_BF16 && qdri_bf16_native());
}

static int is_converted(const qdri_gemm *gemm) { return gemm->round_a || is_type_converted(gemm->dtype); }

typedef struct gemm_args {
    qdri_gemm gemm;
    qdri_cpu_dev *dev;
} gemm_args;

static int runs_in_onednn(const qdri_gemm *gemm) { return gemm->dtype == QDR_BF16 && !is_converted(gemm); }

/* Parts of C's rows, in units with which each element is computed as in the whole: of the kernels of OpenBLAS those of
 * columns would not, nor those of less than a million multiplications. */
typedef struct gemm_parts {
    const qdri_gemm *gemm;
    int64_t unit, n_parts;
} gemm_parts;

enum { BLAS_ROWS = 24, ONEDNN_ROWS = 64, ONEDNN_PARTS_MOST = 64 };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t n_units(const gemm_parts *of) { return (of->gemm->m + of->unit - 1) / of->unit; }
static int64_t first_row(const gemm_parts *of, int64_t part)
{
    return least(of->gemm->m, n_units(of) * part / of->n_parts * of->unit);
}

/* oneDNN's sums depend on the size of a part, for which it may choose another algorithm. So the number of parts depends
 * on sizes alone, also for one thread. */
static int64_t n_onednn_parts(double products)
{
    int64_t n = 1;
    for (double needed = 16; products >= needed && n < ONEDNN_PARTS_MOST; needed *= n < 8 ? 2 : 4) n *= 2;
    return n;
}

/* Otherwise one part for each thread: larger parts take less time. */
static gemm_parts divide(const gemm_args *self)
{
    const qdri_gemm *g = &self->gemm;
    const double products = (double)g->m * (double)g->n * (double)g->k / (double)qdri_cpu_part_products;
    const int is_onednn = runs_in_onednn(g);
    gemm_parts parts = {g, is_onednn ? ONEDNN_ROWS : BLAS_ROWS, self->dev->n_threads};
    if (is_onednn)
        parts.n_parts = n_onednn_parts(products);
    else if (products < (double)parts.n_parts)
        parts.n_parts = products < 1 ? 1 : (int64_t)products;
    parts.n_parts = least(parts.n_parts, n_units(&parts));
    return parts;
}

static qdr_status run_part(const void *user, int64_t piece, int thread)
{
    const gemm_parts *self = user;
    const qdri_gemm *g = self->gemm;
    const int64_t row = first_row(self, piece);
    const int64_t each = (int64_t)qdr_dtype_bytes(g->dtype), c_each = (int64_t)qdr_dtype_bytes(g->c_dtype);
    qdri_gemm part = *g;
    (void)thread;
    qdri_address_space_use();
    part.m = first_row(self, piece + 1) - row;
    part.a = (const char *)g->a + (g->trans_a ? row : row * g->lda) * each;
    part.c = (char *)g->c + row * g->ldc * c_each;
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
        const gemm_parts parts = divide(self);
        status = qdri_pool_run(dev->pool, dev->n_threads, parts.n_parts, run_part, &parts);
    }
    qdri_blas_end();
    return status;
}

static size_t panels_bytes(const qdri_dev *dev)
{
    return QDRI_PANELS_BYTES * (size_t)((const qdri_cpu_dev *)dev)->n_threads;
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
