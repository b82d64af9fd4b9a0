/* SPDX-License-Identifier: Apache-2.0 */
/* Memory known to NCCL: allocated by NCCL, and registered with every communicator of the family, so that collectives
 * between two places in it need no copies inside NCCL. Either all ranks of a family have such memory or none has: NCCL
 * guarantees nothing if only some members' memory is registered. */
#include <stdlib.h>

#include "comm/nccl/internal.h"
#include "core/environment.h"
#include "core/log.h"
#include "core/size.h"

/* An entry of the root's list. */
struct nccl_block {
    nccl_block *next;
    void *data;
    size_t bytes;
};

/* An entry of a communicator's list. */
struct nccl_registered {
    nccl_registered *next;
    const nccl_block *block;
    void *handle; /* NCCL's; NULL: it chose not to register */
};

static qdr_status add(nccl_comm *comm, const nccl_block *block)
{
    nccl_registered *made = NULL;
    QDR_TRY(QDRI_NEW(1, "a registration", &made));
    made->block = block;
    pthread_mutex_lock(&comm->calls);
    ncclComm_t handle = atomic_load(&comm->handle);
    const ncclResult_t result = handle ? ncclCommRegister(handle, block->data, block->bytes, &made->handle)
                                       : ncclSuccess;
    const qdr_status status = qdri_nccl_status(handle, result, "ncclCommRegister (QDR_NCCL_REGISTER=0 avoids it)");
    if (handle && status == QDR_OK) {
        made->next = comm->registered;
        comm->registered = made;
        made = NULL;
    }
    pthread_mutex_unlock(&comm->calls);
    free(made);
    return status;
}

/* The communicator's calls must be locked. handle = NULL: aborting has already deregistered it. */
static void drop(nccl_registered **link, ncclComm_t handle)
{
    nccl_registered *old = *link;
    if (handle && old->handle) (void)ncclCommDeregister(handle, old->handle);
    *link = old->next;
    free(old);
}

qdr_status qdri_nccl_memory_join(nccl_comm *comm, const nccl_comm *root)
{
    for (const nccl_block *block = root->blocks; block; block = block->next) QDR_TRY(add(comm, block));
    return QDR_OK;
}

void qdri_nccl_memory_leave(nccl_comm *comm, ncclComm_t handle)
{
    while (comm->registered) drop(&comm->registered, handle);
}

/* NCCL frees its memory immediately, so nothing may still use it. On a device that has failed, pending work on its
 * streams can end once the communicators have been aborted. */
static void give_back(void *user, void *data)
{
    nccl_comm *root = user;
    nccl_block **link = &root->blocks;
    while (*link && (*link)->data != data) link = &(*link)->next;
    nccl_block *old = *link;
    const int is_idle = qdri_dev_status(root->base.dev) == QDR_OK ||
                        (qdri_nccl_guard_wait(root->guard) && cudaDeviceSynchronize() == cudaSuccess);
    pthread_mutex_lock(&root->base.family_mutex);
    for (qdri_comm *each = &root->base; each; each = each->next) {
        nccl_comm *comm = qdri_nccl_of(each);
        if (!comm) continue;
        pthread_mutex_lock(&comm->calls);
        nccl_registered **registered = &comm->registered;
        while (*registered && (*registered)->block != old) registered = &(*registered)->next;
        if (*registered) drop(registered, atomic_load(&comm->handle));
        pthread_mutex_unlock(&comm->calls);
    }
    pthread_mutex_unlock(&root->base.family_mutex);
    *link = old->next;
    if (is_idle) (void)ncclMemFree(data);
    free(old);
}

static qdr_status take(void *user, size_t bytes, void **data)
{
    nccl_comm *root = user;
    nccl_block *made = NULL;
    QDR_TRY(QDRI_NEW(1, "registered memory", &made));
    if (ncclMemAlloc(&made->data, bytes) != ncclSuccess) {
        (void)cudaGetLastError();
        free(made);
        return QDR_FAIL(QDR_ERR_MEMORY, "nccl: no %zu bytes", bytes);
    }
    made->bytes = bytes;
    made->next = root->blocks;
    root->blocks = made;
    qdr_status status = QDR_OK;
    pthread_mutex_lock(&root->base.family_mutex);
    for (qdri_comm *each = &root->base; each && status == QDR_OK; each = each->next) {
        nccl_comm *comm = qdri_nccl_of(each);
        if (comm) status = add(comm, made);
    }
    pthread_mutex_unlock(&root->base.family_mutex);
    if (status == QDR_OK)
        *data = made->data;
    else
        give_back(root, made->data);
    return status;
}

int qdri_nccl_memory_has(const nccl_comm *comm, const void *data)
{
    const nccl_block *block = ((const nccl_comm *)comm->base.root)->blocks;
    while (block && (uintptr_t)data - (uintptr_t)block->data >= block->bytes) block = block->next;
    return block != NULL;
}

/* Whether NCCL registers memory here at all. */
static int try(nccl_comm *root)
{
    ncclComm_t comm = atomic_load(&root->handle);
    void *data = NULL, *handle = NULL;
    if (ncclMemAlloc(&data, 1) != ncclSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    const ncclResult_t result = ncclCommRegister(comm, data, 1, &handle);
    const int works = result == ncclSuccess && handle != NULL;
    if (works) (void)ncclCommDeregister(comm, handle);
    (void)ncclMemFree(data);
    return works;
}

qdr_status qdri_nccl_memory_open(qdri_comm *host, nccl_comm *root)
{
    qdri_cuda_dev *dev = (qdri_cuda_dev *)root->base.dev;
    int wanted = 0;
    QDR_TRY(qdri_comm_agree(host, qdri_environment_choice(QDRI_VARIABLE_NCCL_REGISTER, &wanted)));
    wanted = wanted && !dev->opts.is_managed; /* managed memory belongs to the host, too */
    const int works = wanted && try(root);
    if (wanted && !works)
        qdri_log(QDRI_LOG_WARNING,
                 "nccl: rank %d cannot register memory, so no rank does, and collectives copy more; see "
                 "NCCL_LOCAL_REGISTER, NCCL_CUMEM_ENABLE and NCCL_DEBUG=INFO",
                 host->rank);
    if (qdri_comm_any(host, !works)) return QDR_OK;
    root->registers = 1;
    dev->shared = (qdri_cuda_shared){take, give_back, root};
    return QDR_OK;
}
