/* SPDX-License-Identifier: Apache-2.0 */
/* The location of device memory: for each GPU a region without access, then at a constant distance the pages with the
 * bytes, and at the same distance after those the pages with the shadow. Managed memory is there, too; the host may
 * access its addresses. Addresses are reused as late as possible, so that freed memory stays inaccessible. */
#define _GNU_SOURCE 1
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

#ifdef __SANITIZE_ADDRESS__
#define HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#endif
#ifdef HAS_ASAN
#include <sanitizer/asan_interface.h>
#endif

#define GPU_BYTES ((size_t)32 << 30) /* of addresses, much more than of memory */
#define PAGE ((size_t)4096)

fake_region_of_all fake_region;

static fake_block **placed[FAKE_GPUS_MOST]; /* by address, freed ones until they are gone */
static int n_placed[FAKE_GPUS_MOST];
static uintptr_t cursors[FAKE_GPUS_MOST];
static uint64_t random_state = 1;

static int reserve(void)
{
    if (fake_region.bytes) return 1;
    const size_t bytes = (size_t)fake_get_settings()->n_gpus * GPU_BYTES;
    void *data = mmap(NULL, 3 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return 0;
    fake_region.begin = (uintptr_t)data;
    fake_region.bytes = bytes;
    for (int i = 0; i < fake_get_settings()->n_gpus; i++) cursors[i] = fake_region.begin + (uintptr_t)i * GPU_BYTES;
    return 1;
}

int fake_in_region(const void *pointer) { return (uintptr_t)pointer - fake_region.begin < fake_region.bytes; }

/* How many blocks begin before `at`. */
static int n_before(int device, uintptr_t at)
{
    int low = 0, high = n_placed[device];
    while (low < high) {
        const int middle = (low + high) / 2;
        if (placed[device][middle]->pages < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The first place after the cursor; `after`: the block that ends before it. */
static uintptr_t find_gap(int device, uintptr_t from, size_t bytes)
{
    const uintptr_t end = fake_region.begin + (uintptr_t)(device + 1) * GPU_BYTES;
    for (int i = n_before(device, from); from + bytes <= end; i++) {
        const fake_block *next = i < n_placed[device] ? placed[device][i] : NULL;
        if (!next || from + bytes <= next->pages) return from;
        from = next->pages + next->page_bytes;
    }
    return 0;
}

static void insert(fake_block *block)
{
    const int device = block->device, at = n_before(device, block->pages);
    const size_t n_behind = (size_t)(n_placed[device] - at);
    placed[device] = fake_grow(placed[device], (size_t)n_placed[device] + 1, sizeof(fake_block *));
    memmove(placed[device] + at + 1, placed[device] + at, n_behind * sizeof(fake_block *));
    placed[device][at] = block;
    n_placed[device]++;
}

static char *bytes_of(const fake_block *block) { return (char *)block->pages + fake_region.bytes; }

/* Small blocks begin as not-a-number, large ones as whatever is there, managed ones as zeros: their pages are dearer,
 * and what reads them unwritten is found. */
static int open_pages(fake_block *block)
{
    const size_t open_bytes = block->page_bytes - PAGE; /* the last page stays closed */
    const size_t shift = block->begin - block->pages;
    char *data = bytes_of(block);
    const int is_open = block->kind == FAKE_MANAGED ? fake_managed_open((char *)block->pages, data, open_bytes)
                                                    : mprotect(data, open_bytes, PROT_READ | PROT_WRITE) == 0;
    if (!is_open) return 0;
    if (mprotect(data + fake_region.bytes, open_bytes, PROT_READ | PROT_WRITE)) return 0;
    block->shadow = (unsigned char *)data + fake_region.bytes + shift;
#ifdef HAS_ASAN
    ASAN_POISON_MEMORY_REGION(data, open_bytes);
    ASAN_UNPOISON_MEMORY_REGION(data + shift, block->bytes);
#endif
    if (block->kind == FAKE_DEVICE && block->bytes <= (size_t)1 << 20) memset(data + shift, 0xff, block->bytes);
    return 1;
}

static void close_pages(char *data, size_t bytes)
{
    (void)madvise(data, bytes, MADV_DONTNEED);
    (void)mprotect(data, bytes, PROT_NONE);
}

int fake_place(fake_block *block)
{
    const int device = block->device;
    if (!reserve()) return 0;
    const uintptr_t first = fake_region.begin + (uintptr_t)device * GPU_BYTES;
    const size_t shift = 256 * (size_t)(fake_random(&random_state) % 8); /* CUDA aligns to 256 */
    block->page_bytes = (shift + block->bytes + 2 * PAGE - 1) / PAGE * PAGE;
    uintptr_t at = find_gap(device, cursors[device], block->page_bytes);
    if (!at) at = find_gap(device, first, block->page_bytes);
    if (!at) return 0;
    block->pages = at;
    block->begin = at + shift;
    if (!open_pages(block)) return 0;
    cursors[device] = at + block->page_bytes;
    insert(block);
    return 1;
}

void fake_unplace(fake_block *block)
{
    const int device = block->device, at = n_before(device, block->pages);
    char *data = bytes_of(block);
#ifdef HAS_ASAN
    ASAN_UNPOISON_MEMORY_REGION(data, block->page_bytes);
#endif
    if (block->kind == FAKE_MANAGED)
        fake_managed_close((char *)block->pages, data, block->page_bytes);
    else
        close_pages(data, block->page_bytes);
    close_pages(data + fake_region.bytes, block->page_bytes);
    memmove(placed[device] + at, placed[device] + at + 1, (size_t)(n_placed[device] - at - 1) * sizeof(fake_block *));
    n_placed[device]--;
}
