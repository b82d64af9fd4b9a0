/* SPDX-License-Identifier: Apache-2.0 */
/* Reads NumPy files. Every kind of bad file has its own message: what is wrong, with numbers, and the remedy. Writes
 * them so that a reader finds either a complete file or none. */
#include "common/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <quadrille_private/npy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- reading ---- */

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "NumPy files are read as they lie in memory: this needs a little-endian machine"
#endif

static int take_dtype(const char *type, const char *name, qdr_dtype *dtype, failure *why)
{
    static const qdr_dtype types[] = {QDR_F16, QDR_F32, QDR_F64};
    const char *sizes = "248", *size = strlen(type) == 3 ? strchr(sizes, type[2]) : NULL;
    if (size && strncmp(type, "<f", 2) == 0) {
        *dtype = types[size - sizes];
        return EXIT_OK;
    }
    if (size && strncmp(type, ">f", 2) == 0)
        return fail(
            why, EXIT_USAGE,
            "%s: contains big-endian elements ('%s'), but only little-endian ones are supported; save a.astype('<f%c')",
            name, type, type[2]);
    return fail(why, EXIT_USAGE,
                "%s: contains elements of type '%s', but only float16 ('<f2'), float32 ('<f4') and float64 ('<f8') are "
                "supported; save a.astype(np.float32)",
                name, type);
}

int npy_parse(const void *bytes, size_t n_bytes, const char *name, npy_array *array, failure *why)
{
    qdr_npy header;
    memset(array, 0, sizeof *array);
    if (fail_status(why, qdr_npy_read_header(bytes, n_bytes, name, &header))) return why->code;
    if (take_dtype(header.type, name, &array->dtype, why)) return why->code;
    const size_t element_bytes = qdr_dtype_bytes(array->dtype), data_bytes = n_bytes - header.begin;
    if (fail_status(why, qdr_npy_check_length(&header, n_bytes, element_bytes, qdr_dtype_name(array->dtype), name)))
        return why->code;
    array->n_dims = header.n_dims;
    memcpy(array->shape, header.shape, sizeof array->shape);
    /* Points to the data, or copies them if they are unaligned. */
    array->data = (const char *)bytes + header.begin;
    if ((uintptr_t)array->data % element_bytes == 0) return EXIT_OK;
    array->copy = malloc(data_bytes ? data_bytes : 1);
    if (!array->copy) return fail_memory(why, "%s: out of memory for %zu bytes", name, data_bytes);
    memcpy(array->copy, array->data, data_bytes);
    array->data = array->copy;
    return EXIT_OK;
}

int npy_open(const char *path, npy_array *array, failure *why)
{
    struct stat info;
    memset(array, 0, sizeof *array);
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return fail(why, EXIT_USAGE, "%s cannot be opened (%s); name a readable .npy file", path, strerror(errno));
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(file);
        return fail(why, EXIT_USAGE, "%s: is not a regular file; name a .npy file", path);
    }
    const size_t bytes = (size_t)info.st_size;
    void *map = bytes ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0) : NULL;
    const int error = errno;
    close(file);
    if (map == MAP_FAILED)
        return fail(why, error == ENOMEM ? EXIT_NOTHING_FITS : EXIT_FAILED, "%s: its %zu bytes cannot be mapped (%s)",
                    path, bytes, strerror(error));
    const int code = npy_parse(map, bytes, path, array, why);
    array->map = map;
    array->map_bytes = bytes;
    if (code) npy_close(array);
    return code;
}

void npy_close(npy_array *array)
{
    if (array->map) munmap(array->map, array->map_bytes);
    free(array->copy);
    memset(array, 0, sizeof *array);
}

const char *npy_shape_text(const npy_array *array, char *text, size_t capacity)
{
    const qdr_npy shape = {.n_dims = array->n_dims, .shape = {array->shape[0], array->shape[1]}};
    return qdr_npy_shape_text(&shape, text, capacity);
}

/* ---- writing ---- */

enum { REST_BYTES = 118 }; /* of the header: a dictionary for any shape, blanks and a newline */

/* Magic, version 1.0, and the length of the rest of the header: 128 bytes with it, since data begin at a multiple of
 * 64. */
static const unsigned char start[] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, REST_BYTES, 0};

int npy_stage(qdr_output **output, const char *dir, const char *name, const npy_array *array, failure *why)
{
    char path[4096], shape[64], text[REST_BYTES];
    size_t bytes = qdr_dtype_bytes(array->dtype);
    for (int i = 0; i < array->n_dims; i++) bytes *= (size_t)array->shape[i];
    if (array->n_dims == 1)
        snprintf(shape, sizeof shape, "(%lld,)", (long long)array->shape[0]);
    else
        snprintf(shape, sizeof shape, "(%lld, %lld)", (long long)array->shape[0], (long long)array->shape[1]);
    snprintf(text, sizeof text, "{'descr': '<f%d', 'fortran_order': False, 'shape': %s, }",
             (int)qdr_dtype_bytes(array->dtype), shape);
    *output = NULL;
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return fail(why, EXIT_USAGE, "--out: the folder's name has over 4,000 characters");
    if (fail_status(why, qdr_output_open("--out", path, QDR_OUTPUT_REPLACE, output))) return why->code;
    FILE *file = qdr_output_file(*output); /* whose errors are reported when it is finished */
    (void)(fwrite(start, sizeof start, 1, file) == 1 && fprintf(file, "%-*s\n", REST_BYTES - 1, text) > 0 &&
           fwrite(array->data, 1, bytes, file) == bytes);
    return fail_status(why, qdr_output_finish(*output));
}
