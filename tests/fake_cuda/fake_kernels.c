/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels, whose accesses are booked before the kernel is enqueued. The launcher itself
 * is compiled with -Dqdri_cuda_launch=qdri_cuda_launch_body. */
#include "accesses.h"
#include "dev/cuda/kernels/launch.h"
#include "internal.h"

cudaError_t qdri_cuda_launch_body(const qdri_kernel *kernel, const qdri_cuda_place *place);

cudaError_t qdri_cuda_launch(const qdri_kernel *kernel, const qdri_cuda_place *place)
{
    fake_kernel_accesses found;
    fake_find_accesses(kernel, &found);
    /* Partial sums: any kernel may keep them there. */
    if (found.n && place->scratch)
        fake_add_access(&found, FAKE_SCRATCH, place->scratch, QDRI_CUDA_SCRATCH_BYTES);
    const int device = fake_stream_device(place->stream, found.name);
    if (device < 0) return cudaErrorInvalidResourceHandle;
    cudaError_t error = fake_check_current(device, found.name);
    if (error == cudaSuccess) error = fake_use(place->stream, found.name, found.all, found.n);
    return error == cudaSuccess ? qdri_cuda_launch_body(kernel, place) : error;
}
