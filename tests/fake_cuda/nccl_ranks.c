/* SPDX-License-Identifier: Apache-2.0 */
/* Four local ranks on GPUs, connected by NCCL, and their failures: each rank gets a status and a message, no rank
 * hangs, and the CPU remains usable.
 *
 *   nccl_ranks CASE STATUS [WORDS...] each rank's first failure has this status (or QDR_ERR_PEER), and its message
 *                                     contains the words; without a failure, the log does. What the log says of a
 *                                     GPU that ranks share, none of them has refused */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "quadrille/quadrille.h"

enum { RANKS = 4, ELEMS = 1000, COMPUTE_SECS = 6 };

static const char behind[] = "absent behind others";

typedef struct trial {
    const char *name;
    char **wanted;
    atomic_int n_failed;
} trial;

typedef struct rank {
    trial *trial;
    qdr_local_world *world;
    int number;
    qdr_context *ctx, *cpu; /* cpu: how ranks with callbacks talk; else NULL */
    qdr_grid *grid;
    float *data, values[2 * ELEMS]; /* on the GPU, and here */
} rank;

static int is_called(const rank *self, const char *name) { return strcmp(self->trial->name, name) == 0; }

/* ---- callbacks ---- */

static int boot_barrier(void *user)
{
    const rank *self = user;
    return qdr_barrier(self->cpu) != QDR_OK ? 1 : is_called(self, "boot-barrier") ? 7 : 0;
}

static int boot_broadcast(void *data, size_t bytes, int root, void *user)
{
    const rank *self = user;
    return qdr_broadcast(self->cpu, root, data, bytes) != QDR_OK ? 1 : is_called(self, "boot-broadcast") ? 8 : 0;
}

/* ---- steps of a rank ---- */

static const qdr_context_opts on_cpu = {QDR_INIT(qdr_context_opts), .n_threads = 1, .device = "cpu"};

static qdr_status make_context(rank *self)
{
    const qdr_boot boot = {QDR_INIT(qdr_boot), .broadcast = boot_broadcast, .barrier = boot_barrier, .user = self};
    const int is_other = is_called(self, "boot, one on the CPU") && self->number == 2;
    if (strncmp(self->trial->name, "boot", 4) != 0)
        return qdr_context_create_local(self->world, self->number, NULL, &self->ctx);
    const qdr_status status = qdr_context_create_local(self->world, self->number, &on_cpu, &self->cpu);
    if (status != QDR_OK) return status;
    return qdr_context_create_boot(self->number, RANKS, &boot, is_other ? &on_cpu : NULL, &self->ctx);
}

static qdr_status make(rank *self)
{
    void *memory = NULL;
    qdr_status status = make_context(self);
    if (status != QDR_OK) return status;
    status = qdr_grid_create(self->ctx, &(qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = 2, .y = 2, .z = 1, .d = 1},
                             &self->grid);
    if (status == QDR_OK) status = qdr_mem_alloc(self->ctx, 2 * ELEMS * sizeof(float), &memory);
    self->data = memory;
    return status;
}

static void unmake(rank *self)
{
    void *memory = self->data;
    if (self->ctx) qdr_mem_free(self->ctx, &memory);
    qdr_grid_destroy(&self->grid);
    qdr_context_destroy(&self->ctx);
    qdr_context_destroy(&self->cpu);
}

/* Over both axes the sum of all ranks' numbers, and twice that, scattered in uneven parts. */
static qdr_status enqueue(rank *self, qdr_stream *stream)
{
    static const int64_t counts[] = {600, 400};
    for (int axis = QDR_X; axis <= QDR_Y; axis++) {
        const qdr_status status = qdr_all_reduce(self->grid, (qdr_axis)axis, QDR_SUM, self->data, ELEMS, QDR_F32,
                                                 stream);
        if (status != QDR_OK) return status;
    }
    return qdr_reduce_scatter(self->grid, QDR_X, QDR_SUM, self->data, self->data + ELEMS,
                              counts[qdr_grid_coordinate(self->grid, QDR_X)], counts, QDR_F32, stream);
}

static int is_right(const rank *self)
{
    int right = 1;
    for (int i = 0; i < ELEMS; i++) right &= self->values[i] == 10;
    for (int i = 0; i < 400; i++) right &= self->values[ELEMS + i] == 20;
    return right;
}

/* Wrong sums come of a rank that failed, and before this one has heard of it; it will. */
static qdr_status hear(rank *self)
{
    for (int i = 0; i < 5000 && qdr_context_status(self->ctx) == QDR_OK; i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    const qdr_status status = qdr_stream_synchronize(qdr_context_stream(self->ctx));
    if (status != QDR_OK) return status;
    fprintf(stderr, "rank %d: wrong sum\n", self->number);
    return QDR_ERR_STATE;
}

static qdr_status add(rank *self)
{
    qdr_stream *stream = qdr_context_stream(self->ctx);
    for (int i = 0; i < 2 * ELEMS; i++) self->values[i] = i < ELEMS ? (float)(self->number + 1) : 0;
    qdr_status status = qdr_copy(self->ctx, self->data, self->values, sizeof self->values, stream);
    if (status == QDR_OK) status = enqueue(self, stream);
    if (status == QDR_OK) status = qdr_copy(self->ctx, self->values, self->data, sizeof self->values, stream);
    if (status == QDR_OK) status = qdr_stream_synchronize(stream);
    return status == QDR_OK && !is_right(self) ? hear(self) : status;
}

/* What a GPU computes in front of a collective is no wait for others, however long it lasts. */
static void compute(void *user)
{
    (void)user;
    nanosleep(&(struct timespec){.tv_sec = COMPUTE_SECS}, NULL);
}

static qdr_status compute_long(const rank *self)
{
    if (!is_called(self, "long work")) return QDR_OK;
    return qdr_stream_call(qdr_context_stream(self->ctx), compute, NULL);
}

/* In the trial of this name the last rank does not come to the next collective until all others have failed. */
static void stay_away(const rank *self, const char *name)
{
    const int is_absent = is_called(self, name) && self->number == RANKS - 1;
    while (is_absent && atomic_load(&self->trial->n_failed) < RANKS - 1)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
}

/* The kernels of two communicators wait for the last rank, one behind the other's: which of the two is in front depends
 * on the rank. Then the host waits, too, since all-gathers have to be connected. */
static qdr_status wait_behind(const rank *self)
{
    static const qdr_axis axes[] = {QDR_X, QDR_Y, QDR_X};
    qdr_stream *stream = qdr_context_stream(self->ctx);
    qdr_status status = QDR_OK;
    for (int i = 0; i < 3 && status == QDR_OK; i++)
        status = qdr_all_reduce(self->grid, axes[i], QDR_SUM, self->data, ELEMS, QDR_F32, stream);
    for (int i = 0; i < 2 && status == QDR_OK; i++)
        status = qdr_all_gather(self->grid, axes[i], self->data, self->data + ELEMS, ELEMS / 2, NULL, QDR_F32, stream);
    return status == QDR_OK ? qdr_stream_synchronize(stream) : status;
}

static qdr_status run_steps(rank *self)
{
    qdr_status status = make(self);
    if (status != QDR_OK) return status;
    stay_away(self, "absent");
    status = compute_long(self);
    if (status == QDR_OK) status = add(self);
    stay_away(self, behind);
    if (status == QDR_OK && is_called(self, behind)) return wait_behind(self);
    for (int i = 0; i < 20 && status == QDR_OK; i++) status = add(self);
    return status;
}

/* ---- a trial ---- */

static const char environment[] = "environment: ";
/* A variable was refused, as on every device. */
static _Thread_local int is_environment_refused;

static atomic_int is_logged, is_shared; /* the words are in a line of the log; a line says that ranks share a GPU */

static void look_at_log(int level, const char *line, void *user)
{
    if (level < 2) fprintf(stderr, "%s\n", line);
    if (user && strstr(line, user)) atomic_store(&is_logged, 1);
    if (strstr(line, "share the GPU at")) atomic_store(&is_shared, 1);
}

static int is_as_told(const rank *self, qdr_status status)
{
    char **wanted = self->trial->wanted;
    const char *name = qdr_status_name(status), *sentence = qdr_last_error();
    const int is_known = strcmp(name, wanted[0]) == 0 || (status == QDR_ERR_PEER && strcmp(wanted[0], "QDR_OK") != 0);
    int has_words = !wanted[1] || status != QDR_OK || atomic_load(&is_logged);
    for (char **words = wanted + 1; *words && status != QDR_OK; words++) has_words &= strstr(sentence, *words) != NULL;
    is_environment_refused = strncmp(sentence, environment, sizeof environment - 1) == 0;
    if (is_known && has_words) return 1;
    fprintf(stderr, "rank %d: %s, not %s: %s\n", self->number, name, wanted[0], sentence);
    return 0;
}

/* Or is refused for the same variable. */
static int cpu_works(qdr_local_world *world, int number)
{
    qdr_context *ctx = NULL;
    qdr_status status = qdr_context_create_local(world, number, &on_cpu, &ctx);
    if (status == QDR_OK) status = qdr_barrier(ctx);
    const int is_refused = strncmp(qdr_last_error(), environment, sizeof environment - 1) == 0;
    if (is_environment_refused) return status == QDR_ERR_ARGUMENT && is_refused;
    if (status != QDR_OK) fprintf(stderr, "on the CPU: %s\n", qdr_last_error());
    qdr_context_destroy(&ctx);
    return status == QDR_OK;
}

static int run_rank(qdr_local_world *world, int number, void *user)
{
    rank self = {.trial = user, .world = world, .number = number};
    const qdr_status status = run_steps(&self);
    int is_good = is_as_told(&self, status);
    if (status != QDR_OK) atomic_fetch_add(&self.trial->n_failed, 1);
    /* An illegal address may be found by a call that only this rank makes, an allocation. */
    const int is_own = status == QDR_ERR_UNSUPPORTED || is_called(&self, "an illegal address");
    if (status != QDR_OK && !is_own && self.ctx && qdr_context_status(self.ctx) == QDR_OK) {
        fprintf(stderr, "rank %d: the context is not poisoned\n", number);
        is_good = 0;
    }
    unmake(&self);
    return !(is_good && cpu_works(world, number));
}

int main(int argc, char **argv)
{
    int result = 1;
    if (argc < 3) return 2;
    trial all = {.name = argv[1], .wanted = argv + 2};
    qdr_set_log(look_at_log, argv[3]);
    const qdr_status status = qdr_local_run(RANKS, run_rank, &all, &result);
    if (status != QDR_OK) fprintf(stderr, "%s\n", qdr_last_error());
    const int is_lie = atomic_load(&is_shared) && strcmp(argv[2], "QDR_ERR_UNSUPPORTED") == 0;
    if (is_lie) fprintf(stderr, "ranks that may not share a GPU do so, says the log\n");
    return status != QDR_OK || result || is_lie;
}
