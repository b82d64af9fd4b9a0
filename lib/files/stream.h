/* SPDX-License-Identifier: Apache-2.0 */
/* A stream for writing that keeps the cause of its first failure, which stdio forgets. Writing beyond a limit on the
 * size of files (SIGXFSZ), or to a reader that left (SIGPIPE), fails without ending the process. */
#ifndef QDRI_FILES_STREAM_H
#define QDRI_FILES_STREAM_H

#include <stdio.h>

typedef struct qdri_stream {
    int number; /* -1: closed */
    int error; /* an errno value: the first failure; 0: none */
} qdri_stream;

/* Opens a stream for an open file, which the stream closes. `stream` must exist as long as the result. NULL after an
 * error, with errno; the file is still open then. */
FILE *qdri_stream_open(qdri_stream *stream, int number);

#endif
