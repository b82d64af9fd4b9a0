/* SPDX-License-Identifier: Apache-2.0 */
/* The files that a command reads and writes. */
#include "common/files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int files_end(qdr_output **output, failure *why)
{
    if (why->code)
        qdr_output_discard(output);
    else
        fail_status(why, qdr_output_commit(output));
    return why->code;
}

int files_write(const char *option, const char *path, files_writer write, const void *user, failure *why)
{
    qdr_output *output;
    if (fail_status(why, qdr_output_open(option, path, QDR_OUTPUT_REPLACE, &output))) return why->code;
    write(qdr_output_file(output), user, why);
    return files_end(&output, why);
}

int files_make_folder(const char *option, const char *dir, failure *why)
{
    char path[FILES_PATH_BYTES];
    snprintf(path, sizeof path, "%s", dir);
    for (char *slash = path; slash;) {
        slash = strchr(slash + 1, '/');
        if (slash) *slash = 0;
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return fail(why, EXIT_FAILED, "%s %s: the folder %s cannot be created (%s); name a writable place", option,
                        dir, path, strerror(errno));
        if (slash) *slash = '/';
    }
    return EXIT_OK;
}
