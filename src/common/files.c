/* SPDX-License-Identifier: Apache-2.0 */
/* The files that a command reads and writes. */
#include "common/files.h"

#include <quadrille/data.h>

int files_end(qdr_output **output, int is_whole, failure *why)
{
    if (!why->code && !is_whole) { /* with the reason, if the file knows it */
        fail_status(why, qdr_output_finish(*output));
        fail(why, EXIT_FAILED, "a file could not be written completely; make room");
    }
    if (why->code)
        qdr_output_discard(output);
    else
        fail_status(why, qdr_output_commit(output));
    return why->code;
}

const char *files_find(const char *kind, const char *name_or_path, char path[FILES_PATH_BYTES])
{
    return name_or_path && qdr_data_find(kind, name_or_path, path, FILES_PATH_BYTES) == QDR_OK ? path : NULL;
}
