/* SPDX-License-Identifier: Apache-2.0 */
/* The files that a command reads and writes. */
#ifndef QUADRILLE_SRC_FILES_H
#define QUADRILLE_SRC_FILES_H

#include <quadrille/output.h>

#include "failure.h"

#define FILES_PATH_BYTES 4096

/* Ends an output: puts it in place where all of it was written and nothing has failed; else it is discarded, and
 * nothing was replaced. */
int files_end(qdr_output **output, int is_whole, failure *why);

/* The file of a machine, model or table that is given by name or path; NULL where there is none, which will be said
 * later. `kind` is qdr_data_find()'s. */
const char *files_find(const char *kind, const char *name_or_path, char path[FILES_PATH_BYTES]);

#endif
