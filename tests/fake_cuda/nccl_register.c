/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the fake NCCL, and its registration with communicators. Stricter than NCCL, which counts repeated
 * registrations, and assumes that members register the same. */
#include <stdlib.h>

#include "nccl_internal.h"

/* What ncclMemAlloc gave. */
typedef struct given {
    struct given *next;
    const char *data;
    size_t bytes;
} given;

/* Of a communicator; the handle. */
struct registration {
    struct registration *next;
    ncclComm_t comm;
    const char *data;
    size_t bytes;
};

static given *all_given;
static registration *registrations;

/* ---- memory ---- */

ncclResult_t ncclMemAlloc(void **data, size_t bytes)
{
    if (fake_take_failure("nccl") || cudaMalloc(data, bytes) != cudaSuccess) return ncclUnhandledCudaError;
    given *made = fake_new(sizeof *made);
    fake_nccl_lock();
    *made = (given){all_given, *data, bytes};
    all_given = made;
    fake_nccl_unlock();
    return ncclSuccess;
}

static registration *find_overlap(ncclComm_t comm, const char *data, size_t bytes)
{
    registration *found = registrations;
    while (found &&
           ((comm && found->comm != comm) || found->data >= data + bytes || data >= found->data + found->bytes))
        found = found->next;
    return found;
}

/* With the lock. */
static int forget(const void *data, int *is_registered)
{
    given **link = &all_given;
    while (*link && (*link)->data != data) link = &(*link)->next;
    given *old = *link;
    if (!old) return 0;
    *is_registered = find_overlap(NULL, old->data, old->bytes) != NULL;
    *link = old->next;
    free(old);
    return 1;
}

ncclResult_t ncclMemFree(void *data)
{
    int is_registered = 0;
    fake_nccl_lock();
    const int was_given = forget(data, &is_registered);
    fake_nccl_unlock();
    if (!was_given) fake_report(FAKE_NCCL, "ncclMemFree of %p, which ncclMemAlloc did not give", data);
    if (is_registered) fake_report(FAKE_NCCL, "ncclMemFree of %p, which is registered", data);
    return was_given && cudaFree(data) == cudaSuccess ? ncclSuccess : ncclInvalidArgument;
}

/* ---- registrations ---- */

static ncclResult_t add(ncclComm_t comm, const char *data, size_t bytes, void **handle)
{
    if (!fake_nccl_check(comm, "ncclCommRegister")) return ncclInvalidArgument;
    if (find_overlap(comm, data, bytes)) {
        fake_report(FAKE_NCCL, "ncclCommRegister of %p, which is registered", (const void *)data);
        return ncclInvalidUsage;
    }
    registration *made = fake_new(sizeof *made);
    *made = (registration){registrations, comm, data, bytes};
    registrations = made;
    *handle = made;
    return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *data, size_t bytes, void **handle)
{
    *handle = NULL;
    if (fake_take_failure("nccl_register")) return ncclSystemError;
    if (!fake_nccl_setting("FAKE_NCCL_REGISTER", comm->device, 1)) return ncclSuccess;
    fake_nccl_lock();
    const ncclResult_t result = add(comm, data, bytes, handle);
    fake_nccl_unlock();
    return result;
}

static ncclResult_t drop(ncclComm_t comm, const void *handle)
{
    registration **link = &registrations;
    while (*link && (*link != handle || (*link)->comm != comm)) link = &(*link)->next;
    registration *old = *link;
    if (!fake_nccl_check(comm, "ncclCommDeregister")) return ncclInvalidArgument;
    if (!old) {
        fake_report(FAKE_NCCL, "ncclCommDeregister of a handle that it has not");
        return ncclInvalidUsage;
    }
    if (comm->n_enqueued > 0) fake_report(FAKE_NCCL, "ncclCommDeregister while collectives are on their way");
    *link = old->next;
    free(old);
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    if (!handle) return ncclSuccess;
    fake_nccl_lock();
    const ncclResult_t result = drop(comm, handle);
    fake_nccl_unlock();
    return result;
}

int fake_nccl_end_registrations(ncclComm_t comm)
{
    int n = 0;
    registration **link = &registrations;
    while (*link) {
        registration *old = *link;
        if (old->comm != comm) {
            link = &old->next;
            continue;
        }
        *link = old->next;
        free(old);
        n++;
    }
    return n;
}

int fake_nccl_is_registered(ncclComm_t comm, const void *data, size_t bytes)
{
    const registration *found = bytes ? find_overlap(comm, data, bytes) : NULL;
    return found && found->data <= (const char *)data && (const char *)data + bytes <= found->data + found->bytes;
}
