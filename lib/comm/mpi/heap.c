/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the `mpi` backend that the ranks of a node map from each other. */
#define _GNU_SOURCE /* memfd_create */
#include "comm/mpi/heap.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/mpi/mpi.h"
#include "core/size.h"

int qdri_mpi_map_memory = 1;

static void *map_file(int number, size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, number, 0);
    return at == MAP_FAILED ? NULL : at;
}

void *qdri_memory_file_create(size_t bytes, memory_file *file)
{
    const long n_pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    struct stat facts;
    struct rlimit limit;
    /* A file larger than the process's limit raises a signal; one larger than the machine's memory does so when it is
     * touched. */
    if (n_pages <= 0 || bytes / (size_t)page_bytes >= (size_t)n_pages || getrlimit(RLIMIT_FSIZE, &limit) != 0 ||
        bytes > limit.rlim_cur)
        return NULL;
    const int number = memfd_create("quadrille", MFD_CLOEXEC);
    if (number < 0) return NULL;
    void *at = NULL;
    if (ftruncate(number, (off_t)bytes) == 0 && fstat(number, &facts) == 0) at = map_file(number, bytes);
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
    void *at = is_same ? map_file(number, file->bytes) : NULL;
    close(number);
    return at;
}

void qdri_memory_file_close(const memory_file *file) { close(file->number); }

void qdri_memory_file_empty(const memory_file *file)
{
    const int code = ftruncate(file->number, 0);
    (void)code; /* if it fails, the memory is freed when the last process unmaps it */
}

typedef struct heap_map {
    uint64_t generation; /* of the mapped block; 0: none */
    void *at;
    memory_file file;
} heap_map;

struct mpi_heap {
    pthread_mutex_t mutex;
    heap_share *share; /* NULL: the node's memory has been freed */
    uint64_t n_made;
    int n_blocks; /* own blocks that have not been freed */
    int has_left;
    heap_map own[HEAP_BLOCKS];
    int n_peers;
    heap_map *peers[]; /* by rank; NULL: nothing mapped yet */
};

qdr_status qdri_mpi_heap_create(heap_share *share, int n_peers, mpi_heap **heap)
{
    void *made = NULL;
    *heap = NULL;
    QDR_TRY(
        qdri_calloc(1, sizeof(mpi_heap) + (size_t)n_peers * sizeof(heap_map *), "the memory that ranks share", &made));
    *heap = made;
    pthread_mutex_init(&(*heap)->mutex, NULL);
    (*heap)->share = share;
    (*heap)->n_peers = n_peers;
    return QDR_OK;
}

/* Frees the heap after its last block has been freed and its rank has left. Unlocks it otherwise. */
static void unlock_and_free(mpi_heap *heap)
{
    const int is_last = heap->has_left && heap->n_blocks == 0;
    pthread_mutex_unlock(&heap->mutex);
    if (!is_last) return;
    pthread_mutex_destroy(&heap->mutex);
    free(heap);
}

static void unmap(heap_map *map)
{
    if (map->generation) munmap(map->at, map->file.bytes);
    *map = (heap_map){0};
}

void qdri_mpi_heap_leave(mpi_heap *heap)
{
    if (!heap) return;
    pthread_mutex_lock(&heap->mutex);
    for (int peer = 0; peer < heap->n_peers; peer++) {
        for (int i = 0; heap->peers[peer] && i < HEAP_BLOCKS; i++) unmap(&heap->peers[peer][i]);
        free(heap->peers[peer]);
        heap->peers[peer] = NULL;
    }
    heap->share = NULL;
    heap->has_left = 1;
    unlock_and_free(heap);
}

static void *heap_alloc(void *user, size_t bytes)
{
    mpi_heap *heap = user;
    int i = 0;
    if (bytes < HEAP_MIN_BYTES) return NULL;
    pthread_mutex_lock(&heap->mutex);
    while (i < HEAP_BLOCKS && heap->own[i].generation) i++;
    heap_map made = {0};
    if (heap->share && i < HEAP_BLOCKS) made.at = qdri_memory_file_create(bytes, &made.file);
    if (made.at) {
        made.generation = ++heap->n_made;
        heap->own[i] = made;
        heap->share->blocks[i] = (heap_block){made.generation, made.file};
        heap->n_blocks++;
    }
    pthread_mutex_unlock(&heap->mutex);
    return made.at;
}

/* Peers may still have it mapped. */
static void heap_free(void *user, void *at)
{
    mpi_heap *heap = user;
    int i = 0;
    pthread_mutex_lock(&heap->mutex);
    while (!heap->own[i].generation || heap->own[i].at != at) i++;
    if (heap->share) heap->share->blocks[i].generation = 0;
    qdri_memory_file_empty(&heap->own[i].file);
    qdri_memory_file_close(&heap->own[i].file);
    unmap(&heap->own[i]);
    heap->n_blocks--;
    unlock_and_free(heap);
}

qdri_mem_source qdri_mpi_heap_source(mpi_heap *heap) { return (qdri_mem_source){heap_alloc, heap_free, heap}; }

heap_range qdri_mpi_heap_find(mpi_heap *heap, const void *p, size_t bytes)
{
    heap_range range = {0};
    const uintptr_t begin = (uintptr_t)p;
    pthread_mutex_lock(&heap->mutex);
    for (int i = 0; heap->n_blocks > 0 && i < HEAP_BLOCKS; i++) {
        const heap_map *own = &heap->own[i];
        const uintptr_t at = (uintptr_t)own->at;
        if (!own->generation || begin < at || begin - at > own->file.bytes) continue;
        if (bytes > own->file.bytes - (begin - at)) continue;
        range = (heap_range){own->generation, i, begin - at};
        break;
    }
    pthread_mutex_unlock(&heap->mutex);
    return range;
}

void *qdri_mpi_heap_map(mpi_heap *heap, const heap_share *share, int peer, const heap_range *range)
{
    void *at = NULL;
    pthread_mutex_lock(&heap->mutex);
    if (qdri_mpi_map_memory && !heap->peers[peer]) heap->peers[peer] = calloc(HEAP_BLOCKS, sizeof(heap_map));
    if (heap->peers[peer]) {
        heap_map *map = &heap->peers[peer][range->block];
        if (map->generation != range->generation && qdri_mpi_map_memory) {
            unmap(map);
            const heap_block *block = &share->blocks[range->block];
            void *mapped = qdri_memory_file_map(&block->file);
            if (mapped) *map = (heap_map){block->generation, mapped, block->file};
        }
        if (map->generation == range->generation) at = (char *)map->at + range->offset;
    }
    pthread_mutex_unlock(&heap->mutex);
    return at;
}
