/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the fake NCCL. One lock protects everything, one condition signals any change. */
#ifndef FAKE_CUDA_NCCL_INTERNAL_H
#define FAKE_CUDA_NCCL_INTERNAL_H

#include <nccl.h>

#include "internal.h"
#include "nccl_fake.h"

typedef enum op_kind { ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, BROADCAST, PAIRS } op_kind;

/* A send or a receive of a group, or the whole of a collective. */
typedef struct op_part {
    const void *send;
    void *recv;
    size_t count;
    int peer, is_send;
    int is_registered; /* bits: what it sends, where it receives */
} op_part;

/* What runs on a stream, copied with its parts. */
typedef struct nccl_op {
    ncclComm_t comm;
    op_kind kind;
    ncclDataType_t type;
    ncclRedOp_t red;
    int root, n_ctas, is_clustered, is_captured, fails;
    uint64_t ticket; /* of its GPU's order; 0: none */
    int n_parts;
    op_part parts[];
} nccl_op;

/* A collective while its members come: by the number that it has in its communicator. */
typedef struct meeting {
    struct meeting *next;
    uint64_t number;
    int n_here, n_gone, is_done, is_broken;
    const nccl_op **ops; /* by rank */
} meeting;

/* A send or receive that waits for its counterpart. */
typedef struct post {
    struct post *next;
    int from, to, is_send, is_done;
    ncclDataType_t type;
    const op_part *part;
} post;

typedef struct registration registration;

typedef struct splitting {
    struct splitting *next;
    uint64_t number;
    int n_here;
    struct split_seat {
        int colour, key, is_here;
        ncclComm_t *place;
        ncclConfig_t config;
    } * seats;
} splitting;

/* The members of a communicator, together. */
typedef struct clan {
    struct clan *next;
    char id[NCCL_UNIQUE_ID_BYTES];
    int size, n_here;
    ncclResult_t state; /* ncclInProgress until all are here */
    ncclComm_t *members;
    meeting *meetings;
    post *posts;
    splitting *splittings;
    unsigned *connected; /* [size][size]: bits: the kinds for which a member has asked for a connection to another */
} clan;

struct ncclComm {
    uint64_t magic;
    struct ncclComm *next, *next_ended; /* of all that ever were; of a group that ends */
    clan *of;
    int rank, device, blocking, is_sharing, max_ctas, cluster;
    int is_gone, is_aborted;
    ncclResult_t error; /* asynchronous */
    uint64_t n_collectives, n_splits, n_splits_done;
    int n_calls; /* threads that are in a call which waits for others */
    int n_enqueued, n_running;
    int n_in_graphs; /* collectives: NCCL ends the communicator when there are none */
};

/* An op that has come to its turn on its stream. */
typedef struct running {
    struct running *next;
    const nccl_op *op;
    uint64_t number; /* of its meeting */
    int priority; /* of its stream */
    int holds; /* its SMs */
    int can; /* end, as far as the search for a deadlock knows */
} running;
extern running *fake_nccl_running;

void fake_nccl_lock(void);
void fake_nccl_unlock(void);
void fake_nccl_wait(void); /* with the lock */
void fake_nccl_changed(void);

/* nccl_comm.c: 1 if it may be used; else a fault. With the lock. */
int fake_nccl_check(ncclComm_t comm, const char *call);

/* nccl_comm.c: waits for what this thread's group aborts. Without the lock. */
void fake_nccl_end_aborts(void);

/* nccl_turns.c: with the lock. */
uint64_t fake_nccl_ticket(int device); /* 0: order is not kept */
/* Waits for its turn and its SMs. 0: it was aborted. */
int fake_nccl_begin(running *run);
void fake_nccl_end(running *run);
/* Faults if what runs can never end. */
void fake_nccl_look_for_deadlock(void);

/* nccl_data.c: what a collective of all members does; with the lock. */
void fake_nccl_perform(const meeting *all, int size);
size_t fake_nccl_type_bytes(ncclDataType_t type);

/* nccl_register.c: with the lock. */
int fake_nccl_is_registered(ncclComm_t comm, const void *data, size_t bytes);
/* Forgets what the communicator knows. @return how much that was */
int fake_nccl_end_registrations(ncclComm_t comm);

/* nccl_comm.c: the GPU's entry in a variable such as "22809,22703", the last for the rest. */
int fake_nccl_setting(const char *name, int device, int otherwise);

/* nccl_run.c */
void fake_nccl_run(void *args);

#endif
