/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a GPU: a pool that belongs to the device and keeps freed memory for reuse, where the GPU has pools. */
#include <stdlib.h>
#include <string.h>

#include "core/size.h"
#include "dev/cuda/cuda.h"

struct qdri_cuda_block {
    void *data;
    size_t bytes;
    int is_shared;
};

/* Memory of the pool and memory that callers got from cudaMalloc() are opened in different ways. */
static int open_peer(const qdri_cuda_dev *dev, int gpu)
{
    const struct cudaMemAccessDesc access = {.location = {.type = cudaMemLocationTypeDevice, .id = gpu},
                                             .flags = cudaMemAccessFlagsProtReadWrite};
    int can = 0;
    QDRI_CUDA_VISIT(dev);
    cudaError_t error = cudaDeviceCanAccessPeer(&can, gpu, dev->opts.number);
    if (error == cudaSuccess && can && dev->pool) error = cudaMemPoolSetAccess(dev->pool, &access, 1);
    if (error == cudaSuccess && can) error = cudaSetDevice(gpu);
    if (error == cudaSuccess && can) error = cudaDeviceEnablePeerAccess(dev->opts.number, 0);
    (void)cudaSetDevice(dev->opts.number);
    (void)cudaGetLastError();
    return can && (error == cudaSuccess || error == cudaErrorPeerAccessAlreadyEnabled);
}

int qdri_cuda_open_to(qdri_dev *base, int gpu)
{
    qdri_cuda_dev *dev = (qdri_cuda_dev *)base;
    if (gpu == dev->opts.number) return 1;
    if (gpu >= 64) return 0;
    const uint64_t bit = (uint64_t)1 << gpu;
    if (!(dev->opened_to & bit) && open_peer(dev, gpu)) dev->opened_to |= bit;
    return (dev->opened_to & bit) != 0;
}

qdr_status qdri_cuda_memory_open(qdri_cuda_dev *dev)
{
    const struct cudaMemPoolProps properties = {
        .allocType = cudaMemAllocationTypePinned,
        .location = {.type = cudaMemLocationTypeDevice, .id = dev->opts.number}};
    uint64_t keep_all = UINT64_MAX;
    int shares = 0, has_pools = 0;
    QDRI_CUDA_TRY(dev, cudaStreamCreateWithFlags(&dev->memory_stream, cudaStreamNonBlocking));
    if (dev->opts.is_managed) {
        /* If the host must not access managed memory while the GPU works (on some virtual machines), host memory is
         * used for what both may read. */
        QDRI_CUDA_TRY(dev, cudaDeviceGetAttribute(&shares, cudaDevAttrConcurrentManagedAccess, dev->opts.number));
        dev->is_pinned = !shares;
        return QDR_OK;
    }
    QDRI_CUDA_TRY(dev, cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, dev->opts.number));
    if (!has_pools) return QDR_OK; /* some virtual GPUs: each block is CUDA's own */
    QDRI_CUDA_TRY(dev, cudaMemPoolCreate(&dev->pool, &properties));
    QDRI_CUDA_TRY(dev, cudaMemPoolSetAttribute(dev->pool, cudaMemPoolAttrReleaseThreshold, &keep_all));
    return QDR_OK;
}

void qdri_cuda_memory_close(qdri_cuda_dev *dev)
{
    if (dev->memory_stream) {
        (void)cudaStreamSynchronize(dev->memory_stream);
        (void)cudaStreamDestroy(dev->memory_stream);
    }
    if (dev->pool) (void)cudaMemPoolDestroy(dev->pool);
    free(dev->blocks);
    pthread_mutex_destroy(&dev->memory_lock);
}

/* The first block at `data` or after it. */
static int find_block(const qdri_cuda_dev *dev, const void *data)
{
    int low = 0, high = dev->n_blocks;
    while (low < high) {
        const int middle = (low + high) / 2;
        if ((uintptr_t)dev->blocks[middle].data < (uintptr_t)data)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* New memory is immediately usable on any stream. */
static qdr_status take(qdri_cuda_dev *dev, int is_shared, size_t bytes, void **data)
{
    const size_t least = bytes ? bytes : 1; /* CUDA returns NULL for 0 bytes */
    QDRI_CUDA_ENTER(dev);
    if (is_shared) return dev->shared.alloc(dev->shared.user, least, data);
    if (dev->opts.is_managed && dev->is_pinned)
        return qdri_cuda_status(dev, cudaHostAlloc(data, least, cudaHostAllocMapped), "cudaHostAlloc");
    if (dev->opts.is_managed)
        return qdri_cuda_status(dev, cudaMallocManaged(data, least, cudaMemAttachGlobal), "cudaMallocManaged");
    if (!dev->pool) return qdri_cuda_status(dev, cudaMalloc(data, least), "cudaMalloc");
    QDRI_CUDA_TRY(dev, cudaMallocFromPoolAsync(data, least, dev->pool, dev->memory_stream));
    QDRI_CUDA_TRY(dev, cudaStreamSynchronize(dev->memory_stream));
    return QDR_OK;
}

static void give(const qdri_cuda_dev *dev, const qdri_cuda_block *block)
{
    if (block->is_shared)
        dev->shared.free(dev->shared.user, block->data);
    else if (dev->opts.is_managed && dev->is_pinned)
        (void)cudaFreeHost(block->data);
    else if (!dev->pool)
        (void)cudaFree(block->data);
    else
        (void)cudaFreeAsync(block->data, dev->memory_stream);
}

/* The lock is not held while memory is allocated or freed: NCCL's memory involves locks of its own, under which staging
 * is allocated here. */
qdr_status qdri_cuda_mem_alloc(qdri_dev *base, int is_shared, size_t bytes, void **data)
{
    qdri_cuda_dev *dev = (qdri_cuda_dev *)base;
    qdri_cuda_block block = {.bytes = bytes, .is_shared = is_shared && dev->shared.alloc};
    qdr_status status = take(dev, block.is_shared, bytes, &block.data);
    pthread_mutex_lock(&dev->memory_lock);
    if (status == QDR_OK)
        status = qdri_list_grow((void **)&dev->blocks, dev->n_blocks, &dev->block_capacity, sizeof block,
                                "a list of device memory");
    if (status == QDR_OK) {
        const int at = find_block(dev, block.data);
        memmove(dev->blocks + at + 1, dev->blocks + at, (size_t)(dev->n_blocks - at) * sizeof *dev->blocks);
        dev->blocks[at] = block;
        dev->n_blocks++;
    }
    pthread_mutex_unlock(&dev->memory_lock);
    if (status != QDR_OK && block.data) give(dev, &block);
    *data = status == QDR_OK ? block.data : NULL;
    return status;
}

size_t qdri_cuda_mem_free(qdri_dev *base, void *data)
{
    qdri_cuda_dev *dev = (qdri_cuda_dev *)base;
    QDRI_CUDA_VISIT(dev);
    /* After an error, the caller has not waited for work enqueued earlier. */
    if (qdri_dev_status(base) != QDR_OK && cudaDeviceSynchronize() != cudaSuccess) (void)cudaGetLastError();
    qdri_cuda_block block = {0};
    pthread_mutex_lock(&dev->memory_lock);
    const int at = find_block(dev, data);
    if (at < dev->n_blocks && dev->blocks[at].data == data) {
        block = dev->blocks[at];
        dev->n_blocks--;
        memmove(dev->blocks + at, dev->blocks + at + 1, (size_t)(dev->n_blocks - at) * sizeof *dev->blocks);
    }
    pthread_mutex_unlock(&dev->memory_lock);
    give(dev, &block);
    return block.bytes;
}

/* Memory that the pool keeps for reuse counts as free. Reports nothing for host memory. */
void qdri_cuda_free_bytes(qdri_dev *base, size_t *bytes_free, size_t *bytes)
{
    const qdri_cuda_dev *dev = (const qdri_cuda_dev *)base;
    *bytes_free = *bytes = 0;
    if (dev->is_pinned) return;
    QDRI_CUDA_VISIT(dev);
    if (visited != cudaSuccess) return;
    if (dev->pool) (void)cudaMemPoolTrimTo(dev->pool, 0);
    if (cudaMemGetInfo(bytes_free, bytes) != cudaSuccess) (void)cudaGetLastError();
}

qdr_status qdri_cuda_check_memory(qdri_dev *base, const void *data, const char *what)
{
    qdri_cuda_dev *dev = (qdri_cuda_dev *)base;
    struct cudaPointerAttributes is;
    /* The device's own blocks are known without CUDA. */
    pthread_mutex_lock(&dev->memory_lock);
    const int at = find_block(dev, data);
    int is_own = at < dev->n_blocks && dev->blocks[at].data == data;
    if (!is_own && at > 0) is_own = (uintptr_t)data - (uintptr_t)dev->blocks[at - 1].data < dev->blocks[at - 1].bytes;
    pthread_mutex_unlock(&dev->memory_lock);
    if (is_own) return QDR_OK;
    const cudaError_t error = cudaPointerGetAttributes(&is, data);
    if (error != cudaSuccess) (void)cudaGetLastError();
    if (error != cudaSuccess || is.type == cudaMemoryTypeUnregistered)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s: its memory at %p is not GPU memory; allocate it with qdr_mem_alloc() or cudaMalloc()",
                        what, data);
    if (is.type == cudaMemoryTypeDevice && is.device != dev->opts.number)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s: its memory at %p is on GPU %d, but this rank computes on GPU %d; allocate it there", what,
                        data, is.device, dev->opts.number);
    return QDR_OK;
}

qdr_status qdri_cuda_copy(qdr_stream *stream, void *dst, const void *src, size_t bytes)
{
    const qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    QDRI_CUDA_ENTER(dev);
    const cudaError_t error = cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, qdri_cuda_handle(stream));
    return qdri_cuda_status(dev, error, "cudaMemcpyAsync");
}

qdr_status qdri_cuda_fill_zero(qdr_stream *stream, void *dst, size_t bytes)
{
    const qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    QDRI_CUDA_ENTER(dev);
    const cudaError_t error = cudaMemsetAsync(dst, 0, bytes, qdri_cuda_handle(stream));
    return qdri_cuda_status(dev, error, "cudaMemsetAsync");
}

/* ---- memory of streams ---- */

struct qdri_cuda_space {
    qdri_cuda_space *older;
    void *data;
    size_t bytes;
};

static const char *const purposes[QDRI_SPACE_N] = {
    [QDRI_SPACE_PRODUCTS] = "scratch of products and kernels",
    [QDRI_SPACE_KERNELS] = "scratch of products and kernels",
    [QDRI_SPACE_ROUNDED] = "operands in fp8",
    [QDRI_SPACE_ATTENTION] = "workspace of cuDNN's attention",
};

qdr_status qdri_cuda_find_space(qdr_stream *stream, qdri_cuda_purpose purpose, size_t bytes, void **data)
{
    qdri_cuda_space **spaces = &((qdri_cuda_stream *)stream)->spaces[purpose], *space = *spaces;
    if (!space || space->bytes < bytes) {
        qdri_cuda_space *made = NULL;
        QDR_TRY(QDRI_NEW(1, purposes[purpose], &made));
        made->bytes = space && 2 * space->bytes > bytes ? 2 * space->bytes : bytes;
        const qdr_status status = qdri_mem_alloc_for(stream->dev, purposes[purpose], made->bytes, &made->data);
        if (status != QDR_OK) {
            free(made);
            return status;
        }
        made->older = space;
        *spaces = space = made;
    }
    *data = space->data;
    return QDR_OK;
}

void qdri_cuda_free_spaces(qdr_stream *stream)
{
    for (int purpose = 0; purpose < QDRI_SPACE_N; purpose++) {
        qdri_cuda_space *older = NULL;
        for (qdri_cuda_space *space = ((qdri_cuda_stream *)stream)->spaces[purpose]; space; space = older) {
            older = space->older;
            qdri_mem_free(stream->dev, &space->data);
            free(space);
        }
    }
}
