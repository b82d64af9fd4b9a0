/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a rank that the other ranks of its node can map. Each large block is an in-memory file, which its owner
 * lists in its share of the node's memory and others open through /proc. If that is not possible (another PID
 * namespace, no more file descriptors), memory is ordinary, and collectives copy through slots. */
#ifndef QDRI_COMM_MPI_HEAP_H
#define QDRI_COMM_MPI_HEAP_H

#include "dev/dev.h"

/* In-memory files that processes on the same machine map from each other through /proc/PROCESS/fd/NUMBER: they use
 * memory only, not the capacity of a file system, and are freed when the last process unmaps them. */

/* What another process needs to know; plain data. */
typedef struct memory_file {
    int process, number; /* of the creator, which keeps the descriptor open while others may map the file */
    uint64_t device, inode; /* to ensure that it is the same file */
    size_t bytes;
} memory_file;

/* Creates a zeroed file. Returns its mapping; NULL: not possible. */
void *qdri_memory_file_create(size_t bytes, memory_file *file);
/* Maps a file of another process; NULL: not reachable (another PID namespace, no permission, no address space). */
void *qdri_memory_file_map(const memory_file *file);
/* Called by the creator: others can no longer map the file; existing mappings remain. */
void qdri_memory_file_close(const memory_file *file);
/* Called by the creator before it closes the file: frees the memory immediately, whoever maps it. No process may read
 * it any more. */
void qdri_memory_file_empty(const memory_file *file);

enum { HEAP_BLOCKS = 256, HEAP_MIN_BYTES = 128 << 10 };

/* One block as others see it. */
typedef struct heap_block {
    uint64_t generation; /* differs from that of every earlier block of this number; 0: none */
    memory_file file;
} heap_block;

/* Located in memory that the node shares; written by its owner. */
typedef struct heap_share {
    heap_block blocks[HEAP_BLOCKS];
} heap_share;

/* The position of a buffer in its owner's heap. */
typedef struct heap_range {
    uint64_t generation; /* 0: in no block */
    int block;
    size_t offset;
} heap_range;

typedef struct mpi_heap mpi_heap;

/* share: that of this rank; n_peers: number of ranks of the world. */
QDR_NODISCARD qdr_status qdri_mpi_heap_create(heap_share *share, int n_peers, mpi_heap **heap);
/* Unmaps the blocks of others. Own blocks live on until they are freed, and so does the heap. Accepts NULL. */
void qdri_mpi_heap_leave(mpi_heap *heap);
/* The memory source for this rank's device. */
qdri_mem_source qdri_mpi_heap_source(mpi_heap *heap);
/* The range of the `bytes` bytes at p. Any thread. */
heap_range qdri_mpi_heap_find(mpi_heap *heap, const void *p, size_t bytes);
/* The local address of a range in the heap of rank `peer`, whose buffer must be in use; NULL: it cannot be mapped. Any
 * thread. */
void *qdri_mpi_heap_map(mpi_heap *heap, const heap_share *share, int peer, const heap_range *range);

#endif
