/* SPDX-License-Identifier: Apache-2.0 */
/* Needed by lib/ and perfmodel/ in addition to quadrille_private/input.h. */
#ifndef QDRI_CORE_INPUT_H
#define QDRI_CORE_INPUT_H

#include "quadrille_private/input.h"

/* The path as it appears in messages: printable, truncated at its beginning, "standard input" for "-". */
void qdri_input_name(const char *path, char *name, size_t capacity);
typedef struct qdri_shown_name {
    char text[200];
} qdri_shown_name;
qdri_shown_name qdri_shown(const char *path);
/* Says why a file cannot be opened, by errno, then the remedy unless it is NULL: "a.json cannot be opened (No such file
 * or directory)". `shown` is the path as it appears in messages. */
QDR_NODISCARD qdr_status qdri_cannot_open(const char *shown, const char *remedy);
/* qdr_input_read() with a different time limit for the next byte of a pipe. No pointer may be NULL. */
QDR_NODISCARD qdr_status qdri_input_read_within(const char *path, size_t max_bytes, int waits_msecs, char **bytes,
                                                size_t *n_bytes);
/* Whether a text is longer than this ending, and ends in it. */
int qdri_has_ending(const char *text, const char *ending);
/* Whether the path is a readable regular file. */
int qdri_input_is_there(const char *path);

#endif
