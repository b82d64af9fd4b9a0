/* SPDX-License-Identifier: Apache-2.0 */
/* Writes NumPy files so that a reader finds either a complete file or none. */
#include <stdio.h>
#include <string.h>

#include "common/npy.h"

#define HEADER_BYTES 128 /* magic, version, length and a dictionary for any shape, padded to 64 */

/* Magic, version 1.0, and the length of the rest of the header: 0x76 bytes. */
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
    return fwrite(header, 1, sizeof header, file) == sizeof header && fwrite(array->data, 1, bytes, file) == bytes;
}

int npy_stage(qdr_output **output, const char *dir, const char *name, const npy_array *array, failure *why)
{
    char path[4096];
    *output = NULL;
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return fail(why, EXIT_USAGE, "--out: the folder's name has over 4,000 characters");
    if (fail_status(why, qdr_output_open("--out", path, QDR_OUTPUT_REPLACE, output))) return why->code;
    (void)write_all(qdr_output_file(*output), array); /* errors are reported when the output is finished */
    return fail_status(why, qdr_output_finish(*output));
}
