/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers and the pool of workspace slots. */
#include "schedule/buffer.h"

#include <stdlib.h>
#include <string.h>

#include "core/size.h"

static int grow(qdri_buffers *buffers)
{
    if (buffers->n < buffers->capacity) return 1;
    const int capacity = buffers->capacity ? 2 * buffers->capacity : 64;
    qdri_buffer *items = NULL;
    buffers->status = QDRI_NEW(capacity, "the list of buffers", &items);
    if (buffers->status != QDR_OK) return 0;
    if (buffers->n) memcpy(items, buffers->items, (size_t)buffers->n * sizeof *items);
    free(buffers->items);
    buffers->items = items;
    buffers->capacity = capacity;
    return 1;
}

qdri_ref qdri_buffers_add(qdri_buffers *buffers, qdri_region region, size_t bytes)
{
    if (buffers->status != QDR_OK || !grow(buffers)) return QDRI_NO_REF;
    if (region != QDRI_WORKSPACE && buffers->pool_begin == buffers->n) buffers->pool_begin++;
    buffers->items[buffers->n] = (qdri_buffer){.region = region, .bytes = bytes, .busy = 1};
    return (qdri_ref){buffers->n++, 0, 0};
}

/* The free slot to use for `bytes`: of those that are large enough the one that has been free longest, else the
 * largest; -1 if none is free. */
static int find_slot(const qdri_buffers *buffers, size_t bytes)
{
    int fitting = -1, largest = -1;
    for (int i = buffers->pool_begin; i < buffers->n; i++) {
        const qdri_buffer *slot = &buffers->items[i];
        if (slot->region != QDRI_WORKSPACE || slot->busy) continue;
        if (slot->bytes >= bytes && (fitting < 0 || slot->freed_at < buffers->items[fitting].freed_at)) fitting = i;
        if (largest < 0 || slot->bytes > buffers->items[largest].bytes) largest = i;
    }
    return fitting >= 0 ? fitting : largest;
}

qdri_ref qdri_buffers_take(qdri_buffers *buffers, size_t bytes)
{
    const int found = find_slot(buffers, bytes);
    if (found < 0) return qdri_buffers_add(buffers, QDRI_WORKSPACE, bytes);
    qdri_buffer *slot = &buffers->items[found];
    if (slot->bytes < bytes) slot->bytes = bytes;
    slot->busy = 1;
    return (qdri_ref){found, 0, 0};
}

void qdri_buffers_share(qdri_buffers *buffers, qdri_ref ref)
{
    if (ref.buffer >= 0) buffers->items[ref.buffer].busy++;
}

void qdri_buffers_give(qdri_buffers *buffers, qdri_ref ref)
{
    if (ref.buffer < 0) return;
    qdri_buffer *slot = &buffers->items[ref.buffer];
    slot->busy--;
    slot->freed_at = ++buffers->clock;
}

void qdri_buffers_reset_pool(qdri_buffers *buffers)
{
    buffers->clock = 0; /* so that the same requests get the same slots again */
    for (int i = buffers->pool_begin; i < buffers->n; i++) {
        if (buffers->items[i].region != QDRI_WORKSPACE) continue;
        buffers->items[i].busy = 0;
        buffers->items[i].freed_at = 0;
    }
}

int64_t qdri_buffers_pool_bytes(const qdri_buffers *buffers)
{
    int64_t bytes = 0;
    for (int i = buffers->pool_begin; i < buffers->n; i++)
        if (buffers->items[i].region == QDRI_WORKSPACE) bytes += (int64_t)buffers->items[i].bytes;
    return bytes;
}

qdr_status qdri_buffers_finish(qdri_buffers *buffers)
{
    memset(buffers->region_bytes, 0, sizeof buffers->region_bytes);
    for (int i = 0; i < buffers->n; i++) {
        qdri_buffer *buffer = &buffers->items[i];
        buffer->offset = buffers->region_bytes[buffer->region];
        buffers->region_bytes[buffer->region] += qdri_align_bytes(buffer->bytes, QDRI_BUFFER_ALIGN);
    }
    return buffers->status;
}

void qdri_buffers_free(qdri_buffers *buffers)
{
    free(buffers->items);
    *buffers = (qdri_buffers){0};
}
