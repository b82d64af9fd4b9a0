/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the headers of NumPy files. Every kind of bad file has its own message: what is wrong, with numbers, and the
 * remedy. */
#include "quadrille_private/npy.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/size.h"
#include "quadrille_private/input.h"

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

static const unsigned char magic[] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

/* The text of the header and the start of the data, checked against the size of the file. */
typedef struct frame {
    const char *header;
    size_t header_bytes, data_offset;
} frame;

static qdr_status find_frame(const unsigned char *bytes, size_t n_bytes, const char *name, frame *parts)
{
    if (n_bytes == 0) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: is empty; save the array with np.save", name);
    if (n_bytes >= 2 && bytes[0] == 'P' && bytes[1] == 'K')
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: is an archive (.npz or zip); save one array with np.save", name);
    const size_t n_known = n_bytes < sizeof magic ? n_bytes : sizeof magic;
    if (memcmp(bytes, magic, n_known) != 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s: is not a NumPy file: it begins with byte 0x%02x, not with \\x93NUMPY; "
                        "save the array with np.save",
                        name, bytes[0]);
    if (n_bytes < 10)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s: is truncated: it has %zu bytes, but a NumPy file has at least 10; save it again", name,
                        n_bytes);
    const int major = bytes[6], minor = bytes[7];
    if (major < 1 || major > 3)
        return QDR_FAIL(
            QDR_ERR_ARGUMENT,
            "%s: has version %d.%d of the NumPy format, but only versions 1 to 3 are supported; save it with np.save",
            name, major, minor);
    const int length_bytes = major == 1 ? 2 : 4;
    parts->data_offset = 8 + (size_t)length_bytes;
    if (n_bytes < parts->data_offset)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: is truncated after %zu bytes, inside its header; save it again", name,
                        n_bytes);
    size_t value = 0;
    for (int i = length_bytes; i-- > 0;) value = value << 8 | (bytes + 8)[i];
    parts->header_bytes = value;
    if (parts->header_bytes > n_bytes - parts->data_offset)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: claims a header of %zu bytes, but only %zu follow; save it again", name,
                        parts->header_bytes, n_bytes - parts->data_offset);
    parts->header = (const char *)bytes + parts->data_offset;
    parts->data_offset += parts->header_bytes;
    return QDR_OK;
}

static qdr_status fail_header(const char *name)
{
    return QDR_FAIL(
        QDR_ERR_ARGUMENT,
        "%s: has a damaged header: it is no dictionary of descr, fortran_order and shape; save it again with "
        "np.save",
        name);
}

static qdr_status take_extents(const json_t *shape, int is_fortran, const char *name, qdr_npy *array)
{
    array->n_dims = (int)json_array_size(shape);
    for (int i = 0; i < array->n_dims; i++) {
        const json_t *extent = json_array_get(shape, (size_t)i);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0) return fail_header(name);
        if (i < QDR_NPY_MAX_DIMS) array->shape[i] = json_integer_value(extent);
    }
    if (!json_is_array(shape)) return fail_header(name);
    if (array->n_dims == 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s: contains a single number without dimensions; save a vector or a matrix, np.atleast_2d(a)",
                        name);
    if (array->n_dims > QDR_NPY_MAX_DIMS)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: has %d dimensions, but a matrix has 2; save a.reshape(-1, a.shape[-1])",
                        name, array->n_dims);
    if (is_fortran && array->n_dims > 1)
        return QDR_FAIL(
            QDR_ERR_ARGUMENT,
            "%s: is stored column by column (Fortran order), but rows are needed; save np.ascontiguousarray(a)", name);
    return QDR_OK;
}

static void take_type(const json_t *type, char text[64])
{
    char *records = json_is_array(type) ? json_dumps(type, 0) : NULL;
    snprintf(text, 64, "%s", records ? records : json_is_string(type) ? json_string_value(type) : "?");
    free(records);
}

qdr_status qdr_npy_read_header(const void *bytes, size_t n_bytes, const char *name, qdr_npy *header)
{
    frame parts = {0};
    json_t *root = NULL, *type, *shape;
    int is_fortran;
    char *json = NULL;
    memset(header, 0, sizeof *header);
    QDR_TRY(find_frame(bytes, n_bytes, name, &parts));
    QDR_TRY(QDRI_NEW(parts.header_bytes + 1, "the header of a NumPy file", &json));
    const qdr_status read = qdr_json_read(json, to_json(parts.header, parts.header_bytes, json), name, &root);
    free(json);
    if (read == QDR_ERR_MEMORY) return read;
    qdr_status status = QDR_OK;
    if (read < 0 || json_object_size(root) != 3 ||
        json_unpack(root, "{s:o, s:b, s:o}", "descr", &type, "fortran_order", &is_fortran, "shape", &shape) != 0)
        status = fail_header(name);
    else
        status = take_extents(shape, is_fortran, name, header);
    if (status == QDR_OK) take_type(type, header->type);
    json_decref(root);
    header->begin = parts.data_offset;
    return status;
}

qdr_status qdr_npy_check_length(const qdr_npy *header, size_t file_bytes, size_t element_bytes, const char *type,
                                const char *name)
{
    char text[64];
    const size_t data_bytes = file_bytes - header->begin;
    size_t needed = element_bytes;
    qdr_npy_shape_text(header, text, sizeof text);
    for (int i = 0; i < header->n_dims; i++)
        if (__builtin_mul_overflow(needed, (size_t)header->shape[i], &needed))
            return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: has shape %s, more than memory can address; save it again", name,
                            text);
    if (data_bytes < needed)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s: is truncated: shape %s of %s needs %zu bytes, but only %zu follow the header; save it "
                        "again",
                        name, text, type, needed, data_bytes);
    if (data_bytes > needed)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s: has %zu bytes too many: shape %s of %s needs %zu bytes, but %zu follow the header; save "
                        "one array per file",
                        name, data_bytes - needed, text, type, needed, data_bytes);
    return QDR_OK;
}

const char *qdr_npy_shape_text(const qdr_npy *header, char *text, size_t capacity)
{
    if (header->n_dims == 1)
        snprintf(text, capacity, "[%lld]", (long long)header->shape[0]);
    else
        snprintf(text, capacity, "[%lld, %lld]", (long long)header->shape[0], (long long)header->shape[1]);
    return text;
}
