/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers. */
#include "schedule/buffer.h"

#include <stdlib.h>
#include <string.h>

#include "core/size.h"

qdri_ref qdri_buffers_add(qdri_buffers *buffers, qdri_region region, size_t bytes)
{
    if (buffers->status == QDR_OK)
        buffers->status = qdri_list_grow((void **)&buffers->items, buffers->n, &buffers->capacity,
                                         sizeof *buffers->items, "the list of buffers");
    if (buffers->status != QDR_OK) return QDRI_NO_REF;
    buffers->items[buffers->n] = (qdri_buffer){.region = region, .bytes = bytes};
    return (qdri_ref){buffers->n++, 0, bytes};
}

qdri_ref qdri_slice(qdri_ref ref, size_t offset, size_t bytes)
{
    return ref.buffer < 0 ? ref : (qdri_ref){ref.buffer, ref.offset + offset, bytes};
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
