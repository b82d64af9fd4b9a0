/* SPDX-License-Identifier: Apache-2.0 */
/* A file under a temporary name beside its own until it is whole. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "calibrate.h"

static int fail_exists(const new_file *file, failure *why)
{
    return fail(why, EXIT_USAGE,
                "calibrate: %s is there already; give --force to replace it, or another name with "
                "-o",
                file->path);
}

int new_file_open(new_file *file, failure *why)
{
    if (!file->may_replace && access(file->path, F_OK) == 0) return fail_exists(file, why);
    const int n = snprintf(file->temporary, sizeof file->temporary, "%s.%ld.new", file->path, (long)getpid());
    if (n >= (int)sizeof file->temporary)
        return fail(why, EXIT_USAGE, "calibrate: the path of -o has %d letters; use a shorter one", n);
    file->stream = fopen(file->temporary, "wx");
    if (file->stream) return EXIT_OK;
    fail(why, EXIT_USAGE, "calibrate: cannot write %s: %s; choose another place with -o", file->temporary,
         strerror(errno));
    file->temporary[0] = 0;
    return why->code;
}

static int fail_keep(const new_file *file, failure *why)
{
    if (errno == EEXIST) return fail_exists(file, why);
    return fail(why, EXIT_FAILED, "calibrate: cannot write %s: %s; is there room?", file->path, strerror(errno));
}

int new_file_keep(new_file *file, failure *why)
{
    FILE *stream = file->stream;
    file->stream = NULL;
    const int is_whole = fflush(stream) == 0 && fsync(fileno(stream)) == 0;
    if ((fclose(stream) != 0) | !is_whole) return fail_keep(file, why);
    /* A link refuses what is there by now; some file systems have none. */
    if (!file->may_replace) {
        if (link(file->temporary, file->path) == 0) return EXIT_OK;
        if (errno == EEXIST || access(file->path, F_OK) == 0) return fail_exists(file, why);
    }
    return rename(file->temporary, file->path) == 0 ? EXIT_OK : fail_keep(file, why);
}

void new_file_drop(new_file *file)
{
    if (file->stream) fclose(file->stream);
    file->stream = NULL;
    if (file->temporary[0]) unlink(file->temporary);
    file->temporary[0] = 0;
}
