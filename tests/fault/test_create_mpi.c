/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts on MPI, and parts of their worlds, while the n-th allocation of one rank fails, for every n: all ranks get
 * the same error, none waits forever, and nothing is leaked (leak checkers are active).
 *
 *   fault_create_mpi [--reordered] [--messages]     under mpiexec. --reordered: fault/cases.h; --messages: no
 *                                                   shared memory */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/mpi/mpi.h"
#include "fault/cases.h"
#include "fault/inject.h"
#include "grid/internal.h"
#include "quadrille/quadrille.h"

enum { MOST_RANKS = 8, MOST_CALLS = 2000, LONGEST_ROUND_SECS = 60 };

typedef struct outcome {
    int status, has_failed; /* has_failed: an allocation has */
    char sentence[512];
} outcome;

typedef struct trial {
    MPI_Comm comm;
    int rank, size;
    int failing_rank;
    long n; /* the allocation that fails */
    qdr_context *ctx; /* NULL: it is what is made */
    int n_parts; /* of its world */
} trial;

static const trial *current;

/* Of a round that nobody comes out of. */
static void complain(int number)
{
    char text[160];
    (void)number;
    const int length = snprintf(text, sizeof text, "allocation %ld of rank %d: rank %d waits forever\n", current->n,
                                current->failing_rank, current->rank);
    if (write(STDERR_FILENO, text, (size_t)length) == length) _exit(1);
    _exit(2);
}

/* What fails: making the context, or a part of the world of one that has been made. */
static qdr_status create(const trial *t, qdr_context **ctx, qdri_comm **part)
{
    if (!t->ctx) return qdr_context_create_mpi(t->comm, NULL, ctx);
    return qdri_comm_split(qdri_context_world(t->ctx), t->rank % t->n_parts, t->rank, part);
}

/* What has been made works. */
static qdr_status use(const trial *t, qdr_context *ctx, qdri_comm *part)
{
    float sums[2] = {1, (float)t->rank};
    const qdri_coll coll = {.kind = QDR_ALL_REDUCE, .recv = sums, .count = 2};
    if (ctx) return qdr_barrier(ctx);
    qdr_status status = qdri_comm_launch(part, &coll, qdr_context_stream(t->ctx));
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(t->ctx));
    return status == QDR_OK && sums[0] != (float)qdri_comm_size(part) ? QDR_ERR_STATE : status;
}

static outcome run(const trial *t)
{
    outcome mine = {.status = QDR_OK};
    qdr_context *ctx = NULL;
    qdri_comm *part = NULL;
    if (t->rank == t->failing_rank) inject_begin(INJECT_MEMORY, t->n, INJECT_ONCE);
    mine.status = create(t, &ctx, &part);
    if (t->rank == t->failing_rank) mine.has_failed = inject_happened();
    inject_end();
    if (mine.status == QDR_OK) mine.status = use(t, ctx, part);
    if (mine.status != QDR_OK) snprintf(mine.sentence, sizeof mine.sentence, "%s", qdr_last_error());
    qdri_comm_destroy(&part);
    qdr_context_destroy(&ctx);
    return mine;
}

/* All ranks have the same error, with a sentence, if an allocation has failed, and else none. @return 1: so it is */
static int check(const trial *t, const outcome *all)
{
    const int has_failed = all[t->failing_rank].has_failed;
    int right = 1;
    for (int j = 0; j < t->size; j++) {
        right &= all[j].status == (has_failed ? QDR_ERR_MEMORY : QDR_OK);
        right &= strcmp(all[j].sentence, all[0].sentence) == 0 && (strlen(all[j].sentence) > 10) == has_failed;
    }
    for (int j = 0; j < t->size && !right && t->rank == 0; j++)
        fprintf(stderr, "allocation %ld of rank %d: rank %d got %s: \"%s\"\n", t->n, t->failing_rank, j,
                qdr_status_name((qdr_status)all[j].status), all[j].sentence);
    return right;
}

/* Each allocation of one rank. @return 1: all went as they should */
static int fail_each(trial *t)
{
    outcome all[MOST_RANKS];
    for (t->n = 0; t->n < MOST_CALLS; t->n++) {
        alarm(LONGEST_ROUND_SECS);
        const outcome mine = run(t);
        MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, t->comm);
        if (!check(t, all)) return 0;
        if (!all[t->failing_rank].has_failed) break;
    }
    if (t->rank == 0) printf("%s: %ld allocations of rank %d\n", t->ctx ? "part" : "context", t->n, t->failing_rank);
    return t->n > 10 && t->n < MOST_CALLS;
}

/* All ranks in one part, which has levels if there are nodes; then two parts. */
static int fail_parts(trial *t)
{
    int right = qdr_context_create_mpi(t->comm, NULL, &t->ctx) == QDR_OK;
    for (t->n_parts = 1; t->n_parts <= 2 && right; t->n_parts++) {
        t->failing_rank = t->n_parts == 1 ? t->size - 1 : 0;
        right = fail_each(t);
    }
    qdr_context_destroy(&t->ctx);
    return right;
}

static int has_argument(int argc, char **argv, const char *word)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], word) == 0) return 1;
    return 0;
}

int main(int argc, char **argv)
{
    trial t = {.comm = MPI_COMM_WORLD};
    int provided = 0, right = 1;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    if (has_argument(argc, argv, "--reordered")) t.comm = reordered_world();
    if (has_argument(argc, argv, "--messages")) qdri_mpi_use_node_memory = 0;
    MPI_Comm_rank(t.comm, &t.rank);
    MPI_Comm_size(t.comm, &t.size);
    current = &t;
    signal(SIGALRM, complain);
    right = t.size <= MOST_RANKS && fail_each(&t) && fail_parts(&t);
    if (t.comm != MPI_COMM_WORLD) MPI_Comm_free(&t.comm);
    MPI_Finalize();
    return right ? 0 : 1;
}
