/* SPDX-License-Identifier: Apache-2.0 */
/* Barriers of ranks on threads: whose memory is read, and until when. */
#include "comm/local/local.h"

#include <pthread.h>

#include "qdr_test.h"

enum {
    N_MEMBERS = 3,
    ROOT = 1,
    BYTES = 32 << 20, /* takes milliseconds to copy */
    N_TRIES = 10,
    SENT = 7,
    AFTERWARDS = 9
};

typedef struct member {
    qdri_barrier *barrier;
    qdri_comm comm;
    unsigned char *data;
    qdr_status status;
} member;

/* The root's memory is its own again when the broadcast returns, whatever it returns. */
static void *take_part(void *user)
{
    member *m = user;
    m->status = qdri_barrier_broadcast(m->barrier, &m->comm, ROOT, m->data, BYTES);
    if (m->comm.rank == ROOT) memset(m->data, AFTERWARDS, BYTES);
    return NULL;
}

static int count_bytes(const unsigned char *data, int value)
{
    int n = 0;
    for (size_t i = 0; i < BYTES; i++) n += data[i] == value;
    return n;
}

/* Returns how many members had the broadcast succeed; given up after so many microseconds. */
static int broadcast_once(unsigned char *data[N_MEMBERS], unsigned give_up_us)
{
    qdri_barrier barrier;
    assert_int_equal(qdri_barrier_init(&barrier, N_MEMBERS), QDR_OK);
    member members[N_MEMBERS];
    pthread_t threads[N_MEMBERS];
    for (int j = 0; j < N_MEMBERS; j++) {
        memset(data[j], j == ROOT ? SENT : 0, BYTES);
        members[j] = (member){&barrier, {.rank = j, .size = N_MEMBERS}, data[j], QDR_OK};
        members[j].comm.root = &members[j].comm;
    }
    for (int j = 0; j < N_MEMBERS; j++) assert_int_equal(pthread_create(&threads[j], NULL, take_part, &members[j]), 0);
    if (give_up_us > 0) {
        const struct timespec pause = {.tv_nsec = 1000L * give_up_us};
        nanosleep(&pause, NULL);
        qdri_barrier_give_up(&barrier, "someone has left");
    }
    int n_ok = 0;
    for (int j = 0; j < N_MEMBERS; j++) {
        pthread_join(threads[j], NULL);
        n_ok += members[j].status == QDR_OK;
        if (members[j].status != QDR_OK) assert_int_equal(members[j].status, QDR_ERR_PEER);
    }
    qdri_barrier_free(&barrier);
    return n_ok;
}

TEST(all_have_what_the_root_sent)
{
    unsigned char **data = *state;
    assert_int_equal(broadcast_once(data, 0), N_MEMBERS);
    for (int j = 0; j < N_MEMBERS; j++) assert_int_equal(count_bytes(data[j], j == ROOT ? AFTERWARDS : SENT), BYTES);
}

TEST(a_broadcast_given_up_lets_nobody_read_what_the_root_writes_next)
{
    unsigned char **data = *state;
    for (unsigned try = 1; try <= N_TRIES; try++) {
        broadcast_once(data, 300 * try);
        for (int j = 0; j < N_MEMBERS; j++)
            if (j != ROOT) assert_int_equal(count_bytes(data[j], AFTERWARDS), 0);
    }
}

/* ---- members that do not do the same ---- */

typedef struct stray {
    qdri_barrier *barrier;
    qdri_comm comm;
    int root; /* -1: agrees */
    size_t bytes;
    qdr_status status;
    char sentence[QDRI_ERROR_BYTES];
} stray;

static void *do_as_told(void *user)
{
    stray *m = user;
    int data[4] = {m->comm.rank};
    m->status = m->root < 0 ? qdri_barrier_agree(m->barrier, m->comm.rank, &m->comm, QDR_OK)
                            : qdri_barrier_broadcast(m->barrier, &m->comm, m->root, data, m->bytes);
    strncpy(m->sentence, qdr_last_error(), sizeof m->sentence - 1);
    if (m->status == QDR_ERR_ARGUMENT && qdri_barrier_agree(m->barrier, m->comm.rank, &m->comm, QDR_OK) != QDR_OK)
        m->status = QDR_ERR_STATE; /* they could not go on */
    return NULL;
}

/* Member 2 does something else than the others, which broadcast 16 bytes from member 0. */
static void expect_all_told(int root, size_t bytes, const char *words)
{
    qdri_barrier barrier;
    assert_int_equal(qdri_barrier_init(&barrier, N_MEMBERS), QDR_OK);
    stray members[N_MEMBERS];
    pthread_t threads[N_MEMBERS];
    for (int j = 0; j < N_MEMBERS; j++) {
        members[j] = (stray){&barrier, {.rank = j, .size = N_MEMBERS}, j == 2 ? root : 0, j == 2 ? bytes : 16, QDR_OK,
                             ""};
        members[j].comm.root = &members[j].comm;
    }
    for (int j = 0; j < N_MEMBERS; j++) assert_int_equal(pthread_create(&threads[j], NULL, do_as_told, &members[j]), 0);
    for (int j = 0; j < N_MEMBERS; j++) {
        pthread_join(threads[j], NULL);
        assert_int_equal(members[j].status, QDR_ERR_ARGUMENT);
        assert_non_null(strstr(members[j].sentence, words));
    }
    qdri_barrier_free(&barrier);
}

TEST(a_broadcast_that_differs_fails_on_all)
{
    expect_all_told(1, 16, "from root 0 on rank 0, 16 bytes from root 1 on rank 2");
    expect_all_told(2, 16, "from root 0 on rank 0, 16 bytes from root 2 on rank 2");
    expect_all_told(0, 4, "16 bytes from root 0 on rank 0, 4 bytes");
}

TEST(a_broadcast_meets_no_agreement) { expect_all_told(-1, 0, "rank 0 is in a broadcast, rank 2 in an agreement"); }

static int take_memory(void **state)
{
    static unsigned char *data[N_MEMBERS];
    for (int j = 0; j < N_MEMBERS; j++) {
        data[j] = malloc(BYTES);
        if (!data[j]) return -1;
    }
    *state = data;
    return 0;
}

static int give_memory_back(void **state)
{
    unsigned char **data = *state;
    for (int j = 0; j < N_MEMBERS; j++) free(data[j]);
    return 0;
}

int main(void) { return run_all_tests(take_memory, give_memory_back); }
