/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of a CPU device: threads that compute pieces of a kernel together with the thread that runs it, and sleep
 * otherwise. */
#ifndef QDRI_DEV_CPU_POOL_H
#define QDRI_DEV_CPU_POOL_H

#include <stdint.h>

#include "core/status.h"

typedef struct qdri_pool qdri_pool;

/* thread: 0 the one that called qdri_pool_run(); no two run at the same time under one number. */
typedef qdr_status (*qdri_piece_fn)(const void *user, int64_t piece, int thread);

/* Starts n_threads - 1 threads. Of one thread, *pool is NULL, which the other functions accept.
 * @retval QDR_ERR_THREAD  a thread could not be started; none is left
 * @retval QDR_ERR_MEMORY  too little memory, or address space */
QDR_NODISCARD qdr_status qdri_pool_create(int n_threads, qdri_pool **pool);
/* Ends the threads, sets *pool to NULL. Nothing may run in it. */
void qdri_pool_destroy(qdri_pool **pool);

/* Runs pieces 0 to n_pieces - 1, each once, on at most n_threads threads, and returns once all have run. They see what
 * the caller wrote, and round as it does; it sees what they wrote. Any thread; while a thread has the pool, any other
 * runs its pieces alone. After an error pieces that have not begun do not run.
 * @return the status of the first piece that failed, whose message the caller then has */
QDR_NODISCARD qdr_status qdri_pool_run(qdri_pool *pool, int n_threads, int64_t n_pieces, qdri_piece_fn fn,
                                       const void *user);

#endif
