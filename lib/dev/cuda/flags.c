/* SPDX-License-Identifier: Apache-2.0 */
/* Pinned memory, and flags in it on which streams wait. */
#include <stdlib.h>
#include <string.h>

#include "dev/cuda/cuda.h"

/* Looks up a driver function by name: the plugin is not linked to the driver. NULL if the driver lacks it. */
static qdri_cuda_flag_fn find(const char *name)
{
    enum cudaDriverEntryPointQueryResult result;
    void *found = NULL;
    qdri_cuda_flag_fn function;
    const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    memcpy(&function, &found, sizeof function); /* C has no cast from an object pointer to a function pointer */
    return function;
}

qdr_status qdri_cuda_flags_open(qdri_cuda_dev *dev)
{
    dev->write_flag = find("cuStreamWriteValue32");
    dev->wait_flag = find("cuStreamWaitValue32");
    return QDR_OK;
}

qdr_status qdri_cuda_pin(qdri_dev *base, void *memory, size_t bytes)
{
    const qdri_cuda_dev *dev = (const qdri_cuda_dev *)base;
    QDR_TRY(qdri_cuda_enter(dev));
    const cudaError_t error = cudaHostRegister(memory, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
    if (error == cudaSuccess) return QDR_OK;
    (void)cudaGetLastError();
    return QDR_FAIL(QDR_ERR_MEMORY,
                    "cuda: %zu bytes of host memory could not be pinned (%s); raise the limit on "
                    "locked memory (ulimit -l), or use NCCL",
                    bytes, cudaGetErrorString(error));
}

void qdri_cuda_unpin(qdri_dev *base, void *memory)
{
    const qdr_status status = qdri_cuda_enter((const qdri_cuda_dev *)base);
    (void)status;
    (void)cudaHostUnregister(memory);
}

static qdr_status use_flag(qdr_stream *stream, qdri_cuda_flag_fn function, uint32_t *flag, uint32_t value,
                           unsigned flags, const char *name)
{
    const qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    void *place = NULL;
    QDR_TRY(qdri_cuda_enter(dev));
    QDRI_CUDA_TRY(dev, cudaHostGetDevicePointer(&place, flag, 0));
    const CUresult error = function ? function(qdri_cuda_handle(stream), (CUdeviceptr)(uintptr_t)place, value, flags)
                                    : CUDA_ERROR_NOT_FOUND;
    if (error == CUDA_SUCCESS) return QDR_OK;
    return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                    "cuda: %s on GPU %d failed (%d), so that streams cannot wait for messages of "
                    "MPI; update the driver, or use NCCL",
                    name, dev->opts.number, (int)error);
}

qdr_status qdri_cuda_flag_raise(qdr_stream *stream, uint32_t *flag, uint32_t value)
{
    return use_flag(stream, qdri_cuda_dev_of(stream)->write_flag, flag, value, CU_STREAM_WRITE_VALUE_DEFAULT,
                    "cuStreamWriteValue32");
}

qdr_status qdri_cuda_flag_wait(qdr_stream *stream, uint32_t *flag, uint32_t value)
{
    return use_flag(stream, qdri_cuda_dev_of(stream)->wait_flag, flag, value, CU_STREAM_WAIT_VALUE_GEQ,
                    "cuStreamWaitValue32");
}
