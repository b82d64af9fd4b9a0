/* SPDX-License-Identifier: Apache-2.0 */
/* GELU and residual: element by element, no communication. */
#include "core/size.h"
#include "ops/ops.h"
#include "ops/steps.h"

static qdri_kernel binary(qdri_kernel_kind kind, int64_t n_elems, qdr_dtype dtype, const void *a, const void *b,
                          void *y)
{
    qdri_kernel kernel = {.kind = kind, .dtype = dtype};
    kernel.u.binary.n = n_elems;
    kernel.u.binary.a = a;
    kernel.u.binary.b = b;
    kernel.u.binary.y = y;
    return kernel;
}

qdri_kernel qdri_gelu_forward(int64_t n_elems, qdr_dtype dtype, const void *x, void *y)
{
    return binary(QDRI_K_GELU_FORWARD, n_elems, dtype, x, NULL, y);
}

qdri_kernel qdri_gelu_backward(int64_t n_elems, qdr_dtype dtype, const void *dy, const void *x, void *dx,
                               int accumulate)
{
    qdri_kernel kernel = binary(QDRI_K_GELU_BACKWARD, n_elems, dtype, x, dy, dx);
    kernel.u.binary.accumulate = accumulate;
    return kernel;
}

qdri_kernel qdri_sum_of_two(int64_t n_elems, qdr_dtype dtype, const void *a, const void *b, void *y)
{
    qdri_kernel kernel = binary(QDRI_K_ADD, n_elems, dtype, a, b, y);
    kernel.u.binary.dtype2 = dtype;
    return kernel;
}

/* Performs the common checks and enqueues the kernel. */
static qdr_status binary_run(const char *who, qdr_context *ctx, const qdri_kernel *kernel, int reads_b,
                             qdr_stream *stream)
{
    const int64_t n = kernel->u.binary.n;
    size_t bytes = 0;
    QDR_TRY(qdri_check_object(who, ctx, "the context"));
    QDR_TRY(qdri_check_dtype(who, kernel->dtype));
    QDR_TRY(qdri_check_extent(who, "n_elems", n));
    QDR_TRY(qdri_elems_bytes(n, kernel->dtype, &bytes));
    QDR_TRY(QDRI_ARRAYS_CHECK(qdri_context_dev(ctx), who,
                              qdri_read("the first input", kernel->u.binary.a, n, kernel->dtype),
                              qdri_read("the second input", kernel->u.binary.b, reads_b ? n : 0, kernel->dtype),
                              qdri_write_in_place("the output", kernel->u.binary.y, n, kernel->dtype)));
    return qdri_kernel_run(stream ? stream : qdr_context_stream(ctx), kernel);
}

qdr_status qdr_gelu_forward(qdr_context *ctx, int64_t n_elems, qdr_dtype dtype, const void *x, void *y,
                            qdr_stream *stream)
{
    const qdri_kernel kernel = qdri_gelu_forward(n_elems, dtype, x, y);
    return binary_run("gelu", ctx, &kernel, 0, stream);
}

qdr_status qdr_gelu_backward(qdr_context *ctx, int64_t n_elems, qdr_dtype dtype, const void *x, const void *dy,
                             void *dx, int accumulate, qdr_stream *stream)
{
    QDR_TRY(qdri_check_switch("gelu", "accumulate", accumulate));
    const qdri_kernel kernel = qdri_gelu_backward(n_elems, dtype, dy, x, dx, accumulate);
    return binary_run("gelu", ctx, &kernel, 1, stream);
}

qdr_status qdr_add(qdr_context *ctx, int64_t n_elems, qdr_dtype dtype, const void *a, const void *b, void *y,
                   qdr_stream *stream)
{
    const qdri_kernel kernel = qdri_sum_of_two(n_elems, dtype, a, b, y);
    return binary_run("add", ctx, &kernel, 1, stream);
}
