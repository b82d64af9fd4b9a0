/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the `nccl` backend: nccl*.c are the only ones that include <nccl.h>, and are part of the CUDA
 * plugin.
 *
 * A communicator is based on a host communicator, which is used for agreements, small messages and failure notes; only
 * collectives use NCCL. Each family has a stem, a communicator that is created without blocking, so that waiting for
 * missing ranks is limited in time, and that never runs a collective. The communicators that run collectives are split
 * from it and are blocking, because NCCL starts a thread for every launch on a non-blocking one. After that, everything
 * that may wait for other ranks (connections made at first use, collectives themselves) is monitored by a thread of the
 * family, the guard, which also aborts communicators, so that no other thread waits for an abort. */
#ifndef QDRI_COMM_NCCL_INTERNAL_H
#define QDRI_COMM_NCCL_INTERNAL_H

#include <nccl.h>
#include <pthread.h>

#include "comm/cuda_plugin.h"
#include "comm/internal.h"
#include "dev/cuda/cuda.h"

typedef struct nccl_guard nccl_guard;
typedef struct nccl_watched nccl_watched;
typedef struct nccl_staged nccl_staged;
typedef struct nccl_block nccl_block;
typedef struct nccl_registered nccl_registered;

/* Collectives in progress, the oldest first; recorded only if waits have a time limit. */
typedef struct nccl_watch {
    pthread_mutex_t mutex;
    nccl_watched *first, *last, *spare;
} nccl_watch;

typedef struct nccl_comm {
    qdri_comm base;
    qdri_comm *host;
    ncclComm_t stem; /* in the family's root, and in parts of parts; else NULL. Protected by `calls`, as is: */
    _Atomic(ncclComm_t) handle; /* NULL: a group of one, or given up */
    ncclComm_t place; /* where NCCL stores a communicator being split off, from a thread of its own */
    pthread_mutex_t calls; /* locked during calls of NCCL that may wait */
    int max_ctas;
    nccl_guard *guard; /* shared by the family */
    int is_left; /* the guard hangs and still refers to this communicator */
    nccl_watch watch;
    nccl_staged *staged; /* staging of collectives in progress */
    nccl_registered *registered; /* memory; protected by `calls` */
    int registers; /* root only: the family registers memory */
    nccl_block *blocks; /* root only: registered blocks */
} nccl_comm;

/* A member of a family whose root is of NCCL; NULL: it has one rank, and needs no NCCL. */
static inline nccl_comm *qdri_nccl_of(qdri_comm *comm)
{
    return comm->table == comm->root->table ? (nccl_comm *)comm : NULL;
}

/* join.c */
/* The host communicator, with this communicator's names and time limit. */
qdri_comm *qdri_nccl_host(const nccl_comm *comm);
/* QDR_OK, or fails with NCCL's error for `call` ("ncclAllReduce"). */
qdr_status qdri_nccl_status(ncclComm_t handle, ncclResult_t result, const char *call);
QDR_NODISCARD qdr_status qdri_nccl_fits(qdri_comm *host, qdri_dev *dev);
/* The most SMs that a collective takes: sends and receives take the next power of two, whatever maxCTAs says
 * (p2pnChannels in NCCL's graph/paths.cc). */
int qdri_nccl_sms(int max_ctas);
/* What each of n_parts communicators may use of max_ctas: less than all if the grid has levels on all axes. */
int qdri_nccl_part_ctas(int max_ctas, int n_parts);
/* Compares versions, reads the settings in rank 0's environment, and makes NCCL's kernels start in launch order: to be
 * called before there are communicators. Collective, like the functions below. */
QDR_NODISCARD qdr_status qdri_nccl_prepare(qdri_comm *host, qdri_dev *dev, int *max_ctas);
/* Whether the program had loaded NCCL before the plugin. */
void qdri_nccl_note_before(int is_loaded);
/* Creates a stem for the members of `host`; NULL for a group of one. */
QDR_NODISCARD qdr_status qdri_nccl_open_stem(qdri_comm *host, const qdri_dev *dev, ncclComm_t *stem);
/* Splits comm->handle off a stem whose ranks are those of talker; colour < 0: none. After a failure the stem can no
 * longer be used. */
QDR_NODISCARD qdr_status qdri_nccl_split_off(qdri_comm *talker, ncclComm_t stem, int colour, nccl_comm *comm);
/* Makes the communicator that a split has left in comm->place the handle. */
void qdri_nccl_adopt(nccl_comm *comm);
/* Waits until a call on a non-blocking communicator, or one that behaves as such, has completed. */
QDR_NODISCARD qdr_status qdri_nccl_settle(qdri_comm *talker, ncclComm_t handle, const ncclComm_t *place,
                                          const char *call);
/* Destroys or aborts a communicator, on a thread that is abandoned if this takes too long. @return 0: it is */
int qdri_nccl_close(const qdri_dev *dev, ncclComm_t handle, int aborts);

/* share.c: whether no two ranks of a node are on one GPU, or may be. Sets dev->n_sharing. */
QDR_NODISCARD qdr_status qdri_nccl_check_sharing(qdri_comm *host, qdri_cuda_dev *dev, int version);

/* memory.c */
/* Lets NCCL allocate and register the memory of collectives, if all ranks can. */
QDR_NODISCARD qdr_status qdri_nccl_memory_open(qdri_comm *host, nccl_comm *root);
/* Registers the family's memory with a new communicator; and deregisters it. handle: NCCL's, or NULL if it was
 * aborted. */
QDR_NODISCARD qdr_status qdri_nccl_memory_join(nccl_comm *comm, const nccl_comm *root);
void qdri_nccl_memory_leave(nccl_comm *comm, ncclComm_t handle);
/* Whether `data` is in registered memory. */
int qdri_nccl_memory_has(const nccl_comm *comm, const void *data);

/* coll.c: members of the function table */
qdr_status qdri_nccl_launch(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream);
size_t qdri_nccl_scratch_bytes(const qdri_comm *comm, const qdri_coll *coll);
void qdri_nccl_staged_free(nccl_comm *comm); /* the streams are idle */

/* guard.c: one guard per family. */
QDR_NODISCARD qdr_status qdri_nccl_guard_start(nccl_comm *root);
/* Any thread; does not wait. */
void qdri_nccl_guard_abort(nccl_guard *guard);
/* If the family was given up: waits until NCCL uses nothing of it any more. @return 0: NCCL hangs */
int qdri_nccl_guard_wait(nccl_guard *guard);
/* @return 0: it hangs, and is abandoned with everything it uses */
int qdri_nccl_guard_stop(nccl_guard *guard);

void qdri_nccl_watch_init(nccl_watch *watch);
void qdri_nccl_watch_free(nccl_watch *watch);
/* Whether the stream is being captured, so that work on it runs later and repeatedly. */
int qdri_nccl_is_captured(qdr_stream *stream);
/* Called before and after a launch. *watched: NULL if waits have no time limit. */
QDR_NODISCARD qdr_status qdri_nccl_watch_begin(nccl_comm *comm, const qdri_coll *coll, qdr_stream *stream,
                                               nccl_watched **watched);
QDR_NODISCARD qdr_status qdri_nccl_watch_end(nccl_comm *comm, nccl_watched *watched, qdr_stream *stream);

#endif
