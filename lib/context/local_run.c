/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads of one process. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "core/size.h"
#include "quadrille/context.h"

enum { MAX_LOCAL_RANKS = 1024 };
enum { GATE_SHUT = 0, GATE_OPEN, GATE_CANCELLED };

/* Threads wait at the gate until all of them have started. */
typedef struct start_gate {
    pthread_mutex_t mutex;
    pthread_cond_t moved;
    int state;
} start_gate;

typedef struct local_rank {
    start_gate *gate;
    qdr_local_world *world;
    qdr_local_fn fn;
    void *user;
    pthread_t thread;
    int rank, result;
} local_rank;

static void *run_rank(void *user)
{
    local_rank *self = user;
    start_gate *gate = self->gate;
    pthread_mutex_lock(&gate->mutex);
    while (gate->state == GATE_SHUT) pthread_cond_wait(&gate->moved, &gate->mutex);
    const int state = gate->state;
    pthread_mutex_unlock(&gate->mutex);
    if (state == GATE_OPEN) {
        self->result = self->fn(self->world, self->rank, self->user);
        qdri_local_world_leave(self->world);
    }
    return NULL;
}

qdr_status qdr_local_run(int n, qdr_local_fn fn, void *user, int *result)
{
    start_gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, GATE_SHUT};
    qdr_local_world *world = NULL;
    local_rank *ranks = NULL;
    qdr_status status = QDR_OK;
    if (result) *result = 0;
    if (!fn) return QDR_FAIL(QDR_ERR_ARGUMENT, "local run: the function is NULL");
    if (n < 1 || n > MAX_LOCAL_RANKS)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "local run: %d ranks; use 1 to %d", n, MAX_LOCAL_RANKS);
    QDR_TRY_OUT(status, QDRI_NEW(n, "local ranks", &ranks));
    QDR_TRY_OUT(status, qdri_local_world_create(n, &world));
    for (int rank = 0; rank < n; rank++)
        ranks[rank] = (local_rank){.gate = &gate, .world = world, .fn = fn, .user = user, .rank = rank};
    int n_started = 0, code = 0;
    while (n_started < n && code == 0) {
        code = pthread_create(&ranks[n_started].thread, NULL, run_rank, &ranks[n_started]);
        n_started += code == 0;
    }
    pthread_mutex_lock(&gate.mutex);
    gate.state = code == 0 ? GATE_OPEN : GATE_CANCELLED; /* all threads run, or none */
    pthread_cond_broadcast(&gate.moved);
    pthread_mutex_unlock(&gate.mutex);
    for (int rank = 0; rank < n_started; rank++) pthread_join(ranks[rank].thread, NULL);
    if (code)
        status = QDR_FAIL(QDR_ERR_THREAD,
                          "local run: the thread of rank %d of %d could not be started (%s); use fewer "
                          "ranks, or raise the limits on threads (ulimit -u) and address space (ulimit -v)",
                          n_started, n, strerror(code));
    for (int rank = 0; status == QDR_OK && result && rank < n && *result == 0; rank++) *result = ranks[rank].result;
out:
    qdri_local_world_destroy(&world);
    free(ranks);
    return status;
}
