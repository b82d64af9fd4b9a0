/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the CUDA device, and the faults that they find. */
#include "dev/cuda/cuda.h"

/* The kernels that sum over many blocks. */
int qdri_cuda_takes_scratch(qdri_kernel_kind kind)
{
    return kind == QDRI_K_COLUMN_SUM || kind == QDRI_K_POSITION_SUM || kind == QDRI_K_NORM_SUMS ||
           kind == QDRI_K_ATTENTION_BACKWARD || kind == QDRI_K_CE_LOSS || kind == QDRI_K_EMBED_BACKWARD ||
           kind == QDRI_K_SUM_SQUARES;
}

qdr_status qdri_cuda_kernel(qdr_stream *stream, const qdri_kernel *kernel)
{
    const qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    void *scratch = NULL;
    int is_done = 0;
    QDRI_CUDA_ENTER(dev);
    if (kernel->kind == QDRI_K_ATTENTION_FORWARD || kernel->kind == QDRI_K_ATTENTION_BACKWARD)
        QDR_TRY(qdri_cuda_attention_cudnn(stream, kernel, &is_done));
    if (is_done) return QDR_OK;
    if (qdri_cuda_takes_scratch(kernel->kind))
        QDR_TRY(qdri_cuda_find_space(stream, QDRI_SPACE_KERNELS, QDRI_CUDA_SCRATCH_BYTES, &scratch));
    const qdri_cuda_target target = {
        .n_sms = dev->gpu.n_sms, .scratch = scratch, .fault = dev->fault, .stream = qdri_cuda_handle(stream)};
    const cudaError_t error = qdri_cuda_launch(kernel, &target);
    if (error == cudaErrorNotSupported)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "cuda: there is no kernel %d for %s", (int)kernel->kind,
                        qdr_dtype_name(kernel->dtype));
    return qdri_cuda_status(dev, error, "a kernel's launch");
}

static qdr_status fail_fault(const qdri_cuda_fault *fault)
{
    switch (fault->kind) {
    case QDRI_FAULT_RATE: return qdri_fail_rate(fault->lr);
    case QDRI_FAULT_FIRST_KEY: return qdri_fail_first_key(fault->row, fault->id, fault->least, fault->most);
    case QDRI_FAULT_TARGET: return qdri_fail_id(QDRI_ID_TARGET, fault->row, fault->id, fault->most + 1);
    default: return qdri_fail_id(QDRI_ID_TOKEN, fault->row, fault->id, fault->most + 1);
    }
}

void qdri_cuda_look_for_fault(qdri_cuda_dev *dev)
{
    /* A kernel on another stream may be writing: `found` comes last, so it is read first. */
    if (!__atomic_load_n(&dev->fault->found, __ATOMIC_ACQUIRE) || qdri_dev_status(&dev->base) != QDR_OK) return;
    const qdri_cuda_fault fault = *dev->fault;
    qdri_dev_poison(&dev->base, fail_fault(&fault), qdr_last_error());
}
