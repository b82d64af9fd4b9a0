/* SPDX-License-Identifier: Apache-2.0 */
/* One set of tests for all communicators: results bit for bit, bytes sent, groups, agreement.
 *
 *   conform_comm [--local P | --boot P | --messages] [SEED]     else mpiexec's ranks; --messages: no shared memory */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/local/local.h"
#include "comm/mpi/mpi.h"
#include "common/boot.h"
#include "config.h"
#include "conform/check.h"
#include "conform/comm_trial.h"
#include "grid/internal.h"
#include "narrow.h"
#include "quadrille/quadrille.h"

#define CHECK(condition, ...) CHECK_OF_RANK(self.rank, condition, __VA_ARGS__)

/* ---- one collective ---- */

static int64_t sum_of_ranks(const member *self, int64_t mine)
{
    int64_t sum = 0;
    for (int rank = 0; rank < self->size; rank++) {
        int64_t theirs = mine;
        if (qdri_comm_broadcast(self->comm, rank, &theirs, sizeof theirs) != QDR_OK) return -1;
        sum += theirs;
    }
    return sum;
}

static int run_trial(const member self_, uint64_t seed, int reserve)
{
    const member self = self_;
    trial t;
    CHECK(trial_draw(&t, &self, seed), "out of memory");
    trial_fill(&t, &self);
    const qdr_traffic before = qdri_comm_traffic(self.comm, t.coll.kind);
    qdri_need need = {0};
    if (reserve) qdri_comm_need(self.comm, &t.coll, &need);
    OK(qdri_comm_reserve(self.comm, &need));
    OK(qdri_comm_launch(self.comm, &t.coll, self.stream));
    OK(qdr_stream_synchronize(self.stream));
    const int64_t wrong = trial_wrong(&t, &self);
    CHECK(wrong < 0, "%s %s op %d, %s: element %lld is wrong, seed %llu", qdr_coll_kind_name(t.coll.kind),
          qdr_dtype_name(t.coll.dtype), (int)t.coll.op, t.in_place ? "in place" : "out of place", (long long)wrong,
          (unsigned long long)seed);
    const qdr_traffic after = qdri_comm_traffic(self.comm, t.coll.kind);
    int64_t bytes = after.bytes_sent - before.bytes_sent, wanted = expected_bytes(&t, &self);
    int64_t off_node = after.bytes_off_node - before.bytes_off_node, wanted_off_node = expected_off_node(&t, &self);
    const int is_stepwise = qdri_comm_summed_first(self.comm, &t.coll) > 1;
    if (is_stepwise || t.coll.kind == QDR_BROADCAST) {
        /* level by level, or in parts, other ranks send it, but all together as much */
        bytes = sum_of_ranks(&self, bytes);
        wanted = sum_of_ranks(&self, wanted);
        off_node = sum_of_ranks(&self, off_node);
        wanted_off_node = sum_of_ranks(&self, wanted_off_node);
    }
    CHECK(bytes == wanted, "%s sent %lld bytes, not %lld, seed %llu", qdr_coll_kind_name(t.coll.kind), (long long)bytes,
          (long long)wanted, (unsigned long long)seed);
    const int is_known = self.comm == qdri_context_world(self.ctx) && (is_stepwise || t.coll.kind != QDR_BROADCAST);
    CHECK(off_node == wanted_off_node || !is_known, "%s sent %lld bytes to other nodes, not %lld, seed %llu",
          qdr_coll_kind_name(t.coll.kind), (long long)off_node, (long long)wanted_off_node, (unsigned long long)seed);
    CHECK(after.n_calls - before.n_calls == (self.size > 1), "calls counted");
    trial_free(&t);
    return 0;
}

/* ---- the tests ---- */

/* Fewer where processes outnumber the cores of most machines, or take turns on a GPU: each trial takes as long as
 * many. */
static int n_trials(const member *self, int n)
{
    if (self->is_local) return n;
    return self->is_boot ? n / 6 : self->size <= 4 ? n : n / 3;
}

static int test_random(member self)
{
    for (int i = 0; i < n_trials(&self, 300); i++)
        if (run_trial(self, hash(self.seed + (uint64_t)i), i % 2)) return 1;
    return 0;
}

/* Local ranks share a collective out in pieces, of which there are several for each member only where it is large: the
 * limit is made small. */
static int test_pieces(member self)
{
    const int64_t before = qdri_local_piece_bytes;
    int failed = 0;
    if (!self.is_local) return 0;
    OK(qdr_barrier(self.ctx));
    if (self.rank == 0) qdri_local_piece_bytes = 24;
    OK(qdr_barrier(self.ctx));
    for (int i = 0; i < n_trials(&self, 200) && !failed; i++)
        failed = run_trial(self, hash(self.seed + 3000 + (uint64_t)i), i % 2);
    OK(qdr_barrier(self.ctx));
    if (self.rank == 0) qdri_local_piece_bytes = before;
    OK(qdr_barrier(self.ctx));
    return failed;
}

/* Messages that MPI cannot count in bytes, more than node memory takes at once, and messages between nodes in pieces of
 * which few go before others come: the limits are made small. */
static int test_large(member self)
{
#if QDRI_HAVE_MPI
    int failed = 0;
    const int before = qdri_mpi_max_bytes, slot_before = qdri_mpi_slot_bytes, piece_before = qdri_mpi_piece_bytes;
    const int64_t ahead_before = qdri_mpi_ahead_bytes;
    if (self.is_local || self.is_boot) return 0;
    qdri_mpi_piece_bytes = 24;
    qdri_mpi_ahead_bytes = 50;
    for (int i = 0; i < n_trials(&self, 90) && !failed; i++)
        failed = run_trial(self, hash(self.seed + 7000 + (uint64_t)i), i % 2);
    qdri_mpi_piece_bytes = piece_before;
    qdri_mpi_ahead_bytes = ahead_before;
    qdri_mpi_max_bytes = 100;
    qdri_mpi_slot_bytes = 144;
    qdri_comm_set_machine(self.comm, &(qdri_comm_machine){.two_round_bytes = 1000}); /* from here on */
    for (int i = 0; i < n_trials(&self, 120) && !failed; i++)
        failed = run_trial(self, hash(self.seed + 5000 + (uint64_t)i), 1);
    unsigned char data[333];
    memset(data, self.rank == 0 ? 7 : 0, sizeof data);
    OK(qdr_broadcast(self.ctx, 0, data, sizeof data));
    CHECK(data[332] == 7, "the end of a host broadcast");
    qdri_mpi_max_bytes = before;
    qdri_mpi_slot_bytes = slot_before;
    return failed;
#else
    (void)self;
    return 0;
#endif
}

/* Many collectives in flight on two communicators and two streams, in the order of the host. */
static int test_in_flight(member self)
{
    enum { N = 60, ELEMS = 700 };
    qdri_comm *comms[2] = {NULL, NULL};
    qdr_stream *streams[2] = {NULL, NULL};
    void *memory = NULL;
    OK(qdr_mem_alloc(self.ctx, N * ELEMS * sizeof(float), &memory));
    float *data = memory;
    for (int c = 0; c < 2; c++) {
        OK(qdri_comm_split(self.comm, 0, c ? -self.rank : self.rank, &comms[c]));
        CHECK(qdri_comm_rank(comms[c]) == (c ? self.size - 1 - self.rank : self.rank), "order");
        OK(qdri_stream_create(qdri_context_dev(self.ctx), QDRI_STREAM_COMM, &streams[c]));
    }
    for (int i = 0; i < N; i++) {
        float *mine = data + i * ELEMS;
        fill(mine, self.seed + (uint64_t)i, QDR_F32, qdri_comm_rank(comms[i % 2]), 0, ELEMS);
        const qdri_coll coll = {.kind = QDR_ALL_REDUCE, .recv = mine, .count = i % 5 ? ELEMS : ELEMS / 100};
        OK(qdri_comm_launch(comms[i % 2], &coll, streams[i % 2]));
    }
    for (int c = 0; c < 2; c++) OK(qdr_stream_synchronize(streams[c]));
    for (int i = 0; i < N; i++) {
        const qdri_coll coll = {.kind = QDR_ALL_REDUCE};
        const summed ranks = {self.size, qdri_comm_summed_first(comms[i % 2], &coll)};
        CHECK(first_wrong(data + i * ELEMS, self.seed + (uint64_t)i, QDR_F32, QDR_SUM, ranks, -1, 0,
                          i % 5 ? ELEMS : ELEMS / 100) < 0,
              "collective %d", i);
    }
    for (int c = 0; c < 2; c++) {
        qdri_stream_destroy(&streams[c]);
        qdri_comm_destroy(&comms[c]);
    }
    qdr_mem_free(self.ctx, &memory);
    return 0;
}

#if QDRI_HAVE_MPI
/* From memory that all have mapped before to new memory, which one member cannot map each second time. */
static int test_new_target(member self)
{
    enum { N = 100000, N_CALLS = 6 };
    void *source = NULL;
    OK(qdr_mem_alloc(self.ctx, N * sizeof(int32_t), &source));
    for (int i = 0; i < N_CALLS; i++) {
        void *target = NULL;
        OK(qdr_mem_alloc(self.ctx, N * sizeof(int32_t), &target));
        int32_t *from = source, *to = target;
        for (int k = 0; k < N; k++) from[k] = k + i + self.rank;
        const qdri_coll coll = {.kind = QDR_ALL_REDUCE, .dtype = QDR_I32, .send = from, .recv = to, .count = N};
        qdri_mpi_map_memory = i % 2 == 0 || self.rank != i / 2 % self.size;
        OK(qdri_comm_launch(self.comm, &coll, self.stream));
        OK(qdr_stream_synchronize(self.stream));
        qdri_mpi_map_memory = 1;
        for (int k = 0; k < N; k++)
            CHECK(to[k] == self.size * (k + i) + self.size * (self.size - 1) / 2, "call %d, element %d is %d", i, k,
                  (int)to[k]);
        OK(qdri_comm_agree(self.comm, QDR_OK));
        qdr_mem_free(self.ctx, &target);
    }
    qdr_mem_free(self.ctx, &source);
    return 0;
}
#endif

/* Members read and write each other's memory, where it is the library's and all can map it. */
static int test_direct(member self)
{
#if QDRI_HAVE_MPI
    int failed = 0;
    const qdri_comm_machine before = self.comm->root->machine;
    if (self.is_local || self.is_boot) return 0;
    qdri_comm_set_machine(self.comm, &(qdri_comm_machine){.direct_bytes = 64, .direct_all_reduce_bytes = 16});
    self.in_library_memory = 1;
    for (int i = 0; i < n_trials(&self, 200) && !failed; i++) {
        qdri_mpi_map_memory = i % 5 != 4 || self.rank != i / 5 % self.size;
        failed = run_trial(self, hash(self.seed + 9000 + (uint64_t)i), 1);
    }
    qdri_mpi_map_memory = 1;
    if (!failed) failed = test_new_target(self);
    if (!failed) failed = test_in_flight(self); /* all members have mapped its memory once, and remember that */
    self.comm->root->machine = before; /* also what was not known */
    return failed;
#else
    (void)self;
    return 0;
#endif
}

/* Groups of odd and even ranks, in falling order; a rank may be in none. */
static int test_split(member self)
{
    qdri_comm *part = NULL, *deep = NULL, *none = NULL;
    OK(qdri_comm_split(self.comm, self.rank % 2, -self.rank, &part));
    const int size = (self.size + 1 - self.rank % 2) / 2;
    CHECK(qdri_comm_size(part) == size, "%d", qdri_comm_size(part));
    CHECK(qdri_comm_rank(part) == size - 1 - self.rank / 2, "%d", qdri_comm_rank(part));
    CHECK(qdri_comm_node_size(part) >= 1 && qdri_comm_node_size(part) <= size, "node");
    member inner = self;
    inner.comm = part, inner.rank = qdri_comm_rank(part), inner.size = size;
    for (uint64_t i = 0; i < 20; i++)
        if (run_trial(inner, hash(self.seed + 1000 + i), 0)) return 1;
    /* The others know nothing of it, but callbacks need all ranks. */
    if (self.rank % 2 && !self.is_boot) OK(qdri_comm_split(part, 0, 0, &deep));
    OK(qdri_comm_split(self.comm, self.rank == 0 ? -1 : 3, 0, &none));
    CHECK((none == NULL) == (self.rank == 0), "colour -1");
    if (none) CHECK(qdri_comm_rank(none) == self.rank - 1, "equal keys keep the order");
    inner.comm = none, inner.rank = self.rank - 1, inner.size = self.size - 1;
    if (none && run_trial(inner, hash(self.seed + 2000), 0)) return 1;
    qdri_comm_destroy(&deep);
    qdri_comm_destroy(&none);
    qdri_comm_destroy(&part);
    return 0;
}

/* More groups than node memory has areas for, made, used and destroyed again and again, while members are at different
 * places. */
static int test_many_groups(member self)
{
    enum { N = 20 };
    const int n_rounds = self.is_boot && !self.is_local ? 1 : 3;
    for (int i = 0; i < n_rounds; i++) {
        qdri_comm *parts[N] = {NULL};
        for (int c = 0; c < N; c++) OK(qdri_comm_split(self.comm, 0, self.rank, &parts[c]));
        for (int c = 0; c < N; c++) {
            member inner = self;
            inner.comm = parts[c];
            if (run_trial(inner, hash(self.seed + 3000 + (uint64_t)(N * i + c)), c % 2)) return 1;
        }
        for (int c = 0; c < N; c++) qdri_comm_destroy(&parts[(c + self.rank) % N]);
    }
    return 0;
}

static int test_agree(member self)
{
    OK(qdri_comm_agree(self.comm, QDR_OK));
    const int failing = self.size - 1, also = self.size / 2;
    qdr_status mine = QDR_OK;
    if (self.rank == failing || self.rank == also)
        mine = QDR_FAIL(QDR_ERR_SHAPE, "rank %d does not like it", self.rank);
    const qdr_status status = qdr_agree(self.ctx, mine);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "rank %d does not like it", also);
    CHECK(status == QDR_ERR_SHAPE, "%d", (int)status);
    CHECK(strstr(qdr_last_error(), wanted), "not the lowest rank's sentence");
    OK(qdr_barrier(self.ctx));
    return 0;
}

static int test_host_broadcast(member self)
{
    unsigned char data[3000];
    for (int root = 0; root < self.size; root++) {
        memset(data, self.rank == root ? root + 1 : 0, sizeof data);
        OK(qdr_broadcast(self.ctx, root, data, sizeof data));
        for (size_t i = 0; i < sizeof data; i++) CHECK(data[i] == root + 1, "byte %zu", i);
    }
    OK(qdr_broadcast(self.ctx, 0, NULL, 0));
    CHECK(qdr_broadcast(self.ctx, self.size, data, 1) == QDR_ERR_ARGUMENT, "root");
    return 0;
}

typedef union number {
    float f32;
    double f64;
    uint16_t narrow;
} number;

static number number_of(qdr_dtype dtype, double wide)
{
    number made = {.f64 = wide};
    if (dtype == QDR_F32) made.f32 = (float)wide;
    if (qdri_is_narrow(dtype)) made.narrow = narrow_bits(dtype, wide);
    return made;
}

static double wide_of(qdr_dtype dtype, const void *at)
{
    if (dtype == QDR_F64) return *(const double *)at;
    if (dtype == QDR_F32) return (double)*(const float *)at;
    return narrow_value(dtype, *(const uint16_t *)at);
}

/* One call on numbers of which each third is a NaN on one rank, where all others have Inf. */
typedef struct nan_case {
    qdri_coll coll;
    int from; /* whose NaN */
    double nan;
    char *numbers; /* of this rank */
    int64_t n_all, begin, end; /* all numbers, and those of which this rank gets the result */
} nan_case;

enum { EACH = 3, AT_NAN = 1 };

static int check_nan(member self, const nan_case *c)
{
    const qdr_dtype dtype = c->coll.dtype;
    const size_t bytes = qdr_dtype_bytes(dtype);
    const double beside = c->coll.op == QDR_MIN ? (double)-INFINITY : (double)INFINITY;
    for (int64_t i = 0; i < c->n_all; i++) {
        const double plain = (double)(self.rank + 1) * (i % EACH == 0 ? -1 : 1);
        const number x = number_of(dtype, i % EACH != AT_NAN ? plain : self.rank == c->from ? c->nan : beside);
        memcpy(c->numbers + (size_t)i * bytes, &x, bytes);
    }
    OK(qdri_comm_launch(self.comm, &c->coll, self.stream));
    OK(qdr_stream_synchronize(self.stream));
    for (int64_t i = c->begin; i < c->end; i++) {
        const double got = wide_of(dtype, (const char *)c->coll.recv + (size_t)(i - c->begin) * bytes);
        CHECK((i % EACH == AT_NAN) == (isnan(got) != 0), "NaN of rank %d, number %lld, %s op %d: %g", c->from,
              (long long)i, qdr_dtype_name(dtype), c->coll.op, got);
    }
    return 0;
}

/* A NaN is not lost in maxima and minima, whatever its sign and wherever it comes from; nor does it spread. Both kinds,
 * in place and not, in even and uneven parts. */
static int test_nan(member self)
{
    static const qdr_dtype types[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    int64_t uneven[MAX_RANKS], first = 0, n_uneven = 0;
    void *send = NULL, *recv = NULL;
    int failed = 0;
    for (int rank = 0; rank < self.size; rank++) {
        uneven[rank] = (rank + 2) % (EACH + 1);
        first += rank < self.rank ? uneven[rank] : 0;
        n_uneven += uneven[rank];
    }
    OK(qdr_mem_alloc(self.ctx, EACH * (size_t)self.size * sizeof(double), &send));
    OK(qdr_mem_alloc(self.ctx, EACH * (size_t)self.size * sizeof(double), &recv));
    for (int from = 0; from < self.size && !failed; from++)
        for (int i = 0; i < 4 * 3 * 6 && !failed; i++) { /* each type and operation, in six ways */
            const int way = i / 12, in_place = way % 2, is_uneven = way / 2 == 2;
            nan_case c = {.coll = {.kind = way / 2 ? QDR_REDUCE_SCATTER : QDR_ALL_REDUCE,
                                   .op = (qdr_reduce)(i / 4 % 3),
                                   .dtype = types[i % 4],
                                   .send = send,
                                   .recv = recv,
                                   .count = EACH},
                          .from = from,
                          .nan = (from + i) % 2 ? (double)-NAN : (double)NAN,
                          .numbers = send,
                          .n_all = EACH,
                          .end = EACH};
            if (c.coll.kind == QDR_REDUCE_SCATTER) {
                c.n_all = is_uneven ? n_uneven : (int64_t)EACH * self.size;
                c.begin = is_uneven ? first : (int64_t)EACH * self.rank;
                c.end = c.begin + (is_uneven ? uneven[self.rank] : EACH);
                if (is_uneven) c.coll.counts = uneven;
            }
            if (in_place) c.coll.recv = c.numbers + (size_t)c.begin * qdr_dtype_bytes(c.coll.dtype);
            if (in_place && c.coll.kind == QDR_ALL_REDUCE) c.coll.send = NULL;
            failed = check_nan(self, &c);
        }
    qdr_mem_free(self.ctx, &send);
    qdr_mem_free(self.ctx, &recv);
    return failed;
}

/* Errors of the arguments leave the communicator as it was. */
static int test_arguments(member self)
{
    float x[4] = {0};
    int64_t counts[MAX_RANKS] = {0};
    counts[0] = -1;
    const qdri_coll bad[] = {
        {.kind = QDR_N_COLL_KINDS, .recv = x, .count = 1},
        {.kind = QDR_ALL_REDUCE, .recv = NULL, .count = 1},
        {.kind = QDR_ALL_REDUCE, .recv = x, .count = -1},
        {.kind = QDR_ALL_REDUCE, .recv = x, .count = 1, .dtype = (qdr_dtype)77},
        {.kind = QDR_ALL_REDUCE, .recv = x, .count = 1, .dtype = QDR_U8},
        {.kind = QDR_ALL_REDUCE, .recv = x, .count = 1, .op = (qdr_reduce)9},
        {.kind = QDR_BROADCAST, .recv = x, .count = 1, .peer = self.size},
        {.kind = QDR_SEND_RECV, .send = x, .recv = x, .count = 1, .peer = -2},
        {.kind = QDR_ALL_GATHER, .send = x, .recv = x, .counts = counts},
        {.kind = QDR_ALL_GATHER, .send = x, .recv = x, .count = INT64_MAX / 4},
        {.kind = QDR_ALL_GATHER, .send = x, .recv = x, .count = 4, .split_unit = 3},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const qdr_status status = qdri_comm_launch(self.comm, &bad[i], self.stream);
        CHECK(status < 0 && strlen(qdr_last_error()) > 10, "case %zu", i);
    }
    OK(qdr_context_status(self.ctx));
    return run_trial(self, self.seed, 0);
}

static void count_call(const qdri_comm *comm, const qdri_coll *coll, void *user)
{
    (void)comm;
    *(int64_t *)user += coll->count;
}

static int test_observer(member self)
{
    int64_t n_elems = 0;
    void *memory = NULL;
    OK(qdr_mem_alloc(self.ctx, 5 * sizeof(float), &memory));
    const qdri_coll coll = {.kind = QDR_BROADCAST, .recv = memory, .count = 5};
    OK(qdri_fill_zero(self.stream, memory, 5 * sizeof(float)));
    qdri_comm_set_observer(self.comm, count_call, &n_elems);
    OK(qdri_comm_launch(self.comm, &coll, self.stream));
    qdri_comm_set_observer(self.comm, NULL, NULL);
    OK(qdr_stream_synchronize(self.stream));
    qdr_mem_free(self.ctx, &memory);
    CHECK(n_elems == (self.size > 1 ? 5 : 0), "%lld", (long long)n_elems);
    qdri_comm_reset_traffic(self.comm);
    CHECK(qdri_comm_traffic(self.comm, QDR_BROADCAST).n_calls == 0, "reset");
    return 0;
}

static int test_main(qdr_context *ctx, void *user)
{
    static int (*const tests[])(member) = {test_random,         test_pieces, test_large,       test_direct,
                                           test_in_flight,      test_split,  test_many_groups, test_agree,
                                           test_host_broadcast, test_nan,    test_arguments,   test_observer};
    member self = *(const member *)user;
    self.ctx = ctx;
    self.comm = qdri_context_world(ctx);
    self.rank = qdr_context_rank(ctx);
    self.size = qdr_context_size(ctx);
    if (self.size > MAX_RANKS) return 1;
    if (qdri_stream_create(qdri_context_dev(ctx), QDRI_STREAM_COMM, &self.stream) != QDR_OK) return 1;
    int failed = 0;
    for (size_t i = 0; i < sizeof tests / sizeof *tests && !failed; i++) failed = tests[i](self);
    qdri_stream_destroy(&self.stream);
    return failed;
}

int main(int argc, char **argv)
{
    int n_local = 0, exit_code = 1, is_boot = argc > 2 && strcmp(argv[1], "--boot") == 0;
    if (is_boot || (argc > 2 && strcmp(argv[1], "--local") == 0)) {
        n_local = atoi(argv[2]);
        argc -= 2, argv += 2;
    }
#if QDRI_HAVE_MPI
    if (argc > 1 && strcmp(argv[1], "--messages") == 0) {
        qdri_mpi_use_node_memory = 0;
        argc--, argv++;
    }
#endif
    member start = {.seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 20240607,
                    .is_local = is_boot ? boot_has_threads() : n_local > 0,
                    .is_boot = is_boot};
    const qdr_status status = (is_boot ? boot_launch : qdr_launch)(n_local, NULL, test_main, &start, &exit_code);
    if (status != QDR_OK) fprintf(stderr, "conform_comm: %s\n", qdr_last_error());
    if (exit_code) fprintf(stderr, "conform_comm: seed %llu\n", (unsigned long long)start.seed);
    return exit_code;
}
