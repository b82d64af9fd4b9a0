/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of the fake. */
#ifndef FAKE_CUDA_TEST_FAKE_H
#define FAKE_CUDA_TEST_FAKE_H

#include "qdr_test.h"

#include <sched.h>
#include <stdatomic.h>

#include "fake.h"

#define OK(call) assert_int_equal((call), cudaSuccess)
#define GIVES(call, error) assert_int_equal((call), (error))

/* The statements make reports of this fault, and of no other. */
#define REPORTS(fault, ...)                                                                                            \
    do {                                                                                                               \
        fake_forget();                                                                                                 \
        __VA_ARGS__;                                                                                                   \
        expect_only((fault), __FILE__, __LINE__);                                                                      \
    } while (0)
/* They make none. */
#define QUIET(...) REPORTS(FAKE_N_FAULTS, __VA_ARGS__)

static inline void expect_only(fake_fault fault, const char *file, int line)
{
    for (int i = 0; i < (int)FAKE_N_FAULTS; i++) {
        const int wanted = i == (int)fault;
        if ((fake_reports((fake_fault)i) > 0) == wanted) continue;
        print_error("fault %d: %lld reports, the last of all: %s\n", i, (long long)fake_reports((fake_fault)i),
                    fake_last_report());
        _fail(file, line);
    }
    fake_forget();
}

/* ---- what a test makes by these functions, and has not destroyed, is destroyed after it ---- */

enum { MADE_MOST = 512 };

static struct made {
    void *what;
    void (*destroy)(void *what);
} all_made[MADE_MOST];
static atomic_int n_made;

static inline void keep(void *what, void (*destroy)(void *what))
{
    const int i = atomic_fetch_add(&n_made, 1);
    assert_true(i < MADE_MOST);
    all_made[i] = (struct made){what, destroy};
}

static inline void destroy_stream(void *stream) { (void)cudaStreamDestroy(stream); }
static inline void destroy_event(void *event) { (void)cudaEventDestroy(event); }
static inline void free_memory(void *memory) { (void)cudaFree(memory); }
static inline void free_pinned(void *memory) { (void)cudaFreeHost(memory); }
static inline void destroy_pool(void *pool) { (void)cudaMemPoolDestroy(pool); }

/* What the test has destroyed is reported here, which is forgotten. */
static inline void destroy_all(void)
{
    (void)cudaDeviceSynchronize();
    for (int i = atomic_exchange(&n_made, 0) - 1; i >= 0; i--) all_made[i].destroy(all_made[i].what);
    fake_forget();
}

static inline cudaStream_t new_stream(void)
{
    cudaStream_t stream = NULL;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    keep(stream, destroy_stream);
    return stream;
}

static inline cudaEvent_t new_event(void)
{
    cudaEvent_t event = NULL;
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    keep(event, destroy_event);
    return event;
}

static inline void *new_memory(size_t bytes)
{
    void *data = NULL;
    OK(cudaMalloc(&data, bytes));
    keep(data, free_memory);
    return data;
}

static inline void *new_pinned(size_t bytes)
{
    void *data = NULL;
    OK(cudaHostAlloc(&data, bytes, cudaHostAllocMapped));
    keep(data, free_pinned);
    return data;
}

static inline cudaMemPool_t new_pool(void)
{
    cudaMemPool_t pool = NULL;
    const struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned,
                                                .location = {.type = cudaMemLocationTypeDevice}};
    OK(cudaMemPoolCreate(&pool, &properties));
    keep(pool, destroy_pool);
    return pool;
}

/* Work that holds its stream until it is let go. */
typedef struct gate {
    atomic_int is_open;
} gate;

static inline void pass_gate(void *user)
{
    gate *g = user;
    while (!atomic_load(&g->is_open)) sched_yield();
}

static inline void close_gate(cudaStream_t stream, gate *g)
{
    atomic_store(&g->is_open, 0);
    OK(cudaLaunchHostFunc(stream, pass_gate, g));
}

static inline void open_gate(gate *g) { atomic_store(&g->is_open, 1); }

static inline void open_for_good(void *user) { open_gate(user); }

/* Waits until the stream has done its work, in a way that CUDA knows nothing of: what a test then plants is a race by
 * the rules, and yet no two threads meet. */
static inline void finish_unnoticed(cudaStream_t stream)
{
    gate done = {0};
    OK(cudaLaunchHostFunc(stream, open_for_good, &done));
    pass_gate(&done);
}

/* One access of contiguous bytes. */
static inline cudaError_t use(cudaStream_t stream, const char *name, fake_access_kind kind, const void *data,
                              size_t bytes)
{
    const fake_access access = {kind, data, bytes, 0, 1};
    return fake_use(stream, name, &access, 1);
}

/* The tests count reports; at the end nothing is left. */
FIXTURE(start_counting)
{
    print_message("FAKE_CUDA_SEED=%llu\n", (unsigned long long)fake_seed());
    fake_count_reports(1);
    fake_forget();
    return 0;
}

FIXTURE(check_nothing_left)
{
    destroy_all();
    const int64_t n = fake_check_leaks();
    if (n) print_error("%s\n", fake_last_report());
    return n != 0;
}

#define FAKE_TEST(name) TEST_IN(name, start_counting, check_nothing_left)

#endif
