/* SPDX-License-Identifier: Apache-2.0 */
/* The `mpi` backend's memory that ranks of one node map from each other. */
#define _GNU_SOURCE /* memfd_create */
#include "comm/mpi_heap.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/mpi.h"
#include "core/size.h"

int qdri_mpi_map_memory = 1;

typedef struct heap_map {
    uint64_t generation; /* of the block that is mapped; 0: none */
    void *at;
    size_t bytes;
    int file; /* of this rank's own blocks */
} heap_map;

struct mpi_heap {
    pthread_mutex_t mutex;
    heap_share *share; /* NULL: the node's memory is gone */
    uint64_t n_made;
    int n_blocks; /* of its own, not freed */
    int has_left;
    heap_map own[HEAP_BLOCKS];
    int n_peers;
    heap_map *peers[]; /* by rank; NULL: nothing mapped yet */
};

qdr_status qdri_mpi_heap_create(heap_share *share, int n_peers, mpi_heap **heap)
{
    void *made = NULL;
    *heap = NULL;
    QDR_TRY(qdri_calloc(1, sizeof(mpi_heap) + (size_t)n_peers * sizeof(heap_map *),
                        "the memory that ranks share", &made));
    *heap = made;
    pthread_mutex_init(&(*heap)->mutex, NULL);
    (*heap)->share = share;
    (*heap)->n_peers = n_peers;
    share->process = (int)getpid();
    return QDR_OK;
}

/* Whoever comes last, the last block or leaving, frees. Unlocks. */
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
    if (map->generation) munmap(map->at, map->bytes);
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

/* ---- blocks of this rank ---- */

/* A new file of zeros and its place in memory; -1: none. Its number stays open: peers open it. */
static int map_new_file(size_t bytes, void **at, struct stat *facts)
{
    const int file = memfd_create("quadrille", MFD_CLOEXEC);
    if (file < 0) return -1;
    if (ftruncate(file, (off_t)bytes) == 0 && fstat(file, facts) == 0) {
        *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (*at != MAP_FAILED) return file;
    }
    close(file);
    return -1;
}

/* A file beyond the limit of this process ends it by a signal; one of more than the machine has, as
 * soon as it is touched. */
static int may_have(size_t bytes)
{
    const long n_pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    struct rlimit limit;
    return n_pages > 0 && bytes / (size_t)page_bytes < (size_t)n_pages &&
           getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes <= limit.rlim_cur;
}

static void *heap_alloc(void *user, size_t bytes)
{
    mpi_heap *heap = user;
    struct stat facts;
    void *at = NULL;
    int free_block = -1;
    if (bytes < HEAP_MIN_BYTES || !may_have(bytes)) return NULL;
    pthread_mutex_lock(&heap->mutex);
    for (int i = 0; heap->share && i < HEAP_BLOCKS && free_block < 0; i++)
        if (!heap->own[i].generation) free_block = i;
    const int file = free_block < 0 ? -1 : map_new_file(bytes, &at, &facts);
    if (file >= 0) {
        heap->own[free_block] = (heap_map){++heap->n_made, at, bytes, file};
        heap->n_blocks++;
        heap->share->blocks[free_block] = (heap_block){heap->n_made, (uint64_t)facts.st_dev,
                                                       (uint64_t)facts.st_ino, bytes, file};
    }
    pthread_mutex_unlock(&heap->mutex);
    return file >= 0 ? at : NULL;
}

/* Peers may have it mapped still: the file is emptied, so that its pages are free at once. */
static void heap_free(void *user, void *at)
{
    mpi_heap *heap = user;
    pthread_mutex_lock(&heap->mutex);
    for (int i = 0; i < HEAP_BLOCKS; i++) {
        if (!heap->own[i].generation || heap->own[i].at != at) continue;
        if (heap->share) heap->share->blocks[i].generation = 0;
        const int file = heap->own[i].file, emptied = ftruncate(file, 0);
        (void)emptied; /* else its pages go when the last peer unmaps it */
        close(file);
        unmap(&heap->own[i]);
        heap->n_blocks--;
        break;
    }
    unlock_and_free(heap);
}

qdri_mem_source qdri_mpi_heap_source(mpi_heap *heap)
{
    return (qdri_mem_source){heap_alloc, heap_free, heap};
}

heap_place qdri_mpi_heap_find(mpi_heap *heap, const void *p, size_t bytes)
{
    heap_place place = {0};
    const uintptr_t begin = (uintptr_t)p;
    pthread_mutex_lock(&heap->mutex);
    for (int i = 0; heap->n_blocks > 0 && i < HEAP_BLOCKS; i++) {
        const heap_map *own = &heap->own[i];
        const uintptr_t at = (uintptr_t)own->at;
        if (!own->generation || begin < at || begin - at > own->bytes) continue;
        if (bytes > own->bytes - (begin - at)) continue;
        place = (heap_place){own->generation, i, begin - at};
        break;
    }
    pthread_mutex_unlock(&heap->mutex);
    return place;
}

/* ---- blocks of others ---- */

/* A process of that number may be another one, in another name space: only the very file will do.
 */
static int is_block(int file, const heap_block *block)
{
    struct stat facts;
    return fstat(file, &facts) == 0 && (uint64_t)facts.st_dev == block->device &&
           (uint64_t)facts.st_ino == block->inode && (size_t)facts.st_size == block->bytes;
}

static void map_block(heap_map *map, int process, const heap_block *block)
{
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/fd/%d", process, block->file);
    const int file = open(name, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *at = is_block(file, block)
                   ? mmap(NULL, block->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                   : MAP_FAILED;
    close(file);
    if (at != MAP_FAILED) *map = (heap_map){block->generation, at, block->bytes, -1};
}

void *qdri_mpi_heap_map(mpi_heap *heap, const heap_share *share, int peer, const heap_place *place)
{
    void *at = NULL;
    pthread_mutex_lock(&heap->mutex);
    if (qdri_mpi_map_memory && !heap->peers[peer])
        heap->peers[peer] = calloc(HEAP_BLOCKS, sizeof(heap_map));
    if (qdri_mpi_map_memory && heap->peers[peer]) {
        heap_map *map = &heap->peers[peer][place->block];
        if (map->generation != place->generation) {
            unmap(map);
            map_block(map, share->process, &share->blocks[place->block]);
        }
        if (map->generation == place->generation) at = (char *)map->at + place->offset;
    }
    pthread_mutex_unlock(&heap->mutex);
    return at;
}
