/* SPDX-License-Identifier: Apache-2.0 */
/* Reserved address space. OpenBLAS (0.3.21) allocates a buffer of 128 MiB for each thread that multiplies, and if a
 * limit (ulimit -v) leaves no space for it, it retries forever. So, under a limit, the space is reserved in advance,
 * and an executor gives it back when its first product begins. */
#ifndef QDRI_DEV_CPU_ADDRESS_SPACE_H
#define QDRI_DEV_CPU_ADDRESS_SPACE_H

#include "core/status.h"

/* Empty if there is no limit. */
typedef struct qdri_address_space {
    void *start;
    size_t bytes;
} qdri_address_space;

/* Reserves the space that products on one more thread need, with n_threads BLAS threads. */
QDR_NODISCARD qdr_status qdri_address_space_take(int n_threads, qdri_address_space *room);
void qdri_address_space_give_back(qdri_address_space *room);
/* The C library creates a heap for each new thread that allocates; this makes it do so now, before reserved space is
 * given back, which the heap would otherwise use. */
void qdri_address_space_settle(void);

#endif
