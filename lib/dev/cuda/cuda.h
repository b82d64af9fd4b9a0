/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA device: streams, events and memory are CUDA's, products are cuBLASLt's, kernels are those of kernels/. Used
 * by one host thread, like every device; nothing here waits for the GPU except stream_synchronize and functions that
 * say so. */
#ifndef QDRI_DEV_CUDA_CUDA_H
#define QDRI_DEV_CUDA_CUDA_H

#include <cublasLt.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "dev/cuda/kernels/launch.h"
#include "dev/device.h"
#include "dev/plugin.h"

#define QDRI_CUDA_ALGORITHMS 16 /* number of algorithms requested from the heuristic for a product */
/* For products: the size that cuBLAS uses on Hopper. */
#define QDRI_CUDA_WORKSPACE_BYTES ((size_t)32 << 20)

typedef struct qdri_cuda_product qdri_cuda_product;
typedef struct qdri_cuda_stamps qdri_cuda_stamps;
typedef struct qdri_cuda_block qdri_cuda_block;
typedef struct qdri_cuda_space qdri_cuda_space;

/* Two functions of the driver that the runtime does not provide: a stream writes a word of memory, or waits until
 * (int32)(word - value) >= 0, without occupying a multiprocessor. */
typedef CUresult (*qdri_cuda_flag_fn)(CUstream stream, CUdeviceptr flag, cuuint32_t value, unsigned flags);

/* The source of memory for collectives; alloc = NULL: the pool. */
typedef struct qdri_cuda_shared {
    qdr_status (*alloc)(void *user, size_t bytes, void **data);
    void (*free)(void *user, void *data); /* nothing uses it any more */
    void *user;
} qdri_cuda_shared;

typedef struct qdri_cuda_dev {
    qdri_dev base;
    qdri_cuda_opts opts;
    qdr_gpu gpu;
    CUcontext context; /* of the GPU in this process */
    cudaMemPool_t pool; /* NULL: memory is managed, or the GPU has no pools */
    int is_pinned; /* managed memory is not usable by both sides, so host memory is used */
    uint64_t opened_to; /* one bit for each other GPU that may use the pool's memory */
    cudaStream_t memory_stream; /* on which the pool allocates and frees */
    pthread_mutex_t memory_lock;
    qdri_cuda_shared shared;
    qdri_cuda_block *blocks; /* allocated from the pool or `shared`, sorted by address */
    int n_blocks, block_capacity;
    qdri_cuda_fault *fault; /* pinned */
    qdri_cuda_flag_fn write_flag, wait_flag; /* NULL: not provided by the driver */
    cublasLtHandle_t lt;
    cublasLtMatmulPreference_t preference;
    qdri_cuda_product **products; /* sorted by shape and type */
    int n_products, product_capacity;
    int n_sms_free; /* for products: those that collectives do not use */
    int n_sharing; /* threads of this process that share the GPU over NCCL, with this one; 0 or 1: none do */
    struct qdri_cuda_attention *attention; /* cuDNN's plans; NULL until the first one */
    qdri_cuda_stamps *stamps; /* NULL until the first one */
    int wants_ranges;
    qdr_stream *recording; /* on which a recording was begun; NULL: none */
    char products_name[112];
} qdri_cuda_dev;

/* What a stream needs memory for: cuBLASLt's workspace, the kernels' scratch memory, factors in fp8, the workspace of
 * cuDNN's attention. */
typedef enum qdri_cuda_purpose {
    QDRI_SPACE_PRODUCTS,
    QDRI_SPACE_KERNELS,
    QDRI_SPACE_ROUNDED,
    QDRI_SPACE_ATTENTION,
    QDRI_SPACE_N
} qdri_cuda_purpose;

typedef struct qdri_cuda_stream {
    qdr_stream base;
    cudaStream_t handle;
    int is_owned;
    qdri_cuda_space *spaces[QDRI_SPACE_N]; /* NULL until used */
} qdri_cuda_stream;

typedef struct qdri_cuda_event {
    qdr_event base;
    cudaEvent_t handle;
} qdri_cuda_event;

static inline qdri_cuda_dev *qdri_cuda_dev_of(const qdr_stream *stream) { return (qdri_cuda_dev *)stream->dev; }

static inline cudaStream_t qdri_cuda_handle(const qdr_stream *stream)
{
    return ((const qdri_cuda_stream *)stream)->handle;
}

/* The status of a CUDA call on this GPU, with a message; QDR_OK for cudaSuccess. */
qdr_status qdri_cuda_status(const qdri_cuda_dev *dev, cudaError_t error, const char *call);
#define QDRI_CUDA_TRY(dev, call) QDR_TRY(qdri_cuda_status((dev), (call), #call))
qdr_status qdri_cublas_status(const qdri_cuda_dev *dev, cublasStatus_t error, const char *call);
#define QDRI_CUBLAS_TRY(dev, call) QDR_TRY(qdri_cublas_status((dev), (call), #call))

/* A thread's calls of CUDA go to its current GPU, which belongs to the caller. A visit directs them to the device's GPU
 * and back at the end of the enclosing block. A thread without a GPU keeps the device's: to choose another one for it
 * would create a context there. */
typedef struct qdri_cuda_visit {
    CUcontext was; /* NULL: nothing to return to */
} qdri_cuda_visit;
cudaError_t qdri_cuda_begin_visit(const qdri_cuda_dev *dev, qdri_cuda_visit *visit);
void qdri_cuda_end_visit(qdri_cuda_visit *visit);
/* For functions that do what they can even if the GPU cannot be used, and leave the last error alone. */
#define QDRI_CUDA_VISIT(dev)                                                                                           \
    __attribute__((cleanup(qdri_cuda_end_visit))) qdri_cuda_visit visit = {0};                                         \
    __attribute__((unused)) const cudaError_t visited = qdri_cuda_begin_visit((dev), &visit)
#define QDRI_CUDA_ENTER(dev)                                                                                           \
    QDRI_CUDA_VISIT(dev);                                                                                              \
    QDR_TRY(qdri_cuda_status((dev), visited, "cudaSetDevice"))
/* For threads of the library's own, which never return to another GPU. */
void qdri_cuda_stay(int gpu);
/* A function of the driver, to which the plugin is not linked; NULL: the driver lacks it. */
typedef void (*qdri_cuda_driver_fn)(void);
qdri_cuda_driver_fn qdri_cuda_find_driver(const char *name);

/* gpu.c */
QDR_NODISCARD qdr_status qdri_cuda_find_context(qdri_cuda_dev *dev); /* creates it */
QDR_NODISCARD qdr_status qdri_cuda_find_versions(qdri_cuda_versions *versions);
QDR_NODISCARD qdr_status qdri_cuda_find_gpu(int number, qdr_gpu *gpu);

/* device.c */
QDR_NODISCARD qdr_status qdri_cuda_dev_create(const qdri_cuda_opts *opts, qdri_dev **dev);

/* kernels.c */
qdr_status qdri_cuda_kernel(qdr_stream *stream, const qdri_kernel *kernel);
/* Poisons the device if a kernel has found a fault. */
void qdri_cuda_look_for_fault(qdri_cuda_dev *dev);

/* memory.c */
QDR_NODISCARD qdr_status qdri_cuda_memory_open(qdri_cuda_dev *dev);
void qdri_cuda_memory_close(qdri_cuda_dev *dev);
qdr_status qdri_cuda_mem_alloc(qdri_dev *dev, int is_shared, size_t bytes, void **data);
size_t qdri_cuda_mem_free(qdri_dev *dev, void *data);
qdr_status qdri_cuda_check_memory(qdri_dev *dev, const void *data, const char *what);
int qdri_cuda_open_to(qdri_dev *dev, int gpu);
void qdri_cuda_free_bytes(qdri_dev *dev, size_t *bytes_free, size_t *bytes);
qdr_status qdri_cuda_copy(qdr_stream *stream, void *dst, const void *src, size_t bytes);
qdr_status qdri_cuda_fill_zero(qdr_stream *stream, void *dst, size_t bytes);
/* Memory of the stream for one purpose, of at least this size. A larger block does not replace a smaller one, which
 * recorded work may still use, so blocks grow by at least a factor of two. */
QDR_NODISCARD qdr_status qdri_cuda_find_space(qdr_stream *stream, qdri_cuda_purpose purpose, size_t bytes, void **data);
void qdri_cuda_free_spaces(qdr_stream *stream);

/* stream.c */
qdr_status qdri_cuda_stream_create(qdri_dev *dev, qdri_stream_kind kind, qdr_stream **stream);
qdr_status qdri_cuda_stream_wrap(qdri_dev *dev, void *native, qdr_stream **stream);
void *qdri_cuda_stream_native(qdr_stream *stream);
void qdri_cuda_stream_destroy(qdr_stream *stream);
qdr_status qdri_cuda_stream_synchronize(qdr_stream *stream);
int qdri_cuda_is_failure(qdr_stream *stream, qdr_status status);
qdr_status qdri_cuda_event_create(qdri_dev *dev, qdr_event **event);
void qdri_cuda_event_destroy(qdr_event *event);
qdr_status qdri_cuda_event_record(qdr_event *event, qdr_stream *stream);
qdr_status qdri_cuda_stream_wait(qdr_stream *stream, qdr_event *event);
int qdri_cuda_event_reached(qdr_event *event);
qdr_status qdri_cuda_work(qdr_stream *stream, qdri_work_fn fn, const void *args, size_t bytes);

/* record.c */
int qdri_cuda_is_recording(qdr_stream *stream);
qdr_status qdri_cuda_record_begin(qdr_stream *stream);
qdr_status qdri_cuda_record_end(qdr_stream *stream, void **record);
int qdri_cuda_record_is_lost(qdr_stream *stream);
qdr_status qdri_cuda_record_run(qdr_stream *stream, void *record);
void qdri_cuda_record_free(qdri_dev *dev, void *record);

/* stamps.c */
qdr_status qdri_cuda_stamp(qdr_stream *stream, int64_t *nanosecs);
/* Delivers the timestamps that the GPU has written. */
void qdri_cuda_stamps_collect(qdri_cuda_dev *dev);
void qdri_cuda_stamps_free(qdri_cuda_dev *dev);

/* gemm.c */
qdr_status qdri_cuda_gemm(qdr_stream *stream, const qdri_gemm *gemm);
int qdri_cuda_fuses(const qdri_dev *dev, const qdri_gemm *gemm);

/* gemm_cublaslt.c */
/* cuBLASLt's result, and its auxiliary matrix, which is the input of GELU; NULL: none. */
static inline void *qdri_cuda_result_of(const qdri_gemm *g) { return g->gelu ? g->gelu : g->c; }
static inline const void *qdri_cuda_auxiliary_of(const qdri_gemm *g) { return g->gelu ? g->c : g->gelu_of; }
/* Device addresses of the factors by which A and B are multiplied. */
typedef struct qdri_cuda_scales {
    const float *a, *b;
} qdri_cuda_scales;
/* A product by cuBLASLt. With scales, of fp8 codes: the types of A and B are given by their roundings. */
QDR_NODISCARD qdr_status qdri_cuda_multiply(qdr_stream *stream, const qdri_gemm *gemm, const qdri_cuda_scales *scales);
int qdri_cuda_has_fp8(qdr_stream *stream, const qdri_gemm *gemm);
qdr_status qdri_cuda_list_algorithms(qdr_stream *stream, const qdri_gemm *gemm, int most, int algorithms[], int *n);
void qdri_cuda_products_free(qdri_cuda_dev *dev);

/* gemm_rounded.c */
qdr_status qdri_cuda_check_rounding(const qdri_dev *dev);
/* k must be at least 1, and there must be no bias. */
QDR_NODISCARD qdr_status qdri_cuda_gemm_rounded(qdr_stream *stream, const qdri_gemm *gemm);
size_t qdri_cuda_product_bytes(qdr_stream *stream, const qdri_gemm *gemm);
QDR_NODISCARD qdr_status qdri_cuda_reserve_product(qdr_stream *stream, size_t bytes);

/* attention_cudnn.c: attention by cuDNN, where QDR_ATTENTION selects it and cuDNN supports it. The saved statistics are
 * the same as those of the library's own kernels, number by number, so that either can compute the backward pass of the
 * other's forward pass. */
/* Enqueues an attention kernel. *is_done = 0: cuDNN does not compute this one, so the library's own kernels must; the
 * reason is logged once. The first call of a shape creates its plans, which takes seconds.
 * @retval QDR_ERR_DEVICE  cuDNN failed to run a plan that it had accepted */
QDR_NODISCARD qdr_status qdri_cuda_attention_cudnn(qdr_stream *stream, const qdri_kernel *kernel, int *is_done);
/* The workspace of a kernel's shape, in either pass; creates its plans. */
size_t qdri_cuda_kernel_bytes(qdr_stream *stream, const qdri_kernel *kernel);
void qdri_cuda_reserve_kernel(qdr_stream *stream, size_t bytes);
void qdri_cuda_attention_free(qdri_cuda_dev *dev);

#endif
