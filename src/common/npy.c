/* SPDX-License-Identifier: Apache-2.0 */
/* Reads NumPy files. Every kind of bad file has its own message: what is wrong, with numbers, and the remedy. Writes
 * them so that a reader finds either a complete file or none. */
#include "common/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the dictionary at the beginning of a file, as Python writes it ---- */

enum { MAX_DIMS = 32 }; /* NumPy's own maximum */

typedef struct npy_header {
    char descr[64]; /* "<f4", or the beginning of a list if the elements are records */
    int is_fortran;
    int n_dims;
    int64_t shape[MAX_DIMS];
} npy_header;

/* A parser for this one kind of literal, which has exactly the keys descr, fortran_order and shape. It never reads
 * beyond the text. */
typedef struct cursor {
    const char *text;
    size_t at, end;
    const char *wrong; /* the first error, or NULL */
} cursor;

static int wrong(cursor *c, const char *what)
{
    if (!c->wrong) c->wrong = what;
    return 0;
}

static void skip_blanks(cursor *c)
{
    while (c->at < c->end && c->text[c->at] && strchr(" \t\r\n", c->text[c->at])) c->at++;
}

/* Consumes `wanted` if it comes next. */
static int take(cursor *c, char wanted)
{
    skip_blanks(c);
    if (c->at >= c->end || c->text[c->at] != wanted) return 0;
    c->at++;
    return 1;
}

static int take_word(cursor *c, const char *word)
{
    const size_t n_chars = strlen(word);
    skip_blanks(c);
    if (c->end - c->at < n_chars || memcmp(c->text + c->at, word, n_chars) != 0) return 0;
    c->at += n_chars;
    return 1;
}

/* Reads 'text' or "text", truncated to the capacity. */
static int take_string(cursor *c, char *string, size_t capacity)
{
    const char quote = take(c, '\'') ? '\'' : take(c, '"') ? '"' : 0;
    if (!quote) return wrong(c, "a quoted string is missing");
    size_t n_chars = 0;
    while (c->at < c->end && c->text[c->at] != quote) {
        if (n_chars + 1 < capacity) string[n_chars++] = c->text[c->at];
        c->at++;
    }
    string[n_chars] = 0;
    return take(c, quote) || wrong(c, "a string is not closed");
}

/* The element type: a string, or a list for records, of which only the beginning is kept. */
static int take_descr(cursor *c, npy_header *header)
{
    skip_blanks(c);
    if (c->at >= c->end || c->text[c->at] != '[') return take_string(c, header->descr, sizeof header->descr);
    size_t n_chars = 0;
    for (int depth = 0; c->at < c->end; c->at++) {
        const char letter = c->text[c->at];
        if (n_chars + 1 < sizeof header->descr) header->descr[n_chars++] = letter;
        depth += (letter == '[') - (letter == ']');
        if (depth > 0) continue;
        header->descr[n_chars] = 0;
        c->at++;
        return 1;
    }
    return wrong(c, "a list is not closed");
}

static int take_integer(cursor *c, int64_t *value)
{
    skip_blanks(c);
    const size_t begin = c->at;
    *value = 0;
    for (; c->at < c->end && c->text[c->at] >= '0' && c->text[c->at] <= '9'; c->at++) {
        const int64_t digit = c->text[c->at] - '0';
        if (*value > (INT64_MAX - digit) / 10) return wrong(c, "a dimension is beyond 2^63");
        *value = *value * 10 + digit;
    }
    if (c->at == begin) return wrong(c, "a dimension is not a whole number");
    take(c, 'L'); /* Python 2 wrote long integers this way */
    return 1;
}

/* (), (3,), (3, 4), … */
static int take_shape(cursor *c, npy_header *header)
{
    if (!take(c, '(')) return wrong(c, "the shape is not a tuple");
    header->n_dims = 0;
    int has_comma = 1;
    while (!take(c, ')')) {
        if (!has_comma) return wrong(c, "a comma is missing in the shape");
        if (header->n_dims == MAX_DIMS) return wrong(c, "the shape has over 32 dimensions");
        if (!take_integer(c, &header->shape[header->n_dims])) return 0;
        header->n_dims++;
        has_comma = take(c, ',');
    }
    if (header->n_dims == 1 && !has_comma) return wrong(c, "the shape is not a tuple");
    return 1;
}

/* One "key: value". *seen has one bit for each key. */
static int take_entry(cursor *c, npy_header *header, unsigned *seen)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    char key[32];
    if (!take_string(c, key, sizeof key)) return 0;
    unsigned index = 0;
    while (index < 3 && strcmp(key, keys[index]) != 0) index++;
    if (index == 3) return wrong(c, "a key is not descr, fortran_order or shape");
    if (*seen & 1u << index) return wrong(c, "a key occurs twice");
    *seen |= 1u << index;
    if (!take(c, ':')) return wrong(c, "a colon is missing");
    if (index == 0) return take_descr(c, header);
    if (index == 2) return take_shape(c, header);
    header->is_fortran = take_word(c, "True");
    return header->is_fortran || take_word(c, "False") || wrong(c, "True or False is missing");
}

static int take_dictionary(cursor *c, npy_header *header)
{
    unsigned seen = 0;
    int has_comma = 1;
    if (!take(c, '{')) return wrong(c, "it does not begin with {");
    while (!take(c, '}')) {
        if (c->at == c->end) return wrong(c, "the dictionary is not closed");
        if (!has_comma) return wrong(c, "a comma is missing");
        if (!take_entry(c, header, &seen)) return 0;
        has_comma = take(c, ',');
    }
    if (seen != 7u) return wrong(c, "descr, fortran_order or shape is missing");
    skip_blanks(c);
    return c->at == c->end || wrong(c, "something follows the dictionary");
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

static int take_dtype(npy_header *header, const char *name, qdr_dtype *dtype, failure *why)
{
    /* Element types come from the file: only printable characters are copied into a message. */
    for (char *at = header->descr; *at; at++)
        if (*at < ' ' || *at > '~') *at = '?';
    const char *descr = header->descr;
    static const qdr_dtype types[] = {QDR_F16, QDR_F32, QDR_F64};
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

static int take_extents(const npy_header *header, const char *name, npy_array *array, failure *why)
{
    if (header->n_dims == 0)
        return fail(why, EXIT_USAGE,
                    "%s: contains a single number without dimensions; save a vector or a matrix, np.atleast_2d(a)",
                    name);
    if (header->n_dims > NPY_MAX_DIMS)
        return fail(why, EXIT_USAGE, "%s: has %d dimensions, but a matrix has 2; save a.reshape(-1, a.shape[-1])", name,
                    header->n_dims);
    if (header->is_fortran && header->n_dims > 1)
        return fail(why, EXIT_USAGE,
                    "%s: is stored column by column (Fortran order), but rows are needed; save np.ascontiguousarray(a)",
                    name);
    array->n_dims = header->n_dims;
    memcpy(array->shape, header->shape, sizeof array->shape);
    return EXIT_OK;
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
    npy_header header;
    memset(array, 0, sizeof *array);
    if (find_frame(bytes, n_bytes, name, &parts, why)) return why->code;
    cursor c = {.text = parts.header, .end = parts.header_bytes};
    memset(&header, 0, sizeof header);
    take_dictionary(&c, &header);
    if (c.wrong)
        return fail(why, EXIT_USAGE, "%s: has a damaged header: %s (byte %zu); save it again with np.save", name,
                    c.wrong, parts.data_offset - parts.header_bytes + c.at);
    if (take_dtype(&header, name, &array->dtype, why)) return why->code;
    if (take_extents(&header, name, array, why)) return why->code;
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
