/* SPDX-License-Identifier: Apache-2.0 */
/* Writing at any place of a file, whatever the system does: short writes, interruptions, the signal at a limit on the
 * size of files. All return 0, or an errno value. */
#ifndef QDRI_FILES_AT_H
#define QDRI_FILES_AT_H

#include <stddef.h>
#include <stdint.h>

int qdri_write_at(int descriptor, int64_t at, const void *from, size_t n_bytes);
/* Makes the file that long and takes its room on the disk, so that a full disk shows before anything is written. */
int qdri_reserve(int descriptor, int64_t n_bytes);
/* Asks the system to write whole pages of these bytes to the disk while the program goes on. It only helps: for long
 * stretches, since it takes a call, and since pages that others still change would be written twice. */
void qdri_write_soon(int descriptor, int64_t at, size_t n_bytes);
/* Waits for the disk: for the file, or for its elements and length only. */
int qdri_sync(int descriptor);
int qdri_sync_data(int descriptor);
/* What to do about an error, for the end of a sentence: "make room …". */
const char *qdri_write_remedy(int error);
const char *qdri_read_remedy(int error);

#endif
