/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a world: its ranks wait for each other, and for the notes that they have sent. */
#include <stdio.h>

#include "comm/mpi/internal.h"
#include "core/log.h"

#define LEAVE_SECS 3.0 /* for ranks that arrive late in a world that was given up */
#define MOST_AGAIN_SECS 3.0 /* a rank that has given up for lack of others waits this much of the limit once more */
enum { MISSING_BYTES = 300 };
#define TELL_AFTER_SECS 0.2 /* a rank that leaves waits this long for the others before it sends notes */

static int has_not_left(const void *user, int member) { return !atomic_load(&((const mpi_comm *)user)->left[member]); }

/* A wait for ranks that arrive late, or never, at the end of a world. */
typedef struct leave_wait {
    qdri_patience patience;
    double limit_secs; /* 0: none */
    int is_reported; /* the missing ranks have been logged; in a world that was given up that happened earlier */
} leave_wait;

/* The time limit applies here, too. */
static leave_wait leave_wait_begin(mpi_comm *root)
{
    double limit_secs = 1e-9 * (double)qdri_comm_timeout_ns(&root->base);
    const int again = *qdri_reason_get(&root->base.lateness) || atomic_load(&qdri_mpi_somebody_is_missing);
    if (again && limit_secs > MOST_AGAIN_SECS) limit_secs = MOST_AGAIN_SECS;
    return (leave_wait){.limit_secs = limit_secs};
}

/* Some time is added for ranks that were late. */
static int is_too_long(mpi_comm *root, leave_wait *wait)
{
    const double secs = 1e-9 * (double)qdri_waited_ns(&wait->patience);
    if (wait->limit_secs == 0 || secs < wait->limit_secs) return 0;
    const int given_up = qdri_mpi_given_up(root); /* also reads which ranks have left */
    if (!given_up && !wait->is_reported) { /* there is no status, and the last error must not change */
        char missing[MISSING_BYTES];
        qdri_kept_error kept;
        qdri_keep_last_error(&kept);
        const int n = qdri_comm_name_missing(&root->base, has_not_left, root, missing, sizeof missing);
        if (n == 0) snprintf(missing, sizeof missing, "ranks that were there a moment ago");
        (void)qdri_comm_fail_timeout(&root->base, "the destruction of contexts", missing, n);
        qdri_log(QDRI_LOG_WARNING, "%s", qdr_last_error());
        qdri_restore_last_error(&kept);
    }
    wait->is_reported = 1;
    if (secs < wait->limit_secs + LEAVE_SECS) return 0;
    atomic_store(&qdri_mpi_somebody_is_missing, 1);
    return 1;
}

/* Waits until all ranks have arrived. tell: sends notes to ranks that may be waiting for this one. */
static int barrier(mpi_comm *root, int tell)
{
    const double begin = qdri_mpi_now_secs();
    leave_wait wait = leave_wait_begin(root);
    MPI_Request request;
    int done = 0;
    if (MPI_Ibarrier(root->handle, &request) != MPI_SUCCESS) return 0;
    for (int n_polls = 0;; n_polls++) {
        if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return 0;
        if (done) return 1;
        if (tell && qdri_mpi_now_secs() - begin > TELL_AFTER_SECS) {
            qdri_mpi_send_notes(root, NOTE_LEFT, "");
            tell = 0;
        }
        if (is_too_long(root, &wait)) return 0;
        qdri_mpi_pause(n_polls);
    }
}

void qdri_mpi_leave(mpi_comm *comm)
{
    if (comm->leaves) return;
    comm->leaves = 1;
    qdri_mpi_node_leave(comm);
    if (comm->base.root == &comm->base && comm->handle != MPI_COMM_NULL) comm->all_leave = barrier(comm, 1);
}

static int wait_for_notes(mpi_comm *root)
{
    leave_wait wait = leave_wait_begin(root);
    for (int n_polls = 0; !qdri_mpi_notes_sent(root); n_polls++) {
        if (is_too_long(root, &wait)) return 0;
        qdri_mpi_pause(n_polls);
    }
    return 1;
}

int qdri_mpi_notes_end(mpi_comm *root)
{
    if (!wait_for_notes(root) || !barrier(root, 0)) return 0;
    (void)qdri_mpi_given_up(root); /* reads the notes */
    return 1;
}
