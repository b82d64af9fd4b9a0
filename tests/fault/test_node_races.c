/* SPDX-License-Identifier: Apache-2.0 */
/* Races between ranks that meet in a node's memory, simulated by one thread: the other member arrives at a chosen
 * moment, in the middle of a step of this one. */
#include "comm/mpi/internal.h"
#include "qdr_test.h"

/* When the other member comes. */
typedef enum moment { NEVER, BEFORE_SLEEPING, WHILE_LOOKING_AT_PEERS } moment;

typedef struct pair {
    mpi_comm comm;
    node_area *areas[2];
    float mine[4];
} pair;

static pair *current;
static moment comes;
static int given_up;

/* What the other member writes and says, as lib/comm/mpi/node_coll.c does. */
static void other_comes(moment now)
{
    if (comes != now) return;
    node_area *own = current->areas[1];
    own->calls[0] = current->areas[0]->calls[0];
    memcpy(own->slots[0], (const float[4]){10, 20, 30, 40}, 4 * sizeof(float));
    atomic_store(&own->n_own, 1);
    atomic_fetch_add(&current->areas[0]->n_entered, 1);
    comes = NEVER;
}

/* Called between the look at who has come and the sleep. */
int __wrap_qdri_waker_wake_event(const qdri_waker *waker);
int __wrap_qdri_waker_wake_event(const qdri_waker *waker)
{
    (void)waker;
    other_comes(BEFORE_SLEEPING);
    return 0;
}

int __wrap_qdri_mpi_given_up(mpi_comm *comm);
int __wrap_qdri_mpi_given_up(mpi_comm *comm)
{
    (void)comm;
    other_comes(WHILE_LOOKING_AT_PEERS);
    return given_up;
}

static pair *pair_make(void)
{
    static const qdri_comm_table table = {.name = "mpi"};
    pair *made = calloc(1, sizeof *made);
    assert_non_null(made);
    qdri_comm_init(&made->comm.base, &table, NULL, 0, 2, NULL);
    for (int j = 0; j < 2; j++) {
        made->areas[j] = aligned_alloc(64, sizeof(node_area));
        assert_non_null(made->areas[j]);
        memset(made->areas[j], 0, sizeof(node_area));
        made->areas[j]->n_members = 2;
    }
    made->comm.node.areas = made->areas;
    made->comm.node.in_use = 1;
    for (int i = 0; i < 4; i++) made->mine[i] = (float)(i + 1);
    return made;
}

static void pair_free(pair *p)
{
    for (int j = 0; j < 2; j++) free(p->areas[j]);
    pthread_mutex_destroy(&p->comm.base.family_mutex);
    free(p);
}

/* Steps of a sum of this member until it ends, or has begun to sleep. */
static qdr_status sum_until_asleep(pair *p)
{
    enum { MOST_STEPS = 1000 };
    qdri_coll_run run = {
        .comm = &p->comm.base,
        .coll = {.kind = QDR_ALL_REDUCE, .dtype = QDR_F32, .op = QDR_SUM, .recv = p->mine, .count = 4}};
    qdr_status status = QDR_PENDING;
    for (int i = 0; status == QDR_PENDING && i < MOST_STEPS; i++) {
        status = qdri_mpi_node_step(&run);
        if (status == QDR_PENDING && atomic_load(&p->areas[0]->waiting) > 0) break;
    }
    return status;
}

static void check_sum(const pair *p)
{
    for (int i = 0; i < 4; i++) assert_true(p->mine[i] == (float)(11 * (i + 1)));
}

/* Whoever is about to sleep asks once more: the last to come may have looked for sleepers before. */
TEST(who_comes_before_the_sleep_is_seen)
{
    current = pair_make();
    comes = BEFORE_SLEEPING;
    given_up = 0;
    assert_int_equal(sum_until_asleep(current), QDR_OK);
    check_sum(current);
    pair_free(current);
}

/* All have come, then somebody fails in what follows: this collective has all that it needs. */
TEST(who_comes_and_then_fails_has_come)
{
    current = pair_make();
    comes = WHILE_LOOKING_AT_PEERS;
    given_up = 1;
    assert_int_equal(sum_until_asleep(current), QDR_OK);
    check_sum(current);
    pair_free(current);
}

TEST(who_does_not_come_and_fails_is_not_waited_for)
{
    current = pair_make();
    comes = NEVER;
    given_up = 1;
    assert_int_equal(sum_until_asleep(current), QDR_ERR_PEER);
    pair_free(current);
}
