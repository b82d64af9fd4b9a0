/* SPDX-License-Identifier: Apache-2.0 */
/* Reads of managed memory that neither host nor work has written. */
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
    keep(data, free_memory);
    return data;
}

static scene open_scene(void) { return (scene){new_stream(), new_managed(N_PAGES * PAGE), new_memory(N_PAGES * PAGE)}; }

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

FAKE_TEST(test_unwritten)
{
    need_checks();
    const scene s = open_scene();
    REPORTS(FAKE_UNWRITTEN, read_managed(&s, s.managed, 1));
    REPORTS(FAKE_UNWRITTEN, read_managed(&s, page(&s, 50), 3 * PAGE));
    OK(cudaMemsetAsync(page(&s, 10), 0, 2 * PAGE, s.stream));
    QUIET(read_managed(&s, page(&s, 10), 2 * PAGE));
    REPORTS(FAKE_UNWRITTEN, read_managed(&s, page(&s, 10), 2 * PAGE + 1));
    REPORTS(FAKE_UNWRITTEN, read_managed(&s, page(&s, 10) - 1, 2 * PAGE));
}

FAKE_TEST(test_written_by_host)
{
    need_checks();
    const scene s = open_scene();
    page(&s, 3)[17] = 1;
    QUIET(read_managed(&s, page(&s, 3), PAGE));
    REPORTS(FAKE_UNWRITTEN, read_managed(&s, page(&s, 3), PAGE + 1));
    REPORTS(FAKE_UNWRITTEN, read_managed(&s, page(&s, 3) - 1, PAGE));
    OK(cudaMemsetAsync(page(&s, 4), 0, PAGE, s.stream)); /* beside it, by work */
    QUIET(read_managed(&s, page(&s, 3), 2 * PAGE));
}

/* What is unwritten stays so where it is copied to. */
FAKE_TEST(test_copied)
{
    need_checks();
    const scene s = open_scene();
    QUIET(copy_there(&s, page(&s, 20), 100));
    REPORTS(FAKE_UNWRITTEN, read_managed(&s, s.device, 100));
    page(&s, 30)[0] = 1;
    QUIET(copy_there(&s, page(&s, 30), 100));
    QUIET(read_managed(&s, s.device, 100));
}

static void nothing(void *user) { (void)user; }

/* The last: a function of the host may write at any time, and is not waited for. */
FAKE_TEST(test_functions_of_the_host)
{
    need_checks();
    const scene s = open_scene();
    REPORTS(FAKE_UNWRITTEN, read_managed(&s, s.managed, 1));
    OK(cudaLaunchHostFunc(s.stream, nothing, NULL));
    QUIET(read_managed(&s, s.managed, 1));
}
