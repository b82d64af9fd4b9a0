/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's information about itself and its GPUs; its errors in words. */
#include <stdio.h>
#include <string.h>

#include "dev/cuda/cuda.h"

/* The remedy, for errors after which no call of this process will work again. */
static const char *remedy_of(cudaError_t error)
{
    switch (error) {
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
        return "install NVIDIA's driver, at least as new as this CUDA, or use --device cpu";
    case cudaErrorIllegalAddress:
        return "a kernel received memory that is not GPU memory; find it with compute-sanitizer";
    case cudaErrorDevicesUnavailable:
        return "another process uses the GPU exclusively; free it, or set CUDA_VISIBLE_DEVICES";
    default: return "see the CUDA log, or run it under compute-sanitizer";
    }
}

/* Pinned memory is host memory. */
static qdr_status fail_memory(const qdri_cuda_dev *dev, const char *call, int length)
{
    const int is_host = strncmp(call, "cudaHost", 8) == 0;
    return QDR_FAIL(QDR_ERR_MEMORY, "cuda: %.*s for GPU %d: out of memory%s; %s", length, call,
                    dev ? dev->opts.number : -1, is_host ? " of the host, to be pinned" : "",
                    is_host ? "free some there, or use fewer ranks on this machine" : QDRI_GPU_MEMORY_REMEDY);
}

qdr_status qdri_cuda_status(const qdri_cuda_dev *dev, cudaError_t error, const char *call)
{
    if (error == cudaSuccess) return QDR_OK;
    (void)cudaGetLastError(); /* clears the error, which is reported here */
    const int length = (int)strcspn(call, "(");
    if (error == cudaErrorMemoryAllocation) return fail_memory(dev, call, length);
    return QDR_FAIL(QDR_ERR_DEVICE, "cuda: %.*s on GPU %d failed: %s (%s); %s", length, call,
                    dev ? dev->opts.number : -1, cudaGetErrorString(error), cudaGetErrorName(error), remedy_of(error));
}

qdr_status qdri_cublas_status(const qdri_cuda_dev *dev, cublasStatus_t error, const char *call)
{
    const int length = (int)strcspn(call, "(");
    if (error == CUBLAS_STATUS_SUCCESS) return QDR_OK;
    if (error == CUBLAS_STATUS_ALLOC_FAILED) return fail_memory(dev, call, length);
    return QDR_FAIL(QDR_ERR_DEVICE,
                    "cuda: %.*s on GPU %d failed: %s; see what "
                    "CUBLASLT_LOG_LEVEL=2 says",
                    length, call, dev->opts.number, cublasLtGetStatusName(error));
}

/* ---- the current GPU of a thread ---- */

qdri_cuda_driver_fn qdri_cuda_find_driver(const char *name)
{
    enum cudaDriverEntryPointQueryResult result;
    void *found = NULL;
    qdri_cuda_driver_fn function;
    const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    memcpy(&function, &found, sizeof function); /* C has no cast from an object pointer to a function pointer */
    return function;
}

/* The runtime says GPU 0 of a thread that has none; only the driver tells the difference. */
static struct current {
    CUresult (*get)(CUcontext *context);
    CUresult (*set)(CUcontext context);
} current;

static void find_current(void)
{
    current.get = (CUresult(*)(CUcontext *))qdri_cuda_find_driver("cuCtxGetCurrent");
    current.set = (CUresult(*)(CUcontext))qdri_cuda_find_driver("cuCtxSetCurrent");
}

static CUcontext current_context(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    CUcontext context = NULL;
    pthread_once(&once, find_current);
    if (current.get && current.get(&context) != CUDA_SUCCESS) context = NULL;
    return context;
}

cudaError_t qdri_cuda_begin_visit(const qdri_cuda_dev *dev, qdri_cuda_visit *visit)
{
    CUcontext was = current_context();
    if (was && was == dev->context) return cudaSuccess;
    const cudaError_t error = cudaSetDevice(dev->opts.number);
    if (error == cudaSuccess)
        visit->was = was;
    else
        (void)cudaGetLastError();
    return error;
}

void qdri_cuda_end_visit(qdri_cuda_visit *visit)
{
    if (visit->was && current.set) (void)current.set(visit->was);
}

void qdri_cuda_stay(int gpu)
{
    if (cudaSetDevice(gpu) != cudaSuccess) (void)cudaGetLastError();
}

qdr_status qdri_cuda_find_context(qdri_cuda_dev *dev)
{
    QDRI_CUDA_ENTER(dev);
    dev->context = current_context();
    return QDR_OK;
}

qdr_status qdri_cuda_find_versions(qdri_cuda_versions *versions)
{
    *versions = (qdri_cuda_versions){.cublaslt = cublasLtGetVersion()};
    (void)cudaRuntimeGetVersion(&versions->runtime);
    (void)cudaDriverGetVersion(&versions->driver);
    const int driver = versions->driver, runtime = versions->runtime;
    const cudaError_t error = cudaGetDeviceCount(&versions->n_gpus);
    if (error == cudaSuccess) return QDR_OK;
    (void)cudaGetLastError();
    if (driver == 0)
        return QDR_FAIL(
            QDR_ERR_UNSUPPORTED,
            "cuda: no CUDA driver is installed; install NVIDIA's driver for CUDA %d.%d, or use --device cpu",
            runtime / 1000, runtime % 1000 / 10);
    if (error == cudaErrorInsufficientDriver || error == cudaErrorCallRequiresNewerDriver)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "cuda: the driver supports CUDA %d.%d, too old for this library's CUDA %d.%d; install a newer "
                        "driver, or build with an older CUDA",
                        driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                    "cuda: no GPU can be used: %s (%s); see nvidia-smi and CUDA_VISIBLE_DEVICES, "
                    "or use --device cpu",
                    cudaGetErrorString(error), cudaGetErrorName(error));
}

qdr_status qdri_cuda_find_gpu(int number, qdr_gpu *gpu)
{
    qdri_cuda_versions versions;
    struct cudaDeviceProp properties;
    size_t bytes_free = 0, bytes = 0;
    const qdri_cuda_dev here = {.opts = {.number = number}};
    *gpu = (qdr_gpu){.number = number};
    QDR_TRY(qdri_cuda_find_versions(&versions));
    if (versions.n_gpus == 0)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "cuda: the driver is installed, but there is no GPU; see nvidia-smi and "
                                             "CUDA_VISIBLE_DEVICES, or use --device cpu");
    if (number < 0 || number >= versions.n_gpus)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "cuda: there is no GPU %d; this process sees %d: use 0 to %d, or change CUDA_VISIBLE_DEVICES",
                        number, versions.n_gpus, versions.n_gpus - 1);
    QDRI_CUDA_TRY(&here, cudaGetDeviceProperties(&properties, number));
    snprintf(gpu->name, sizeof gpu->name, "%.255s", properties.name);
    gpu->n_sms = properties.multiProcessorCount;
    gpu->major = properties.major;
    gpu->minor = properties.minor;
    QDRI_CUDA_TRY(&here, cudaDeviceGetPCIBusId(gpu->bus, sizeof gpu->bus, number));
    QDRI_CUDA_ENTER(&here);
    QDRI_CUDA_TRY(&here, cudaMemGetInfo(&bytes_free, &bytes));
    gpu->bytes = (int64_t)bytes;
    gpu->bytes_free = (int64_t)bytes_free;
    return QDR_OK;
}
