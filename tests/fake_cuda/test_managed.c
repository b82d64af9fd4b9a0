/* SPDX-License-Identifier: Apache-2.0 */
/* Managed memory: the same contents in two views, and reads of what neither host nor work has written. */
#include <unistd.h>

#include "internal.h"
#include "test_fake.h"

#define PAGE ((size_t)4096)
#define N_PAGES ((size_t)64)

typedef struct scene {
    cudaStream_t stream;
    char *managed;
    char *device;
} scene;

static char *new_managed(size_t bytes)
{
    void *data = NULL;
    OK(cudaMallocManaged(&data, bytes, cudaMemAttachGlobal));
    return data;
}

static scene open_scene(void) { return (scene){new_stream(), new_managed(N_PAGES * PAGE), new_memory(N_PAGES * PAGE)}; }

static void close_scene(const scene *s)
{
    OK(cudaStreamSynchronize(s->stream));
    OK(cudaFree(s->managed));
    OK(cudaFree(s->device));
    OK(cudaStreamDestroy(s->stream));
}

/* Where a page begins for sure, whatever the block begins with. */
static char *page(const scene *s, size_t i) { return (char *)(((uintptr_t)s->managed / PAGE + 1 + i) * PAGE); }

static void read_managed(const scene *s, const void *from, size_t bytes)
{
    OK(use(s->stream, "read", FAKE_READ, from, bytes));
}

static void copy_there(const scene *s, const void *from, size_t bytes)
{
    OK(cudaMemcpyAsync(s->device, from, bytes, cudaMemcpyDefault, s->stream));
}

static void need_checks(void)
{
    if (!fake_managed_has_views() || !fake_managed_is_checked()) skip();
}

static void test_content(void **state)
{
    (void)state;
    const scene s = open_scene();
    char *work = fake_translate(s.managed);
    memset(s.managed, 1, N_PAGES * PAGE);
    for (size_t i = 0; i < N_PAGES * PAGE; i++) assert_int_equal(work[i], 1);
    OK(cudaMemsetAsync(s.managed + 100, 2, 1000, s.stream));
    OK(cudaStreamSynchronize(s.stream));
    for (size_t i = 0; i < N_PAGES * PAGE; i++) assert_int_equal(s.managed[i], i >= 100 && i < 1100 ? 2 : 1);
    close_scene(&s);
}

/* Any kind of copy takes it for its own end. */
static void test_kinds_of_copies(void **state)
{
    (void)state;
    const scene s = open_scene();
    char *pinned = new_pinned(100);
    memset(pinned, 0, 100);
    OK(cudaMemcpyAsync(s.managed, pinned, 100, cudaMemcpyHostToHost, s.stream));
    OK(cudaMemcpyAsync(s.managed, pinned, 100, cudaMemcpyHostToDevice, s.stream));
    OK(cudaMemcpyAsync(pinned, s.managed, 100, cudaMemcpyDeviceToHost, s.stream));
    OK(cudaMemcpyAsync(s.device, s.managed, 100, cudaMemcpyDeviceToDevice, s.stream));
    GIVES(cudaMemcpyAsync(s.device, s.managed, 100, cudaMemcpyHostToHost, s.stream), cudaErrorInvalidValue);
    OK(cudaStreamSynchronize(s.stream));
    OK(cudaFreeHost(pinned));
    close_scene(&s);
}

static void test_unwritten(void **state)
{
    (void)state;
    need_checks();
    const scene s = open_scene();
    REPORTS(FAKE_UNWRITTEN, read_managed(&s, s.managed, 1));
    REPORTS(FAKE_UNWRITTEN, read_managed(&s, page(&s, 50), 3 * PAGE));
    OK(cudaMemsetAsync(page(&s, 10), 0, 2 * PAGE, s.stream));
    QUIET(read_managed(&s, page(&s, 10), 2 * PAGE));
    REPORTS(FAKE_UNWRITTEN, read_managed(&s, page(&s, 10), 2 * PAGE + 1));
    REPORTS(FAKE_UNWRITTEN, read_managed(&s, page(&s, 10) - 1, 2 * PAGE));
    close_scene(&s);
}

static void test_written_by_host(void **state)
{
    (void)state;
    need_checks();
    const scene s = open_scene();
    page(&s, 3)[17] = 1;
    QUIET(read_managed(&s, page(&s, 3), PAGE));
    REPORTS(FAKE_UNWRITTEN, read_managed(&s, page(&s, 3), PAGE + 1));
    REPORTS(FAKE_UNWRITTEN, read_managed(&s, page(&s, 3) - 1, PAGE));
    OK(cudaMemsetAsync(page(&s, 4), 0, PAGE, s.stream)); /* beside it, by work */
    QUIET(read_managed(&s, page(&s, 3), 2 * PAGE));
    close_scene(&s);
}

/* Where no instruction of the program stores: the system does. */
static void test_written_by_system(void **state)
{
    (void)state;
    need_checks();
    const scene s = open_scene();
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "abc", 3), 3);
    assert_int_equal(read(ends[0], page(&s, 7), 3), 3);
    QUIET(read_managed(&s, page(&s, 7), 3));
    REPORTS(FAKE_UNWRITTEN, read_managed(&s, page(&s, 9), 3));
    close(ends[0]);
    close(ends[1]);
    close_scene(&s);
}

/* What is unwritten stays so where it is copied to. */
static void test_copied(void **state)
{
    (void)state;
    need_checks();
    const scene s = open_scene();
    QUIET(copy_there(&s, page(&s, 20), 100));
    REPORTS(FAKE_UNWRITTEN, read_managed(&s, s.device, 100));
    page(&s, 30)[0] = 1;
    QUIET(copy_there(&s, page(&s, 30), 100));
    QUIET(read_managed(&s, s.device, 100));
    close_scene(&s);
}

static void nothing(void *user) { (void)user; }

/* The last: a function of the host may write at any time, and is not waited for. */
static void test_functions_of_the_host(void **state)
{
    (void)state;
    need_checks();
    const scene s = open_scene();
    REPORTS(FAKE_UNWRITTEN, read_managed(&s, s.managed, 1));
    OK(cudaLaunchHostFunc(s.stream, nothing, NULL));
    QUIET(read_managed(&s, s.managed, 1));
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAKE_TEST(test_content),
        FAKE_TEST(test_kinds_of_copies),
        FAKE_TEST(test_unwritten),
        FAKE_TEST(test_written_by_host),
        FAKE_TEST(test_written_by_system),
        FAKE_TEST(test_copied),
        FAKE_TEST(test_functions_of_the_host),
    };
    print_message("FAKE_CUDA_SEED=%llu\n", (unsigned long long)fake_seed());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
