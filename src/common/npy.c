/* SPDX-License-Identifier: Apache-2.0 */
/* Reads NumPy files. Every kind of bad file has its own message: what is wrong, with numbers, and the remedy. Writes
 * them so that a reader finds either a complete file or none. */
#include "common/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <quadrille_private/input.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the dictionary at the beginning of a file, as Python writes it ---- */

/* As JSON, which differs in quotes, tuples, names, the L that Python 2 wrote behind integers, and commas before
 * brackets that close. Strings are names of types: of them only printable characters are kept. */
static size_t to_json(const char *text, size_t n_bytes, char *json)
{
    size_t n = 0;
    char quote = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a header without a failure is there */
        const char letter = text[i];
        const int ends = quote && letter == quote, begins = !quote && (letter == '\'' || letter == '"');
        const int closes = !quote && (letter == ')' || letter == ']' || letter == '}');
        if (!quote && letter == 'L') continue;
        while (closes && n && strchr(", \t\r\n", json[n - 1])) n--;
        if (ends || begins)
            json[n++] = '"';
        else if (quote)
            json[n++] = (char)(letter < ' ' || letter > '~' || letter == '"' || letter == '\\' ? '?' : letter);
        else if (letter == '(' || letter == ')')
            json[n++] = (char)(letter == '(' ? '[' : ']');
        else
            json[n++] = (char)(letter == 'T' || letter == 'F' ? letter - 'A' + 'a' : letter);
        if (ends || begins) quote = (char)(begins ? letter : 0);
    }
    return n;
}

/* ---- reading ---- */

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "NumPy files are read as they lie in memory: this needs a little-endian machine"
#endif

static const unsigned char magic[] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

/* The text of the header and the start of the data, checked against the size of the file. */
typedef struct frame {
    const char *header;
    size_t header_bytes, data_offset;
} frame;

static int find_frame(const unsigned char *bytes, size_t n_bytes, const char *name, frame *parts, failure *why)
{
    if (n_bytes == 0) return fail(why, EXIT_USAGE, "%s: is empty; save the array with np.save", name);
    if (n_bytes >= 2 && bytes[0] == 'P' && bytes[1] == 'K')
        return fail(why, EXIT_USAGE, "%s: is an archive (.npz or zip); save one array with np.save", name);
    const size_t n_known = n_bytes < sizeof magic ? n_bytes : sizeof magic;
    if (memcmp(bytes, magic, n_known) != 0)
        return fail(why, EXIT_USAGE,
                    "%s: is not a NumPy file: it begins with byte 0x%02x, not with \\x93NUMPY; "
                    "save the array with np.save",
                    name, bytes[0]);
    if (n_bytes < 10)
        return fail(why, EXIT_USAGE,
                    "%s: is truncated: it has %zu bytes, but a NumPy file has at least 10; save it again", name,
                    n_bytes);
    const int major = bytes[6], minor = bytes[7];
    if (major < 1 || major > 3)
        return fail(
            why, EXIT_USAGE,
            "%s: has version %d.%d of the NumPy format, but only versions 1 to 3 are supported; save it with np.save",
            name, major, minor);
    const int length_bytes = major == 1 ? 2 : 4;
    parts->data_offset = 8 + (size_t)length_bytes;
    if (n_bytes < parts->data_offset)
        return fail(why, EXIT_USAGE, "%s: is truncated after %zu bytes, inside its header; save it again", name,
                    n_bytes);
    size_t value = 0;
    for (int i = length_bytes; i-- > 0;) value = value << 8 | (bytes + 8)[i];
    parts->header_bytes = value;
    if (parts->header_bytes > n_bytes - parts->data_offset)
        return fail(why, EXIT_USAGE, "%s: claims a header of %zu bytes, but only %zu follow; save it again", name,
                    parts->header_bytes, n_bytes - parts->data_offset);
    parts->header = (const char *)bytes + parts->data_offset;
    parts->data_offset += parts->header_bytes;
    return EXIT_OK;
}

static int take_dtype(const json_t *type, const char *name, qdr_dtype *dtype, failure *why)
{
    static const qdr_dtype types[] = {QDR_F16, QDR_F32, QDR_F64};
    char descr[64];
    char *records = json_is_array(type) ? json_dumps(type, 0) : NULL;
    snprintf(descr, sizeof descr, "%s", records ? records : json_is_string(type) ? json_string_value(type) : "?");
    free(records);
    const char *sizes = "248", *size = strlen(descr) == 3 ? strchr(sizes, descr[2]) : NULL;
    if (size && strncmp(descr, "<f", 2) == 0) {
        *dtype = types[size - sizes];
        return EXIT_OK;
    }
    if (size && strncmp(descr, ">f", 2) == 0)
        return fail(
            why, EXIT_USAGE,
            "%s: contains big-endian elements ('%s'), but only little-endian ones are supported; save a.astype('<f%c')",
            name, descr, descr[2]);
    return fail(why, EXIT_USAGE,
                "%s: contains elements of type '%s', but only float16 ('<f2'), float32 ('<f4') and float64 ('<f8') are "
                "supported; save a.astype(np.float32)",
                name, descr);
}

static int fail_header(const char *name, failure *why)
{
    return fail(why, EXIT_USAGE,
                "%s: has a damaged header: it is no dictionary of descr, fortran_order and shape; save it again with "
                "np.save",
                name);
}

static int take_extents(const json_t *shape, int is_fortran, const char *name, npy_array *array, failure *why)
{
    array->n_dims = (int)json_array_size(shape);
    for (int i = 0; i < array->n_dims; i++) {
        const json_t *extent = json_array_get(shape, (size_t)i);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0) return fail_header(name, why);
        if (i < NPY_MAX_DIMS) array->shape[i] = json_integer_value(extent);
    }
    if (!json_is_array(shape)) return fail_header(name, why);
    if (array->n_dims == 0)
        return fail(why, EXIT_USAGE,
                    "%s: contains a single number without dimensions; save a vector or a matrix, np.atleast_2d(a)",
                    name);
    if (array->n_dims > NPY_MAX_DIMS)
        return fail(why, EXIT_USAGE, "%s: has %d dimensions, but a matrix has 2; save a.reshape(-1, a.shape[-1])", name,
                    array->n_dims);
    if (is_fortran && array->n_dims > 1)
        return fail(why, EXIT_USAGE,
                    "%s: is stored column by column (Fortran order), but rows are needed; save np.ascontiguousarray(a)",
                    name);
    return EXIT_OK;
}

static int take_header(const frame *parts, const char *name, npy_array *array, failure *why)
{
    json_t *root = NULL, *type, *shape;
    int is_fortran;
    char *json = malloc(parts->header_bytes + 1);
    const size_t n_bytes = json ? to_json(parts->header, parts->header_bytes, json) : 0;
    const qdr_status status = json ? qdr_json_read(json, n_bytes, name, &root) : QDR_ERR_MEMORY;
    free(json);
    if (status == QDR_ERR_MEMORY) return fail_memory(why, "%s: out of memory for its header", name);
    if (status < 0 || json_object_size(root) != 3 ||
        json_unpack(root, "{s:o, s:b, s:o}", "descr", &type, "fortran_order", &is_fortran, "shape", &shape) != 0)
        fail_header(name, why);
    else if (!take_dtype(type, name, &array->dtype, why))
        take_extents(shape, is_fortran, name, array, why);
    json_decref(root);
    return why->code;
}

/* The number of bytes that the shape requires must be exactly the number that follows the header. */
static int check_length(const npy_array *array, size_t data_bytes, const char *name, failure *why)
{
    char text[64];
    size_t needed = qdr_dtype_bytes(array->dtype);
    for (int i = 0; i < array->n_dims; i++)
        if (__builtin_mul_overflow(needed, (size_t)array->shape[i], &needed))
            return fail(why, EXIT_USAGE, "%s: has shape %s, more than memory can address; save it again", name,
                        npy_shape_text(array, text, sizeof text));
    npy_shape_text(array, text, sizeof text);
    if (data_bytes < needed)
        return fail(why, EXIT_USAGE,
                    "%s: is truncated: shape %s of %s needs %zu bytes, but only %zu follow the header; save it again",
                    name, text, qdr_dtype_name(array->dtype), needed, data_bytes);
    if (data_bytes > needed)
        return fail(why, EXIT_USAGE,
                    "%s: has %zu bytes too many: shape %s of %s needs %zu bytes, but %zu follow the "
                    "header; save one array per file",
                    name, data_bytes - needed, text, qdr_dtype_name(array->dtype), needed, data_bytes);
    return EXIT_OK;
}

int npy_parse(const void *bytes, size_t n_bytes, const char *name, npy_array *array, failure *why)
{
    frame parts = {0};
    memset(array, 0, sizeof *array);
    if (find_frame(bytes, n_bytes, name, &parts, why) || take_header(&parts, name, array, why)) return why->code;
    const size_t data_bytes = n_bytes - parts.data_offset;
    if (check_length(array, data_bytes, name, why)) return why->code;
    /* Points to the data, or copies them if they are unaligned. */
    array->data = (const char *)bytes + parts.data_offset;
    if ((uintptr_t)array->data % qdr_dtype_bytes(array->dtype) == 0) return EXIT_OK;
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
    if (array->n_dims == 1)
        snprintf(text, capacity, "[%lld]", (long long)array->shape[0]);
    else
        snprintf(text, capacity, "[%lld, %lld]", (long long)array->shape[0], (long long)array->shape[1]);
    return text;
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
