/* SPDX-License-Identifier: Apache-2.0 */
/* The `mpi` backend on the host thread: notes, agreement and small messages, sleeping while waiting. Agreements send
 * one message at a time through rank 0, so that nothing needs memory and any wait can be abandoned. */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "comm/mates.h"
#include "comm/mpi/internal.h"
#include "dev/clock.h"

/* ---- notes: small messages by which a rank tells all others that it has failed, or has left, so that none waits for
 * it ---- */

enum { N_YIELDS = 64, MIN_PAUSE_NS = 20000, MAX_PAUSE_NS = 500000 };

double qdri_mpi_now_secs(void) { return 1e-9 * (double)qdri_now_ns(); }

void qdri_mpi_pause(int n_polls)
{
    if (n_polls < N_YIELDS) {
        sched_yield();
        return;
    }
    const int doublings = (n_polls - N_YIELDS) / 8;
    long ns = doublings > 5 ? MAX_PAUSE_NS : (long)MIN_PAUSE_NS << doublings;
    if (ns > MAX_PAUSE_NS) ns = MAX_PAUSE_NS;
    const struct timespec pause = {.tv_nsec = ns};
    nanosleep(&pause, NULL);
}

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

/* ---- agreements and small messages ---- */

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

qdr_status qdri_mpi_fail_creation(int rank, int size, double limit_secs)
{
    char missing[160];
    const int n = qdri_mates_missing(NULL, missing, sizeof missing); /* MPI does not say which ranks are missing */
    atomic_store(&qdri_mpi_somebody_is_missing, 1);
    return QDR_FAIL(
        QDR_ERR_TIMEOUT,
        "comm: rank %d has waited %g s in the creation of contexts for others of the %d ranks%s%s; find out "
        "what they do, or allow more than QDR_TIMEOUT=%g",
        rank, limit_secs, size, n > 0 ? ": " : "", missing, limit_secs);
}

qdr_status qdri_mpi_complete(mpi_comm *comm, MPI_Request request)
{
    const int64_t limit_ns = qdri_comm_timeout_ns(&comm->base);
    const qdri_comm *root = comm->base.root;
    qdri_patience patience = {0};
    for (int n_polls = 0;; n_polls += n_polls < INT_MAX - 1 ? 1 : 0) {
        int done = 0;
        QDR_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        if (done) return QDR_OK;
        if (limit_ns > 0 && qdri_waited_ns(&patience) > limit_ns) {
            const qdr_status status = qdri_mpi_fail_creation(root->rank, root->size, 1e-9 * (double)limit_ns);
            qdri_comm_abort(&comm->base);
            return status;
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
