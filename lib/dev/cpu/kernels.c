/* SPDX-License-Identifier: Apache-2.0 */
/* Enqueues kernels on streams of the CPU device, in the best set this processor can run. */
#include "dev/cpu/kernels.h"

#include "config.h"
#include "dev/cpu/cpu.h"

size_t qdri_attention_work_bytes(qdr_dtype dtype, int64_t context, int64_t head_size)
{
    const size_t each = dtype == QDR_F64 ? sizeof(double) : sizeof(float);
    const size_t scores = 2 * QDRI_ATTENTION_ROWS * (size_t)context;
    const size_t panels = dtype == QDR_BF16 ? 8 * (size_t)context * (size_t)head_size : 0;
    return (scores + panels) * each;
}

const qdri_cpu_kernels *qdri_cpu_kernels_pick(void)
{
#if QDRI_HAVE_X86_KERNELS
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return &qdri_cpu_kernels_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &qdri_cpu_kernels_avx2;
#endif
    return &qdri_cpu_kernels_plain;
}

static qdr_status run_kernel(void *args)
{
    const qdri_kernel *kernel = args;
    const int type = kernel->kind == QDRI_K_COPY_BLOCK
                         ? 0
                         : (int)kernel->dtype; /* bytes have no type */
    qdri_cpu_kernels_pick()->run[kernel->kind][type](kernel);
    return QDR_OK;
}

_Static_assert(sizeof(qdri_kernel) <= QDRI_WORK_BYTES,
               "a kernel's arguments fit into an item of work");

qdr_status qdri_cpu_kernel(qdr_stream *stream, const qdri_kernel *kernel)
{
    return qdri_cpu_enqueue(stream, run_kernel, NULL, kernel, sizeof *kernel);
}
