/* SPDX-License-Identifier: Apache-2.0 */
/* PATH.partial: a file that several processes write together, and that then takes the name PATH in one step. One
 * process, the owner, makes it, holds its lock and renames it; others open it by name. The lock ends with the owner, so
 * a file without one was left behind by a run that was killed, and is removed by the next. */
#ifndef QDRI_FILES_PARTIAL_H
#define QDRI_FILES_PARTIAL_H

#include "core/status.h"

typedef struct qdri_partial qdri_partial;

/* Makes an empty PATH.partial, with the permissions of the file at PATH if there is one.
 * @retval QDR_ERR_ARGUMENT  PATH is no regular file, or may not be written; or another run has PATH.partial
 * @retval QDR_ERR_IO        the disk is full or failed
 * @retval QDR_ERR_MEMORY    out of memory */
QDR_NODISCARD qdr_status qdri_partial_create(const char *path, qdri_partial **partial);
/* What another process needs to open it: its name, after following symbolic links, and random bytes that it begins
 * with, by which that process knows that its file is the owner's, and not one of that name on a disk of its own. */
typedef struct qdri_partial_ticket {
    char name[4608];
    unsigned char mark[24]; /* the first 8 are zeros, so that it is no header of a safetensors file */
} qdri_partial_ticket;
qdri_partial_ticket qdri_partial_ticket_of(const qdri_partial *partial);
/* Opens the file of another process for writing. who: "rank 3", for messages.
 * @retval QDR_ERR_IO  it cannot be opened, or is another file */
QDR_NODISCARD qdr_status qdri_partial_join(const qdri_partial_ticket *ticket, const char *who, int *descriptor);
int qdri_partial_descriptor(const qdri_partial *partial); /* for writing */
/* Writes it to the disk, renames it, and gives `keep` older files of its name other names, PATH.1 for the youngest. The
 * older file is called PATH.0 as well until the new one is in place, so that no file which is kept goes before.
 * *partial becomes NULL in any case; after an error PATH is as it was, and PATH.partial is removed. */
QDR_NODISCARD qdr_status qdri_partial_commit(qdri_partial **partial, int keep);
/* Removes it. NULL and a pointer to NULL do nothing. */
void qdri_partial_discard(qdri_partial **partial);
/* Records that a file, by its name for messages, could not be written.
 * @return QDR_ERR_ARGUMENT for names that cannot be written to, QDR_ERR_IO for failures of the disk */
qdr_status qdri_partial_fail(const char *path, int error);

#endif
