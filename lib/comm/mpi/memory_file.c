/* SPDX-License-Identifier: Apache-2.0 */
/* In-memory files, shared through /proc/PROCESS/fd/NUMBER. */
#define _GNU_SOURCE /* memfd_create */
#include "comm/mpi/memory_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file larger than the process's limit raises a signal; one larger than the machine's memory does so when it is
 * touched. */
static int may_have(size_t bytes)
{
    const long n_pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    struct rlimit limit;
    return n_pages > 0 && bytes / (size_t)page_bytes < (size_t)n_pages && getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
           bytes <= limit.rlim_cur;
}

static void *map(int number, size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, number, 0);
    return at == MAP_FAILED ? NULL : at;
}

void *qdri_memory_file_create(size_t bytes, memory_file *file)
{
    struct stat facts;
    const int number = may_have(bytes) ? memfd_create("quadrille", MFD_CLOEXEC) : -1;
    if (number < 0) return NULL;
    void *at = NULL;
    if (ftruncate(number, (off_t)bytes) == 0 && fstat(number, &facts) == 0) at = map(number, bytes);
    if (!at) {
        close(number);
        return NULL;
    }
    *file = (memory_file){(int)getpid(), number, (uint64_t)facts.st_dev, (uint64_t)facts.st_ino, bytes};
    return at;
}

void *qdri_memory_file_map(const memory_file *file)
{
    char name[64];
    struct stat facts;
    snprintf(name, sizeof name, "/proc/%d/fd/%d", file->process, file->number);
    const int number = open(name, O_RDWR | O_CLOEXEC);
    if (number < 0) return NULL;
    /* The process with that number may be a different one, in another namespace. */
    const int is_same = fstat(number, &facts) == 0 && (uint64_t)facts.st_dev == file->device &&
                        (uint64_t)facts.st_ino == file->inode && (size_t)facts.st_size == file->bytes;
    void *at = is_same ? map(number, file->bytes) : NULL;
    close(number);
    return at;
}

void qdri_memory_file_close(const memory_file *file) { close(file->number); }

void qdri_memory_file_empty(const memory_file *file)
{
    const int code = ftruncate(file->number, 0);
    (void)code; /* if it fails, the memory is freed when the last process unmaps it */
}
