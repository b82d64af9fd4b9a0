/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's queries about addresses and about the amount of memory. */
#include "internal.h"

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    static const enum cudaMemoryType types[] = {[FAKE_DEVICE] = cudaMemoryTypeDevice,
                                                [FAKE_MANAGED] = cudaMemoryTypeManaged,
                                                [FAKE_PINNED] = cudaMemoryTypeHost};
    const cudaError_t error = fake_ready();
    if (error != cudaSuccess || !attributes) return fake_note(error != cudaSuccess ? error : cudaErrorInvalidValue);
    fake_lock();
    const fake_block *block = fake_find_block(pointer);
    *attributes = (struct cudaPointerAttributes){.type = cudaMemoryTypeUnregistered, .device = -2};
    if (block && !block->is_freed) {
        attributes->type = types[block->kind];
        attributes->device = block->device;
        attributes->devicePointer = (void *)(uintptr_t)pointer;
        if (block->kind != FAKE_DEVICE) attributes->hostPointer = (void *)(uintptr_t)pointer;
    } else {
        attributes->hostPointer = (void *)(uintptr_t)pointer;
    }
    fake_unlock();
    return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
    (void)flags;
    fake_lock();
    const fake_block *block = fake_find_block(host);
    const int is_pinned = block && block->kind == FAKE_PINNED && !block->is_freed;
    *device = is_pinned ? host : NULL;
    fake_unlock();
    return fake_note(is_pinned ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(size_t *bytes_free, size_t *bytes)
{
    const cudaError_t error = fake_ready();
    if (error != cudaSuccess) return fake_note(error);
    fake_lock();
    *bytes = fake_get_settings()->memory_bytes;
    *bytes_free = *bytes - fake_device_bytes_used(fake_current_device());
    fake_unlock();
    return cudaSuccess;
}
