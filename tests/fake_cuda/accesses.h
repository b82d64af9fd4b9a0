/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that each kernel reads and writes. */
#ifndef FAKE_CUDA_ACCESSES_H
#define FAKE_CUDA_ACCESSES_H

#include "dev/kernels.h"
#include "fake.h"

enum { FAKE_KERNEL_ACCESSES_MOST = 2 * QDRI_REDUCE_MOST + 16 };

typedef struct fake_kernel_accesses {
    const char *name;
    fake_access all[FAKE_KERNEL_ACCESSES_MOST];
    int n;
} fake_kernel_accesses;

void fake_find_accesses(const qdri_kernel *kernel, fake_kernel_accesses *found);
size_t fake_message_bytes(const qdri_kernel *kernel); /* of a kernel of codecs of integers */
void fake_add_access(fake_kernel_accesses *list, fake_access_kind kind, const void *data, size_t bytes);

#endif
