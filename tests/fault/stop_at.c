/* SPDX-License-Identifier: Apache-2.0 */
/* To be preloaded: the process of rank QDR_TEST_STOP_RANK stops itself before it makes the call of MPI that
 * QDR_TEST_STOP_AT names: "MPI_Comm_split 2", the second one, "end 1", when MPI_Finalize has returned, "any 17", the
 * 17th of all, or "waits 17", the same without those that only look whether something has arrived, whose number
 * varies. QDR_TEST_STOP_AT=count: says on standard error at its last call how many there were: "calls 512 without
 * looks 93". */
#include <mpi.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_long n_calls, n_waits, n_named;

static int is_look(const char *call) { return strncmp(call, "MPI_Test", 8) == 0 || strcmp(call, "MPI_Improbe") == 0; }

static void enter(const char *call)
{
    const char *wanted = getenv("QDR_TEST_STOP_AT"), *rank = getenv("QDR_TEST_STOP_RANK"), *own = getenv("PMI_RANK");
    if (!wanted || !rank || !own || strcmp(rank, own) != 0) return;
    const long number = atomic_fetch_add(&n_calls, 1) + 1;
    const long without = atomic_fetch_add(&n_waits, is_look(call) ? 0 : 1) + 1;
    const char *space = strchr(wanted, ' ');
    const size_t length = space ? (size_t)(space - wanted) : strlen(wanted);
    const long at = space ? strtol(space, NULL, 10) : 0;
    if (strcmp(wanted, "count") == 0 && strcmp(call, "MPI_Finalize") == 0)
        fprintf(stderr, "calls %ld without looks %ld\n", number, without);
    const int is_here = strncmp(wanted, "any", length) == 0     ? number == at
                        : strncmp(wanted, "waits", length) == 0 ? !is_look(call) && without == at
                        : strlen(call) == length && strncmp(wanted, call, length) == 0
                            ? atomic_fetch_add(&n_named, 1) + 1 == at
                            : 0;
    if (!is_here) return;
    fprintf(stderr, "stops in %s\n", call);
    raise(SIGSTOP);
}

#define CALL(name, parameters, arguments)                                                                              \
    __attribute__((visibility("default"))) int MPI_##name parameters                                                   \
    {                                                                                                                  \
        enter("MPI_" #name);                                                                                           \
        return PMPI_##name arguments;                                                                                  \
    }

__attribute__((visibility("default"))) int MPI_Finalize(void)
{
    enter("MPI_Finalize");
    const int code = PMPI_Finalize();
    enter("end");
    return code;
}

CALL(Barrier, (MPI_Comm a), (a))
CALL(Cancel, (MPI_Request * a), (a))
CALL(Comm_free, (MPI_Comm * a), (a))
CALL(Comm_group, (MPI_Comm a, MPI_Group *b), (a, b))
CALL(Comm_idup, (MPI_Comm a, MPI_Comm *b, MPI_Request *c), (a, b, c))
CALL(Comm_rank, (MPI_Comm a, int *b), (a, b))
CALL(Comm_size, (MPI_Comm a, int *b), (a, b))
CALL(Comm_set_errhandler, (MPI_Comm a, MPI_Errhandler b), (a, b))
CALL(Comm_split, (MPI_Comm a, int b, int c, MPI_Comm *d), (a, b, c, d))
CALL(Comm_split_type, (MPI_Comm a, int b, int c, MPI_Info d, MPI_Comm *e), (a, b, c, d, e))
CALL(Comm_test_inter, (MPI_Comm a, int *b), (a, b))
CALL(Group_free, (MPI_Group * a), (a))
CALL(Ibarrier, (MPI_Comm a, MPI_Request *b), (a, b))
CALL(Improbe, (int a, int b, MPI_Comm c, int *d, MPI_Message *e, MPI_Status *f), (a, b, c, d, e, f))
CALL(Init_thread, (int *a, char ***b, int c, int *d), (a, b, c, d))
CALL(Mrecv, (void *a, int b, MPI_Datatype c, MPI_Message *d, MPI_Status *e), (a, b, c, d, e))
CALL(Query_thread, (int *a), (a))
CALL(Test, (MPI_Request * a, int *b, MPI_Status *c), (a, b, c))
CALL(Testall, (int a, MPI_Request b[], int *c, MPI_Status d[]), (a, b, c, d))
CALL(Testsome, (int a, MPI_Request b[], int *c, int d[], MPI_Status e[]), (a, b, c, d, e))
CALL(Allreduce, (const void *a, void *b, int c, MPI_Datatype d, MPI_Op e, MPI_Comm f), (a, b, c, d, e, f))
CALL(Iallreduce, (const void *a, void *b, int c, MPI_Datatype d, MPI_Op e, MPI_Comm f, MPI_Request *g),
     (a, b, c, d, e, f, g))
CALL(Iallgather, (const void *a, int b, MPI_Datatype c, void *d, int e, MPI_Datatype f, MPI_Comm g, MPI_Request *h),
     (a, b, c, d, e, f, g, h))
CALL(Ibcast, (void *a, int b, MPI_Datatype c, int d, MPI_Comm e, MPI_Request *f), (a, b, c, d, e, f))
CALL(Isend, (const void *a, int b, MPI_Datatype c, int d, int e, MPI_Comm f, MPI_Request *g), (a, b, c, d, e, f, g))
CALL(Irecv, (void *a, int b, MPI_Datatype c, int d, int e, MPI_Comm f, MPI_Request *g), (a, b, c, d, e, f, g))
CALL(Sendrecv,
     (const void *a, int b, MPI_Datatype c, int d, int e, void *f, int g, MPI_Datatype h, int i, int j, MPI_Comm k,
      MPI_Status *l),
     (a, b, c, d, e, f, g, h, i, j, k, l))
