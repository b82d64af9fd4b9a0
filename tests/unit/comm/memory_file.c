/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that processes share through /proc: what another process sees, and what is impossible. */
#define _GNU_SOURCE /* memfd_create */
#include "comm/mpi/heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "qdr_test.h"

enum { BYTES = 300000 };

/* Runs fn(file) in a child; its exit code. */
static int in_child(int (*fn)(const memory_file *file), const memory_file *file)
{
    const pid_t child = fork();
    int status = -1;
    assert_true(child >= 0);
    if (child == 0) _exit(fn(file));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status)); /* no signal */
    return WEXITSTATUS(status);
}

/* The child closes what it inherited, so that /proc is its only way. */
static int add_one(const memory_file *file)
{
    close(file->number);
    char *seen = qdri_memory_file_map(file);
    if (!seen) return 1;
    for (int i = 0; i < BYTES; i++) seen[i] = (char)(seen[i] + 1);
    return 0;
}

TEST(another_process_sees_it)
{
    memory_file file;
    char *mine = qdri_memory_file_create(BYTES, &file);
    assert_non_null(mine);
    for (int i = 0; i < BYTES; i++) assert_int_equal(mine[i], 0);
    memset(mine, 41, BYTES);
    assert_int_equal(in_child(add_one, &file), 0);
    for (int i = 0; i < BYTES; i++) assert_int_equal(mine[i], 42);
    munmap(mine, BYTES);
    qdri_memory_file_close(&file);
}

TEST(only_the_very_file_is_mapped)
{
    memory_file file, other;
    char *mine = qdri_memory_file_create(BYTES, &file);
    char *more = qdri_memory_file_create(BYTES, &other);
    assert_non_null(mine);
    assert_non_null(more);
    memory_file wrong = file;
    wrong.number = other.number; /* the number was given to another file meanwhile */
    assert_null(qdri_memory_file_map(&wrong));
    wrong = file;
    wrong.bytes--;
    assert_null(qdri_memory_file_map(&wrong));
    wrong = file;
    wrong.process = 0x7ffffff0;
    assert_null(qdri_memory_file_map(&wrong));
    qdri_memory_file_close(&other);
    assert_null(qdri_memory_file_map(&other));
    munmap(mine, BYTES);
    munmap(more, BYTES);
    qdri_memory_file_close(&file);
}

/* Emptied, it takes no memory, though it is still mapped. */
TEST(emptied_it_takes_no_memory)
{
    memory_file file;
    char *mine = qdri_memory_file_create(BYTES, &file);
    assert_non_null(mine);
    memset(mine, 1, BYTES);
    qdri_memory_file_empty(&file);
    assert_int_equal(lseek(file.number, 0, SEEK_END), 0);
    munmap(mine, BYTES);
    qdri_memory_file_close(&file);
}

static int create_beyond_the_limit(const memory_file *unused)
{
    const struct rlimit limit = {BYTES / 2, BYTES / 2};
    memory_file file;
    (void)unused;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    return qdri_memory_file_create(BYTES, &file) != NULL;
}

static int create_without_numbers(const memory_file *unused)
{
    const struct rlimit limit = {3, 3};
    memory_file file;
    (void)unused;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 2;
    return qdri_memory_file_create(BYTES, &file) != NULL;
}

static int create_without_room(const memory_file *unused)
{
    const struct rlimit limit = {1 << 20, 1 << 20};
    memory_file file;
    (void)unused;
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 2;
    return qdri_memory_file_create(64 << 20, &file) != NULL;
}

static int create_too_much(const memory_file *unused)
{
    memory_file file;
    (void)unused;
    return qdri_memory_file_create((size_t)1 << 60, &file) != NULL;
}

/* Nothing, instead of a signal. */
TEST(limits_are_kept)
{
    assert_int_equal(in_child(create_beyond_the_limit, NULL), 0);
    assert_int_equal(in_child(create_without_numbers, NULL), 0);
    assert_int_equal(in_child(create_too_much, NULL), 0);
#if !defined(__SANITIZE_ADDRESS__)
    assert_int_equal(in_child(create_without_room, NULL), 0);
#else
    (void)create_without_room;
#endif
}
