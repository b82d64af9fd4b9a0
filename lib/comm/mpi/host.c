/* SPDX-License-Identifier: Apache-2.0 */
/* The `mpi` backend on the host thread: agreement and small messages, sleeping while waiting. Agreements send one
 * message at a time through rank 0, so that nothing needs memory and any wait can be abandoned. */
#include <limits.h>

#include "comm/mpi/internal.h"
#include "dev/clock.h"

enum { POLLS_PER_LOOK = 8, LOOKS_AFTER_LEAVING = 8 }; /* a last message may arrive after the note */

/* Gives up; the thread's last error stays. */
static qdr_status give_up(mpi_comm *comm, MPI_Request *request, int is_receive, qdr_status status)
{
    qdri_comm_abort(&comm->base);
    /* The message may never be matched, and its memory is about to be freed. */
    const double begin = qdri_mpi_now_secs();
    int done = 0, code = MPI_SUCCESS;
    if (is_receive) MPI_Cancel(request);
    for (int n_polls = 0; !done && qdri_mpi_now_secs() - begin < QDRI_MPI_DRAIN_SECS; n_polls++) {
        code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS) break;
        qdri_mpi_pause(n_polls);
    }
    if (!done && code == MPI_SUCCESS) MPI_Request_free(request);
    return status;
}

static qdr_status wait_for(mpi_comm *comm, MPI_Request *request, int peer, int is_receive, const char *where)
{
    qdri_patience patience = {0};
    /* Rank 0, which hears from all, is the first to give up. */
    const int64_t limit_ns = qdri_comm_timeout_ns(&comm->base), later_ns = comm->base.rank == 0 ? 0 : QDRI_LATER_NS;
    int n_looks = 0;
    for (int n_polls = 0;; n_polls += n_polls < INT_MAX - 1 ? 1 : 0) {
        int done = 0;
        QDR_MPI(MPI_Test(request, &done, MPI_STATUS_IGNORE));
        if (done) return QDR_OK;
        if (n_polls % POLLS_PER_LOOK == POLLS_PER_LOOK - 1) {
            const int given_up = qdri_mpi_given_up(comm);
            n_looks += qdri_mpi_has_left(comm, peer);
            if (given_up || n_looks == LOOKS_AFTER_LEAVING)
                return give_up(comm, request, is_receive, qdri_mpi_fail_peer(&comm->base, where));
            if (limit_ns > 0 && qdri_waited_ns(&patience) > limit_ns + later_ns) {
                char who[QDRI_MEMBER_BYTES];
                qdri_comm_name_member(&comm->base, peer, who, sizeof who);
                return give_up(comm, request, is_receive, qdri_comm_fail_timeout(&comm->base, where, who, 1));
            }
        }
        qdri_mpi_pause(n_polls);
    }
}

static qdr_status send_to(mpi_comm *comm, int rank, int tag, const void *data, int bytes, const char *where)
{
    MPI_Request request;
    QDR_MPI(MPI_Isend(data, bytes, MPI_BYTE, rank, tag, comm->handle, &request));
    return wait_for(comm, &request, rank, 0, where);
}

static qdr_status receive_from(mpi_comm *comm, int rank, int tag, void *data, int bytes, const char *where)
{
    MPI_Request request;
    QDR_MPI(MPI_Irecv(data, bytes, MPI_BYTE, rank, tag, comm->handle, &request));
    return wait_for(comm, &request, rank, 1, where);
}

qdr_status qdri_mpi_exchange(qdri_comm *base, qdri_verdict *verdict)
{
    static const char where[] = "an agreement of all ranks";
    mpi_comm *comm = (mpi_comm *)base;
    QDR_TRY(qdri_mpi_check_runs());
    if (base->rank != 0) {
        QDR_TRY(send_to(comm, 0, TAG_AGREE, verdict, sizeof *verdict, where));
        return receive_from(comm, 0, TAG_AGREE, verdict, sizeof *verdict, where);
    }
    for (int rank = 1; rank < base->size; rank++) {
        qdri_verdict theirs;
        QDR_TRY(receive_from(comm, rank, TAG_AGREE, &theirs, sizeof theirs, where));
        qdri_verdict_add(verdict, &theirs, rank);
    }
    for (int rank = 1; rank < base->size; rank++)
        QDR_TRY(send_to(comm, rank, TAG_AGREE, verdict, sizeof *verdict, where));
    return QDR_OK;
}

qdr_status qdri_mpi_broadcast(qdri_comm *base, int root, void *data, size_t bytes)
{
    static const char where[] = "a broadcast";
    mpi_comm *comm = (mpi_comm *)base;
    const size_t piece = (size_t)qdri_mpi_max_bytes;
    QDR_TRY(qdri_mpi_check_runs());
    for (size_t at = 0; at < bytes; at += piece) {
        const int n = (int)(bytes - at < piece ? bytes - at : piece);
        char *from = (char *)data + at;
        if (base->rank != root) QDR_TRY(receive_from(comm, root, TAG_BROADCAST, from, n, where));
        for (int rank = 0; base->rank == root && rank < base->size; rank++)
            if (rank != root) QDR_TRY(send_to(comm, rank, TAG_BROADCAST, from, n, where));
    }
    return QDR_OK;
}

qdr_status qdri_mpi_look(qdri_comm *base)
{
    QDR_TRY(qdri_mpi_check_runs());
    return qdri_mpi_given_up((mpi_comm *)base) ? qdri_mpi_fail_peer(base, "work of its GPU") : QDR_OK;
}

/* ---- clocks ---- */

/* The shortest round trip is the most accurate; a rank asks until none has been shorter for a while. */
enum { CLOCK_ROUNDS = 100, CLOCK_PATIENCE = 16 };
enum { QUESTION = '?', ENOUGH = '.' };
static const char comparing[] = "a comparison of clocks";

static qdr_status ask_time(mpi_comm *comm, char question, qdri_clock_offset *found)
{
    int64_t theirs_ns = 0;
    const int64_t asked_ns = qdri_now_ns();
    QDR_TRY(send_to(comm, 0, TAG_CLOCK, &question, 1, comparing));
    QDR_TRY(receive_from(comm, 0, TAG_CLOCK, &theirs_ns, sizeof theirs_ns, comparing));
    *found = qdri_clock_compare(asked_ns, theirs_ns, qdri_now_ns());
    return QDR_OK;
}

qdr_status qdri_mpi_compare_clocks(qdri_comm *base, int leaving, qdri_clock_offset *offset)
{
    mpi_comm *comm = (mpi_comm *)base;
    QDR_TRY(qdri_mpi_check_runs());
    if (leaving) qdri_mpi_leave(comm);
    for (int rank = 1; base->rank == 0 && rank < base->size; rank++) {
        for (char question = QUESTION; question != ENOUGH;) {
            QDR_TRY(receive_from(comm, rank, TAG_CLOCK, &question, 1, comparing));
            const int64_t now_ns = qdri_now_ns();
            QDR_TRY(send_to(comm, rank, TAG_CLOCK, &now_ns, sizeof now_ns, comparing));
        }
    }
    if (base->rank == 0) return QDR_OK;
    qdri_clock_offset found;
    QDR_TRY(ask_time(comm, QUESTION, offset));
    for (int i = 1, n_idle = 0; i < CLOCK_ROUNDS && n_idle < CLOCK_PATIENCE; i++, n_idle++) {
        QDR_TRY(ask_time(comm, QUESTION, &found));
        if (found.bound_ns >= offset->bound_ns) continue;
        *offset = found;
        n_idle = 0;
    }
    return ask_time(comm, ENOUGH, &found);
}
