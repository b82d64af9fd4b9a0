/* SPDX-License-Identifier: Apache-2.0 */
/* Files in memory that processes of one machine map from each other, through /proc: they count against memory only, not
 * against the room of some file system, and are freed when the last process unmaps them. */
#ifndef QDRI_COMM_MEMORY_FILE_H
#define QDRI_COMM_MEMORY_FILE_H

#include <stddef.h>
#include <stdint.h>

/* What another process has to know; plain data. */
typedef struct memory_file {
    int process, number; /* its maker's; the maker keeps the number open while others may map it */
    uint64_t device, inode; /* so that no other file is taken for it */
    size_t bytes;
} memory_file;

/* Makes a file of zeros. Returns where it is mapped; NULL: it cannot be had. */
void *qdri_memory_file_create(size_t bytes, memory_file *file);
/* Maps what another process has made; NULL: not reachable (another name space of processes, no permission, no address
 * space). */
void *qdri_memory_file_map(const memory_file *file);
/* Of the maker: others can no longer map it; those who have keep it. */
void qdri_memory_file_close(const memory_file *file);
/* Of the maker, before it closes: its memory is free at once, whoever maps it. Nobody may read it any more. */
void qdri_memory_file_empty(const memory_file *file);

#endif
