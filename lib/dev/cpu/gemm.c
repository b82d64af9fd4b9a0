/* SPDX-License-Identifier: Apache-2.0 */
/* Products on the CPU: f32 and f64 through BLAS, or plain C without BLAS; bf16 through oneDNN if the machine has bf16
 * instructions, else converted, as f16 always is. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/narrow.h"

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

static qdr_status gemm_run(void *args)
{
    const gemm_args *self = args;
    if (self->gemm.k == 0) {
        gemm_scale(&self->gemm);
        return QDR_OK;
    }
    qdri_executor_use_address_space();
    if (runs_in_onednn(&self->gemm)) return qdri_gemm_onednn(&self->gemm, self->dev->n_threads);
    qdri_blas_begin(self->dev->n_threads);
    if (is_converted(&self->gemm)) {
        pthread_mutex_lock(&self->dev->panels_lock);
        qdri_gemm_converted(&self->gemm, self->dev->panels);
        pthread_mutex_unlock(&self->dev->panels_lock);
    } else {
        qdri_gemm_blas(&self->gemm);
    }
    qdri_blas_end();
    return QDR_OK;
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
        QDR_TRY(qdri_mem_alloc(stream->dev, QDRI_PANELS_BYTES, &args.dev->panels));
    if (args.dev->n_threads > 1 || runs_in_onednn(gemm))
        return qdri_cpu_enqueue_own(stream, gemm_run, &args, sizeof args);
    return qdri_cpu_enqueue(stream, gemm_run, NULL, &args, sizeof args);
}

size_t qdri_cpu_fixed_bytes(const qdri_dev *dev, qdr_dtype dtype)
{
    (void)dev;
    return is_type_converted(dtype) ? QDRI_PANELS_BYTES : 0;
}

/* The same panels, for types that would not need them. */
size_t qdri_cpu_product_bytes(qdr_stream *stream, const qdri_gemm *gemm)
{
    (void)stream;
    return is_converted(gemm) && !is_type_converted(gemm->dtype) ? QDRI_PANELS_BYTES : 0;
}
