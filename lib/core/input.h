/* SPDX-License-Identifier: Apache-2.0 */
/* What lib/ and perfmodel/ need in addition to quadrille/input.h. */
#ifndef QDRI_CORE_INPUT_H
#define QDRI_CORE_INPUT_H

#include "quadrille/input.h"

/* The path as sentences name it: printable, cut at its beginning, "standard input" for "-". */
void qdri_input_name(const char *path, char *name, size_t capacity);
/* qdr_input_read() with another wait for the next byte of a pipe. No pointer is NULL. */
QDR_NODISCARD qdr_status qdri_input_read_within(const char *path, size_t max_bytes, int waits_msecs, char **bytes,
                                                size_t *n_bytes);
/* Whether the path is a regular file that can be read. */
int qdri_input_is_there(const char *path);

#endif
