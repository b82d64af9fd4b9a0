/* SPDX-License-Identifier: Apache-2.0 */
/* Pools: memory that is allocated and freed when a stream reaches that point. Pool memory overlaps no other memory, so
 * that reuse is ordered as CUDA guarantees; use by others before the stream has allocated it, or after the stream has
 * freed it, is a race. */
#include "internal.h"

#define POOL_MAGIC 0x66616b65706f6f6cu

struct CUmemPoolHandle_st {
    uint64_t magic;
    int device, is_destroyed;
    unsigned allows; /* bits of other GPUs */
    uint64_t release_threshold;
    struct CUmemPoolHandle_st *next;
};

static cudaMemPool_t pools;

static cudaMemPool_t make(int device)
{
    cudaMemPool_t pool = fake_new(sizeof *pool);
    pool->magic = POOL_MAGIC;
    pool->device = device;
    pool->next = pools;
    pools = pool;
    return pool;
}

static cudaError_t check(cudaMemPool_t pool, const char *name)
{
    if (pool && pool->magic == POOL_MAGIC && !pool->is_destroyed) return cudaSuccess;
    fake_report(FAKE_DESTROYED, "\"%s\" of a pool %p that is none", name, (void *)pool);
    return cudaErrorInvalidValue;
}

int fake_pool_allows(cudaMemPool_t pool, int device) { return (int)(pool->allows >> device & 1); }

int64_t fake_leaked_pools(void)
{
    int64_t n = 0;
    for (cudaMemPool_t pool = pools; pool; pool = pool->next) n += !pool->is_destroyed;
    return n;
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *properties)
{
    const cudaError_t error = fake_ready();
    const int device = properties->location.id;
    if (error != cudaSuccess) return fake_note(error);
    if (!fake_get_settings()->has_pools) return fake_note(cudaErrorNotSupported);
    if (properties->location.type != cudaMemLocationTypeDevice || device < 0 || device >= fake_get_settings()->n_gpus ||
        properties->allocType != cudaMemAllocationTypePinned)
        return fake_note(cudaErrorInvalidValue);
    if (fake_take_failure("create")) return fake_note(cudaErrorMemoryAllocation);
    fake_lock();
    *pool = make(device);
    fake_unlock();
    return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
    fake_lock();
    cudaError_t error = cudaErrorInvalidValue;
    if (pool && pool->magic == POOL_MAGIC && pool->is_destroyed)
        fake_report(FAKE_DOUBLE_FREE, "a pool %p is destroyed twice", (void *)pool);
    else
        error = check(pool, "cudaMemPoolDestroy");
    if (error == cudaSuccess) pool->is_destroyed = 1;
    fake_unlock();
    return fake_note(error);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    fake_lock();
    const cudaError_t error = check(pool, "cudaMemPoolSetAttribute");
    if (error == cudaSuccess && attribute == cudaMemPoolAttrReleaseThreshold)
        pool->release_threshold = *(const uint64_t *)value;
    fake_unlock();
    return fake_note(error);
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes)
{
    (void)bytes;
    fake_lock();
    const cudaError_t error = check(pool, "cudaMemPoolTrimTo");
    fake_unlock();
    return fake_note(error);
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *list, size_t n)
{
    fake_lock();
    const cudaError_t error = check(pool, "cudaMemPoolSetAccess");
    for (size_t i = 0; i < n && error == cudaSuccess; i++) {
        const unsigned bit = 1u << list[i].location.id;
        if (list[i].flags == cudaMemAccessFlagsProtReadWrite)
            pool->allows |= bit;
        else
            pool->allows &= ~bit;
    }
    fake_unlock();
    return fake_note(error);
}

/* ---- taking and freeing ---- */

static cudaError_t book(fake_stream *stream, const fake_block *block, const char *name)
{
    const fake_access access = {FAKE_SCRATCH, (const void *)block->begin, block->bytes, 0, 1};
    const fake_use_list uses = {.name = name, .accesses = &access, .n = 1};
    return fake_book(stream, &uses);
}

/* Graphs that take memory are not faked. */
static cudaError_t check_stream(fake_stream *stream)
{
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (!stream->capture) return cudaSuccess;
    fake_capture_break(stream);
    return cudaErrorStreamCaptureUnsupported;
}

static cudaError_t take(void **data, size_t bytes, cudaMemPool_t pool, fake_stream *stream)
{
    fake_block *block = NULL;
    cudaError_t error = check_stream(stream);
    if (error == cudaSuccess) error = check(pool, "cudaMallocFromPoolAsync");
    if (error != cudaSuccess || bytes == 0) return error;
    error = fake_device_alloc(pool->device, bytes, pool, &block);
    if (error != cudaSuccess) return error;
    pool->allows |= 1u << pool->device;
    if (stream->device != pool->device && !fake_pool_allows(pool, stream->device))
        fake_report(FAKE_WRONG_DEVICE, "stream %d of GPU %d takes memory from a pool of GPU %d", stream->number,
                    stream->device, pool->device);
    else
        (void)book(stream, block, "cudaMallocFromPoolAsync");
    *data = (void *)block->begin;
    return cudaSuccess;
}

cudaError_t cudaMallocFromPoolAsync(void **data, size_t bytes, cudaMemPool_t pool, cudaStream_t handle)
{
    const cudaError_t ready = fake_ready();
    if (ready != cudaSuccess) return fake_note(ready);
    fake_lock();
    *data = NULL;
    const cudaError_t error = take(data, bytes, pool, fake_find_stream(handle, "cudaMallocFromPoolAsync"));
    fake_unlock();
    return fake_note(error);
}

static void run_free(void *args)
{
    fake_lock();
    fake_remove_block(*(fake_block **)args);
    fake_unlock();
}

static cudaError_t give(void *pointer, fake_stream *stream)
{
    const cudaError_t error = check_stream(stream);
    if (error != cudaSuccess) return error;
    fake_block *block = fake_find_block(pointer);
    const int is_there = block && block->begin == (uintptr_t)pointer && block->kind == FAKE_DEVICE;
    if (!is_there || block->is_freed) {
        const int was = is_there || (!block && fake_was_freed(pointer));
        fake_report(was ? FAKE_DOUBLE_FREE : FAKE_NO_MEMORY,
                    was ? "cudaFreeAsync of %p, which was freed" : "cudaFreeAsync of %p, which CUDA did not give",
                    pointer);
        return cudaErrorInvalidValue;
    }
    (void)book(stream, block, "cudaFreeAsync");
    fake_mark_freed(block);
    fake_push(stream, run_free, &block, sizeof block);
    return cudaSuccess;
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t handle)
{
    if (!pointer) return cudaSuccess;
    fake_lock();
    const cudaError_t error = give(pointer, fake_find_stream(handle, "cudaFreeAsync"));
    fake_unlock();
    return fake_note(error);
}
