/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the MPI backend share. */
#ifndef QDRI_COMM_MPI_INTERNAL_H
#define QDRI_COMM_MPI_INTERNAL_H

#include <mpi.h>

#include "comm/internal.h"
#include "comm/mpi.h"

enum { TAG_COLLECTIVE = 0, TAG_AGREE, TAG_BROADCAST, TAG_GIVE_UP };

typedef struct mpi_comm {
    qdri_comm base;
    MPI_Comm handle; /* our own */
    MPI_Request *requests; /* of the collective that runs: room for two per member */
    MPI_Status *statuses; /* theirs */
    int n_requests;
    const void **sources; /* room for one pointer per member */
    atomic_int given_up; /* of the root: somebody has failed; else: this rank */
} mpi_comm;

/* Turns MPI's codes into ours, with its text. */
qdr_status qdri_mpi_fail(int code, const char *what);
#define QDR_MPI(call)                                                                              \
    do {                                                                                           \
        const int mpi_code_ = (call);                                                              \
        if (mpi_code_ != MPI_SUCCESS) return qdri_mpi_fail(mpi_code_, #call);                      \
    } while (0)

/* Has this rank, or any other of its world, given up? Asks MPI for notes from others; cheap, but
 * not free. */
int qdri_mpi_given_up(mpi_comm *comm);
QDR_NODISCARD qdr_status qdri_mpi_fail_peer(const qdri_comm *comm, const char *where);
/* Ends requests that will not complete. */
void qdri_mpi_cancel(MPI_Request *requests, int n);

QDR_NODISCARD qdr_status qdri_mpi_launch(qdri_comm *comm, const qdri_coll *coll,
                                         qdr_stream *stream);
size_t qdri_mpi_scratch_bytes(const qdri_comm *comm, const qdri_coll *coll);
/* On the host thread, asleep while waiting. */
QDR_NODISCARD qdr_status qdri_mpi_agree(qdri_comm *comm, qdr_status mine);
QDR_NODISCARD qdr_status qdri_mpi_broadcast(qdri_comm *comm, int root, void *data, size_t bytes);

#endif
