/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the MPI backend. */
#ifndef QDRI_COMM_MPI_INTERNAL_H
#define QDRI_COMM_MPI_INTERNAL_H

#include <mpi.h>

#include "comm/internal.h"
#include "comm/mpi/heap.h"
#include "comm/mpi/mpi.h"

/* ---- memory shared by the ranks of a node ---- */

/* Each rank has a share of one block, with wake events for its threads, and areas; a communicator whose members are all
 * on the same node uses one area of each. */
enum { NODE_SLOT_BYTES = 2 << 20, NODE_AREAS = 16 };

/* What a member publishes about the collective that it starts. */
typedef struct node_call {
    qdri_compared compared;
    heap_range source, target; /* memory that others read and write, if they access it directly */
    int is_mapped; /* in the next round: whether the member could map the memory of all others */
} node_call;

/* A member's area for one communicator. In each round of a collective, every member writes to its own slot, enters the
 * round, waits until all have entered, and reads the others' slots. There are two slots, used alternately: a member
 * that enters a round has finished reading the previous one, so a slot that is written again is no longer being
 * read. */
typedef struct node_area {
    _Alignas(64) _Atomic uint64_t n_entered; /* members times rounds; only member 0's is used */
    _Alignas(64) atomic_int waiting; /* the member's thread may be asleep on its wake event number waiting - 1 */
    _Atomic uint64_t n_own; /* rounds that this member has entered */
    int n_members; /* 0: the area is free */
    atomic_int n_left; /* members that will no longer access it */
    node_call calls[2]; /* by the parity of the round */
    _Alignas(64) unsigned char slots[2][NODE_SLOT_BYTES];
} node_area;

typedef struct node_share {
    qdri_wake_event wake_events[QDRI_DEV_WAKE_EVENTS];
    heap_share heap;
    node_area areas[NODE_AREAS];
} node_share;

/* Part of a communicator: the root has `memory`, `shares`, `heap` and `spin_ns`, each communicator the other fields. */
typedef struct mpi_node {
    void *memory; /* NULL: none */
    size_t bytes;
    node_share **shares; /* by rank; NULL on other nodes */
    mpi_heap *heap; /* NULL: none */
    int64_t spin_ns; /* that a member looks for the others before its thread yields; 0: there are more than cores */
    node_area **areas; /* by rank, if in use */
    int in_use;
    uint64_t n_rounds; /* rounds that this member has entered */
    void **targets; /* room for one pointer per member, as is `chunks` */
    const void **chunks;
    uint64_t *known; /* blocks that all members have mapped: see node_direct.c */
} mpi_node;

/* ---- a communicator ---- */

typedef struct mpi_comm mpi_comm;

enum { TAG_COLLECTIVE = 0, TAG_AGREE, TAG_BROADCAST, TAG_NOTE, TAG_CLOCK, TAG_INNER, TAG_OUTER };

/* The levels of a communicator whose members are numbered node by node, per_node on each: see levels.c. */
typedef struct mpi_levels {
    int per_node, n_nodes; /* per_node = 0: no levels */
    mpi_comm *inner, *outer; /* the members on this node; this member and its counterparts on other nodes */
    int64_t *counts; /* one per node, followed by one per member of a node */
    qdri_coll_run run; /* the current stage */
    int stage;
    int64_t sent_before; /* by the stage's group before the stage */
} mpi_levels;

/* A note that a rank sends to all others, at most once per kind. */
enum { NOTE_LEFT = 0, NOTE_FAILED };
typedef struct mpi_note {
    int kind;
    char why[QDRI_ERROR_BYTES];
} mpi_note;

/* The maximum number of pieces of one message that are in flight at the same time. */
#define QDRI_MPI_PIECES 16

typedef struct mpi_message {
    char *data;
    size_t bytes, begun; /* total; in pieces that have been started */
    int peer, is_send; /* peer: a member's number */
    int piece_bytes;
} mpi_message;

/* Byte counts of the messages that are sent in pieces: total, started, received. What has been received determines how
 * much more may be sent. */
typedef struct qdri_mpi_flow {
    int64_t to_send, to_receive, sent, received;
    int64_t ahead; /* bytes that may be sent before anything is received */
    int64_t heard_ns; /* time of the last receipt */
} qdri_mpi_flow;

struct mpi_comm {
    qdri_comm base;
    MPI_Comm handle; /* this communicator's own, or that of the communicator of which this is a level */
    int owns_handle, tag; /* tag: for collectives */
    int *handle_ranks; /* by member, the rank in the handle */
    int *world_ranks; /* by member, the rank in the root */
    int *nodes; /* root only: by rank, the lowest rank on the same node */
    int reads_remotely; /* root only: all nodes have adapters that read remote memory */
    /* The current collective, if any: at most one message to and one from each member. */
    mpi_message *messages;
    MPI_Request *requests; /* QDRI_MPI_PIECES per message, like the next two arrays */
    MPI_Status *statuses;
    int *indices;
    int n_messages, n_open; /* n_open: pieces in flight */
    int64_t pause_ns; /* between tests for completion */
    qdri_mpi_flow flow;
    const void **sources; /* room for one pointer per member */
    char sentence[QDRI_ERROR_BYTES];
    /* Notes from other ranks; root only: */
    atomic_int given_up; /* a rank has failed; in other communicators: this one was given up */
    atomic_int n_left;
    atomic_char *left; /* by rank */
    mpi_note told[2]; /* by this rank; MPI may read them until the requests complete */
    MPI_Request *notes; /* their requests, by kind and rank */
    /* What this rank passes to MPI while a communicator is created: MPI may still use it if a rank does not come. */
    struct {
        int first, works, taken;
        memory_file file;
    } passed;
    int leaves, all_leave; /* this rank will launch nothing more; nor will any other */
    mpi_node node;
    mpi_levels levels;
};

/* state.c */
/* Converts an MPI error code to a status, with MPI's error text. */
qdr_status qdri_mpi_fail(int code, const char *what);
#define QDR_MPI(call)                                                                                                  \
    do {                                                                                                               \
        const int mpi_code_ = (call);                                                                                  \
        if (mpi_code_ != MPI_SUCCESS) return qdri_mpi_fail(mpi_code_, #call);                                          \
    } while (0)
/* A rank did not come when a world was made or, after it was given up, to its end: MPI is not finalised, and what MPI
 * may still write to is not freed. */
extern atomic_int qdri_mpi_somebody_is_missing;
/* The sentence of QDR_ERR_TIMEOUT for a rank of a world that there is not yet. */
QDR_NODISCARD qdr_status qdri_mpi_fail_creation(int rank, int size, double limit_secs);
/* 1: MPI is finalised, and must not be called any more. */
int qdri_mpi_is_over(void);
/* @retval QDR_ERR_STATE  MPI is finalised */
QDR_NODISCARD qdr_status qdri_mpi_check_runs(void);
double qdri_mpi_now_secs(void);
/* Pauses; the pause grows with n_polls. */
void qdri_mpi_pause(int n_polls);
/* How long a rank that gives up keeps its memory available for transfers that others may have started. */
#define QDRI_MPI_DRAIN_SECS 0.5

/* notes.c */
/* Reads the notes that have arrived. Cheap, but not free. @return 1: this rank, or another one of its world, has
 * failed */
int qdri_mpi_given_up(mpi_comm *comm);
/* 1: member `peer` has left, and will not send what it has not sent yet. 0 for all members once all ranks are
 * leaving. */
int qdri_mpi_has_left(const mpi_comm *comm, int peer);
QDR_NODISCARD qdr_status qdri_mpi_fail_peer(const qdri_comm *comm, const char *where);
/* Sends a note to all other ranks of the world; a rank may send both kinds. why: "" if there is no reason. */
void qdri_mpi_send_notes(mpi_comm *root, int kind, const char *why);
/* 1: all notes of this rank have been sent. */
int qdri_mpi_notes_sent(mpi_comm *root);

/* leave.c */
/* Declares that this rank will launch nothing more. For the root: waits until all ranks have done so; the result is in
 * all_leave. */
void qdri_mpi_leave(mpi_comm *comm);
/* After that: waits until no rank's notes are in flight. @return 0: a rank is missing */
int qdri_mpi_notes_end(mpi_comm *root);

/* mpi.c: frees the communicators of worlds that were given up. No context may follow: only before MPI ends. */
void qdri_mpi_free_kept(void);

/* launch.c */
QDR_NODISCARD qdr_status qdri_mpi_launch(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream);
int qdri_mpi_has_come(const qdri_coll_run *run, int member);
size_t qdri_mpi_scratch_bytes(const qdri_comm *comm, const qdri_coll *coll);

/* coll.c: the same for a group without levels, or a stage. */
/* The step function of a collective that has that many bytes of staging. */
typedef qdr_status (*qdri_mpi_step)(qdri_coll_run *run);
qdri_mpi_step qdri_mpi_flat_step_of(const qdri_comm *comm, const qdri_coll *coll);
int qdri_mpi_flat_has_come(const qdri_coll_run *run, int member);
size_t qdri_mpi_flat_scratch_bytes(const qdri_comm *comm, const qdri_coll *coll);

/* levels.c: 1 if this collective is performed level by level. The same on all members. */
int qdri_mpi_levels_take(const mpi_comm *comm, const qdri_coll *coll);
size_t qdri_mpi_levels_scratch_bytes(const qdri_comm *comm, const qdri_coll *coll);
qdr_status qdri_mpi_levels_step(qdri_coll_run *run);

/* node.c, node_coll.c */
/* Collective over a root. A rank that is alone on its node, or cannot get the memory, has none: its collectives use
 * messages, as those of groups that span nodes do. */
QDR_NODISCARD qdr_status qdri_mpi_node_create(mpi_comm *root);
/* Requires that no rank uses the memory any more. */
void qdri_mpi_node_destroy(mpi_comm *root);
/* Collective: gives the communicator, or its level inside the node, areas if possible. mine: an error if this rank has
 * failed and takes part only so that no other rank waits for it. */
QDR_NODISCARD qdr_status qdri_mpi_node_join(mpi_comm *comm, qdr_status mine);
/* Not collective: members that are still reading this one's area continue. */
void qdri_mpi_node_leave(mpi_comm *comm);

/* 1 if this collective uses node memory. The same on all members. */
int qdri_mpi_node_takes(const mpi_comm *comm, const qdri_coll *coll);
/* The step function of such a collective. */
qdr_status qdri_mpi_node_step(qdri_coll_run *run);

/* node_direct.c: transfers without intermediate copies. */
int qdri_mpi_direct_wants(const qdri_coll_run *run); /* the same on all members */
/* Sets the ranges of the call to the memory of this member that others need. */
void qdri_mpi_direct_offer(const qdri_coll_run *run, node_call *call);
int qdri_mpi_direct_is_offered(const qdri_coll_run *run, const node_call *call, int member);
/* Maps the memory of `member`; 0: not possible. */
int qdri_mpi_direct_map(const qdri_coll_run *run, int member, const node_call *call);
/* 1: all members have mapped that memory before. The same on all members. */
int qdri_mpi_direct_is_known(const qdri_coll_run *run, const node_call *call, int member);
void qdri_mpi_direct_know(const qdri_coll_run *run, const node_call *call, int member);
enum { QDRI_KNOWN_BLOCKS = 16 }; /* of each member */
/* Performs this member's part of the work, after all members have mapped all memory. */
void qdri_mpi_direct_move(const qdri_coll_run *run);
/* messages.c: the messages of the current collective. */
int qdri_mpi_is_off_node(const mpi_comm *comm, int peer);
/* bytes must be at least 1. */
QDR_NODISCARD qdr_status qdri_mpi_start_message(mpi_comm *comm, int is_send, int peer, void *data, size_t bytes);
/* Continues messages whose earlier pieces are complete. When all messages are complete, their numbers start at 0
 * again. */
QDR_NODISCARD qdr_status qdri_mpi_test(mpi_comm *comm, int *all_done);
/* Called by pending work: lets its thread test again after a pause. If little data is outstanding, the pause is at most
 * a quarter of the time waited so far, which bounds the delay until completion is noticed. */
void qdri_mpi_look_again(const mpi_comm *comm, int64_t waited_ns);
/* 1: message `number` is not complete. */
int qdri_mpi_is_open(const mpi_comm *comm, int number);
/* Cancels pending receives, and starts nothing more. */
void qdri_mpi_take_back(mpi_comm *comm);
/* Drops all messages; requests in flight complete on their own. */
void qdri_mpi_forget(mpi_comm *comm);
/* host.c: these run on the host thread, which sleeps while it waits. */
QDR_NODISCARD qdr_status qdri_mpi_exchange(qdri_comm *comm, qdri_verdict *verdict);
QDR_NODISCARD qdr_status qdri_mpi_broadcast(qdri_comm *comm, int root, void *data, size_t bytes);
QDR_NODISCARD qdr_status qdri_mpi_look(qdri_comm *comm);
QDR_NODISCARD qdr_status qdri_mpi_compare_clocks(qdri_comm *comm, int leaving, qdri_clock_offset *offset);

#endif
