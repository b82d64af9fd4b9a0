/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of a collective. Long messages are sent in pieces, several of which are in flight at the same time. Over
 * TCP, MPI sends up to about 16 KiB immediately, whereas for longer messages both sides first synchronise and then
 * request one part after the other; that cost a fifth to a quarter of the bandwidth of a 1 Gbit/s link. Network
 * adapters that read remote memory perform better with whole messages. */
#include <limits.h>

#include "comm/mpi/internal.h"
#include "dev/clock.h"

enum {
    PAUSE_MIN_NS = 50000,
    PAUSE_FIRST_NS = 200000, /* initially, for each collective */
    PAUSE_MAX_NS = 1500000
};

int qdri_mpi_max_bytes = INT_MAX;
int qdri_mpi_piece_bytes = 16 << 10;
int64_t qdri_mpi_ahead_bytes = 256 << 10;

/* After which a member that is late no longer keeps the others from sending: twice the time that a link needs for the
 * bytes that they are then allowed. */
static int64_t silence_ns(const mpi_comm *comm)
{
    const double secs = 2 * (double)qdri_mpi_ahead_bytes / comm->base.root->machine.node_bytes_per_sec;
    return secs < 1e-9 * PAUSE_MAX_NS ? PAUSE_MAX_NS : secs > 1 ? INT64_C(1000000000) : (int64_t)(1e9 * secs);
}

int qdri_mpi_is_off_node(const mpi_comm *comm, int peer)
{
    const int *nodes = ((const mpi_comm *)comm->base.root)->nodes;
    return nodes[comm->world_ranks[peer]] != nodes[comm->world_ranks[comm->base.rank]];
}

/* If all members send to all others at once, they progress at different speeds, and at the end some links are idle:
 * over TCP at 200 Mbit/s that cost a fifth. So a member sends to its next neighbour first, then to the one after, at
 * the rate at which it receives, which is the rate of the links: each link carries one message at a time, and all
 * members end together. Single messages are paced as well: a member that is early in the next collective would send to
 * one to which another member is still sending. If nothing arrives for a while, a member is late, and the others may be
 * sent more until something arrives: an allowance that was kept let the members drift apart, which brought the next. */
static int may_send(const mpi_comm *comm)
{
    const qdri_mpi_flow *flow = &comm->flow;
    if (flow->to_receive == 0 || comm->base.size == 2) return 1;
    const double share = (double)flow->to_send / (double)flow->to_receive;
    return (double)flow->sent < (double)flow->ahead + share * (double)flow->received;
}

static int is_in_pieces(const mpi_message *message) { return message->piece_bytes < qdri_mpi_max_bytes; }

/* Starts as much of the message as flow control allows. */
static qdr_status begin_pieces(mpi_comm *comm, int number)
{
    mpi_message *message = &comm->messages[number];
    const int waits = message->is_send && is_in_pieces(message);
    const int rank = comm->handle_ranks[message->peer];
    for (int i = 0; i < QDRI_MPI_PIECES && message->begun < message->bytes; i++) {
        const int slot = number * QDRI_MPI_PIECES + i;
        if (comm->requests[slot] != MPI_REQUEST_NULL) continue;
        if (waits && !may_send(comm)) return QDR_OK;
        const size_t left = message->bytes - message->begun;
        const int bytes = left < (size_t)message->piece_bytes ? (int)left : message->piece_bytes;
        char *data = message->data + message->begun;
        if (message->is_send)
            QDR_MPI(MPI_Isend(data, bytes, MPI_BYTE, rank, comm->tag, comm->handle, &comm->requests[slot]));
        else
            QDR_MPI(MPI_Irecv(data, bytes, MPI_BYTE, rank, comm->tag, comm->handle, &comm->requests[slot]));
        message->begun += (size_t)bytes;
        comm->n_open++;
        if (waits) comm->flow.sent += bytes;
    }
    return QDR_OK;
}

qdr_status qdri_mpi_start_message(mpi_comm *comm, int is_send, int peer, void *data, size_t bytes)
{
    const int number = comm->n_messages++;
    const int is_short = !((mpi_comm *)comm->base.root)->reads_remotely && qdri_mpi_is_off_node(comm, peer) &&
                         qdri_mpi_piece_bytes < qdri_mpi_max_bytes;
    if (number == 0) comm->flow = (qdri_mpi_flow){.ahead = qdri_mpi_ahead_bytes, .heard_ns = qdri_now_ns()};
    if (is_short) *(is_send ? &comm->flow.to_send : &comm->flow.to_receive) += (int64_t)bytes;
    if (number == 0 && comm->pause_ns > PAUSE_FIRST_NS) comm->pause_ns = PAUSE_FIRST_NS;
    comm->messages[number] = (mpi_message){.data = data,
                                           .bytes = bytes,
                                           .peer = peer,
                                           .is_send = is_send,
                                           .piece_bytes = is_short ? qdri_mpi_piece_bytes : qdri_mpi_max_bytes};
    for (int i = 0; i < QDRI_MPI_PIECES; i++) comm->requests[number * QDRI_MPI_PIECES + i] = MPI_REQUEST_NULL;
    return begin_pieces(comm, number);
}

qdr_status qdri_mpi_test(mpi_comm *comm, int *all_done)
{
    qdri_mpi_flow *flow = &comm->flow;
    int n_done = 0;
    QDR_MPI(MPI_Testsome(comm->n_messages * QDRI_MPI_PIECES, comm->requests, &n_done, comm->indices, comm->statuses));
    if (n_done == MPI_UNDEFINED) n_done = 0;
    /* The pause between polls: longer while few of the pieces in flight are found complete, shorter when most are, so
     * that the links never wait for this rank to poll. Each poll costs CPU time that products need. */
    int64_t pause_ns = comm->pause_ns;
    if (2 * n_done > comm->n_open) pause_ns /= 2;
    if (4 * n_done <= comm->n_open) pause_ns += pause_ns / 2;
    if (pause_ns < PAUSE_MIN_NS) pause_ns = PAUSE_MIN_NS;
    comm->pause_ns = pause_ns < PAUSE_MAX_NS ? pause_ns : PAUSE_MAX_NS;
    const int64_t now_ns = qdri_now_ns();
    int64_t received = 0; /* in pieces */
    for (int i = 0; i < n_done; i++) {
        const mpi_message *message = &comm->messages[comm->indices[i] / QDRI_MPI_PIECES];
        if (!message->is_send && is_in_pieces(message)) received += message->piece_bytes;
    }
    comm->n_open -= n_done;
    flow->received += received;
    if (received > 0 || now_ns - flow->heard_ns >= silence_ns(comm)) {
        flow->ahead = received > 0 ? qdri_mpi_ahead_bytes : flow->ahead + qdri_mpi_ahead_bytes;
        flow->heard_ns = now_ns;
    }
    int n_left = 0;
    for (int number = 0; number < comm->n_messages; number++) {
        QDR_TRY(begin_pieces(comm, number));
        n_left += comm->messages[number].begun < comm->messages[number].bytes;
    }
    *all_done = comm->n_open == 0 && n_left == 0;
    if (*all_done) comm->n_messages = 0;
    return QDR_OK;
}

void qdri_mpi_look_again(const mpi_comm *comm, int64_t waited_ns)
{
    const int is_long = comm->flow.to_receive > QDRI_MPI_PIECES * (int64_t)qdri_mpi_piece_bytes;
    int64_t pause_ns = comm->pause_ns;
    if (!is_long && pause_ns > waited_ns / 4) pause_ns = waited_ns / 4;
    if (pause_ns < PAUSE_MIN_NS)
        qdri_poll_again();
    else
        qdri_look_within(pause_ns);
}

int qdri_mpi_is_open(const mpi_comm *comm, int number)
{
    if (comm->messages[number].begun < comm->messages[number].bytes) return 1;
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
