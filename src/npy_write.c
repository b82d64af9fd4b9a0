/* SPDX-License-Identifier: Apache-2.0 */
/* Writes NumPy files so that a reader finds a whole file or none. */
#define _XOPEN_SOURCE 700 /* realpath() */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "npy.h"

#define HEADER_BYTES 128 /* magic, version, length and a dictionary of any shape, padded to 64 */

/* Magic, version 1.0, and the length of what follows: 0x76 bytes. */
static const unsigned char start[] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 0x76, 0};

static void make_header(const npy_array *array, char header[HEADER_BYTES])
{
    char shape[64], text[HEADER_BYTES];
    if (array->n_dims == 1)
        snprintf(shape, sizeof shape, "(%lld,)", (long long)array->shape[0]);
    else
        snprintf(shape, sizeof shape, "(%lld, %lld)", (long long)array->shape[0], (long long)array->shape[1]);
    const int n_chars = snprintf(text, sizeof text, "{'descr': '<f%d', 'fortran_order': False, 'shape': %s, }",
                                 (int)qdr_dtype_bytes(array->dtype), shape);
    memset(header, ' ', HEADER_BYTES);
    memcpy(header, start, sizeof start);
    memcpy(header + sizeof start, text, (size_t)n_chars);
    header[HEADER_BYTES - 1] = '\n';
}

static size_t data_bytes(const npy_array *array)
{
    size_t bytes = qdr_dtype_bytes(array->dtype);
    for (int i = 0; i < array->n_dims; i++) bytes *= (size_t)array->shape[i];
    return bytes;
}

static int write_all(FILE *file, const npy_array *array)
{
    char header[HEADER_BYTES];
    const size_t bytes = data_bytes(array);
    make_header(array, header);
    return fwrite(header, 1, sizeof header, file) == sizeof header && fwrite(array->data, 1, bytes, file) == bytes &&
           fflush(file) == 0;
}

/* mkstemp() makes private files; give this one the permissions that a plain new file has. */
static void open_up(int file)
{
    const mode_t mask = umask(0);
    umask(mask);
    (void)!fchmod(file, 0666 & ~mask);
}

/* The file itself, behind links, and a temporary name beside it: that one replaces it in the end. */
static int choose_places(npy_output *output, const char *dir, const char *name, failure *why)
{
    const size_t room = sizeof output->path;
    struct stat info;
    if (strlen(dir) + strlen(name) + 10 > room)
        return fail(why, EXIT_USAGE, "the name of the output folder has over 4,000 letters");
    snprintf(output->path, room, "%s/%s", dir, name);
    if (lstat(output->path, &info) == 0 && S_ISLNK(info.st_mode)) {
        char *target = realpath(output->path, NULL);
        if (!target || strlen(target) + 10 > room) {
            free(target);
            return fail(why, EXIT_FAILED, "%s: the link's target cannot be reached (%s)", output->path,
                        strerror(errno));
        }
        memcpy(output->path, target, strlen(target) + 1);
        free(target);
    }
    const char *slash = strrchr(output->path, '/');
    snprintf(output->temporary, room, "%.*s/.%s.XXXXXX", (int)(slash - output->path), output->path, slash + 1);
    return EXIT_OK;
}

int npy_stage(npy_output *output, const char *dir, const char *name, const npy_array *array, failure *why)
{
    memset(output, 0, sizeof *output);
    if (choose_places(output, dir, name, why)) return why->code;
    const int number = mkstemp(output->temporary);
    FILE *file = number < 0 ? NULL : fdopen(number, "wb");
    if (!file) {
        fail(why, EXIT_FAILED, "%s: cannot be written (%s); name another folder", output->path, strerror(errno));
        if (number >= 0) close(number);
        if (number < 0) output->temporary[0] = 0;
        npy_discard(output);
        return why->code;
    }
    open_up(number);
    const int written = write_all(file, array);
    const int error = errno;
    if (fclose(file) == 0 && written) return EXIT_OK;
    npy_discard(output);
    return fail(why, EXIT_FAILED, "%s: %zu bytes cannot be written (%s); make room, or name another folder",
                output->path, data_bytes(array) + HEADER_BYTES, strerror(error));
}

int npy_publish(npy_output *output, failure *why)
{
    if (rename(output->temporary, output->path) != 0) {
        fail(why, EXIT_FAILED, "%s: cannot be put in place (%s)", output->path, strerror(errno));
        npy_discard(output);
        return why->code;
    }
    output->temporary[0] = 0;
    return EXIT_OK;
}

void npy_discard(npy_output *output)
{
    if (output->temporary[0]) unlink(output->temporary);
    output->temporary[0] = 0;
}
