/* SPDX-License-Identifier: Apache-2.0 */
/* The harness itself: exactly the requested call fails, and the library's calls are counted. */
#define _GNU_SOURCE /* fallocate, flock, O_TMPFILE */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/size.h"
#include "fault/inject.h"
#include "qdr_test.h"

TEST(only_the_call_asked_for_fails)
{
    for (long n = 0; n < 3; n++) {
        void *memory[3];
        inject_begin(INJECT_MEMORY, n, INJECT_ONCE);
        for (int i = 0; i < 3; i++) {
            const qdr_status status = qdri_calloc(8, 1, "a test", &memory[i]);
            assert_int_equal(status, i == n ? QDR_ERR_MEMORY : QDR_OK);
        }
        assert_int_equal(inject_end(), 3);
        assert_true(inject_happened());
        for (int i = 0; i < 3; i++) free(memory[i]);
    }
}

TEST(later_calls_may_fail_too)
{
    void *memory[3] = {0};
    inject_begin(INJECT_MEMORY, 1, INJECT_ONWARDS);
    for (int i = 0; i < 3; i++) assert_int_equal(qdri_calloc(8, 1, "a test", &memory[i]), i ? QDR_ERR_MEMORY : QDR_OK);
    assert_int_equal(inject_end(), 3);
    free(memory[0]);
}

TEST(counting_fails_nothing)
{
    char *copy = NULL;
    inject_begin(INJECT_MEMORY | INJECT_THREAD, -1, INJECT_ONWARDS);
    CHECK_OK(qdri_strdup("text", &copy));
    assert_int_equal(inject_end(), 1);
    assert_false(inject_happened());
    free(copy);
}

static void *nothing(void *unused) { return unused; }

TEST(threads_fail_apart_from_memory)
{
    pthread_t thread;
    inject_begin(INJECT_THREAD, 0, INJECT_ONCE);
    void *memory = NULL;
    CHECK_OK(qdri_calloc(8, 1, "a test", &memory));
    assert_int_equal(pthread_create(&thread, NULL, nothing, NULL), EAGAIN);
    assert_int_equal(pthread_create(&thread, NULL, nothing, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(inject_end(), 2);
    free(memory);
}

/* Under the names that the wrappers have, or nothing would ever fail. */
TEST(file_calls_fail_as_asked)
{
    char letters[4] = "";
    const int file = open("/tmp", O_RDWR | O_TMPFILE, 0600);
    if (file < 0) skip(); /* not on every file system */
    inject_file_error(EIO, 0);
    inject_begin(INJECT_WRITE | INJECT_RESERVE | INJECT_TRUNCATE | INJECT_SYNC | INJECT_LOCK | INJECT_OPEN |
                     INJECT_RENAME | INJECT_LINK | INJECT_UNLINK | INJECT_READ,
                 0, INJECT_ONWARDS);
    assert_int_equal(pwrite(file, "abc", 3, 0), -1);
    assert_int_equal(errno, EIO);
    assert_int_equal(pread(file, letters, 3, 0), -1);
    assert_int_equal(fallocate(file, 0, 0, 3), -1);
    assert_int_equal(ftruncate(file, 3), -1);
    assert_int_equal(fsync(file), -1);
    assert_int_equal(fdatasync(file), -1);
    assert_int_equal(flock(file, LOCK_EX), -1);
    assert_int_equal(open("/", O_RDONLY), -1);
    assert_int_equal(openat(AT_FDCWD, "/", O_RDONLY), -1);
    assert_int_equal(renameat(AT_FDCWD, "/", AT_FDCWD, "/"), -1);
    assert_int_equal(linkat(AT_FDCWD, "/", AT_FDCWD, "/", 0), -1);
    assert_int_equal(unlinkat(AT_FDCWD, "/", 0), -1);
    assert_int_equal(inject_end(), 12);
    inject_file_error(0, 2);
    inject_begin(INJECT_WRITE | INJECT_READ, 0, INJECT_ONWARDS);
    assert_int_equal(pwrite(file, "abc", 3, 0), 2);
    assert_int_equal(pread(file, letters, 3, 0), 2);
    assert_int_equal(inject_end(), 2);
    assert_string_equal(letters, "ab");
    inject_file_error(EIO, 0);
    inject_begin(INJECT_CLOSE, 0, INJECT_ONWARDS);
    assert_int_equal(close(file), -1);
    assert_int_equal(inject_end(), 1);
    assert_int_equal(close(file), -1);
    assert_int_equal(errno, EBADF);
}
