/* SPDX-License-Identifier: Apache-2.0 */
/* The files that a command reads and writes. */
#ifndef QUADRILLE_SRC_COMMON_FILES_H
#define QUADRILLE_SRC_COMMON_FILES_H

#include <quadrille_private/output.h>

#include "common/failure.h"

#define FILES_PATH_BYTES 4096

/* Ends an output: moves it into place if all of it was written and nothing has failed; otherwise discards it and
 * replaces nothing. */
int files_end(qdr_output **output, failure *why);

/* Writes a whole file, for an option. `write` need not look for errors of the file. */
typedef void (*files_writer)(FILE *file, const void *user, failure *why);
int files_write(const char *option, const char *path, files_writer write, const void *user, failure *why);

/* Creates a folder, for an option, and its parents, as mkdir -p does. */
int files_make_folder(const char *option, const char *dir, failure *why);

#endif
