/* SPDX-License-Identifier: Apache-2.0 */
/** @file input.h  Reads a whole file into memory within bounds of size and time, and JSON.
 *
 * Private (private.h). Part of libquadrille_perf. Local and blocking; thread-safe. */
#ifndef QUADRILLE_PRIVATE_INPUT_H
#define QUADRILLE_PRIVATE_INPUT_H

#include <stddef.h>

#include "private.h"

/** Reads all of a file, and never more than `max_bytes`:
 *  - regular files: one that grows while it is read is refused;
 *  - pipes and FIFOs: given up when no byte arrives for QDR_INPUT_WAIT_SECS, as when nothing writes to a FIFO;
 *  - "-", standard input, and terminals: read to their end, however long that takes;
 *  - folders, sockets and other devices are refused.
 * Sentences begin with the path, or with "standard input".
 *  @param[out] bytes    the contents, followed by a zero byte that *n_bytes does not count; the caller's, who calls
 *                       free(); NULL after an error
 *  @param[out] n_bytes  0 after an error
 *  @retval QDR_ERR_ARGUMENT  a pointer is NULL; the file is larger than max_bytes, grows, or is a socket or a device
 *  @retval QDR_ERR_IO        it cannot be opened or read, as a folder cannot; nothing arrived in time
 *  @retval QDR_ERR_MEMORY    out of memory */
QDR_PRIVATE_API QDR_NODISCARD qdr_status qdr_input_read(const char *path, size_t max_bytes, char **bytes,
                                                        size_t *n_bytes);

/** The same for a text in UTF-8, whose byte order mark is left out.
 *  @retval QDR_ERR_ARGUMENT  as above, or it is recognised as something else, such as UTF-16, an archive, a pickle of
 *                            PyTorch or a pointer of Git LFS: the sentence says as what, and what to do */
QDR_PRIVATE_API QDR_NODISCARD qdr_status qdr_input_read_text(const char *path, size_t max_bytes, char **bytes,
                                                             size_t *n_bytes);

/** Replaces each control character of a text in UTF-8 by '?', and each of Unicode's invisible characters that change
 * the direction or the form of what follows, such as U+202E: for names and notes of files that are printed. NULL does
 * nothing. */
QDR_PRIVATE_API void qdr_text_hide_controls(char *text);

/** How long qdr_input_read() waits for the next byte of a pipe. */
#define QDR_INPUT_WAIT_SECS 10

struct json_t;
/** Reads JSON into values of jansson, for programs that use it: an object or a list, in which no object has a key
 * twice, and no string a zero byte. Unlike jansson's own reader it tells a lack of memory from a mistake, and survives
 * it.
 *  @param[in]  text   `bytes` bytes of UTF-8
 *  @param[in]  name   of the text, for sentences
 *  @param[out] root   the caller's, who calls json_decref(); NULL after an error of the text or of memory
 *  @retval QDR_ERR_ARGUMENT  a pointer is NULL; it is not JSON, or deeper than 2048 levels
 *  @retval QDR_ERR_MEMORY    out of memory */
QDR_PRIVATE_API QDR_NODISCARD qdr_status qdr_json_read(const char *text, size_t bytes, const char *name,
                                                       struct json_t **root);

#endif
