/* SPDX-License-Identifier: Apache-2.0 */
/* In-memory files that processes on the same machine map from each other through /proc: they use memory only, not the
 * capacity of a file system, and are freed when the last process unmaps them. */
#ifndef QDRI_COMM_MPI_MEMORY_FILE_H
#define QDRI_COMM_MPI_MEMORY_FILE_H

#include <stddef.h>
#include <stdint.h>

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

#endif
