/* SPDX-License-Identifier: Apache-2.0 */
/* Notes: small messages by which a rank tells all others that it has failed, or has left, so that none waits for it. */
#include <stdio.h>

#include "comm/mpi/internal.h"

void qdri_mpi_send_notes(mpi_comm *root, int kind, const char *why)
{
    mpi_note *note = &root->told[kind];
    note->kind = kind;
    snprintf(note->why, sizeof note->why, "%s", why);
    for (int rank = 0; rank < root->base.size; rank++) {
        MPI_Request *request = &root->notes[kind * root->base.size + rank];
        if (rank == root->base.rank) continue;
        if (MPI_Isend(note, sizeof *note, MPI_BYTE, rank, TAG_NOTE, root->handle, request) != MPI_SUCCESS)
            *request = MPI_REQUEST_NULL;
    }
}

int qdri_mpi_notes_sent(mpi_comm *root)
{
    int done = 0;
    return MPI_Testall(2 * root->base.size, root->notes, &done, root->statuses) != MPI_SUCCESS || done;
}

/* Several threads may read notes at the same time: so a note is matched before it is received. */
static int read_note(mpi_comm *root)
{
    MPI_Message message;
    MPI_Status status;
    mpi_note note = {.kind = NOTE_FAILED};
    int found = 0;
    if (MPI_Improbe(MPI_ANY_SOURCE, TAG_NOTE, root->handle, &found, &message, &status) != MPI_SUCCESS || !found)
        return 0;
    if (MPI_Mrecv(&note, sizeof note, MPI_BYTE, &message, &status) != MPI_SUCCESS)
        note = (mpi_note){.kind = NOTE_FAILED};
    if (note.kind == NOTE_FAILED) {
        qdri_reason_set(&root->base.why, note.why);
        atomic_store(&root->given_up, 1);
    }
    if (!atomic_exchange(&root->left[status.MPI_SOURCE], 1)) atomic_fetch_add(&root->n_left, 1);
    return 1;
}

int qdri_mpi_given_up(mpi_comm *comm)
{
    mpi_comm *root = (mpi_comm *)comm->base.root;
    while (read_note(root)) {}
    return atomic_load(&comm->given_up) || atomic_load(&root->given_up);
}

int qdri_mpi_has_left(const mpi_comm *comm, int peer)
{
    const mpi_comm *root = (const mpi_comm *)comm->base.root;
    return !root->all_leave && atomic_load(&root->n_left) > 0 && atomic_load(&root->left[comm->world_ranks[peer]]);
}

qdr_status qdri_mpi_fail_peer(const qdri_comm *comm, const char *where)
{
    const char *lateness = qdri_reason_get(&comm->root->lateness); /* of this rank's other thread */
    if (*lateness) {
        qdri_set_last_error(lateness);
        return QDR_ERR_TIMEOUT;
    }
    return qdri_comm_fail_peer(comm, where, qdri_reason_get(&comm->root->why));
}
