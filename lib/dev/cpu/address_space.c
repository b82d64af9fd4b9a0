/* SPDX-License-Identifier: Apache-2.0 */
/* Reserved address space, for later allocations that could not report failure. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "config.h"
#include "dev/cpu/cpu.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define MIB ((size_t)1 << 20)
/* Per thread that multiplies; measured, since nothing reports it. oneDNN crashes if it finds too little; plain C needs
 * none. */
#define BUFFER_BYTES ((QDRI_HAVE_BLAS * 128 + QDRI_HAVE_ONEDNN * 96) * MIB)
#define HEAP_BYTES (64 * MIB) /* created by glibc for a new thread */
#define SPARE_BYTES (16 * MIB)
#define DEVICE_THREADS 3 /* the rank's own, and one each for products and for communication */

static rlim_t limit_bytes(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_AS, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

static size_t stack_bytes(void)
{
    pthread_attr_t attributes;
    size_t bytes = 0;
    if (pthread_attr_init(&attributes) != 0) return 0;
    pthread_attr_getstacksize(&attributes, &bytes);
    pthread_attr_destroy(&attributes);
    return bytes;
}

/* The number of BLAS threads that OpenBLAS started itself, before it was changed. */
static int n_blas_threads;
static void count_blas_threads(void) { n_blas_threads = qdri_blas_threads(); }

static const size_t products_bytes = BUFFER_BYTES + SPARE_BYTES;

static _Thread_local qdri_address_space *kept;

/* The pages cannot be accessed: only their addresses are reserved. */
static qdr_status take(size_t bytes, qdri_address_space *space)
{
    const rlim_t limit = limit_bytes();
    *space = (qdri_address_space){NULL, 0};
    if (limit == RLIM_INFINITY) return QDR_OK;
    void *start = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED)
        return QDR_FAIL(
            QDR_ERR_MEMORY,
            "device: BLAS and threads need another %zu MiB of address space, but the limit of %zu MiB (ulimit -v %zu) "
            "leaves less; raise it, use fewer ranks here, or limit memory with a control group instead",
            bytes / MIB, (size_t)limit / MIB, (size_t)limit / 1024);
    *space = (qdri_address_space){start, bytes};
    return QDR_OK;
}

qdr_status qdri_address_space_take(qdri_address_space *space) { return take(products_bytes, space); }

void qdri_address_space_keep(qdri_address_space *space) { kept = space; }

void qdri_address_space_use(void)
{
    if (kept) qdri_address_space_give_back(kept);
}

void qdri_address_space_give_back(qdri_address_space *space)
{
    if (space->start) munmap(space->start, space->bytes);
    *space = (qdri_address_space){NULL, 0};
}

qdr_status qdri_dev_check_address_space(int n_devices)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    qdri_address_space space;
    pthread_once(&once, count_blas_threads);
    const size_t each = products_bytes + DEVICE_THREADS * (HEAP_BYTES + stack_bytes());
    /* OpenBLAS's own threads may not have allocated their buffers yet. */
    const size_t others = (size_t)(n_blas_threads - 1) * BUFFER_BYTES;
    QDR_TRY(take((size_t)n_devices * each + others, &space));
    qdri_address_space_give_back(&space);
    return QDR_OK;
}

void qdri_address_space_settle(void)
{
    void *volatile memory = limit_bytes() != RLIM_INFINITY ? malloc(1) : NULL;
    free(memory);
}
