/* SPDX-License-Identifier: Apache-2.0 */
/* The look-out for calls of MPI: it speaks of one call that takes too long, once, and never of many short ones. */
#include "comm/mpi/lookout.h"

#include <stdatomic.h>

#include "dev/clock.h"
#include "qdr_test.h"

#define LIMIT_SECS 0.5

static atomic_int n_told;
static char said[512];

static void note(const char *sentence, void *user)
{
    snprintf(user, sizeof said, "%s", sentence);
    atomic_fetch_add(&n_told, 1);
}

static void sleep_for(double secs)
{
    nanosleep(&(struct timespec){.tv_sec = (long)secs, .tv_nsec = (long)(1e9 * (secs - (double)(long)secs))}, NULL);
}

FIXTURE(begin)
{
    atomic_store(&n_told, 0);
    qdri_lookout_begin(LIMIT_SECS, note, said);
    return 0;
}

FIXTURE(end)
{
    qdri_lookout_end();
    return 0;
}

/* Nearly all looks find a call, but each another one. */
TEST_IN(many_calls_are_no_long_one, begin, end)
{
    const int64_t begun_ns = qdri_now_ns();
    while (qdri_now_ns() - begun_ns < (int64_t)(4e9 * LIMIT_SECS)) {
        qdri_mpi_enter("MPI_Short");
        sleep_for(0.005);
        (void)qdri_mpi_left(0);
    }
    assert_int_equal(atomic_load(&n_told), 0);
}

/* The second one, which follows at once, has its own time. */
TEST_IN(each_long_call_is_told_once, begin, end)
{
    static const char *const names[] = {"MPI_First", "MPI_Second"};
    for (int i = 0; i < 2; i++) {
        const int64_t begun_ns = qdri_now_ns();
        qdri_mpi_enter(names[i]);
        while (atomic_load(&n_told) == i && qdri_now_ns() - begun_ns < INT64_C(30000000000)) sleep_for(0.01);
        assert_true(qdri_now_ns() - begun_ns >= (int64_t)(1e9 * LIMIT_SECS));
        sleep_for(2 * LIMIT_SECS);
        assert_int_equal(atomic_load(&n_told), i + 1);
        assert_non_null(strstr(said, names[i]));
        assert_non_null(strstr(said, "has waited 0.5 s"));
        (void)qdri_mpi_left(0);
    }
}

TEST_IN(without_a_limit_none_is, begin, end)
{
    qdri_lookout_set_limit(0);
    qdri_mpi_enter("MPI_Long");
    sleep_for(3 * LIMIT_SECS);
    assert_int_equal(qdri_mpi_left(7), 7);
    assert_int_equal(atomic_load(&n_told), 0);
}
