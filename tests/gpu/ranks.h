/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of ranks.c: its communicators, its numbers, and collectives with known results. Each function ends the
 * rank with a sentence and exit code 1 if anything is wrong. */
#ifndef QDR_TESTS_GPU_RANKS_H
#define QDR_TESTS_GPU_RANKS_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdatomic.h>

#include "common/team.h"

enum { N_PARTS = 2, MOST_ELEMS = 1 << 20, NO_GPU = 77 /* exit code */ };
enum { ALL_REDUCE, MAXIMUM, MINIMUM, REDUCE_SCATTER, ALL_GATHER, BROADCAST, ALL_TO_ALL, RING, N_KINDS };

typedef struct program {
    int n, as_threads, max_ctas, is_short;
} program;

typedef struct rank {
    team *team;
    int number, n, device, version; /* of NCCL */
    const program *given;
    struct gpu_report *report; /* of rank 0, else NULL */
    ncclComm_t stem, parts[N_PARTS];
    cudaStream_t streams[N_PARTS];
    float *from[N_PARTS], *to[N_PARTS]; /* of the GPU */
    float *host; /* MOST_ELEMS */
    cudaEvent_t fork, join;
    atomic_int is_over; /* abort_all() has ended */
} rank;

#define NCCL_OK(call) check_nccl((call), #call)
void check(int is_right, const char *what, const char *why);
void check_nccl(ncclResult_t result, const char *what);
void pause_ms(int ms);
void meet(rank *self);

/* What ranks on one GPU need in the environment, before CUDA or NCCL is called. */
void set_environment(const program *given);
/* Chooses the GPU, and allocates everything but communicators. */
void rank_begin(rank *self);
void rank_end(rank *self);

void make_stem(rank *self);
void split_off(rank *self, int i);
void end_all(rank *self);
/* Aborts all communicators of a rank as one group; sets is_over. For pthread_create(). */
void *abort_all(void *user);

const char *kind_name(int kind);
/* Writes what a collective of n elements needs (of ALL_TO_ALL, REDUCE_SCATTER: n for each rank), and NaN where its
 * result goes. Waits. */
void fill(rank *self, int i, int kind, size_t n);
void run_kind(rank *self, int kind, int i, size_t n);
/* The first n elements of the result, on the host. Waits. */
const float *take(rank *self, int i, size_t n);
void expect(rank *self, int i, int kind, size_t n);
/* All-reduces of n elements on all parts. */
cudaGraphExec_t record(rank *self, size_t n);

#endif
