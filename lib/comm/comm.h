/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: collectives over a group of ranks, enqueued on streams, through one function table. comm.c checks and
 * counts; backends (`local`, `mpi`) translate. A collective is data (qdri_coll). Members call the same collectives in
 * the same order, each communicator from one stream at a time. Reductions exchange pairwise and add in rank order, in
 * fp32 (f64 for F64, I32 as integers), rounding once; an all-reduce is such a reduction followed by an all-gather, so
 * that all members hold identical bits. Across nodes with several members each, the members of a node are added first
 * and rounded, then the sums of the nodes are added. */
#ifndef QDRI_COMM_COMM_H
#define QDRI_COMM_COMM_H

#include "codec/check.h"
#include "core/clock_offset.h"
#include "core/facts.h"
#include "dev/dev.h"
#include "quadrille/codec.h"
#include "quadrille/grid.h"

typedef struct qdri_comm qdri_comm;
typedef struct qdri_coll_run qdri_coll_run;

/* A collective as its caller called it. */
typedef struct qdri_call {
    qdr_coll_kind kind;
    qdr_dtype dtype;
    int64_t total; /* elements; -1: no such number */
    char codec[40]; /* its text; "": none */
    uint64_t digest; /* of a coded one: of all that must be the same on all members; 0: not coded */
} qdri_call;

/* One collective as seen by one member. Parts follow each other in rank order, without gaps.
 *
 *   kind            send                                        recv
 *   ALL_GATHER      counts[rank] elements, or NULL: in place,   Σ counts elements
 *                   this rank's part is already in recv
 *   REDUCE_SCATTER  Σ counts                                    counts[rank]; may be this rank's own part of send
 *   ALL_REDUCE      count, or NULL: in place                    count
 *   BROADCAST       -                                           count, from `peer`
 *   ALL_TO_ALL      Σ counts; counts[j] go to rank j            Σ recv_counts; recv_counts[j] come from rank j
 *   SEND_RECV       count, to `peer` (-1: none)                 recv_count, from `peer2` (-1: none)
 *
 * counts and recv_counts have one entry per member, may hold zeros, and live until the collective has run.
 * counts = NULL means
 *   - `count` for each member (recv_counts = NULL likewise); or
 *   - for ALL_GATHER and REDUCE_SCATTER with split_unit > 0, that `count` is the sum of all parts, and member j's part
 *     is qdri_split(count, split_unit, size, j), so that uneven rows need no array (unit = rows that stay together ·
 *     columns). */
typedef struct qdri_coll {
    qdr_coll_kind kind;
    qdr_dtype dtype;
    qdr_reduce op;
    int is_check; /* made by a decorator: not counted; `label`, never NULL, stands for the call in messages */
    const void *send;
    void *recv;
    int64_t count, recv_count;
    int64_t split_unit; /* 0: parts are equal, or given by counts */
    const int64_t *counts, *recv_counts;
    /* On CPUs, of an ALL_GATHER or ALL_TO_ALL with counts: elements that parts have after all, at most the counts,
     * which then say where parts begin. Read when the collective runs, so that earlier work of the stream may write
     * them. An ALL_GATHER has one for each member, the same on all; an ALL_TO_ALL those that go to, and come from,
     * each. */
    const int64_t *lengths, *recv_lengths;
    int peer, peer2;
    const char *label; /* the layer or operation that makes the call, for messages; NULL: none. Must live until the
                        * collective has run. */
    /* The coded collective of which it is a stage: with that one's bytes and seconds its own are counted, and members
     * compare that one, too, since messages of different numbers of elements may be equally long. NULL: none. Must live
     * until the collective has run. */
    const qdri_call *stage_of;
    /* How elements travel in an ALL_GATHER, and in a REDUCE_SCATTER or ALL_REDUCE that adds, of a communicator of
     * qdri_comm_compress(); others ignore it. NULL, or a codec that would not shorten the type: as they are. With a
     * codec, counts need not live longer than the call. */
    const qdr_codec *codec;
    int traffic; /* for messages about codecs: 1 + the qdr_traffic_class of the elements; 0: not known */
    float *feedback; /* of a codec with feedback: device memory, a float for each element of `send` */
    uint64_t seed; /* of stochastic rounding: another one for each collective; 0: chosen here */
    int64_t row_elems; /* blocks of a codec begin anew after each row of so many elements, and parts of an ALL_REDUCE
                        * are whole rows, as the caller's parts must be; 0: there are no rows */
} qdri_coll;

/* Staging that collectives of a communicator need, the most of each: its own; of a communicator that codes, for
 * messages, and for members of a node among themselves. Initially zero. */
typedef struct qdri_need {
    size_t own, coded, inside;
} qdri_need;

/* What one member passes to an agreement, and afterwards the result, the same for all members. */
typedef struct qdri_verdict {
    int status; /* QDR_OK, or the error of the lowest rank that passes one */
    int differs; /* not all digests were the same */
    int odd; /* the first member in another call than member 0: only one of the two passed a digest; 0: none */
    uint64_t digest; /* of what must be the same on all members; 0: nothing is compared */
    char sentence[QDRI_ERROR_BYTES]; /* message of the error */
} qdri_verdict;

typedef struct qdri_comm_table {
    const char *name;
    int is_only_world; /* 1: its parts cannot agree, broadcast or be split */
    const char *unrecorded; /* why its collectives cannot be recorded and replayed; NULL: they can */
    /* Enqueues a collective; arguments have been checked, and the group has at least two members. */
    qdr_status (*launch)(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream);
    /* Bytes of staging that `coll` needs on this rank; optional: none. */
    size_t (*scratch_bytes)(const qdri_comm *comm, const qdri_coll *coll);
    /* In a decorator, optional: what else must hold of a collective's arguments; instead of the inner communicator's,
     * its needs, reserve and traffic, as qdri_comm_need() and others. */
    qdr_status (*check)(const qdri_comm *comm, const qdri_coll *coll);
    void (*need)(const qdri_comm *comm, const qdri_coll *coll, qdri_need *need);
    qdr_status (*reserve)(qdri_comm *comm, const qdri_need *need);
    qdr_traffic (*traffic)(const qdri_comm *comm, qdr_coll_kind kind);
    void (*reset_traffic)(qdri_comm *comm);
    void (*drain)(const qdri_comm *comm); /* waits for the work of its own streams; optional: it has none */
    /* Collective: ranks of equal colour form a group, ordered by key; colour < 0: none (*part = NULL). */
    qdr_status (*split)(qdri_comm *comm, int colour, int key, qdri_comm **part);
    /* In a decorator, instead of split, agree, broadcast and others, which it passes on to the communicator that does
     * the work: decorates *part, which was split off that one (NULL: none was). Collective over `comm`: fails on all
     * ranks, and then *part is unchanged, or on none. */
    qdr_status (*wrap)(qdri_comm *comm, qdri_comm **part);
    /* The next functions are collective and run on the calling thread, without the device, sleeping while they wait: */
    /* *verdict: in: this member's; out: that of all members, combined by qdri_verdict_add() in rank order. Fails if the
     * verdicts could not be exchanged. */
    qdr_status (*agree)(qdri_comm *comm, qdri_verdict *verdict);
    qdr_status (*broadcast)(qdri_comm *comm, int root, void *data, size_t bytes);
    /* The number of consecutive members that reductions sum among themselves first; optional: 1. */
    int (*summed_first)(const qdri_comm *comm, const qdri_coll *coll);
    /* Optional if all members are on one node, which has one clock. */
    qdr_status (*compare_clocks)(qdri_comm *comm, int leaving, qdri_clock_offset *offset);
    /* 1: as far as this rank knows, `member` has arrived at this collective, which is waiting. Optional. */
    int (*has_come)(const qdri_coll_run *run, int member);
    /* Fails if, as far as this rank knows, another rank has given up comm, a world; does not wait. Any thread.
     * Optional. */
    qdr_status (*look)(qdri_comm *comm);
    /* This rank launches nothing more: members that wait for more than it has launched fail. Called by the host thread.
     * Optional: others learn of it when comm is destroyed. */
    void (*leave)(qdri_comm *comm);
    /* Makes the other members fail instead of waiting for this one, with this thread's last error as the reason, which
     * does not change. Any thread. */
    void (*abort)(qdri_comm *comm);
    void (*destroy_parts)(qdri_comm *comm); /* called before comm leaves the family, for example to destroy what it
                                             * split off for its own use; optional */
    void (*destroy)(qdri_comm *comm);
} qdri_comm_table;

/* Creates the world communicator of one rank of a local world. Collective: fails on all ranks or on none. */
QDR_NODISCARD qdr_status qdri_comm_create_local(qdr_local_world *world, int rank, qdri_dev *dev, qdri_comm **comm);
QDR_NODISCARD qdr_status qdri_comm_create_self(qdri_dev *dev, qdri_comm **comm); /* a group of one */
/* Accepts NULL. Streams must be idle, and parts made by split must be destroyed first. Does not wait: members that
 * still wait for this one fail with QDR_ERR_PEER. */
void qdri_comm_destroy(qdri_comm **comm);
/* Collective: fails on all ranks of comm or on none. */
QDR_NODISCARD qdr_status qdri_comm_split(qdri_comm *comm, int colour, int key, qdri_comm **part);
int qdri_comm_rank(const qdri_comm *comm);
int qdri_comm_size(const qdri_comm *comm);
/* Number of ranks of the group on this rank's node. */
int qdri_comm_node_size(const qdri_comm *comm);
/* The lowest rank on the node of `rank`. comm is a world. */
int qdri_comm_node_of(const qdri_comm *comm, int rank);
/* The number of this rank among the ranks of its node. comm is a world. */
int qdri_comm_node_rank(const qdri_comm *comm);
/* Why the collectives of a world's parts cannot be recorded; NULL: they can. */
const char *qdri_comm_unrecorded(const qdri_comm *comm);
/* All members return the same: the status and message of the lowest rank that passes an error. Also a barrier. */
QDR_NODISCARD qdr_status qdri_comm_agree(qdri_comm *comm, qdr_status mine);
/* The same; if no member passes an error, *differs states whether members passed different nonzero digests. */
QDR_NODISCARD qdr_status qdri_comm_agree_on(qdri_comm *comm, qdr_status mine, uint64_t digest, int *differs);
/* Agrees and compares facts: if they differ between ranks, all fail with QDR_ERR_ARGUMENT and the message "WHAT: layer
 * 'fc' has bias 1 on rank 0 and 0 on rank 1; RULE", without "WHAT: " if that is empty. If they are the same, it costs
 * no more than an agreement. A member that passes an error need not pass facts. same.c */
QDR_NODISCARD qdr_status qdri_comm_agree_same(qdri_comm *comm, qdr_status mine, const qdri_facts *facts,
                                              const char *what, const char *rule);
/* Whether `yes` is set on any member; also 1 if agreeing fails, which the next call will report. Collective. */
int qdri_comm_any(qdri_comm *comm, int yes);
/* data is host memory. */
QDR_NODISCARD qdr_status qdri_comm_broadcast(qdri_comm *comm, int root, void *data, size_t bytes);
/* The offset of this rank's CLOCK_MONOTONIC from rank 0's. Collective over a world. leaving: the ranks are about to
 * destroy the world and call nothing else before; then this waits until all ranks are here, as destroying does. */
QDR_NODISCARD qdr_status qdri_comm_compare_clocks(qdri_comm *comm, int leaving, qdri_clock_offset *offset);
/* Gives up comm, its parts and its siblings: everything that waits in one of them, here or on another rank, fails with
 * QDR_ERR_PEER, with the calling thread's last error as the reason. Any thread. Called as the hook of a poisoned
 * device. */
void qdri_comm_abort(qdri_comm *comm);
/* Tells the others that this rank launches nothing more in comm, its parts and its siblings: who waits for that fails
 * with QDR_ERR_PEER; what has been launched goes on. Called by the host thread.
 * @return 1 if the others were told: then the work in progress here ends; 0: the backend tells them later */
int qdri_comm_leave(qdri_comm *comm);

/* Sets names for messages: of the communicator, and of its members. They must live as long as comm. */
typedef void (*qdri_comm_describe)(const void *user, int member, char *text, size_t capacity);
void qdri_describe_rank(const void *user, int member, char *text, size_t capacity); /* "rank 3" */
void qdri_comm_set_names(qdri_comm *comm, const char *name, qdri_comm_describe describe, const void *user);
/* Wraps a world: from then on, members compare each call, of comm and of its parts, before they run it. If the calls
 * differ, all members fail with QDR_ERR_ARGUMENT and one message that names two different calls. Collective: fails on
 * all ranks or on none; after a failure comm is unchanged. */
QDR_NODISCARD qdr_status qdri_comm_check(qdri_comm **comm);
/* Wraps a world whose device, `host`, is a CPU, for use with `dev`, and takes ownership of it: see
 * decorators/staged.c. The host device must outlive the result. Collective: fails on all ranks, and then the caller
 * keeps the world, or on none. */
QDR_NODISCARD qdr_status qdri_comm_stage(qdri_comm **comm, qdri_dev *host, qdri_dev *dev);
/* Wraps a part of a world, so that its collectives may have codecs: see decorators/compressed.c. nodes: by member, the
 * number of its node. A group of one stays as it is. Collective over comm: fails on all ranks or on none; after a
 * failure comm is unchanged. */
QDR_NODISCARD qdr_status qdri_comm_compress(qdri_comm **comm, const int *nodes);
int qdri_comm_is_compressed(const qdri_comm *comm);
/* What codecs have changed, of one kind of message. */
typedef struct qdri_coded_errors qdri_coded_errors;
struct qdri_coded_errors {
    qdri_coded_errors *next;
    char label[64];
    int traffic; /* as in qdri_coll */
    qdr_codec codec;
    qdri_message_errors errors;
};
/* A list, in which the newest kind comes first; NULL without QDR_CODEC_CHECK. While there is no work. */
const qdri_coded_errors *qdri_comm_coded_errors(const qdri_comm *comm);
/* Sets a time limit for a world and its parts: a member that waits longer for others, in a collective, an agreement or
 * a broadcast, gives up and fails with QDR_ERR_TIMEOUT; the message names the missing members. 0: no limit. Call it
 * before there is work. */
void qdri_comm_set_timeout(qdri_comm *comm, double secs);
/* What collectives know of the machine, see qdr_machine; 0: not known. */
typedef struct qdri_comm_machine {
    int64_t direct_bytes, direct_all_reduce_bytes, two_round_bytes; /* as in qdr_machine_collectives */
    double node_bytes_per_sec; /* that a node can send to others */
} qdri_comm_machine;
/* Sets what is known for a world and its parts; the rest stays. The same on all ranks, while there is no work. */
void qdri_comm_set_machine(qdri_comm *comm, const qdri_comm_machine *machine);

/* Says how many parts of several members will be split off next, whose collectives may all run at the same time: a GPU
 * that must have room for all of them divides itself accordingly. The same on all ranks. */
void qdri_comm_expect_parts(qdri_comm *comm, int n_parts);

/* The ranks of one process before they have communicators. */
QDR_NODISCARD qdr_status qdri_local_world_create(int n, qdr_local_world **world);
void qdri_local_world_destroy(qdr_local_world **world);
int qdri_local_world_size(const qdr_local_world *world);
/* Like qdri_comm_set_timeout(), until the ranks have communicators, which inherit the limit. Every rank sets the
 * same. */
void qdri_local_world_set_timeout(qdr_local_world *world, double secs);
/* Collective, like qdri_comm_agree(). */
QDR_NODISCARD qdr_status qdri_local_world_agree(qdr_local_world *world, int rank, qdr_status mine);
/* Called when a rank's thread ends: ranks that wait for it fail. */
void qdri_local_world_leave(qdr_local_world *world);

/* Enqueues a collective. Groups of one copy if necessary and count nothing. Invalid arguments change nothing; if
 * enqueueing fails, the communicator is given up, so that no member waits for this rank. */
QDR_NODISCARD qdr_status qdri_comm_launch(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream);
/* Raises *need to what `coll` needs. A collective that needs more than the reserve allocates it while it runs. */
void qdri_comm_need(const qdri_comm *comm, const qdri_coll *coll, qdri_need *need);
size_t qdri_need_bytes(const qdri_need *need);
/* The number of consecutive members that a reduction sums among themselves, and rounds, first; 1: all are added in rank
 * order. */
int qdri_comm_summed_first(const qdri_comm *comm, const qdri_coll *coll);
/* Makes the reserve at least that large. Device memory, counted; a smaller reserve, which pending work and recorded
 * steps may be using, is kept until the communicator is destroyed. */
QDR_NODISCARD qdr_status qdri_comm_reserve(qdri_comm *comm, const qdri_need *need);

/* Waits for work that a communicator does on streams of its own. A stream that has failed may be idle before them:
 * what they use is freed after this. */
void qdri_comm_drain(const qdri_comm *comm);
qdr_traffic qdri_comm_traffic(const qdri_comm *comm, qdr_coll_kind kind);
void qdri_comm_reset_traffic(qdri_comm *comm);

/* Called at each launch in a group of two or more, on the host thread, before it is enqueued: for tests and checks. */
typedef void (*qdri_comm_observer)(const qdri_comm *comm, const qdri_coll *coll, void *user);
void qdri_comm_set_observer(qdri_comm *comm, qdri_comm_observer observer, void *user);

#endif
