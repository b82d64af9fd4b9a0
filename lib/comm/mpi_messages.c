/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of a collective. Long ones travel in pieces, some of them on their way at a time:
 * over TCP, MPI sends up to some 16 KiB at once, while for more both sides first agree, and ask for
 * one part after the other; that took a fifth to a quarter of a wire of 1 Gbit/s. Network adapters
 * that read remote memory themselves do better with whole messages. */
#include <limits.h>

#include "comm/mpi.h"
#include "comm/mpi_internal.h"

enum { PAUSE_MIN_NS = 50000, PAUSE_MAX_NS = 1500000 };

int qdri_mpi_max_bytes = INT_MAX;
int qdri_mpi_piece_bytes = 16 << 10;

int qdri_mpi_is_off_node(const mpi_comm *comm, int peer)
{
    const int *nodes = ((const mpi_comm *)comm->base.root)->nodes;
    return nodes[comm->world_ranks[peer]] != nodes[comm->world_ranks[comm->base.rank]];
}

/* The message's next piece, if there is one, as request number `slot`, which is free. */
static qdr_status start_piece(mpi_comm *comm, int slot)
{
    mpi_message *message = &comm->messages[slot / QDRI_MPI_PIECES];
    MPI_Request *request = &comm->requests[slot];
    const size_t left = message->bytes - message->begun;
    const int bytes = left < (size_t)message->piece_bytes ? (int)left : message->piece_bytes;
    char *data = message->data + message->begun;
    const int rank = comm->handle_ranks[message->peer];
    *request = MPI_REQUEST_NULL;
    if (bytes == 0) return QDR_OK;
    if (message->is_send)
        QDR_MPI(MPI_Isend(data, bytes, MPI_BYTE, rank, comm->tag, comm->handle, request));
    else
        QDR_MPI(MPI_Irecv(data, bytes, MPI_BYTE, rank, comm->tag, comm->handle, request));
    message->begun += (size_t)bytes;
    comm->n_open++;
    return QDR_OK;
}

qdr_status qdri_mpi_start_message(mpi_comm *comm, int is_send, int peer, void *data, size_t bytes)
{
    const int number = comm->n_messages++;
    const int is_short = !((mpi_comm *)comm->base.root)->reads_remotely &&
                         qdri_mpi_is_off_node(comm, peer) &&
                         qdri_mpi_piece_bytes < qdri_mpi_max_bytes;
    comm->messages[number] = (mpi_message){.data = data,
                                           .bytes = bytes,
                                           .peer = peer,
                                           .is_send = is_send,
                                           .piece_bytes = is_short ? qdri_mpi_piece_bytes
                                                                   : qdri_mpi_max_bytes};
    for (int i = 0; i < QDRI_MPI_PIECES; i++)
        comm->requests[number * QDRI_MPI_PIECES + i] = MPI_REQUEST_NULL;
    for (int i = 0; i < QDRI_MPI_PIECES; i++)
        QDR_TRY(start_piece(comm, number * QDRI_MPI_PIECES + i));
    return QDR_OK;
}

/* Longer pauses while few of the pieces on their way are done when looked at, shorter ones when
 * most are, so that the wire never waits for this rank to look. Each look costs the processor that
 * products need. */
static void set_pace(mpi_comm *comm, int n_open, int n_done)
{
    int64_t pause_ns = comm->pause_ns;
    if (2 * n_done > n_open) pause_ns /= 2;
    if (4 * n_done <= n_open) pause_ns += pause_ns / 2;
    if (pause_ns < PAUSE_MIN_NS) pause_ns = PAUSE_MIN_NS;
    comm->pause_ns = pause_ns < PAUSE_MAX_NS ? pause_ns : PAUSE_MAX_NS;
}

qdr_status qdri_mpi_test(mpi_comm *comm, int *all_done)
{
    const int n_open = comm->n_open;
    int n_done = 0;
    QDR_MPI(MPI_Testsome(comm->n_messages * QDRI_MPI_PIECES, comm->requests, &n_done, comm->indices,
                         comm->statuses));
    if (n_done == MPI_UNDEFINED) n_done = 0;
    set_pace(comm, n_open, n_done);
    for (int i = 0; i < n_done; i++) {
        comm->n_open--;
        QDR_TRY(start_piece(comm, comm->indices[i]));
    }
    *all_done = comm->n_open == 0;
    if (*all_done) comm->n_messages = 0;
    return QDR_OK;
}

void qdri_mpi_look_again(const mpi_comm *comm, int64_t waited_ns)
{
    const int64_t pause_ns = comm->pause_ns < waited_ns / 4 ? comm->pause_ns : waited_ns / 4;
    if (pause_ns < PAUSE_MIN_NS)
        qdri_poll_again();
    else
        qdri_look_within(pause_ns);
}

int qdri_mpi_is_open(const mpi_comm *comm, int number)
{
    for (int i = 0; i < QDRI_MPI_PIECES; i++)
        if (comm->requests[number * QDRI_MPI_PIECES + i] != MPI_REQUEST_NULL) return 1;
    return 0;
}

void qdri_mpi_take_back(mpi_comm *comm)
{
    for (int number = 0; number < comm->n_messages; number++) {
        mpi_message *message = &comm->messages[number];
        message->bytes = message->begun;
        for (int i = 0; !message->is_send && i < QDRI_MPI_PIECES; i++) {
            MPI_Request *request = &comm->requests[number * QDRI_MPI_PIECES + i];
            if (*request != MPI_REQUEST_NULL) MPI_Cancel(request);
        }
    }
}

void qdri_mpi_forget(mpi_comm *comm)
{
    for (int i = 0; i < comm->n_messages * QDRI_MPI_PIECES; i++)
        if (comm->requests[i] != MPI_REQUEST_NULL) MPI_Request_free(&comm->requests[i]);
    comm->n_messages = comm->n_open = 0;
}
