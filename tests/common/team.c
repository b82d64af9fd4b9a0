/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks are started, meet and end. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "team.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PIECE_BYTES = 4096, LOOK_US = 2000, PAUSE_US = 50 };

struct team {
    team_opts opts;
    team_fn fn;
    void *user;
    atomic_int is_over; /* a rank has failed: nobody waits any more */
    atomic_uint n_meetings; /* that are done */
    atomic_int n_here;
    atomic_uint n_came[TEAM_MOST]; /* meetings to which a rank has come */
    atomic_int has_ended[TEAM_MOST]; /* of threads */
    char piece[PIECE_BYTES]; /* of what is copied */
};

/* A rank as the launcher has it. */
typedef struct seat {
    team *of;
    int rank, is_left, code;
    pid_t pid;
    pthread_t thread;
} seat;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void pause_us(long us) { nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL); }

/* ---- meetings ---- */

/* Of those who wait in vain, the first says for whom. */
static void name_missing(team *ours, int rank, unsigned turn)
{
    char names[TEAM_MOST * 4 + 1] = "";
    size_t at = 0;
    if (atomic_exchange(&ours->is_over, 1)) return;
    for (int j = 0; j < ours->opts.size; j++)
        if (atomic_load(&ours->n_came[j]) <= turn) at += (size_t)snprintf(names + at, sizeof names - at, " %d", j);
    fprintf(stderr, "rank %d of %d has waited %g s for rank%s, which did not come\n", rank, ours->opts.size,
            ours->opts.meet_secs, names);
}

int team_meet(team *ours, int rank)
{
    const double until = now() + ours->opts.meet_secs;
    const unsigned turn = atomic_load(&ours->n_meetings);
    atomic_store(&ours->n_came[rank], turn + 1);
    if (atomic_fetch_add(&ours->n_here, 1) + 1 == ours->opts.size) {
        atomic_store(&ours->n_here, 0);
        atomic_store(&ours->n_meetings, turn + 1);
    }
    while (atomic_load(&ours->n_meetings) == turn) {
        if (now() > until) name_missing(ours, rank, turn);
        if (atomic_load(&ours->is_over)) return 1;
        pause_us(PAUSE_US);
    }
    return 0;
}

int team_copy(team *ours, int rank, int root, void *data, size_t bytes)
{
    char *at = data;
    do {
        const size_t n = bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
        if (rank == root && n > 0) memcpy(ours->piece, at, n);
        if (team_meet(ours, rank)) return 1;
        if (rank != root && n > 0) memcpy(at, ours->piece, n);
        if (team_meet(ours, rank)) return 1;
        at += n;
        bytes -= n;
    } while (bytes > 0);
    return 0;
}

/* ---- starting ---- */

/* The kernel kills a process whose launcher has died, however that died. */
static void run_process(const seat *self, pid_t launcher)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != launcher) _exit(1);
    exit(self->of->fn(self->of, self->rank, self->of->user) & 0xff);
}

static void *run_thread(void *user)
{
    seat *self = user;
    self->code = self->of->fn(self->of, self->rank, self->of->user) & 0xff;
    atomic_store(&self->of->has_ended[self->rank], 1);
    return NULL;
}

static int start(seat *self)
{
    const pid_t launcher = getpid();
    if (self->of->opts.as_threads) {
        self->is_left = pthread_create(&self->thread, NULL, run_thread, self) == 0;
        return self->is_left;
    }
    self->pid = fork();
    if (self->pid == 0) run_process(self, launcher);
    self->is_left = self->pid > 0;
    return self->is_left;
}

/* ---- ending ---- */

/* Whether the rank has ended by now. */
static int look(seat *self)
{
    int status;
    if (self->of->opts.as_threads) {
        if (!atomic_load(&self->of->has_ended[self->rank])) return 0;
        pthread_join(self->thread, NULL);
    } else {
        const pid_t ended = waitpid(self->pid, &status, WNOHANG);
        if (ended == 0 || (ended < 0 && errno == EINTR)) return 0;
        self->code = ended < 0 ? 1 : WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    self->is_left = 0;
    return 1;
}

static void say_how_it_ended(const seat *self)
{
    const int n = self->of->opts.size;
    if (self->code > 128)
        fprintf(stderr, "rank %d of %d was killed by signal %d (%s)\n", self->rank, n, self->code - 128,
                strsignal(self->code - 128));
    else
        fprintf(stderr, "rank %d of %d ended with exit code %d\n", self->rank, n, self->code);
}

static void end_rest(seat *seats, int code)
{
    const team_opts *opts = &seats[0].of->opts;
    for (int i = 0; i < opts->size; i++) {
        if (!seats[i].is_left) continue;
        fprintf(stderr, "rank %d of %d still ran %g s after the %s, and was ended\n", i, opts->size,
                code ? opts->grace_secs : opts->all_secs, code ? "first failure" : "start");
        if (!opts->as_threads) kill(seats[i].pid, SIGKILL);
    }
    fflush(NULL);
    if (opts->as_threads) _Exit(code ? code : TEAM_LATE);
}

/* @return the first code that is not 0 */
static int wait_for_all(seat *seats, double until)
{
    team *ours = seats[0].of;
    int n_left = 0, code = 0, is_ended = 0;
    for (int i = 0; i < ours->opts.size; i++) n_left += seats[i].is_left;
    while (n_left > 0) {
        for (int i = 0; i < ours->opts.size; i++) {
            if (!seats[i].is_left || !look(&seats[i])) continue;
            n_left--;
            if (seats[i].code == 0 || code || is_ended) continue;
            code = seats[i].code;
            say_how_it_ended(&seats[i]);
            atomic_store(&ours->is_over, 1);
            if (until > now() + ours->opts.grace_secs) until = now() + ours->opts.grace_secs;
        }
        if (n_left > 0 && !is_ended && now() > until) {
            end_rest(seats, code);
            if (code == 0) code = TEAM_LATE;
            is_ended = 1;
        }
        if (n_left > 0) pause_us(LOOK_US);
    }
    return code;
}

int team_run(const team_opts *opts, team_fn fn, void *user, int *codes)
{
    seat seats[TEAM_MOST];
    int is_started = opts->size >= 1 && opts->size <= TEAM_MOST;
    if (!is_started) {
        fprintf(stderr, "a team has 1 to %d ranks, not %d\n", TEAM_MOST, opts->size);
        return 2;
    }
    team *made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) {
        perror("the memory of a team");
        return 1;
    }
    made->opts = *opts;
    made->fn = fn;
    made->user = user;
    fflush(NULL); /* or the ranks would print it again */
    for (int i = 0; i < opts->size; i++) seats[i] = (seat){.of = made, .rank = i};
    for (int i = 0; i < opts->size && is_started; i++) is_started = start(&seats[i]);
    if (!is_started) {
        perror("a rank cannot be started");
        atomic_store(&made->is_over, 1);
    }
    const int code = wait_for_all(seats, now() + (is_started ? opts->all_secs : opts->grace_secs));
    for (int i = 0; i < opts->size && codes; i++) codes[i] = seats[i].code;
    munmap(made, sizeof *made);
    return is_started || code ? code : 1;
}
