/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that ranks of a node map from each other: two heaps in one process represent two ranks. */
#include "comm/mpi/heap.h"

#include <dirent.h>
#include <unistd.h>

#include "qdr_test.h"

enum { BYTES = 200000, N_BLOCKS = 3, N_ROUNDS = 50 };

typedef struct two_ranks {
    heap_share share; /* of rank 0 */
    mpi_heap *owner, *reader;
    qdri_mem_source source;
} two_ranks;

static void two_ranks_make(two_ranks *t)
{
    memset(t, 0, sizeof *t);
    CHECK_OK(qdri_mpi_heap_create(&t->share, 2, &t->owner));
    CHECK_OK(qdri_mpi_heap_create(&t->share, 2, &t->reader));
    t->source = qdri_mpi_heap_source(t->owner);
}

static void two_ranks_free(two_ranks *t)
{
    qdri_mpi_heap_leave(t->reader);
    qdri_mpi_heap_leave(t->owner);
}

/* The text at `seen`; a page of a file that has been cut off is an error of the call, and no signal. */
static void check_text(const char *seen, const char *expected)
{
    char text[16] = "";
    int ends[2];
    assert_non_null(seen);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], seen, sizeof text), sizeof text);
    assert_int_equal(read(ends[0], text, sizeof text), sizeof text);
    close(ends[0]);
    close(ends[1]);
    assert_string_equal(text, expected);
}

/* What the reader sees of the owner's memory at p. */
static const char *see(const two_ranks *t, const char *p)
{
    const heap_range place = qdri_mpi_heap_find(t->owner, p, 16);
    assert_true(place.generation > 0);
    return qdri_mpi_heap_map(t->reader, &t->share, 0, &place);
}

/* A block that takes the place of another is not the other, whatever is mapped already. */
TEST(memory_that_is_freed_and_taken_again_is_mapped_anew)
{
    two_ranks t;
    two_ranks_make(&t);
    for (int round = 0; round < N_ROUNDS; round++) {
        char *blocks[N_BLOCKS], text[32];
        for (int i = 0; i < N_BLOCKS; i++) {
            blocks[i] = t.source.alloc(t.source.user, BYTES);
            assert_non_null(blocks[i]);
            snprintf(blocks[i] + 1000 * round, sizeof text, "%d of %d", i, round);
        }
        for (int i = N_BLOCKS - 1; i >= 0; i--) {
            snprintf(text, sizeof text, "%d of %d", i, round);
            check_text(see(&t, blocks[i] + 1000 * round), text);
        }
        /* in another order each time, so that places change owners */
        for (int i = 0; i < N_BLOCKS; i++) t.source.free(t.source.user, blocks[(i + round) % N_BLOCKS]);
    }
    two_ranks_free(&t);
}

static int count_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;
    assert_non_null(folder);
    while (readdir(folder)) n++;
    closedir(folder);
    return n;
}

TEST(files_are_closed)
{
    two_ranks t;
    const int before = count_files();
    two_ranks_make(&t);
    char *first = t.source.alloc(t.source.user, BYTES), *last = t.source.alloc(t.source.user, BYTES);
    assert_non_null(first);
    assert_non_null(last);
    assert_non_null(see(&t, first));
    assert_int_equal(count_files(), before + 2); /* who maps a block keeps no file */
    t.source.free(t.source.user, first);
    assert_int_equal(count_files(), before + 1);
    two_ranks_free(&t);
    t.source.free(t.source.user, last); /* a block may outlive its heap's world */
    assert_int_equal(count_files(), before);
}
