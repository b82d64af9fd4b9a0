/* SPDX-License-Identifier: Apache-2.0 */
/* Staging of collectives: the communicator's reserve, or memory of one collective. The host thread keeps a list of all
 * of it, because a collective that has not begun when its device fails never runs, and because an old reserve may still
 * be in use. */
#include <stdlib.h>

#include "comm/internal.h"
#include "core/size.h"

struct qdri_staging {
    qdri_staging *next;
    void *memory;
    atomic_int done; /* set by the stream */
};

static void sweep(qdri_comm *comm, int all)
{
    qdri_staging **link = &comm->stagings;
    while (*link) {
        qdri_staging *staging = *link;
        if (!all && !atomic_load(&staging->done)) {
            link = &staging->next;
            continue;
        }
        *link = staging->next;
        qdri_mem_free(comm->dev, &staging->memory);
        free(staging);
    }
}

static qdr_status add(qdri_comm *comm, size_t bytes, qdri_staging **staging)
{
    qdri_staging *made = NULL;
    QDR_TRY(QDRI_NEW(1, "staging of a collective", &made));
    const qdr_status status = qdri_mem_alloc_for(comm->dev, QDRI_STAGING, bytes, &made->memory);
    if (status != QDR_OK) {
        free(made);
        return status;
    }
    made->next = comm->stagings;
    comm->stagings = made;
    *staging = made;
    return QDR_OK;
}

qdr_status qdri_staging_reserve(qdri_comm *comm, size_t bytes)
{
    qdri_staging *made;
    QDR_TRY(add(comm, bytes, &made));
    comm->scratch = made->memory;
    comm->scratch_bytes = bytes;
    return QDR_OK;
}

qdr_status qdri_staging_take(qdri_comm *comm, size_t bytes, void **memory, qdri_staging **staging)
{
    *memory = comm->scratch;
    *staging = NULL;
    sweep(comm, 0);
    if (bytes <= comm->scratch_bytes) return QDR_OK;
    QDR_TRY(add(comm, bytes, staging));
    *memory = (*staging)->memory;
    return QDR_OK;
}

void qdri_staging_done(qdri_comm *comm, qdri_staging *staging)
{
    if (!staging) return;
    qdri_mem_free(comm->dev, &staging->memory);
    atomic_store(&staging->done, 1);
}

void qdri_stagings_free(qdri_comm *comm) { sweep(comm, 1); }
