/* SPDX-License-Identifier: Apache-2.0 */
/* Files that appear completely or not at all: what remains after a failure, what is never replaced, what is refused. */
#define _XOPEN_SOURCE 700 /* mknod */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "qdr_test.h"
#include "quadrille/plan.h"
#include "quadrille_private/output.h"

/* ---- functions of the system that fail when told to ---- */

static int failing_fclose, failing_fsync, failing_rename;

int __real_fclose(FILE *file);
int __wrap_fclose(FILE *file);
int __wrap_fclose(FILE *file)
{
    const int closed = __real_fclose(file);
    if (!failing_fclose) return closed;
    errno = failing_fclose;
    return EOF;
}

int __real_fsync(int number);
int __wrap_fsync(int number);
int __wrap_fsync(int number)
{
    if (!failing_fsync) return __real_fsync(number);
    errno = failing_fsync;
    return -1;
}

int __real_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    if (!failing_rename) return __real_renameat(from_folder, from, to_folder, to);
    errno = failing_rename;
    return -1;
}

static size_t most_per_write = SIZE_MAX;
static const int works[] = {0}, *failing_writes = works; /* errno values of the next calls, then 0 */

ssize_t __real_write(int number, const void *bytes, size_t n);
ssize_t __wrap_write(int number, const void *bytes, size_t n);
ssize_t __wrap_write(int number, const void *bytes, size_t n)
{
    if (*failing_writes) {
        errno = *failing_writes++;
        return -1;
    }
    return __real_write(number, bytes, n < most_per_write ? n : most_per_write);
}

/* ---- a folder for each test ---- */

static char start[512], folder[64];

FIXTURE(enter)
{
    strcpy(folder, "/tmp/qdr_output_XXXXXX");
    return !getcwd(start, sizeof start) || !mkdtemp(folder) || chdir(folder) != 0;
}

FIXTURE(leave)
{
    char command[128];
    failing_fclose = failing_fsync = failing_rename = 0;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return chdir(start) != 0 || system(command) != 0; /* NOLINT: a fixed word and mkdtemp's name */
}

static void put(const char *name, const char *text)
{
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(__real_fclose(file), 0);
}

static void assert_text(const char *name, const char *text)
{
    char found[256] = "";
    FILE *file = fopen(name, "r");
    if (!file) fail_msg("%s is not there", name);
    found[fread(found, 1, sizeof found - 1, file)] = '\0';
    assert_int_equal(__real_fclose(file), 0);
    assert_string_equal(found, text);
}

/* The files of the folder, hidden ones too. */
static int count_files(void)
{
    int n = 0;
    FILE *list = popen("ls -A | wc -l", "r"); /* NOLINT: a fixed command */
    assert_non_null(list);
    assert_int_equal(fscanf(list, "%d", &n), 1);
    pclose(list);
    return n;
}

static qdr_status write_text(const char *name, qdr_output_kind kind, const char *text)
{
    qdr_output *output;
    const qdr_status status = qdr_output_open("--out", name, kind, &output);
    if (status != QDR_OK) return status;
    fputs(text, qdr_output_file(output));
    return qdr_output_commit(&output);
}

/* ---- regular files ---- */

TEST_IN(is_there_when_it_is_whole, enter, leave)
{
    qdr_output *output;
    put("a", "old");
    assert_int_equal(chmod("a", 0640), 0);
    CHECK_OK(qdr_output_open("--out", "a", QDR_OUTPUT_REPLACE, &output));
    fputs("new", qdr_output_file(output));
    CHECK_OK(qdr_output_finish(output));
    assert_null(qdr_output_file(output));
    assert_text("a", "old");
    CHECK_OK(qdr_output_commit(&output));
    assert_null(output);
    assert_text("a", "new");
    struct stat info;
    assert_int_equal(stat("a", &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    CHECK_OK(qdr_output_open("--out", "a", QDR_OUTPUT_REPLACE, &output));
    fputs("newest", qdr_output_file(output));
    qdr_output_discard(&output);
    qdr_output_discard(&output);
    assert_text("a", "new");
    assert_int_equal(count_files(), 1);
}

/* A write may end early: on a pipe when a signal comes, or near a limit. */
TEST_IN(short_writes_lose_nothing, enter, leave)
{
    for (size_t most = 1; most <= 9; most += 4) {
        most_per_write = most;
        const qdr_status status = write_text("a", QDR_OUTPUT_REPLACE, "0123456789abcdefghij");
        most_per_write = SIZE_MAX;
        CHECK_OK(status);
        assert_text("a", "0123456789abcdefghij");
    }
}

TEST_IN(permissions_are_those_of_new_files, enter, leave)
{
    struct stat info;
    const mode_t mask = umask(027);
    CHECK_OK(write_text("a", QDR_OUTPUT_REPLACE, "new"));
    umask(mask);
    assert_int_equal(stat("a", &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
}

/* Each of the calls that may fail late, alone. */
TEST_IN(late_failures_are_told, enter, leave)
{
    int *const failures[] = {&failing_fclose, &failing_fsync, &failing_rename};
    put("a", "old");
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        *failures[i] = EDQUOT;
        CHECK_FAILS(write_text("a", QDR_OUTPUT_REPLACE, "new"), QDR_ERR_IO, "--out a: could not be written");
        check_sentence(strerror(EDQUOT), __FILE__, __LINE__);
        *failures[i] = 0;
        assert_text("a", "old");
        assert_int_equal(count_files(), 1);
    }
}

static volatile sig_atomic_t n_signals;
static void count_signal(int number) { n_signals += number == SIGXFSZ; }

/* A program's own handling of SIGXFSZ does not notice the library's writes, and is as before afterwards. */
TEST_IN(limits_on_files_are_told, enter, leave)
{
    struct rlimit old, one = {.rlim_cur = 1};
    sigset_t mask;
    qdr_output *output;
    put("a", "old");
    void (*const before)(int) = signal(SIGXFSZ, count_signal);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    one.rlim_max = old.rlim_max;
    CHECK_OK(qdr_output_open("--out", "a", QDR_OUTPUT_REPLACE, &output));
    fputs("new", qdr_output_file(output));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &one), 0);
    const int flushed = fflush(qdr_output_file(output)); /* its error is the one that is told */
    const qdr_status status = qdr_output_commit(&output);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(flushed, EOF);
    CHECK_FAILS(status, QDR_ERR_IO, "--out a: could not be written");
    check_sentence(strerror(EFBIG), __FILE__, __LINE__);
    assert_int_equal(n_signals, 0);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    assert_int_equal(sigismember(&mask, SIGXFSZ), 0);
    assert_int_equal(raise(SIGXFSZ), 0);
    assert_int_equal(n_signals, 1);
    signal(SIGXFSZ, before);
    assert_text("a", "old");
    assert_int_equal(count_files(), 1);
}

/* Plans are one of the writers, with a check of their own in front. */
TEST_IN(plans_tell_late_failures, enter, leave)
{
    qdr_network network = {QDR_INIT(qdr_network), .layers = 1,    .hidden = 1, .heads = 1, .kv_heads = 1,
                           .norms_per_layer = 2,  .head_size = 1, .ffn = 1,    .vocab = 1, .context = 1};
    qdr_plan plan = {QDR_INIT(qdr_plan), .x = 1, .y = 1, .z = 1, .d = 1, .batch = 1, .dtype = QDR_F32};
    qdr_stored_plan stored = {QDR_INIT(qdr_stored_plan), .network = &network, .plan = &plan};
    CHECK_OK(qdr_plan_store(&stored, "plan.json"));
    plan.batch = 2;
    failing_fclose = EIO;
    CHECK_FAILS(qdr_plan_store(&stored, "plan.json"), QDR_ERR_IO, "plan.json: could not be written");
    failing_fclose = 0;
    CHECK_OK(qdr_plan_load("plan.json", &stored));
    assert_int_equal(plan.batch, 1);
    assert_int_equal(count_files(), 1);
}

TEST_IN(a_write_that_failed_is_not_forgotten, enter, leave)
{
    qdr_output *output;
    put("a", "old");
    CHECK_OK(qdr_output_open("--out", "a", QDR_OUTPUT_REPLACE, &output));
    fputs("new", qdr_output_file(output));
    assert_int_equal(fflush(qdr_output_file(output)), 0);
    assert_int_equal(fgetc(qdr_output_file(output)),
                     EOF); /* it cannot be read: sets the error, as a failed write would */
    CHECK_FAILS(qdr_output_finish(output), QDR_ERR_IO, "could not be written");
    CHECK_FAILS(qdr_output_commit(&output), QDR_ERR_IO, "failed already");
    assert_text("a", "old");
    assert_int_equal(count_files(), 1);
}

/* The first one is the cause, whatever comes after it. */
TEST_IN(the_first_failure_is_told, enter, leave)
{
    static const int failures[] = {ENOSPC, EIO, EBADF, 0};
    qdr_output *output;
    put("a", "old");
    CHECK_OK(qdr_output_open("--out", "a", QDR_OUTPUT_REPLACE, &output));
    failing_writes = failures;
    for (int i = 0; i < 3; i++) {
        fputs("new", qdr_output_file(output));
        assert_int_equal(fflush(qdr_output_file(output)), EOF);
        clearerr(qdr_output_file(output)); /* as a program may */
    }
    CHECK_FAILS(qdr_output_commit(&output), QDR_ERR_IO, "No space left on device); make room");
    failing_writes = works;
    assert_text("a", "old");
    assert_int_equal(count_files(), 1);
}

TEST_IN(new_ones_replace_nothing, enter, leave)
{
    qdr_output *output;
    CHECK_OK(write_text("a", QDR_OUTPUT_NEW, "first"));
    CHECK_FAILS(write_text("a", QDR_OUTPUT_NEW, "second"), QDR_ERR_ARGUMENT, "File exists");
    CHECK_OK(qdr_output_open("", "b", QDR_OUTPUT_NEW, &output));
    fputs("mine", qdr_output_file(output));
    put("b", "theirs"); /* meanwhile */
    CHECK_FAILS(qdr_output_commit(&output), QDR_ERR_ARGUMENT, "b: exists by now");
    assert_text("a", "first");
    assert_text("b", "theirs");
    assert_int_equal(count_files(), 2);
}

/* ---- logs ---- */

TEST_IN(logs_grow_and_older_ones_stay, enter, leave)
{
    qdr_output *output;
    put("log", "first");
    for (int i = 1; i <= 2; i++) {
        char kept[16];
        CHECK_OK(qdr_output_open("--log", "log", QDR_OUTPUT_LOG, &output));
        snprintf(kept, sizeof kept, "log.%d", i);
        assert_string_equal(qdr_output_kept(output), kept);
        assert_text("log", "");
        fputs("line\n", qdr_output_file(output));
        fflush(qdr_output_file(output));
        assert_text("log", "line\n"); /* while it is open */
        CHECK_OK(qdr_output_commit(&output));
    }
    assert_text("log", "line\n");
    assert_text("log.1", "first");
    assert_text("log.2", "line\n");
    put("empty", "");
    CHECK_OK(qdr_output_open("--log", "empty", QDR_OUTPUT_LOG, &output));
    assert_string_equal(qdr_output_kept(output), "");
    qdr_output_discard(&output); /* as far as it was written */
    assert_text("empty", "");
    assert_int_equal(count_files(), 4);
    assert_int_equal(symlink("log", "link"), 0);
    CHECK_OK(qdr_output_open("--log", "link", QDR_OUTPUT_LOG, &output));
    assert_string_equal(qdr_output_kept(output), "./log.3"); /* where it is */
    qdr_output_discard(&output);
}

/* ---- what is no regular file ---- */

TEST_IN(links_stay, enter, leave)
{
    struct stat info;
    assert_int_equal(mkdir("deep", 0777), 0);
    assert_int_equal(symlink("deep/second", "first"), 0);
    assert_int_equal(symlink("file", "deep/second"), 0); /* leads nowhere at first */
    for (int i = 0; i < 2; i++) {
        CHECK_OK(write_text("first", QDR_OUTPUT_REPLACE, i ? "two" : "one"));
        assert_text("deep/file", i ? "two" : "one");
        assert_true(lstat("first", &info) == 0 && S_ISLNK(info.st_mode));
        assert_true(lstat("deep/second", &info) == 0 && S_ISLNK(info.st_mode));
        assert_true(lstat("deep/file", &info) == 0 && S_ISREG(info.st_mode));
    }
    assert_int_equal(symlink("loop", "loop"), 0);
    CHECK_FAILS(write_text("loop", QDR_OUTPUT_REPLACE, ""), QDR_ERR_ARGUMENT, "symbolic links");
}

/* The names that older versions wrote to, which could be foreseen. */
TEST_IN(planted_links_are_not_followed, enter, leave)
{
    char name[64];
    put("victim", "precious");
    assert_int_equal(symlink("victim", "a.part"), 0);
    snprintf(name, sizeof name, "a.%ld.0", (long)getpid());
    assert_int_equal(symlink("victim", name), 0);
    assert_int_equal(symlink("victim", ".a.0123456789abcdef.part"), 0);
    CHECK_OK(write_text("a", QDR_OUTPUT_REPLACE, "new"));
    assert_text("victim", "precious");
    struct stat info;
    assert_true(lstat("a", &info) == 0 && S_ISREG(info.st_mode));
    assert_true(lstat(".a.0123456789abcdef.part", &info) == 0); /* no leftover of anybody's */
}

TEST_IN(devices_are_written_to, enter, leave)
{
    struct stat null, full, info;
    assert_int_equal(stat("/dev/null", &null), 0);
    assert_int_equal(stat("/dev/full", &full), 0);
    if (mknod("null", S_IFCHR | 0666, null.st_rdev) != 0 || mknod("full", S_IFCHR | 0666, full.st_rdev) != 0 ||
        access("null", W_OK) != 0 || open("null", O_WRONLY | O_CLOEXEC) < 0) {
        print_message("skipped: devices cannot be made here (%s)\n", strerror(errno));
        skip();
    }
    for (int kind = QDR_OUTPUT_REPLACE; kind <= QDR_OUTPUT_LOG; kind++) {
        CHECK_OK(write_text("null", (qdr_output_kind)kind, "text"));
        CHECK_FAILS(write_text("full", (qdr_output_kind)kind, "text"), QDR_ERR_IO, "No space left");
        assert_true(lstat("null", &info) == 0 && S_ISCHR(info.st_mode));
        assert_true(lstat("full", &info) == 0 && S_ISCHR(info.st_mode));
    }
    assert_int_equal(count_files(), 2);
}

static void *read_fifo(void *text)
{
    FILE *file = fopen("fifo", "r");
    if (!file) return NULL;
    const size_t n = fread(text, 1, 15, file);
    __real_fclose(file);
    return n == 4 ? text : NULL;
}

TEST_IN(fifos_are_written_to, enter, leave)
{
    char text[16] = "";
    void *read = NULL;
    pthread_t reader;
    struct stat info;
    assert_int_equal(mkfifo("fifo", 0600), 0);
    CHECK_OK(qdr_output_try("--svg", "fifo")); /* does not wait */
    assert_int_equal(pthread_create(&reader, NULL, read_fifo, text), 0);
    CHECK_OK(write_text("fifo", QDR_OUTPUT_REPLACE, "text"));
    assert_int_equal(pthread_join(reader, &read), 0);
    assert_non_null(read);
    assert_string_equal(text, "text");
    assert_true(lstat("fifo", &info) == 0 && S_ISFIFO(info.st_mode));
}

TEST_IN(refusals, enter, leave)
{
    qdr_output *output;
    char name[5000];
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    assert_int_equal(mkdir("folder", 0777), 0);
    put("file", "");
    static const struct {
        const char *path, *words;
    } bad[] = {{"folder", "Is a directory"},    {"folder/", "Is a directory"}, {"new/", "Is a directory"},
               {"none/file", "No such file"},   {"file/a", "Not a directory"}, {"", "is empty"},
               {"-", "standard output is used"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_FAILS(qdr_output_open("--svg", bad[i].path, QDR_OUTPUT_REPLACE, &output), QDR_ERR_ARGUMENT, bad[i].words);
        check_sentence("--svg ", __FILE__, __LINE__);
        assert_null(output);
        CHECK_FAILS(qdr_output_try("--svg", bad[i].path), QDR_ERR_ARGUMENT, bad[i].words);
    }
    CHECK_FAILS(qdr_output_open("", name, QDR_OUTPUT_REPLACE, &output), QDR_ERR_ARGUMENT, "4999 bytes");
    name[300] = '\0';
    CHECK_FAILS(qdr_output_open("", name, QDR_OUTPUT_REPLACE, &output), QDR_ERR_ARGUMENT, "too long");
    name[255] = '\0';
    CHECK_OK(write_text(name, QDR_OUTPUT_REPLACE, "the longest name"));
    CHECK_FAILS(qdr_output_open(NULL, "a", QDR_OUTPUT_REPLACE, &output), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_output_open("", "a", (qdr_output_kind)9, &output), QDR_ERR_ARGUMENT, "kind 9");
    CHECK_FAILS(qdr_output_commit(&output), QDR_ERR_ARGUMENT, "NULL");
    if (geteuid() != 0) { /* root may write anything */
        put("mine", "old");
        assert_int_equal(chmod("mine", 0444), 0);
        CHECK_FAILS(write_text("mine", QDR_OUTPUT_REPLACE, "new"), QDR_ERR_ARGUMENT, "Permission denied");
    }
    assert_int_equal(count_files(), geteuid() ? 4 : 3);
}

/* ---- processes that were killed ---- */

/* Begins an output and tells that it has; returns the process, which then waits forever. */
static pid_t begin_in_child(const char *name)
{
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        qdr_output *output;
        if (qdr_output_open("", name, QDR_OUTPUT_REPLACE, &output) != QDR_OK) _exit(1);
        fputs("half", qdr_output_file(output));
        fflush(qdr_output_file(output));
        if (write(ends[1], "", 1) != 1) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    close(ends[1]);
    return child;
}

TEST_IN(leftovers_of_the_dead_are_removed, enter, leave)
{
    const pid_t dead = begin_in_child("a"), alive = begin_in_child("a"), other = begin_in_child("a.b");
    put(".a.part", "not ours");
    put(".a.0123.part", "nor this");
    assert_int_equal(count_files(), 5);
    kill(dead, SIGKILL);
    assert_int_equal(waitpid(dead, NULL, 0), dead);
    CHECK_OK(write_text("a", QDR_OUTPUT_REPLACE, "whole"));
    assert_text("a", "whole");
    assert_int_equal(count_files(), 5); /* one less, and "a" */
    kill(alive, SIGKILL);
    kill(other, SIGKILL);
    assert_int_equal(waitpid(alive, NULL, 0), alive);
    assert_int_equal(waitpid(other, NULL, 0), other);
    CHECK_OK(write_text("a", QDR_OUTPUT_REPLACE, "whole"));
    assert_int_equal(count_files(), 4);
    assert_text(".a.part", "not ours");
    assert_text(".a.0123.part", "nor this");
}

int main(void)
{
    setenv("LC_ALL", "C", 1);
    return run_all_tests(NULL, NULL);
}
