/* SPDX-License-Identifier: Apache-2.0 */
/* What the library expects of NCCL, among ranks that share GPU 0 (or have one each, if there are several), without the
 * library: a stem that does not block is split into parts that do; all kinds of collectives run on two parts at once;
 * they are recorded; communicators are destroyed, and aborted while a graph holds them and a rank does not come; a rank
 * is killed. Facts are reported, as JSON: memory of communicators, NaN in maxima and minima, times.
 *
 *   gpu_ranks [--threads] [--ctas N] [--short] RANKS     ranks are processes, or threads; N: NCCL's maxCTAs of a part,
 *                                                        2; --short: nothing is aborted
 *
 * NCCL 2.30 or later lets ranks share a GPU, which is asked for here. Exit code 77: there is no GPU. */
#include "ranks.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu.h"

enum { MEET_SECS = 30, TRIAL_SECS = 60, NOTICE_SECS = 8, ABORT_SECS = 15, RECORDED_ELEMS = 100000 };

/* ---- facts ---- */

/* Rank 0 reports, each subject as soon as it is known: a later one may fail. */
static void begin_report(rank *self, const char *subject)
{
    char title[100];
    snprintf(title, sizeof title, "%d %s, maxCTAs %d, %s", self->n,
             self->given->as_threads ? "threads"
             : self->n > 1           ? "processes"
                                     : "process",
             self->given->max_ctas, subject);
    if (self->number == 0) self->report = gpu_report_begin("NCCL", title);
}

static void end_report(rank *self)
{
    if (self->report) gpu_report_end(self->report);
    self->report = NULL;
}

/* MB that the GPU has in use, on rank 0 while nobody else does anything. */
static double used_mb(rank *self)
{
    size_t n_free = 0, n_all = 0;
    meet(self);
    if (self->number == 0) CUDA_OK(cudaMemGetInfo(&n_free, &n_all));
    meet(self);
    return 1e-6 * (double)(n_all - n_free);
}

static void report_memory(rank *self)
{
    double steps[2 + 2 * N_PARTS];
    int n = 0;
    steps[n++] = used_mb(self);
    make_stem(self);
    steps[n++] = used_mb(self);
    for (int i = 0; i < N_PARTS; i++) {
        split_off(self, i);
        steps[n++] = used_mb(self);
    }
    for (int i = 0; i < N_PARTS; i++) {
        fill(self, i, ALL_REDUCE, 1);
        run_kind(self, ALL_REDUCE, i, 1);
        CUDA_OK(cudaStreamSynchronize(self->streams[i]));
        steps[n++] = used_mb(self);
    }
    for (int i = n - 1; i > 0; i--) steps[i] = (steps[i] - steps[i - 1]) / self->n;
    begin_report(self, "memory");
    if (self->report) {
        char version[20];
        snprintf(version, sizeof version, "%d", self->version);
        gpu_report_word(self->report, "NCCL", version);
        gpu_report_number(self->report, "stem, MB a rank", steps[1]);
        gpu_report_samples(self->report, "parts when made, MB a rank", steps + 2, N_PARTS);
        gpu_report_samples(self->report, "parts at their first all-reduce, MB a rank", steps + 2 + N_PARTS, N_PARTS);
    }
    end_report(self);
}

/* Only reports what NCCL does. */
static void report_nan(rank *self, int kind, const char *name)
{
    const float nan = NAN;
    fill(self, 0, kind, 4);
    if (self->number == 0)
        CUDA_OK(cudaMemcpyAsync(self->from[0], &nan, sizeof nan, cudaMemcpyDefault, self->streams[0]));
    run_kind(self, kind, 0, 4);
    const int is_kept = isnan(take(self, 0, 1)[0]);
    if (self->report) gpu_report_word(self->report, name, is_kept ? "kept" : "lost");
}

static void report_nans(rank *self)
{
    begin_report(self, "NaN of one rank");
    report_nan(self, MAXIMUM, "in a maximum it is");
    report_nan(self, MINIMUM, "in a minimum it is");
    end_report(self);
}

/* ---- trials ---- */

static void run_kinds(rank *self)
{
    const size_t sizes[] = {1, 1000, 65536, MOST_ELEMS / (size_t)self->n};
    for (int s = 0; s < 4; s++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            for (int i = 0; i < N_PARTS; i++) fill(self, i, kind, sizes[s]);
            meet(self);
            const double began_us = gpu_now();
            for (int i = 0; i < N_PARTS; i++) run_kind(self, kind, i, sizes[s]);
            for (int i = 0; i < N_PARTS; i++) CUDA_OK(cudaStreamSynchronize(self->streams[i]));
            const double ms = 1e-3 * (gpu_now() - began_us);
            for (int i = 0; i < N_PARTS; i++) expect(self, i, kind, sizes[s]);
            char name[80];
            snprintf(name, sizeof name, "%s of %zu elements on each part, ms", kind_name(kind), sizes[s]);
            if (self->report && s != 1) gpu_report_number(self->report, name, ms);
        }
}

static void run_recorded(rank *self, cudaGraphExec_t graph)
{
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < N_PARTS; i++) fill(self, i, ALL_REDUCE, RECORDED_ELEMS);
        CUDA_OK(cudaGraphLaunch(graph, self->streams[0]));
        CUDA_OK(cudaStreamSynchronize(self->streams[0]));
        for (int i = 0; i < N_PARTS; i++) expect(self, i, ALL_REDUCE, RECORDED_ELEMS);
    }
}

static void try_all(rank *self)
{
    report_memory(self);
    report_nans(self);
    const double before_mb = used_mb(self);
    begin_report(self, "collectives");
    run_kinds(self);
    const double after_mb = used_mb(self);
    if (self->report)
        gpu_report_number(self->report, "memory in addition, MB a rank", (after_mb - before_mb) / self->n);
    end_report(self);
    cudaGraphExec_t graph = record(self, RECORDED_ELEMS);
    run_recorded(self, graph);
    meet(self);
    CUDA_OK(cudaGraphExecDestroy(graph));
    end_all(self);
}

static void wait_for_abort(rank *self, int most_ms)
{
    for (int ms = 0; !atomic_load(&self->is_over) && ms < most_ms; ms++) pause_ms(1);
}

/* On a thread, since it may take forever. */
static void abort_in_time(rank *self, cudaGraphExec_t graph)
{
    pthread_t thread;
    const double began_us = gpu_now();
    atomic_store(&self->is_over, 0);
    check(pthread_create(&thread, NULL, abort_all, self) == 0, "pthread_create", "no thread");
    wait_for_abort(self, 1000);
    const int is_early = atomic_load(&self->is_over), has_graph = graph != NULL;
    if (graph) CUDA_OK(cudaGraphExecDestroy(graph));
    wait_for_abort(self, 1000 * ABORT_SECS);
    const double secs = 1e-6 * (gpu_now() - began_us);
    check(atomic_load(&self->is_over), "ncclCommAbort", "it hangs");
    pthread_join(thread, NULL);
    for (int i = 0; i < N_PARTS; i++) (void)cudaStreamSynchronize(self->streams[i]);
    if (!self->report) return;
    gpu_report_number(self->report, "the abort, s", secs);
    if (has_graph)
        gpu_report_word(self->report, "the abort ended", is_early ? "before its graph was destroyed" : "after that");
}

/* The last rank does not come to a recorded step. */
static void try_abort(rank *self)
{
    make_stem(self);
    for (int i = 0; i < N_PARTS; i++) split_off(self, i);
    cudaGraphExec_t graph = record(self, RECORDED_ELEMS);
    run_recorded(self, graph);
    meet(self);
    if (self->number < self->n - 1 || self->n == 1) CUDA_OK(cudaGraphLaunch(graph, self->streams[0]));
    pause_ms(300);
    begin_report(self, "a rank is missing");
    abort_in_time(self, graph);
    end_report(self);
    meet(self);
}

/* The others launch a collective that cannot end, ask NCCL what it knows, and abort. */
static void try_death(rank *self)
{
    make_stem(self);
    for (int i = 0; i < N_PARTS; i++) split_off(self, i);
    fill(self, 0, ALL_REDUCE, 1000);
    run_kind(self, ALL_REDUCE, 0, 1000);
    expect(self, 0, ALL_REDUCE, 1000);
    meet(self);
    if (self->number == self->n - 1) raise(SIGKILL);
    pause_ms(500);
    const double began_us = gpu_now();
    ncclResult_t state = ncclAllReduce(self->from[0], self->to[0], 1000, ncclFloat32, ncclSum, self->parts[0],
                                       self->streams[0]);
    for (int ms = 0; state == ncclSuccess && ms < 1000 * NOTICE_SECS; ms += 10) {
        pause_ms(10);
        NCCL_OK(ncclCommGetAsyncError(self->parts[0], &state));
    }
    begin_report(self, "a rank was killed");
    if (self->report) {
        gpu_report_number(self->report, "NCCL was asked for an error, s", 1e-6 * (gpu_now() - began_us));
        gpu_report_word(self->report, "it said", ncclGetErrorString(state));
    }
    abort_in_time(self, NULL);
    end_report(self);
}

/* ---- the program ---- */

typedef struct trial {
    const char *name;
    void (*fn)(rank *self);
    const program *given;
} trial;

static int run_trial(team *ours, int number, void *user)
{
    const trial *one = user;
    rank self = {.team = ours, .number = number, .n = one->given->n, .given = one->given};
    rank_begin(&self);
    one->fn(&self);
    rank_end(&self);
    return 0;
}

/* Trials go on after one has failed. `killed`: a rank that kills itself; -1: none. */
static int is_good(const program *given, const char *name, void (*fn)(rank *), int killed)
{
    int codes[TEAM_MOST], good = 1;
    trial one = {name, fn, given};
    const double grace_secs = killed < 0 ? 5 : NOTICE_SECS + ABORT_SECS + 10;
    const team_opts opts = {given->n, given->as_threads, MEET_SECS, grace_secs, TRIAL_SECS};
    if (team_run(&opts, run_trial, &one, codes) == NO_GPU) gpu_end(NO_GPU);
    for (int i = 0; i < given->n; i++) good &= codes[i] == (i == killed ? 128 + SIGKILL : 0);
    fprintf(stderr, "%s: %s\n", name, good ? "ok" : "FAILED");
    return good;
}

int main(int argc, char **argv)
{
    program given = {.max_ctas = 2};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--threads") == 0)
            given.as_threads = 1;
        else if (strcmp(argv[i], "--short") == 0)
            given.is_short = 1;
        else if (strcmp(argv[i], "--ctas") == 0 && i + 1 < argc)
            given.max_ctas = atoi(argv[++i]);
        else
            given.n = atoi(argv[i]);
    }
    if (given.n < 1 || given.n > 8 || given.max_ctas < 1) {
        fputs("usage: gpu_ranks [--threads] [--ctas N] [--short] RANKS     1 to 8 ranks\n", stderr);
        return 2;
    }
    set_environment(&given);
    int good = is_good(&given, "all kinds", try_all, -1);
    if (given.is_short) return !good;
    good &= is_good(&given, "an abort", try_abort, -1);
    if (given.as_threads || given.n == 1)
        fputs("a death: skipped, it takes several processes\n", stderr);
    else
        good &= is_good(&given, "a death", try_death, given.n - 1);
    return !good;
}
