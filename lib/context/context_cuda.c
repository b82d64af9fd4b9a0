/* SPDX-License-Identifier: Apache-2.0 */
/* Public functions about a context's GPU. */
#include "quadrille/cuda.h"

#include "context/context.h"

int qdr_context_gpu(const qdr_context *ctx) { return ctx ? qdri_dev_gpu(ctx->dev) : -1; }

qdr_status qdr_stream_wrap_cuda(qdr_context *ctx, struct CUstream_st *cuda_stream, qdr_stream **stream)
{
    if (!stream) return QDR_FAIL(QDR_ERR_ARGUMENT, "stream: the result pointer is NULL");
    *stream = NULL;
    if (!ctx) return QDR_FAIL(QDR_ERR_ARGUMENT, "stream: the context is NULL");
    QDR_TRY(qdri_dev_raise(ctx->dev));
    QDR_TRY(qdri_stream_wrap(ctx->dev, cuda_stream, stream));
    qdri_stream_keep(*stream, &ctx->life);
    return QDR_OK;
}

struct CUstream_st *qdr_stream_cuda(qdr_stream *stream) { return stream ? qdri_stream_native(stream) : NULL; }
