/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel launches, whose memory accesses are recorded before the kernel is enqueued. The launchers themselves are
 * compiled with -Dqdri_cuda_launch=qdri_cuda_launch_body, and the same for the others. */
#include "accesses.h"
#include "dev/cuda/kernels/launch.h"
#include "internal.h"

cudaError_t qdri_cuda_launch_body(const qdri_kernel *kernel, const qdri_cuda_target *target);

cudaError_t qdri_cuda_round_body(const qdri_cuda_rounded *rounded, int n_sms, cudaStream_t stream);

cudaError_t qdri_cuda_launch_stamp_body(int64_t *nanosecs, cudaStream_t stream);

/* Books them for the work that the stream gets next, unless this launch is to fail. */
static cudaError_t book(cudaStream_t stream, const fake_kernel_accesses *found)
{
    const cudaError_t failure = fake_take_launch_failure();
    if (failure != cudaSuccess) return failure;
    const int device = fake_stream_device(stream, found->name);
    if (device < 0) return cudaErrorInvalidResourceHandle;
    const cudaError_t error = fake_check_current(device, found->name);
    return error == cudaSuccess ? fake_use(stream, found->name, found->all, found->n) : error;
}

cudaError_t qdri_cuda_launch(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    fake_kernel_accesses found;
    fake_find_accesses(kernel, &found);
    /* Partial sums: any kernel may keep them there. */
    if (found.n && target->scratch) fake_add_access(&found, FAKE_SCRATCH, target->scratch, QDRI_CUDA_SCRATCH_BYTES);
    const cudaError_t error = book(target->stream, &found);
    const int is_coded = kernel->kind == QDRI_K_ENCODE || kernel->kind == QDRI_K_DECODE;
    fake_count("kernel");
    if (is_coded && kernel->u.codec.n_parts > 1) fake_count("kernel of several messages");
    return error == cudaSuccess ? qdri_cuda_launch_body(kernel, target) : error;
}

cudaError_t qdri_cuda_round(const qdri_cuda_rounded *r, int n_sms, cudaStream_t stream)
{
    const size_t bytes = qdr_dtype_bytes(r->dtype), y_bytes = r->is_widened ? 2 : 1;
    const int64_t n_rows = r->is_turned ? r->n_cols : r->n_rows;
    fake_kernel_accesses found = {.name = "rounding to fp8"};
    found.all[found.n++] = (fake_access){FAKE_READ, r->x, (size_t)r->n_cols * bytes, (size_t)r->stride * bytes,
                                         r->n_rows};
    fake_add_access(&found, FAKE_WRITE, r->y, (size_t)(n_rows * r->y_stride) * y_bytes);
    fake_add_access(&found, FAKE_SCRATCH, r->parts, QDRI_CUDA_FP8_PARTS * sizeof *r->parts);
    fake_add_access(&found, FAKE_WRITE, r->back, sizeof *r->back);
    const cudaError_t error = book(stream, &found);
    return error == cudaSuccess ? qdri_cuda_round_body(r, n_sms, stream) : error;
}

cudaError_t qdri_cuda_launch_stamp(int64_t *nanosecs, cudaStream_t stream)
{
    fake_kernel_accesses found = {.name = "a stamp"};
    fake_add_access(&found, FAKE_WRITE, nanosecs, sizeof *nanosecs);
    const cudaError_t error = book(stream, &found);
    return error == cudaSuccess ? qdri_cuda_launch_stamp_body(nanosecs, stream) : error;
}
