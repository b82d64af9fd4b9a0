/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that each kernel reads and writes. */
#ifndef FAKE_CUDA_ACCESSES_H
#define FAKE_CUDA_ACCESSES_H

#include "core/kernels.h"
#include "fake.h"

enum { FAKE_KERNEL_ACCESSES_MOST = 2 * QDRI_REDUCE_MOST + 16 };

typedef struct fake_kernel_accesses {
    const char *name;
    fake_access all[FAKE_KERNEL_ACCESSES_MOST];
    int n;
} fake_kernel_accesses;

void fake_find_accesses(const qdri_kernel *kernel, fake_kernel_accesses *found);
void fake_add_access(fake_kernel_accesses *list, fake_access_kind kind, const void *data, size_t bytes);

/* The kernel for one of several messages. */
static inline qdri_kernel fake_code_part(const qdri_kernel *kernel, int i)
{
    const qdri_code_part *part = &kernel->u.codec.parts[i];
    qdri_kernel one = *kernel;
    one.u.codec.n_parts = 0;
    one.u.codec.n = part->n;
    one.u.codec.seed = part->seed;
    one.u.codec.x = part->x;
    one.u.codec.wire = part->wire;
    one.u.codec.y = part->y;
    one.u.codec.feedback = part->feedback;
    return one;
}

/* Of the message of a kernel of codecs. */
static inline size_t fake_message_bytes(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.codec.n, run = kernel->u.codec.run ? kernel->u.codec.run : n;
    int64_t bytes = 0;
    if (kernel->u.codec.bits == 0) return 2 * (size_t)n;
    for (int64_t at = 0, m; at < n; at += m) {
        m = n - at < run ? n - at : run;
        bytes += (m + kernel->u.codec.block - 1) / kernel->u.codec.block * 4 + (m * kernel->u.codec.bits + 7) / 8;
    }
    return (size_t)bytes;
}

#endif
