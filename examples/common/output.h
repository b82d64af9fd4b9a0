/* SPDX-License-Identifier: Apache-2.0 */
/* A file that a program writes in one go. A regular file appears whole or not at all; links are followed; what is no
 * regular file (a device, a pipe) is written to and never replaced. */
#ifndef EXAMPLES_OUTPUT_H
#define EXAMPLES_OUTPUT_H

#include <stdio.h>

#include "options.h"

#define PATH_BYTES 4096

typedef struct output {
    const char *what, *path; /* for the sentences: "picture", and the name that the user gave */
    FILE *file;
    char target[PATH_BYTES]; /* `path`, with links followed */
    char draft[PATH_BYTES]; /* where it grows until it is whole; "": straight into the target */
} output;

/* Whether the file can be written later; nothing is left behind. 0: no, `sentence` says why. */
int output_try(const char *what, const char *path, char sentence[PROBLEM_BYTES]);
/* Opens out->file. 0: no, and there is nothing to close. */
int output_open(output *out, const char *what, const char *path, char sentence[PROBLEM_BYTES]);
/* Closes it and puts it in place. 0: it could not be written, and nothing was put in place. */
int output_close(output *out, char sentence[PROBLEM_BYTES]);

#endif
