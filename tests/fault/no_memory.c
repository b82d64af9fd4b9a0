/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a program: its allocation number QDR_TEST_NO_MEMORY (1 is the first) fails, once. Those count that the
 * program itself, Quadrille's libraries, jansson and the C library ask for, on any thread. With
 * QDR_TEST_COUNT_MEMORY=FILE their number is written there in the end. Of processes of a launcher only rank
 * QDR_TEST_MEMORY_RANK takes part, and without the C library, which also asks for MPI, which would abort. */
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANGES = 16 };

static struct {
    uintptr_t begin, end;
} ranges[MOST_RANGES]; /* of code whose allocations count */
static int n_ranges;
static long failing = -1;
static atomic_long n_allocations;
static atomic_int is_ready;

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static int add_ranges(struct dl_phdr_info *info, size_t size, void *user)
{
    static const char *const names[] = {"libquadrille", "libjansson", "libc.so", "libc-"};
    int counts = *info->dlpi_name == '\0'; /* the program */
    const size_t n = user ? 2 : sizeof names / sizeof *names;
    (void)size;
    for (size_t i = 0; i < n; i++) counts |= strstr(info->dlpi_name, names[i]) != NULL;
    for (int i = 0; counts && i < info->dlpi_phnum && n_ranges < MOST_RANGES; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
        ranges[n_ranges].begin = info->dlpi_addr + part->p_vaddr;
        ranges[n_ranges++].end = info->dlpi_addr + part->p_vaddr + part->p_memsz;
    }
    return 0;
}

__attribute__((constructor)) static void begin(void)
{
    const char *number = getenv("QDR_TEST_NO_MEMORY"), *rank = getenv("PMI_RANK");
    const char *wanted = getenv("QDR_TEST_MEMORY_RANK");
    if (wanted && (!rank || strcmp(wanted, rank) != 0)) return;
    if (number) failing = atol(number);
    dl_iterate_phdr(add_ranges, (void *)wanted);
    atomic_store(&is_ready, 1);
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("QDR_TEST_COUNT_MEMORY");
    const long n = atomic_load(&n_allocations);
    if (!path || !atomic_exchange(&is_ready, 0)) return;
    FILE *file = fopen(path, "w");
    if (!file) return;
    fprintf(file, "%ld\n", n);
    fclose(file);
}

static int fails(const void *caller)
{
    if (!atomic_load(&is_ready)) return 0;
    for (int i = 0; i < n_ranges; i++) {
        if ((uintptr_t)caller < ranges[i].begin || (uintptr_t)caller >= ranges[i].end) continue;
        if (atomic_fetch_add(&n_allocations, 1) + 1 != failing) return 0;
        errno = ENOMEM;
        return 1;
    }
    return 0;
}

#pragma GCC visibility push(default)

void *malloc(size_t bytes) { return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes); }

void *calloc(size_t n, size_t bytes) { return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, bytes); }

void *realloc(void *old, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    if (fails(__builtin_return_address(0))) return ENOMEM;
    *memory = __libc_memalign(alignment, bytes);
    return *memory ? 0 : ENOMEM;
}
