/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA device: its table, creation and destruction; pinned memory, and ranges for profilers. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/size.h"
#include "dev/cuda/cuda.h"

static size_t fixed_bytes(const qdri_dev *dev, qdr_dtype dtype)
{
    (void)dev;
    (void)dtype;
    return QDRI_CUDA_WORKSPACE_BYTES + QDRI_CUDA_SCRATCH_BYTES;
}

static const char *products(const qdri_dev *dev) { return ((const qdri_cuda_dev *)dev)->products_name; }

static int number(const qdri_dev *dev) { return ((const qdri_cuda_dev *)dev)->opts.number; }
static const char *bus(const qdri_dev *dev) { return ((const qdri_cuda_dev *)dev)->gpu.bus; }

/* ---- pinned memory, and flags in it on which streams wait ---- */

static qdr_status pin(qdri_dev *base, void *memory, size_t bytes)
{
    const qdri_cuda_dev *dev = (const qdri_cuda_dev *)base;
    QDRI_CUDA_ENTER(dev);
    const cudaError_t error = cudaHostRegister(memory, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
    if (error == cudaSuccess) return QDR_OK;
    (void)cudaGetLastError();
    return QDR_FAIL(QDR_ERR_MEMORY,
                    "cuda: %zu bytes of host memory could not be pinned (%s); raise the limit on "
                    "locked memory (ulimit -l), or use NCCL",
                    bytes, cudaGetErrorString(error));
}

static void unpin(qdri_dev *base, void *memory)
{
    QDRI_CUDA_VISIT((const qdri_cuda_dev *)base);
    (void)cudaHostUnregister(memory);
}

static qdr_status use_flag(qdr_stream *stream, qdri_cuda_flag_fn function, uint32_t *flag, uint32_t value,
                           unsigned flags, const char *name)
{
    const qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    void *place = NULL;
    QDRI_CUDA_ENTER(dev);
    QDRI_CUDA_TRY(dev, cudaHostGetDevicePointer(&place, flag, 0));
    const CUresult error = function ? function(qdri_cuda_handle(stream), (CUdeviceptr)(uintptr_t)place, value, flags)
                                    : CUDA_ERROR_NOT_FOUND;
    if (error == CUDA_SUCCESS) return QDR_OK;
    return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                    "cuda: %s on GPU %d failed (%d), so that streams cannot wait for messages of "
                    "MPI; update the driver, or use NCCL",
                    name, dev->opts.number, (int)error);
}

static qdr_status flag_raise(qdr_stream *stream, uint32_t *flag, uint32_t value)
{
    return use_flag(stream, qdri_cuda_dev_of(stream)->write_flag, flag, value, CU_STREAM_WRITE_VALUE_DEFAULT,
                    "cuStreamWriteValue32");
}

static qdr_status flag_wait(qdr_stream *stream, uint32_t *flag, uint32_t value)
{
    return use_flag(stream, qdri_cuda_dev_of(stream)->wait_flag, flag, value, CU_STREAM_WAIT_VALUE_GEQ,
                    "cuStreamWaitValue32");
}

/* ---- ranges: NVTX calls the tool that started the process, and does nothing without one ---- */

/* NVTX searches for a tool at its first call, without a lock. */
static void look_for_tool(void) { nvtxInitialize(NULL); }

static int wants_ranges(const qdri_dev *dev) { return ((const qdri_cuda_dev *)dev)->wants_ranges; }

static void range_begin(qdri_dev *dev, const char *name)
{
    (void)dev;
    (void)nvtxRangePushA(name);
}

static void range_end(qdri_dev *dev)
{
    (void)dev;
    (void)nvtxRangePop();
}

static void destroy(qdri_dev *dev)
{
    qdri_cuda_dev *self = (qdri_cuda_dev *)dev;
    QDRI_CUDA_VISIT(self); /* frees whatever can be freed */
    qdri_cuda_stamps_free(self);
    qdri_cuda_attention_free(self);
    qdri_cuda_products_free(self);
    if (self->fault) (void)cudaFreeHost(self->fault);
    qdri_cuda_memory_close(self);
    qdri_dev_finish(dev);
    free(self);
}

static const qdri_dev_table cuda_table = {
    .name = "cuda",
    .mem_alloc = qdri_cuda_mem_alloc,
    .mem_free = qdri_cuda_mem_free,
    .stream_create = qdri_cuda_stream_create,
    .stream_destroy = qdri_cuda_stream_destroy,
    .stream_synchronize = qdri_cuda_stream_synchronize,
    .event_create = qdri_cuda_event_create,
    .event_destroy = qdri_cuda_event_destroy,
    .event_record = qdri_cuda_event_record,
    .stream_wait = qdri_cuda_stream_wait,
    .event_reached = qdri_cuda_event_reached,
    .is_failure = qdri_cuda_is_failure,
    .stamp = qdri_cuda_stamp,
    .work = qdri_cuda_work,
    .copy = qdri_cuda_copy,
    .fill_zero = qdri_cuda_fill_zero,
    .gemm = qdri_cuda_gemm,
    .fuses = qdri_cuda_fuses,
    .list_algorithms = qdri_cuda_list_algorithms,
    .check_rounding = qdri_cuda_check_rounding,
    .kernel = qdri_cuda_kernel,
    .fixed_bytes = fixed_bytes,
    .product_bytes = qdri_cuda_product_bytes,
    .reserve_product = qdri_cuda_reserve_product,
    .kernel_bytes = qdri_cuda_kernel_bytes,
    .reserve_kernel = qdri_cuda_reserve_kernel,
    .products = products,
    .stream_wrap = qdri_cuda_stream_wrap,
    .stream_native = qdri_cuda_stream_native,
    .gpu = number,
    .bus = bus,
    .pin = pin,
    .unpin = unpin,
    .flag_raise = flag_raise,
    .flag_wait = flag_wait,
    .record_begin = qdri_cuda_record_begin,
    .record_end = qdri_cuda_record_end,
    .record_is_lost = qdri_cuda_record_is_lost,
    .record_run = qdri_cuda_record_run,
    .record_free = qdri_cuda_record_free,
    .check_memory = qdri_cuda_check_memory,
    .open_to = qdri_cuda_open_to,
    .free_bytes = qdri_cuda_free_bytes,
    .wants_ranges = wants_ranges,
    .range_begin = range_begin,
    .range_end = range_end,
    .destroy = destroy,
};

static qdr_status open_gpu(qdri_cuda_dev *dev)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const qdr_gpu *gpu = &dev->gpu;
    QDR_TRY(qdri_cuda_find_gpu(dev->opts.number, &dev->gpu));
    if (gpu->major < 8) /* bf16 products and the compiled kernels need sm_80 */
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "cuda: GPU %d, %.100s, has compute capability %d.%d, but 8.0 (Ampere) or later is needed; use "
                        "another GPU, or --device cpu",
                        gpu->number, gpu->name, gpu->major, gpu->minor);
    (void)pthread_once(&once, look_for_tool);
    /* Without a tool, the depth of ranges is not counted. */
    const int depth = nvtxRangePushA("quadrille");
    (void)nvtxRangePop();
    dev->wants_ranges = dev->opts.ranges || depth != NVTX_NO_PUSH_POP_TRACKING;
    QDR_TRY(qdri_cuda_find_context(dev));
    QDRI_CUDA_ENTER(dev);
    dev->n_sms_free = dev->gpu.n_sms;
    QDR_TRY(qdri_cuda_memory_open(dev));
    QDRI_CUDA_TRY(dev, cudaHostAlloc((void **)&dev->fault, sizeof *dev->fault, cudaHostAllocMapped));
    *dev->fault = (qdri_cuda_fault){0};
    dev->write_flag = (qdri_cuda_flag_fn)qdri_cuda_find_driver("cuStreamWriteValue32");
    dev->wait_flag = (qdri_cuda_flag_fn)qdri_cuda_find_driver("cuStreamWaitValue32");
    QDRI_CUBLAS_TRY(dev, cublasLtCreate(&dev->lt));
    QDRI_CUBLAS_TRY(dev, cublasLtMatmulPreferenceCreate(&dev->preference));
    const size_t version = cublasLtGetVersion();
    snprintf(dev->products_name, sizeof dev->products_name, "%.60s, cuBLASLt %zu.%zu.%zu%s", dev->gpu.name,
             version / 10000, version / 100 % 100, version % 100, dev->opts.tf32 ? ", TF32" : "");
    return QDR_OK;
}

qdr_status qdri_cuda_dev_create(const qdri_cuda_opts *opts, qdri_dev **dev)
{
    qdri_cuda_dev *made = NULL;
    *dev = NULL;
    QDR_TRY(QDRI_NEW(1, "the device", &made));
    qdri_dev_init(&made->base, &cuda_table);
    pthread_mutex_init(&made->memory_lock, NULL);
    made->opts = *opts;
    const qdr_status status = open_gpu(made);
    if (status != QDR_OK) {
        destroy(&made->base);
        return status;
    }
    *dev = &made->base;
    return QDR_OK;
}
