/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the `nccl` backend share: nccl*.c are the only ones that include <nccl.h>, and are part of the
 * plugin for CUDA.
 *
 * A communicator stands over one of the host, which carries agreements, small messages and bad news; only collectives
 * are NCCL's. Its family has a stem, made without blocking, so that ranks that do not come cost a limited time; it
 * never runs a collective. Communicators that do are split from it and block: in those that do not, NCCL starts a
 * thread for every launch. What may wait for other ranks after that (connecting at the first use, collectives
 * themselves) is watched by a thread of the family, the guard, which also does the aborting: nobody waits for that. */
#ifndef QDRI_COMM_NCCL_INTERNAL_H
#define QDRI_COMM_NCCL_INTERNAL_H

#include <nccl.h>
#include <pthread.h>

#include "comm/cuda_plugin.h"
#include "comm/internal.h"
#include "dev/cuda/cuda.h"

typedef struct nccl_guard nccl_guard;
typedef struct nccl_watched nccl_watched;
typedef struct nccl_held nccl_held;
typedef struct nccl_block nccl_block;
typedef struct nccl_registered nccl_registered;

/* Collectives on their way, the oldest first; kept where waits are limited. */
typedef struct nccl_watch {
    pthread_mutex_t mutex;
    nccl_watched *first, *last, *spare;
} nccl_watch;

typedef struct nccl_comm {
    qdri_comm base;
    qdri_comm *host;
    ncclComm_t stem; /* of the family's root, and of parts of parts; else NULL. Under `calls`, as: */
    _Atomic(ncclComm_t) handle; /* NULL: a group of one, or given up */
    ncclComm_t place; /* where NCCL writes what it splits off, on a thread of its own */
    pthread_mutex_t calls; /* held in calls of NCCL that may wait */
    int max_ctas;
    nccl_guard *guard; /* the family's */
    int is_left; /* the guard hangs, and still knows it */
    nccl_watch watch;
    nccl_held *held; /* staging of collectives on their way */
    nccl_registered *registered; /* memory; under `calls` */
    int registers; /* of the root: the family does */
    nccl_block *blocks; /* of the root: what it has registered */
} nccl_comm;

/* nccl.c: the host, under the names and with the limit of the communicator. */
qdri_comm *qdri_nccl_host(const nccl_comm *comm);
/* The communicator of the table nccl_table, else NULL. */
nccl_comm *qdri_nccl_of(qdri_comm *comm);

/* nccl_join.c */
/* QDR_OK, or fails with NCCL's error for `call` ("ncclAllReduce"). */
qdr_status qdri_nccl_status(ncclComm_t handle, ncclResult_t result, const char *call);
QDR_NODISCARD qdr_status qdri_nccl_fits(qdri_comm *host, qdri_dev *dev);
/* Compares versions, and reads what rank 0's environment asks for. Collective, as the others. */
QDR_NODISCARD qdr_status qdri_nccl_prepare(qdri_comm *host, qdri_dev *dev, int *max_ctas);
/* A stem for the members of `host`; NULL for a group of one. */
QDR_NODISCARD qdr_status qdri_nccl_open_stem(qdri_comm *host, ncclComm_t *stem);
/* Splits comm->handle off from a stem whose ranks are talker's; colour < 0: none. After a failure the stem is of no
 * more use. */
QDR_NODISCARD qdr_status qdri_nccl_split_off(qdri_comm *talker, ncclComm_t stem, int colour, nccl_comm *comm);
/* Waits until a call of a communicator that does not block, or does not seem to, is through. */
QDR_NODISCARD qdr_status qdri_nccl_settle(qdri_comm *talker, ncclComm_t handle, const ncclComm_t *place,
                                          const char *call);
/* nccl_close.c: ends a communicator, or aborts it, on a thread that is left behind if it takes too long. */
void qdri_nccl_close(ncclComm_t handle, int aborts);

typedef struct nccl_call {
    nccl_comm *comm;
    const qdri_coll *coll;
    qdr_stream *stream;
    cudaStream_t on;
    ncclComm_t handle;
    ncclDataType_t type;
    ncclRedOp_t op;
    void *staging;
} nccl_call;

/* nccl_coll.c */
QDR_NODISCARD qdr_status qdri_nccl_enqueue(const nccl_call *c);
/* How much of it is member j's, and where that begins. */
int64_t qdri_nccl_part(const nccl_call *c, int j, int64_t *begin);

/* nccl_memory.c */
/* Lets NCCL give the memory of collectives, and register it, where it can on all ranks. */
QDR_NODISCARD qdr_status qdri_nccl_memory_open(qdri_comm *host, nccl_comm *root);
void qdri_nccl_memory_close(nccl_comm *root);
/* Registers what the family has with a new communicator; and ends that. handle: NCCL's, or NULL after it was
 * aborted. */
QDR_NODISCARD qdr_status qdri_nccl_memory_join(nccl_comm *comm, const nccl_comm *root);
void qdri_nccl_memory_leave(nccl_comm *comm, ncclComm_t handle);
/* Whether that lies in registered memory. */
int qdri_nccl_memory_has(const nccl_comm *comm, const void *data);

/* nccl_aside.c: staging for what lies in registered memory, of a collective made of sends and receives; and run(), with
 * that behind the first `staged` bytes. */
size_t qdri_nccl_aside_bytes(const qdri_comm *comm, const qdri_coll *coll);
QDR_NODISCARD qdr_status qdri_nccl_run_aside(const nccl_call *c, size_t staged, qdr_status (*run)(const nccl_call *c));

/* The table's members; nccl_launch.c, nccl_coll.c */
qdr_status qdri_nccl_launch(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream);
size_t qdri_nccl_scratch_bytes(const qdri_comm *comm, const qdri_coll *coll);
void qdri_nccl_held_free(nccl_comm *comm); /* the streams are idle */

/* nccl_guard.c: one for a family. */
QDR_NODISCARD qdr_status qdri_nccl_guard_start(nccl_comm *root);
/* Any thread; does not wait. */
void qdri_nccl_guard_abort(nccl_guard *guard);
/* Where the family was given up: until nothing of it is NCCL's any more. @return 0: NCCL hangs */
int qdri_nccl_guard_wait(nccl_guard *guard);
/* @return 0: it hangs, and is left with what it uses */
int qdri_nccl_guard_stop(nccl_guard *guard);

/* nccl_watch.c */
void qdri_nccl_watch_init(nccl_watch *watch);
void qdri_nccl_watch_free(nccl_watch *watch);
/* Whether what is enqueued is recorded, to run later and again. */
int qdri_nccl_is_captured(qdr_stream *stream);
/* Around a launch. *watched: NULL where waits are not limited. */
QDR_NODISCARD qdr_status qdri_nccl_watch_begin(nccl_comm *comm, const qdri_coll *coll, qdr_stream *stream,
                                               nccl_watched **watched);
QDR_NODISCARD qdr_status qdri_nccl_watch_end(nccl_comm *comm, nccl_watched *watched, qdr_stream *stream);
/* @retval QDR_ERR_TIMEOUT  a collective has waited too long. The guard's. */
QDR_NODISCARD qdr_status qdri_nccl_watch_look(nccl_comm *comm);

#endif
