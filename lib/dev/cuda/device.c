/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA device: its table, creation and destruction. */
#include <stdio.h>
#include <stdlib.h>

#include "core/size.h"
#include "dev/cuda/attention_cudnn.h"
#include "dev/cuda/cuda.h"

static size_t fixed_bytes(const qdri_dev *dev, qdr_dtype dtype)
{
    (void)dev;
    (void)dtype;
    return QDRI_CUDA_WORKSPACE_BYTES + QDRI_CUDA_SCRATCH_BYTES;
}

static const char *products(const qdri_dev *dev) { return ((const qdri_cuda_dev *)dev)->products_name; }

static int gpu(const qdri_dev *dev) { return ((const qdri_cuda_dev *)dev)->opts.number; }

/* Host threads that wait do so in a barrier of ranks, which the hook gives up. */
static void wake_all(qdri_dev *dev) { (void)dev; }

static void destroy(qdri_dev *dev)
{
    qdri_cuda_dev *self = (qdri_cuda_dev *)dev;
    /* Frees whatever can be freed, and keeps the message of an earlier failure. */
    if (cudaSetDevice(self->opts.number) != cudaSuccess) (void)cudaGetLastError();
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
    .products = products,
    .stream_wrap = qdri_cuda_stream_wrap,
    .stream_native = qdri_cuda_stream_native,
    .gpu = gpu,
    .pin = qdri_cuda_pin,
    .unpin = qdri_cuda_unpin,
    .flag_raise = qdri_cuda_flag_raise,
    .flag_wait = qdri_cuda_flag_wait,
    .record_begin = qdri_cuda_record_begin,
    .record_end = qdri_cuda_record_end,
    .record_is_lost = qdri_cuda_record_is_lost,
    .record_run = qdri_cuda_record_run,
    .record_free = qdri_cuda_record_free,
    .check_memory = qdri_cuda_check_memory,
    .open_to = qdri_cuda_open_to,
    .room = qdri_cuda_room,
    .wants_ranges = qdri_cuda_wants_ranges,
    .range_begin = qdri_cuda_range_begin,
    .range_end = qdri_cuda_range_end,
    .wake_all = wake_all,
    .destroy = destroy,
};

/* bf16 products and the compiled kernels need sm_80. */
static qdr_status check_gpu(const qdri_gpu *gpu)
{
    if (gpu->major >= 8) return QDR_OK;
    return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                    "cuda: GPU %d, %.100s, has compute capability %d.%d, but 8.0 (Ampere) or later is needed; use "
                    "another GPU, or --device cpu",
                    gpu->number, gpu->name, gpu->major, gpu->minor);
}

static qdr_status open_gpu(qdri_cuda_dev *dev)
{
    QDR_TRY(qdri_cuda_find_gpu(dev->opts.number, &dev->gpu));
    QDR_TRY(check_gpu(&dev->gpu));
    qdri_cuda_ranges_open(dev);
    QDR_TRY(qdri_cuda_enter(dev));
    dev->n_sms_free = dev->gpu.n_sms;
    QDR_TRY(qdri_cuda_memory_open(dev));
    QDRI_CUDA_TRY(dev, cudaHostAlloc((void **)&dev->fault, sizeof *dev->fault, cudaHostAllocMapped));
    *dev->fault = (qdri_cuda_fault){0};
    QDR_TRY(qdri_cuda_flags_open(dev));
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
