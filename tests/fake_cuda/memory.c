/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of memory: of GPUs, managed, pinned. */
#include <string.h>

#include "internal.h"

enum { GONE_MOST = 4096 };

static fake_block **blocks; /* by address */
static int n_blocks, block_capacity;
static size_t bytes_used[FAKE_GPUS_MOST], bytes_peak[FAKE_GPUS_MOST];

typedef struct gone_block {
    uintptr_t begin;
    size_t bytes;
} gone_block;
static gone_block gone[GONE_MOST]; /* the last that went */
static unsigned n_gone;

/* How many blocks begin at `at` or before it. */
static int n_up_to(uintptr_t at)
{
    int low = 0, high = n_blocks;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (blocks[middle]->begin <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A block of pages has them alone, so that reads beyond its end are detected. */
static uintptr_t end_of(const fake_block *block)
{
    return block->page_bytes ? block->pages + block->page_bytes : block->begin + block->bytes;
}

fake_block *fake_find_block(const void *pointer)
{
    const int n = n_up_to((uintptr_t)pointer);
    return n > 0 && (uintptr_t)pointer < end_of(blocks[n - 1]) ? blocks[n - 1] : NULL;
}

static void insert(fake_block *block)
{
    const int at = n_up_to(block->begin);
    if (n_blocks == block_capacity) {
        block_capacity = block_capacity ? 2 * block_capacity : 64;
        blocks = fake_grow(blocks, (size_t)block_capacity, sizeof *blocks);
    }
    memmove(blocks + at + 1, blocks + at, (size_t)(n_blocks - at) * sizeof *blocks);
    blocks[at] = block;
    n_blocks++;
}

fake_block *fake_add_block(fake_block_kind kind, int device, size_t bytes, uintptr_t host)
{
    fake_block *block = fake_new(sizeof *block);
    *block = (fake_block){.kind = kind, .device = device, .bytes = bytes, .begin = host};
    if (!host && !fake_place(block)) {
        free(block);
        return NULL;
    }
    if (kind != FAKE_PINNED) bytes_used[device] += bytes;
    if (bytes_used[device] > bytes_peak[device]) bytes_peak[device] = bytes_used[device];
    insert(block);
    return block;
}

void fake_remove_block(fake_block *block)
{
    const int at = n_up_to(block->begin) - 1;
    gone[n_gone++ % GONE_MOST] = (gone_block){block->begin, block->bytes};
    memmove(blocks + at, blocks + at + 1, (size_t)(n_blocks - at - 1) * sizeof *blocks);
    n_blocks--;
    if (block->page_bytes) fake_unplace(block);
    if (block->kind != FAKE_PINNED && !block->is_freed) bytes_used[block->device] -= block->bytes;
    fake_history_free(&block->history);
    free(block);
}

int fake_was_freed(const void *pointer)
{
    for (unsigned i = 0; i < GONE_MOST && i < n_gone; i++) {
        if ((uintptr_t)pointer - gone[i].begin < gone[i].bytes) return 1;
    }
    return 0;
}

int64_t fake_leaked_blocks(void)
{
    int64_t n = 0;
    for (int i = 0; i < n_blocks; i++) n += !blocks[i]->is_freed;
    return n;
}

__attribute__((visibility("default"))) size_t fake_bytes_peak(int device) { return bytes_peak[device]; }

size_t fake_device_bytes_used(int device) { return bytes_used[device]; }

void fake_mark_freed(fake_block *block)
{
    block->is_freed = 1;
    if (block->kind != FAKE_PINNED) bytes_used[block->device] -= block->bytes;
}

/* ---- what takes and gives ---- */

static int fits(int device, size_t bytes)
{
    const size_t all = fake_get_settings()->memory_bytes;
    return bytes <= all && bytes_used[device] <= all - bytes;
}

cudaError_t fake_device_alloc(int device, size_t bytes, cudaMemPool_t pool, fake_block **block)
{
    if (fake_take_failure("malloc") || !fits(device, bytes)) return cudaErrorMemoryAllocation;
    *block = fake_add_block(FAKE_DEVICE, device, bytes, 0);
    if (!*block) return cudaErrorMemoryAllocation;
    (*block)->pool = pool;
    return cudaSuccess;
}

static cudaError_t host_alloc(fake_block_kind kind, int device, size_t bytes, void **data)
{
    const int is_managed = kind == FAKE_MANAGED;
    if (fake_take_failure(is_managed ? "malloc" : "host")) return cudaErrorMemoryAllocation;
    if (is_managed && !fits(device, bytes)) return cudaErrorMemoryAllocation;
    if (is_managed && fake_managed_has_views()) {
        const fake_block *block = fake_add_block(kind, device, bytes, 0);
        if (block) *data = (void *)block->begin;
        return block ? cudaSuccess : cudaErrorMemoryAllocation;
    }
    void *made = NULL;
    if (posix_memalign(&made, 256, bytes)) return cudaErrorMemoryAllocation;
    fake_add_block(kind, device, bytes, (uintptr_t)made);
    *data = made;
    return cudaSuccess;
}

/* Where an allocation of the current GPU begins. */
static cudaError_t allocate(fake_block_kind kind, size_t bytes, void **data)
{
    fake_block *block = NULL;
    cudaError_t error = fake_ready();
    if (error == cudaSuccess && !data) error = cudaErrorInvalidValue;
    if (error != cudaSuccess) return error;
    *data = NULL;
    error = fake_unsafe();
    if (error != cudaSuccess || bytes == 0) return error;
    if (kind != FAKE_DEVICE) return host_alloc(kind, fake_current_device(), bytes, data);
    error = fake_device_alloc(fake_current_device(), bytes, NULL, &block);
    if (error == cudaSuccess) *data = (void *)block->begin;
    return error;
}

static cudaError_t allocate_locked(fake_block_kind kind, size_t bytes, void **data)
{
    fake_lock();
    const cudaError_t error = allocate(kind, bytes, data);
    fake_unlock();
    return fake_note(error);
}

cudaError_t cudaMalloc(void **data, size_t bytes) { return allocate_locked(FAKE_DEVICE, bytes, data); }

cudaError_t cudaMallocManaged(void **data, size_t bytes, unsigned flags)
{
    (void)flags;
    if (!fake_get_settings()->shares_managed)
        fake_report(FAKE_NO_MEMORY, "managed memory, and the host may not touch it while a GPU works");
    return allocate_locked(FAKE_MANAGED, bytes, data);
}

cudaError_t cudaHostAlloc(void **data, size_t bytes, unsigned flags)
{
    (void)flags;
    return allocate_locked(FAKE_PINNED, bytes, data);
}

/* Memory of the host that it keeps. */
static cudaError_t register_host(void *data, size_t bytes)
{
    cudaError_t error = fake_ready();
    if (error == cudaSuccess && (!data || bytes == 0)) error = cudaErrorInvalidValue;
    if (error == cudaSuccess) error = fake_unsafe();
    if (error == cudaSuccess && fake_take_failure("host")) error = cudaErrorMemoryAllocation;
    if (error != cudaSuccess) return error;
    if (fake_find_block(data) || fake_find_block((char *)data + bytes - 1)) return cudaErrorHostMemoryAlreadyRegistered;
    fake_add_block(FAKE_PINNED, fake_current_device(), bytes, (uintptr_t)data)->is_registered = 1;
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *data, size_t bytes, unsigned flags)
{
    (void)flags;
    fake_lock();
    const cudaError_t error = register_host(data, bytes);
    fake_unlock();
    return fake_note(error);
}

typedef enum way_to_free { FREE_DEVICE, FREE_PINNED, UNREGISTER } way_to_free;
static const char *const way_names[] = {"cudaFree", "cudaFreeHost", "cudaHostUnregister"};

static way_to_free way_of(const fake_block *block)
{
    if (block->is_registered) return UNREGISTER;
    return block->kind == FAKE_PINNED ? FREE_PINNED : FREE_DEVICE;
}

/* A block that begins there and may be freed so; reports what does not. */
static fake_block *find_to_free(void *pointer, way_to_free way)
{
    fake_block *block = fake_find_block(pointer);
    const int is_there = block && block->begin == (uintptr_t)pointer && way_of(block) == way;
    const char *name = way_names[way];
    if (is_there && !block->is_freed) return block;
    const int was = is_there || (!block && fake_was_freed(pointer));
    fake_report(was ? FAKE_DOUBLE_FREE : FAKE_NO_MEMORY,
                was ? "\"%s\" of %p, which was freed" : "\"%s\" of %p, which it did not give", name, pointer);
    return NULL;
}

/* CUDA waits here for a GPU that is at work; nobody should have to rely on it, and memory of a pool is not waited
 * for. */
static void check_unused(const fake_block *block, const char *name)
{
    const fake_past *past = fake_history_open(&block->history);
    if (!past) return;
    fake_report(FAKE_RACE, "\"%s\" of %p, and the host does not know that \"%s\" on stream %d is done", name,
                (void *)block->begin, past->name, past->stream);
}

/* Whoever frees holds the lock; it is let go while the GPU finishes. */
static cudaError_t free_block(void *pointer, way_to_free way)
{
    cudaError_t error = fake_unsafe();
    if (error != cudaSuccess) return error;
    fake_block *block = find_to_free(pointer, way);
    if (!block) return cudaErrorInvalidValue;
    check_unused(block, way_names[way]);
    const int must_wait = fake_history_open(&block->history) != NULL;
    const int device = block->device;
    fake_mark_freed(block);
    if (must_wait) {
        fake_unlock();
        fake_wait_for_device(device);
        fake_lock();
    }
    const int owns_host = !block->page_bytes && !block->is_registered;
    void *host = owns_host ? (void *)block->begin : NULL;
    fake_remove_block(block);
    free(host);
    return cudaSuccess;
}

static cudaError_t free_locked(void *pointer, way_to_free way)
{
    if (!pointer) return cudaSuccess;
    fake_lock();
    const cudaError_t error = free_block(pointer, way);
    fake_unlock();
    return fake_note(error);
}

cudaError_t cudaFree(void *pointer) { return free_locked(pointer, FREE_DEVICE); }

cudaError_t cudaFreeHost(void *pointer) { return free_locked(pointer, FREE_PINNED); }

cudaError_t cudaHostUnregister(void *pointer) { return free_locked(pointer, UNREGISTER); }
