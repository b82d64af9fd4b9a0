/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the MPI backend share. */
#ifndef QDRI_COMM_MPI_INTERNAL_H
#define QDRI_COMM_MPI_INTERNAL_H

#include <mpi.h>

#include "comm/internal.h"
#include "comm/mpi.h"
#include "comm/mpi_node.h"

enum { TAG_COLLECTIVE = 0, TAG_AGREE, TAG_BROADCAST, TAG_NOTE, TAG_CLOCK, TAG_INNER, TAG_OUTER };

/* Of a communicator whose members lie node by node, per_node on each: see mpi_levels.c. */
typedef struct mpi_levels {
    int per_node, n_nodes; /* per_node = 0: no levels */
    mpi_comm *inner, *outer; /* this node's members; this member and its counterparts */
    int64_t *counts; /* one per node, then one per member of a node */
    qdri_run run; /* the stage that runs */
    int stage;
    int64_t sent_before; /* by the stage's group */
} mpi_levels;

/* What a rank tells all others, once of each kind. */
enum { NOTE_LEFT = 0, NOTE_FAILED };
typedef struct mpi_note {
    int kind;
    char why[QDRI_ERROR_BYTES];
} mpi_note;

/* Pieces of one message that are on their way at a time. */
#define QDRI_MPI_PIECES 16

typedef struct mpi_message {
    char *data;
    size_t bytes, begun; /* in all; in pieces that have been started */
    int peer, is_send; /* a member */
    int piece_bytes;
} mpi_message;

/* Bytes of the messages in pieces: in all, begun, received. What has come says how fast more may go. */
typedef struct qdri_mpi_flow {
    int n_sends; /* messages */
    int64_t to_send, to_receive, sent, received;
    int64_t ahead; /* that may be sent before anything comes */
    int64_t heard_ns; /* when something came last */
} qdri_mpi_flow;

struct mpi_comm {
    qdri_comm base;
    MPI_Comm handle; /* our own, or of the communicator whose level this is */
    int owns_handle, tag; /* of collectives */
    int *handle_ranks; /* of the members, in the handle */
    int *world_ranks; /* of the members, in the root */
    int *nodes; /* of the root: by rank, the lowest rank on the same node */
    int reads_remotely; /* of the root: all nodes have adapters that do */
    /* The collective that runs, if one does: a message to, and one from, each member at most. */
    mpi_message *messages;
    MPI_Request *requests; /* QDRI_MPI_PIECES of each message, like these: */
    MPI_Status *statuses;
    int *indices;
    int n_messages, n_open; /* pieces on their way */
    int64_t pause_ns; /* between looks at them */
    qdri_mpi_flow flow;
    const void **sources; /* room for one pointer per member */
    char sentence[QDRI_ERROR_BYTES];
    /* Notes from other ranks; of the root. */
    atomic_int given_up; /* a rank has failed; in others: this one has */
    atomic_int n_left;
    atomic_char *left; /* by rank */
    mpi_note told[2]; /* by this rank; MPI reads them for a while */
    MPI_Request *notes; /* of them, by kind and rank */
    int leaves, all_leave; /* this rank will launch nothing more; nor will any other */
    mpi_node node;
    mpi_levels levels;
};

/* mpi_shm.c: before MPI is started. */
void qdri_mpi_warn_of_shm(void);
/* Turns MPI's codes into ours, with its text. */
qdr_status qdri_mpi_fail(int code, const char *what);
#define QDR_MPI(call)                                                                                                  \
    do {                                                                                                               \
        const int mpi_code_ = (call);                                                                                  \
        if (mpi_code_ != MPI_SUCCESS) return qdri_mpi_fail(mpi_code_, #call);                                          \
    } while (0)

/* MPI is finalised: no call of it is allowed any more. */
int qdri_mpi_is_over(void);
/* @retval QDR_ERR_STATE  it is */
QDR_NODISCARD qdr_status qdri_mpi_check_runs(void);
/* Reads the notes that have come. Cheap, but not free. @return 1: this rank, or another of its world, has failed */
int qdri_mpi_given_up(mpi_comm *comm);
/* Member `peer` has left: what it has not sent will not come. Nobody has once all are leaving. */
int qdri_mpi_has_left(const mpi_comm *comm, int peer);
QDR_NODISCARD qdr_status qdri_mpi_fail_peer(const qdri_comm *comm, const char *where);
/* Tells all other ranks of the world; a rank may leave, and fail. why: "" if there is no reason. */
void qdri_mpi_send_notes(mpi_comm *root, int kind, const char *why);
/* 1: all notes of this rank are on their way. */
int qdri_mpi_notes_sent(mpi_comm *root);
/* This rank will launch nothing more. Of the root: waits until all say so; all_leave tells. */
void qdri_mpi_leave(mpi_comm *comm);
/* How long a rank that gives up lets transfers end which others may have begun. */
#define QDRI_MPI_DRAIN_SECS 0.5
double qdri_mpi_now_secs(void);
/* Waits a while, longer and longer. */
void qdri_mpi_pause(int n_polls);

QDR_NODISCARD qdr_status qdri_mpi_launch(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream);
int qdri_mpi_has_come(const qdri_run *run, int member);
size_t qdri_mpi_scratch_bytes(const qdri_comm *comm, const qdri_coll *coll);
/* What runs a collective, given staging of that many bytes. */
typedef qdr_status (*qdri_mpi_step)(qdri_run *run);
qdri_mpi_step qdri_mpi_step_of(const qdri_comm *comm, const qdri_coll *coll);

/* mpi.c: a part of a communicator that uses its handle: member j is `comm`'s member first + j·step. Not collective. */
QDR_NODISCARD qdr_status qdri_mpi_make_level(mpi_comm *comm, int first, int step, int size, int tag, mpi_comm **level);

/* mpi_levels.c: gives the communicator its levels if it can have them. Not collective. */
QDR_NODISCARD qdr_status qdri_mpi_levels_create(mpi_comm *comm);
void qdri_mpi_levels_destroy(mpi_comm *comm);
/* 1 if this collective goes level by level. The same on all members. */
int qdri_mpi_levels_take(const mpi_comm *comm, const qdri_coll *coll);
size_t qdri_mpi_levels_scratch_bytes(const qdri_comm *comm, const qdri_coll *coll);
qdr_status qdri_mpi_levels_step(qdri_run *run);
/* mpi_messages.c: the messages of the collective that runs. */
int qdri_mpi_is_off_node(const mpi_comm *comm, int peer);
/* Of at least one byte. */
QDR_NODISCARD qdr_status qdri_mpi_start_message(mpi_comm *comm, int is_send, int peer, void *data, size_t bytes);
/* Lets pieces follow those that have gone. When all is done, messages are numbered from 0 again. */
QDR_NODISCARD qdr_status qdri_mpi_test(mpi_comm *comm, int *all_done);
/* Called by work that is pending: lets its thread look again after a pause; where little is to come, at most a quarter
 * of what it has waited, so that the end is seen that late at worst. */
void qdri_mpi_look_again(const mpi_comm *comm, int64_t waited_ns);
/* Message `number` is on its way. */
int qdri_mpi_is_open(const mpi_comm *comm, int number);
/* Cancels what was to be received, and starts nothing more. */
void qdri_mpi_take_back(mpi_comm *comm);
/* There are no messages any more; what was on its way ends when it will. */
void qdri_mpi_forget(mpi_comm *comm);
/* On the host thread, asleep while waiting. */
QDR_NODISCARD qdr_status qdri_mpi_exchange(qdri_comm *comm, qdri_verdict *verdict);
QDR_NODISCARD qdr_status qdri_mpi_broadcast(qdri_comm *comm, int root, void *data, size_t bytes);
QDR_NODISCARD qdr_status qdri_mpi_look(qdri_comm *comm);
QDR_NODISCARD qdr_status qdri_mpi_compare_clocks(qdri_comm *comm, int leaving, qdri_clock_offset *offset);

#endif
