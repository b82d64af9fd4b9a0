/* SPDX-License-Identifier: Apache-2.0 */
/* Teams of processes and of threads: they meet and copy; one that dies, fails, or does not come ends the others, and
 * is named. No process is left. */
#include "team.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "qdr_test.h"

enum { RANKS = 3, TEXT_BYTES = 4000, LAST = RANKS - 1 };

static const team_opts processes = {.size = RANKS, .meet_secs = 20, .grace_secs = 0.3, .all_secs = 30};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* team_run(), with what it prints on standard error. No child may be left. */
static int run(team_opts opts, team_fn fn, int *codes, char text[TEXT_BYTES])
{
    FILE *file = tmpfile();
    const int error = dup(STDERR_FILENO);
    assert_non_null(file);
    fflush(stderr);
    assert_true(error >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    const int code = team_run(&opts, fn, NULL, codes);
    fflush(stderr);
    assert_true(dup2(error, STDERR_FILENO) >= 0);
    close(error);
    rewind(file);
    text[fread(text, 1, TEXT_BYTES - 1, file)] = '\0';
    fclose(file);
    errno = 0;
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    return code;
}

static void expect(const char *text, const char *words)
{
    if (strstr(text, words)) return;
    print_error("\"%s\" is not in \"%s\"\n", words, text);
    fail();
}

/* ---- what ranks do ---- */

static char pattern(int root, size_t i) { return (char)(root * 31 + (int)(i % 101)); }

/* More bytes than fit into one piece, none, and one, from each rank. */
static int copy_from_each(team *ours, int rank, void *user)
{
    static const size_t sizes[] = {0, 1, 4096, 10001};
    (void)user;
    for (int root = 0; root < RANKS; root++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            char *data = calloc(sizes[s] + 1, 1);
            int is_wrong = !data;
            for (size_t i = 0; data && i < sizes[s]; i++) data[i] = rank == root ? pattern(root, i) : '?';
            is_wrong = is_wrong || team_copy(ours, rank, root, data, sizes[s]) || data[sizes[s]] != '\0';
            for (size_t i = 0; !is_wrong && i < sizes[s]; i++) is_wrong = data[i] != pattern(root, i);
            free(data);
            if (is_wrong) return 1;
        }
    return 0;
}

/* The last rank comes late; the others may not go on before. */
static int wait_for_last(team *ours, int rank, void *user)
{
    const double began = now();
    (void)user;
    if (team_meet(ours, rank)) return 1;
    if (rank == LAST) sleep_ms(300);
    const double left = now();
    if (team_meet(ours, rank)) return 1;
    return rank != LAST && now() - left < 0.1 && now() - began < 0.3;
}

static int die(team *ours, int rank, void *user)
{
    (void)user;
    if (team_meet(ours, rank)) return 1;
    if (rank == LAST) raise(SIGKILL);
    return team_meet(ours, rank) ? 9 : 0; /* at once: not after the time of a meeting */
}

static int fail_with_five(team *ours, int rank, void *user)
{
    (void)user;
    if (team_meet(ours, rank)) return 1;
    if (rank == 1) return 5;
    return team_meet(ours, rank) ? 9 : 0;
}

static int stay_away(team *ours, int rank, void *user)
{
    (void)user;
    if (team_meet(ours, rank)) return 1;
    if (rank == LAST) sleep_ms(100000);
    return team_meet(ours, rank) ? 9 : 0;
}

static int leave_early(team *ours, int rank, void *user)
{
    (void)user;
    return rank == 0 ? 0 : team_meet(ours, rank) ? 9 : 0;
}

static int sleep_long(team *ours, int rank, void *user)
{
    (void)user;
    if (team_meet(ours, rank)) return 1;
    sleep_ms(100000);
    return 0;
}

/* ---- tests ---- */

TEST(test_all_are_well)
{
    char text[TEXT_BYTES];
    for (int as_threads = 0; as_threads < 2; as_threads++) {
        team_opts opts = processes;
        int codes[RANKS] = {7, 7, 7};
        opts.as_threads = as_threads;
        assert_int_equal(run(opts, copy_from_each, codes, text), 0);
        assert_int_equal(run(opts, wait_for_last, NULL, text), 0);
        for (int i = 0; i < RANKS; i++) assert_int_equal(codes[i], 0);
        assert_string_equal(text, "");
    }
}

TEST(test_one_dies)
{
    char text[TEXT_BYTES];
    int codes[RANKS];
    const double began = now();
    assert_int_equal(run(processes, die, codes, text), 128 + SIGKILL);
    assert_true(now() - began < processes.meet_secs / 2);
    expect(text, "rank 2 of 3 was killed by signal 9");
    assert_int_equal(codes[0], 9);
    assert_int_equal(codes[1], 9);
    assert_int_equal(codes[2], 128 + SIGKILL);
}

TEST(test_one_fails)
{
    char text[TEXT_BYTES];
    for (int as_threads = 0; as_threads < 2; as_threads++) {
        team_opts opts = processes;
        opts.as_threads = as_threads;
        assert_int_equal(run(opts, fail_with_five, NULL, text), 5);
        expect(text, "rank 1 of 3 ended with exit code 5");
    }
}

TEST(test_one_never_comes)
{
    char text[TEXT_BYTES];
    int codes[RANKS];
    team_opts opts = processes;
    const double began = now();
    opts.meet_secs = 0.4;
    assert_int_equal(run(opts, stay_away, codes, text), 9);
    assert_true(now() - began < 20);
    expect(text, "has waited 0.4 s for rank 2, which did not come");
    expect(text, "rank 2 of 3 still ran 0.3 s after the first failure, and was ended");
    assert_int_equal(codes[LAST], 128 + SIGKILL);
}

TEST(test_one_has_left)
{
    char text[TEXT_BYTES];
    team_opts opts = processes;
    opts.meet_secs = 0.4;
    assert_int_equal(run(opts, leave_early, NULL, text), 9);
    expect(text, "for rank 0, which did not come");
}

TEST(test_all_take_too_long)
{
    char text[TEXT_BYTES];
    team_opts opts = processes;
    const double began = now();
    opts.all_secs = 0.5;
    assert_int_equal(run(opts, sleep_long, NULL, text), TEAM_LATE);
    assert_true(now() - began < 20);
    expect(text, "rank 0 of 3 still ran 0.5 s after the start, and was ended");
}

/* Ranks hold one end of a pipe: the other end is at its end once no rank is left. */
TEST(test_launcher_dies)
{
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    const pid_t launcher = fork();
    assert_true(launcher >= 0);
    if (launcher == 0) {
        team_opts opts = processes;
        close(ends[0]);
        _exit(team_run(&opts, sleep_long, NULL, NULL));
    }
    close(ends[1]);
    sleep_ms(500);
    kill(launcher, SIGKILL);
    assert_int_equal(waitpid(launcher, NULL, 0), launcher);
    const double began = now();
    assert_int_equal(read(ends[0], &byte, 1), 0);
    assert_true(now() - began < 20);
    close(ends[0]);
}

TEST(test_size)
{
    char text[TEXT_BYTES];
    team_opts opts = processes;
    opts.size = TEAM_MOST + 1;
    assert_int_equal(run(opts, sleep_long, NULL, text), 2);
    expect(text, "1 to 64 ranks, not 65");
}
