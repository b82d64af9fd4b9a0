/* SPDX-License-Identifier: Apache-2.0 */
/** @file output.h  Files that appear whole or not at all.
 *
 * Private (private.h). Part of libquadrille_perf. Local and blocking. Thread-safe, as long as each qdr_output is
 * used by one thread at a time. */
#ifndef QUADRILLE_PRIVATE_OUTPUT_H
#define QUADRILLE_PRIVATE_OUTPUT_H

#include <stdio.h>

#include "private.h"

/** What happens to an older file of the same name. */
typedef enum qdr_output_kind {
    QDR_OUTPUT_REPLACE = 0, /**< it is replaced in one step, by a commit */
    QDR_OUTPUT_NEW, /**< never replaced: there must not be one, neither when the output is opened nor when it is
                       committed */
    QDR_OUTPUT_LOG /**< the new file has its name from the start and can be read while it grows. The older one, unless
                      it is empty, is renamed to PATH.N with the lowest N from 1 that is free */
} qdr_output_kind;

/** A file that is being written. */
typedef struct qdr_output qdr_output;

/** Opens a file for writing.
 *
 * A regular file grows under a temporary name in its own folder (.NAME.RANDOM.part, locked while it is open) and takes
 * its place when it is committed; it then has the permissions, and where possible the owner, of the file that it
 * replaces. Leftovers of processes that were killed are removed. Symbolic links are followed, and stay. Character
 * devices and FIFOs are written directly, and are never replaced; a FIFO must have a reader within ten seconds.
 * Folders, sockets and block devices are refused, as is a file that may not be written to, and "-".
 *
 *  @param what    names the output at the beginning of sentences, such as "--svg"; "" for nothing. Copied
 *  @param path    copied
 *  @param[out] output  to be ended by qdr_output_commit() or qdr_output_discard(); NULL after an error
 *  @retval QDR_ERR_ARGUMENT  NULL, an unknown kind, or nothing can be written under this name
 *  @retval QDR_ERR_IO        the disk is full or failed, or there are too many open files
 *  @retval QDR_ERR_MEMORY    out of memory */
QDR_PRIVATE_API QDR_NODISCARD qdr_status qdr_output_open(const char *what, const char *path, qdr_output_kind kind,
                                                         qdr_output **output);
/** Checks whether qdr_output_open() would succeed with QDR_OUTPUT_REPLACE, and leaves no files. Does not open devices
 * and FIFOs. Errors are as for qdr_output_open(). */
QDR_PRIVATE_API QDR_NODISCARD qdr_status qdr_output_try(const char *what, const char *path);
/** 1: this name is a regular file or a link to one, which an output would replace. 0: it is not, or the path is
 * NULL. */
QDR_PRIVATE_API int qdr_output_replaces(const char *path);
/** Where to write. Belongs to the output: do not close it. NULL once the output is finished. */
QDR_PRIVATE_API FILE *qdr_output_file(const qdr_output *output);
/** The name that QDR_OUTPUT_LOG gave to the older file; "" if there was none. Valid as long as the output. */
QDR_PRIVATE_API const char *qdr_output_kept(const qdr_output *output);
/** Writes everything to disk and closes the file, without moving it into place: for outputs that are committed
 * together. Calling it again does nothing.
 *  @retval QDR_ERR_IO  something could not be written, now or earlier: the output can only be discarded */
QDR_PRIVATE_API QDR_NODISCARD qdr_status qdr_output_finish(qdr_output *output);
/** Finishes the output, moves it into place and frees it. *output becomes NULL in any case.
 *  @retval QDR_ERR_IO        something could not be written or moved into place: nothing was replaced, and no temporary
 *                            file remains
 *  @retval QDR_ERR_ARGUMENT  NULL; or with QDR_OUTPUT_NEW a file of that name exists by now, which is kept */
QDR_PRIVATE_API QDR_NODISCARD qdr_status qdr_output_commit(qdr_output **output);
/** Closes and removes what was written, and frees the output; a log keeps what was written so far. *output becomes
 * NULL; NULL and a pointer to NULL do nothing. */
QDR_PRIVATE_API void qdr_output_discard(qdr_output **output);

#endif
