/* SPDX-License-Identifier: Apache-2.0 */
/* How fast a rank computes products, whatever the stack. */
#include <math.h>

#include "dev/clock.h"
#include "linear/measures.h"
#include "linear/tune.h"
#include "quadrille_private/measure.h"

enum { LEAST_EXTENT = 128, MOST_EXTENT = 8192, PRODUCTS = 4, ROUNDS = 3 };
#define LEAST_SECS 3e-3
#define WARM_SECS 0.05 /* the kernel lets threads that are new share a core for up to 30 ms */

/* From when all ranks begin some products to when all have computed them: where ranks share cores, each alone would
 * look as fast as if it had one to itself. */
static qdr_status time_round(qdr_context *ctx, const qdri_gemm *gemm, double *secs)
{
    const int64_t began_ns = qdri_now_ns();
    qdr_status status = QDR_OK;
    for (int i = 0; i < PRODUCTS && status == QDR_OK; i++) status = qdri_gemm_run(qdr_context_stream(ctx), gemm);
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(ctx));
    status = qdr_agree(ctx, status);
    *secs = 1e-9 * (double)(qdri_now_ns() - began_ns);
    return status;
}

/* Whether some rank takes too little time to measure products of n rows, and larger ones can be tried. */
static int is_short(const qdr_context *ctx, int64_t n, double secs)
{
    return n < MOST_EXTENT && qdri_comm_any(qdri_context_world(ctx), secs < LEAST_SECS);
}

/* Warms up first, unless the products turn out to be short. */
static qdr_status time_rounds(qdr_context *ctx, const qdri_gemm *gemm, double *secs)
{
    double rounds[ROUNDS], warmed = 0;
    QDR_TRY(qdr_barrier(ctx));
    QDR_TRY(time_round(ctx, gemm, secs)); /* which may load code */
    do {
        QDR_TRY(time_round(ctx, gemm, secs));
        if (is_short(ctx, gemm->n, *secs)) return QDR_OK;
        warmed += *secs;
    } while (qdri_comm_any(qdri_context_world(ctx), warmed < WARM_SECS));
    for (int round = 0; round < ROUNDS; round++) QDR_TRY(time_round(ctx, gemm, &rounds[round]));
    *secs = qdri_median(rounds, ROUNDS);
    return QDR_OK;
}

static qdr_status time_products(qdr_context *ctx, qdr_dtype dtype, int64_t n, double *secs)
{
    void *memory[3] = {0};
    qdr_status status = QDR_OK;
    for (int i = 0; i < 3 && status == QDR_OK; i++)
        status = qdri_take_random(qdr_context_stream(ctx), n, n, dtype, &memory[i]);
    const qdri_gemm gemm = {.m = n,
                            .n = n,
                            .k = n,
                            .lda = n,
                            .ldb = n,
                            .ldc = n,
                            .trans_b = 1,
                            .alpha = 1,
                            .a = memory[0],
                            .b = memory[1],
                            .c = memory[2],
                            .dtype = dtype,
                            .c_dtype = dtype};
    status = qdr_agree(ctx, status);
    if (status == QDR_OK) status = time_rounds(ctx, &gemm, secs);
    const qdr_status ended = qdr_stream_synchronize(qdr_context_stream(ctx)); /* a failure leaves work behind */
    for (int i = 0; i < 3; i++) qdri_mem_free(qdri_context_dev(ctx), &memory[i]);
    return status != QDR_OK ? status : ended;
}

qdr_status qdr_measure_products(qdr_context *ctx, qdr_dtype dtype, double *flops_per_sec)
{
    if (!ctx || !flops_per_sec) return QDR_FAIL(QDR_ERR_ARGUMENT, "measure: the context or the result is NULL");
    *flops_per_sec = 0;
    if (!qdri_is_float(dtype))
        return QDR_FAIL(QDR_ERR_DTYPE, "measure: no products have elements of type %d; use f32, f64, bf16 or f16",
                        (int)dtype);
    int64_t n = LEAST_EXTENT;
    double secs = 0;
    QDR_TRY(time_products(ctx, dtype, n, &secs));
    while (is_short(ctx, n, secs)) QDR_TRY(time_products(ctx, dtype, n *= 2, &secs));
    *flops_per_sec = PRODUCTS * 2 * pow((double)n, 3) / secs;
    return QDR_OK;
}
