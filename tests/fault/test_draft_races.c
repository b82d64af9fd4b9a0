/* SPDX-License-Identifier: Apache-2.0 */
/* What another run may do to PATH.partial between the moment when this one opens it and its lock. */
#define _GNU_SOURCE /* flock, mkdtemp */
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/partial.h"
#include "qdr_test.h"

static char folder[] = "/tmp/quadrille-draft-XXXXXX", path[64], draft[80];
static void (*other_run)(void); /* runs before the next lock */
static int others; /* its file */

int __real_flock(int file, int operation);
int __wrap_flock(int file, int operation);

int __wrap_flock(int file, int operation)
{
    void (*run)(void) = other_run;
    other_run = NULL;
    if (run) run();
    return __real_flock(file, operation);
}

static void remove_draft(void) { assert_int_equal(unlink(draft), 0); }

static void make_draft(void)
{
    others = open(draft, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(others >= 0);
    assert_int_equal(__real_flock(others, LOCK_EX | LOCK_NB), 0);
}

static void replace_draft(void)
{
    remove_draft();
    make_draft();
}

static int is_draft(int file)
{
    struct stat open_file, named;
    assert_int_equal(fstat(file, &open_file), 0);
    return stat(draft, &named) == 0 && open_file.st_ino == named.st_ino;
}

/* Another run takes the new file for one that a dead run has left. */
TEST(what_was_removed_is_made_again)
{
    qdri_partial *partial;
    other_run = remove_draft;
    CHECK_OK(qdri_partial_create(path, &partial));
    assert_null(other_run);
    assert_true(is_draft(qdri_partial_descriptor(partial)));
    qdri_partial_discard(&partial);
    assert_int_equal(access(draft, F_OK), -1);
}

/* Another run has removed what a dead run left, and has begun to write. */
TEST(what_another_run_has_made_stays)
{
    qdri_partial *partial;
    make_draft();
    close(others);
    other_run = replace_draft;
    CHECK_FAILS(qdri_partial_create(path, &partial), QDR_ERR_ARGUMENT, "another run is writing");
    assert_null(other_run);
    assert_null(partial);
    assert_true(is_draft(others));
    close(others);
    assert_int_equal(unlink(draft), 0);
}

FIXTURE(make_folder)
{
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(draft, sizeof draft, "%s.partial", path);
    return 0;
}

FIXTURE(remove_folder) { return rmdir(folder); }

int main(void) { return run_all_tests(make_folder, remove_folder); }
