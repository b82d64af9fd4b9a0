/* SPDX-License-Identifier: Apache-2.0 */
/* Managed memory has two views: the host's, at its address, and that of GPU work, in the same place as the bytes of
 * device memory. So the kernel's page tables tell which pages the host has accessed in its view, itself or by a system
 * call; a page that neither the host nor work has written is uninitialised. The granularity is a page, and a page that
 * was read counts as written.
 *
 * Sanitizers check the host's accesses against those of kernels if both are at the same address: with sanitizers there
 * is only one view, and uninitialised bytes are not detected. */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "internal.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif

#ifdef HAS_SANITIZER
enum { HAS_VIEWS = 0 };
#else
enum { HAS_VIEWS = 1 };
#endif

#define PAGE ((uintptr_t)4096)
/* Of a page's entry: it is there, or is being moved. */
#define TOUCHED ((uint64_t)3 << 62)

static int page_table = -1;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int is_unsure;

/* Where pages may go to a swap, the host's view loses them without a trace. */
static void open_page_table(void)
{
    struct sysinfo facts;
    if (sysinfo(&facts) == 0 && facts.totalswap == 0) page_table = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
}

int fake_managed_is_checked(void)
{
    if (HAS_VIEWS) pthread_once(&once, open_page_table);
    return page_table >= 0 && !atomic_load(&is_unsure);
}

int fake_managed_has_views(void) { return HAS_VIEWS && sysconf(_SC_PAGESIZE) == (long)PAGE; }

void fake_managed_be_unsure(void) { atomic_store(&is_unsure, 1); }

static int map(char *at, size_t bytes, int file)
{
    const int flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
    return mmap(at, bytes, PROT_READ | PROT_WRITE, flags, file, 0) != MAP_FAILED;
}

/* Large pages would be made of touched and untouched ones. (mremap() could do it without a file, but UCX stands before
 * it and loses its last argument.) */
int fake_managed_open(char *view, char *data, size_t bytes)
{
    const int file = memfd_create("managed", MFD_CLOEXEC);
    if (file < 0) return 0;
    const int is_there = ftruncate(file, (off_t)bytes) == 0 && map(view, bytes, file) && map(data, bytes, file);
    (void)close(file);
    if (is_there) (void)madvise(view, bytes, MADV_NOHUGEPAGE);
    return is_there;
}

void fake_managed_close(char *view, char *data, size_t bytes)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    (void)mmap(view, bytes, PROT_NONE, flags, -1, 0);
    (void)mmap(data, bytes, PROT_NONE, flags, -1, 0);
}

static int is_touched(uintptr_t page)
{
    uint64_t entry = 0;
    const ssize_t n = pread(page_table, &entry, sizeof entry, (off_t)(page / PAGE * sizeof entry));
    return n != (ssize_t)sizeof entry || (entry & TOUCHED);
}

/* The bytes of [from, to) that lie in the block. */
static void write_shadow(const fake_block *block, uintptr_t from, uintptr_t to)
{
    const uintptr_t end = block->begin + block->bytes;
    if (from < block->begin) from = block->begin;
    if (to > end) to = end;
    memset(block->shadow + (from - block->begin), 1, to - from);
}

void fake_managed_look(const fake_block *block, const void *begin, size_t bytes)
{
    const uintptr_t first = (uintptr_t)begin / PAGE * PAGE, end = (uintptr_t)begin + bytes;
    const int is_checked = fake_managed_is_checked();
    if (!memchr(block->shadow + ((uintptr_t)begin - block->begin), 0, bytes)) return;
    for (uintptr_t page = first; page < end; page += PAGE) {
        if (!is_checked || is_touched(page)) write_shadow(block, page, page + PAGE);
    }
}
