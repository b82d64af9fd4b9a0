/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of safetensors files. */
#include "core/safetensors.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/input.h"
#include "core/json.h"
#include "core/json_text.h"
#include "core/named.h"
#include "core/size.h"

/* ---- types ---- */

static const struct type {
    const char *name;
    int bits, dtype; /* dtype -1: none of ours */
} types[] = {
    {"F32", 32, QDR_F32}, {"F64", 64, QDR_F64}, {"BF16", 16, QDR_BF16}, {"F16", 16, QDR_F16},   {"I32", 32, QDR_I32},
    {"U8", 8, QDR_U8},    {"BOOL", 8, -1},      {"I8", 8, -1},          {"I16", 16, -1},        {"U16", 16, -1},
    {"U32", 32, -1},      {"I64", 64, -1},      {"U64", 64, -1},        {"C64", 64, -1},        {"F8_E4M3", 8, -1},
    {"F8_E5M2", 8, -1},   {"F8_E8M0", 8, -1},   {"F8_E4M3FNUZ", 8, -1}, {"F8_E5M2FNUZ", 8, -1}, {"F6_E2M3", 6, -1},
    {"F6_E3M2", 6, -1},   {"F4", 4, -1},
};
enum { N_TYPES = sizeof types / sizeof *types };

static const struct type *type_of(const char *name)
{
    for (int i = 0; i < N_TYPES; i++)
        if (strcmp(types[i].name, name) == 0) return &types[i];
    return NULL;
}

int qdri_tensor_bits(const char *type)
{
    const struct type *found = type_of(type);
    return found ? found->bits : 0;
}

/* NULL: there is none. */
static const char *name_of(qdr_dtype dtype)
{
    for (int i = 0; i < N_TYPES; i++)
        if (types[i].dtype == (int)dtype && types[i].dtype >= 0) return types[i].name;
    return NULL;
}

/* Names and types of files go into sentences. */
typedef struct shown_name {
    char text[96];
} shown_name;
static shown_name shown(const char *text)
{
    shown_name name;
    qdri_json_printable(text, name.text, sizeof name.text);
    return name;
}

/* Element number and bytes from type and shape. */
static qdr_status measure(const char *who, qdr_tensor *tensor)
{
    const struct type *type = type_of(tensor->type);
    const shown_name name = shown(tensor->name);
    if (!type)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: tensor %s has the unknown type \"%s\"; types are such as F32, BF16, I64",
                        who, name.text, shown(tensor->type).text);
    tensor->dtype = type->dtype;
    tensor->n_elems = 1;
    for (int i = 0; i < tensor->n_dims; i++)
        if (tensor->shape[i] < 0 || __builtin_mul_overflow(tensor->n_elems, tensor->shape[i], &tensor->n_elems))
            return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: tensor %s has a dimension of %" PRId64 ", with which %s", who,
                            name.text, tensor->shape[i],
                            tensor->shape[i] < 0 ? "its elements cannot be counted" : "it is too large");
    int64_t bits;
    if (__builtin_mul_overflow(tensor->n_elems, (int64_t)type->bits, &bits))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: tensor %s is too large: %" PRId64 " elements of %d bits", who, name.text,
                        tensor->n_elems, type->bits);
    if (bits % 8)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: tensor %s has %" PRId64 " elements of %d bits, no whole number of bytes",
                        who, name.text, tensor->n_elems, type->bits);
    tensor->bytes = bits / 8;
    return QDR_OK;
}

/* ---- parsing ---- */

static int by_begin(const void *left, const void *right)
{
    const qdr_tensor *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

static qdr_status parse_shape(qdri_json_node node, qdr_tensor *tensor)
{
    qdri_json_node list;
    size_t n;
    QDR_TRY(qdri_json_list(node, &list, &n));
    if (n > QDR_TENSOR_MAX_DIMS)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s has %zu numbers; at most %d dimensions are supported",
                        qdri_json_where(node).text, n, QDR_TENSOR_MAX_DIMS);
    tensor->n_dims = (int)n;
    for (size_t i = 0; i < n; i++) QDR_TRY(qdri_json_count(qdri_json_at(&list, i), &tensor->shape[i]));
    return QDR_OK;
}

static qdr_status parse_tensor(const qdri_json_node *root, const char *name, const char *path, qdr_tensor *tensor)
{
    qdri_json_node object, offsets;
    int64_t end;
    size_t n;
    *tensor = (qdr_tensor){.name = name};
    QDR_TRY(qdri_json_object(qdri_json_get(root, name), &object));
    QDR_TRY(qdri_json_string(qdri_json_get(&object, "dtype"), 0, &tensor->type));
    QDR_TRY(parse_shape(qdri_json_get(&object, "shape"), tensor));
    QDR_TRY(qdri_json_list(qdri_json_get(&object, "data_offsets"), &offsets, &n));
    QDR_TRY(qdri_json_count(qdri_json_at(&offsets, 0), &tensor->begin));
    QDR_TRY(qdri_json_count(qdri_json_at(&offsets, 1), &end));
    QDR_TRY(measure(path, tensor));
    if (n == 2 && end - tensor->begin == tensor->bytes) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "%s: tensor %s lies at bytes %" PRId64 " to %" PRId64 ", but its shape needs %" PRId64 " bytes",
                    path, shown(name).text, tensor->begin, end, tensor->bytes);
}

/* Tensors follow one another from the first byte to the last. */
static qdr_status check_places(const qdri_tensors *self, const char *path)
{
    int64_t end = 0;
    for (int i = 0; i < self->n; i++) {
        const qdr_tensor *tensor = &self->tensors[i];
        if (tensor->begin != end)
            return QDR_FAIL(QDR_ERR_ARGUMENT,
                            "%s: tensor %s begins at byte %" PRId64 " of the elements, but the one "
                            "before it ends at %" PRId64 ": there is %s",
                            path, shown(tensor->name).text, tensor->begin, end,
                            tensor->begin > end ? "a hole" : "an overlap");
        end = tensor->begin + tensor->bytes;
    }
    if (end == self->data_bytes) return QDR_OK;
    return QDR_FAIL(
        QDR_ERR_ARGUMENT, "%s has %" PRId64 " bytes of elements, but its header describes %" PRId64 "; the file is %s",
        path, self->data_bytes, end, self->data_bytes < end ? "truncated: copy it again" : "longer than it should be");
}

/* Eight hexadecimal digits, which need not be followed by a terminating zero. */
static int parse_crc(const char *text, uint32_t *crc)
{
    static const char digits[] = "0123456789abcdef";
    uint32_t value = 0;
    for (int i = 0; i < QDRI_CRC_DIGITS; i++) {
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit) return 0;
        value = value << 4 | (uint32_t)(digit - digits);
    }
    *crc = value;
    return 1;
}

static qdr_status parse_sums(qdri_tensors *self, const char *path)
{
    qdri_json *document = NULL;
    qdri_json_node root;
    const char *text = qdri_tensors_metadata(self, QDRI_SAFETENSORS_CRC);
    if (!text) return QDR_OK;
    qdr_status status = qdri_json_parse_within(text, strlen(text), QDRI_SAFETENSORS_MAX_HEADER, path, &document);
    if (status == QDR_OK) status = qdri_json_root(document, &root);
    for (int i = 0; i < self->n && status == QDR_OK; i++) {
        const char *digits = NULL;
        qdr_tensor *tensor = &self->tensors[i];
        const qdri_json_node node = qdri_json_get(&root, tensor->name);
        if (!qdri_json_has(node)) continue;
        status = qdri_json_string(node, QDRI_CRC_DIGITS + 1, &digits);
        tensor->has_crc = status == QDR_OK && parse_crc(digits, &tensor->crc);
        if (status == QDR_OK && !tensor->has_crc)
            status = QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the checksum of %s is \"%s\"; eight hexadecimal digits are needed",
                              path, shown(tensor->name).text, shown(digits).text);
    }
    qdri_json_free(&document);
    return status;
}

/* Headers that we write begin with their own checksum. */
static const char crc_prefix[] = "{\"__metadata__\":{\"" QDRI_SAFETENSORS_HEADER_CRC "\":\"";
enum { CRC_AT = sizeof crc_prefix - 1 };

static qdr_status parse_tensors(const char *text, size_t n_bytes, const char *path, qdri_tensors *self)
{
    qdri_json_node root, metadata;
    int capacity = 0;
    QDR_TRY(qdri_json_parse_within(text, n_bytes, QDRI_SAFETENSORS_MAX_HEADER, path, &self->document));
    QDR_TRY(qdri_json_root(self->document, &root));
    for (const char *key = NULL; (key = qdri_json_next_key(&root, key));) {
        if (strcmp(key, "__metadata__") == 0) continue;
        QDR_TRY(qdri_list_grow((void **)&self->tensors, self->n, &capacity, sizeof *self->tensors, "tensors"));
        QDR_TRY(parse_tensor(&root, key, path, &self->tensors[self->n]));
        self->n++;
    }
    const qdri_json_node found = qdri_json_get(&root, "__metadata__");
    if (qdri_json_has(found)) {
        const char *unused;
        QDR_TRY(qdri_json_object(found, &metadata));
        for (const char *key = NULL; (key = qdri_json_next_key(&metadata, key));)
            QDR_TRY(qdri_json_string(qdri_json_get(&metadata, key), 0, &unused));
    }
    if (self->n) qsort(self->tensors, (size_t)self->n, sizeof *self->tensors, by_begin);
    if (n_bytes > CRC_AT + QDRI_CRC_DIGITS && memcmp(text, crc_prefix, CRC_AT) == 0) {
        self->header_crc_at = CRC_AT;
        self->has_header_crc = parse_crc(text + CRC_AT, &self->header_crc);
    }
    QDR_TRY(check_places(self, path));
    return parse_sums(self, path);
}

qdr_status qdri_tensors_parse(const char *text, size_t n_bytes, int64_t file_bytes, const char *path,
                              qdri_tensors **tensors)
{
    QDR_TRY(QDRI_NEW(1, "a safetensors header", tensors));
    (*tensors)->data_bytes = file_bytes - QDRI_SAFETENSORS_LENGTH_BYTES - (int64_t)n_bytes;
    const qdr_status status = parse_tensors(text, n_bytes, qdri_shown(path).text, *tensors);
    if (status != QDR_OK) qdri_tensors_free(tensors);
    return status;
}

const char *qdri_tensors_metadata(const qdri_tensors *tensors, const char *key)
{
    qdri_json_node root;
    const char *value = NULL;
    if (qdri_json_root(tensors->document, &root) != QDR_OK) return NULL;
    const qdri_json_node metadata = qdri_json_get(&root, "__metadata__"), node = qdri_json_get(&metadata, key);
    return qdri_json_kind_of(node) == QDRI_JSON_STRING && qdri_json_string(node, 0, &value) == QDR_OK ? value : NULL;
}

const char *qdri_tensors_next_key(const qdri_tensors *tensors, const char *key)
{
    qdri_json_node root;
    if (qdri_json_root(tensors->document, &root) != QDR_OK) return NULL;
    const qdri_json_node metadata = qdri_json_get(&root, "__metadata__");
    return qdri_json_kind_of(metadata) == QDRI_JSON_OBJECT ? qdri_json_next_key(&metadata, key) : NULL;
}

void qdri_tensors_free(qdri_tensors **tensors)
{
    if (!*tensors) return;
    qdri_json_free(&(*tensors)->document);
    free((*tensors)->tensors);
    free(*tensors);
    *tensors = NULL;
}

/* ---- printing ---- */

static qdr_status check_names(const char *who, const qdr_tensor *tensors, int n)
{
    qdri_named *names = NULL;
    QDR_TRY(QDRI_NEW(n, "the names of tensors", &names));
    for (int i = 0; i < n; i++) names[i] = (qdri_named){tensors[i].name, i};
    qdri_named_sort(names, n);
    const qdri_named *twice = qdri_named_twice(names, n);
    const char *name = twice ? twice->name : NULL;
    free(names);
    if (!name) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: two tensors have the name %s; names must be unique", who, shown(name).text);
}

qdr_status qdri_tensors_place(const char *who, qdr_tensor *tensors, int n)
{
    int64_t end = 0;
    for (int i = 0; i < n; i++) {
        qdr_tensor *tensor = &tensors[i];
        if (!tensor->name || strcmp(tensor->name, "__metadata__") == 0)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: tensor %d has %s; give it another name", who, i,
                            tensor->name ? "the name __metadata__" : "no name");
        if (tensor->n_dims < 0 || tensor->n_dims > QDR_TENSOR_MAX_DIMS)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: tensor %s has %d dimensions; 0 to %d are supported", who,
                            shown(tensor->name).text, tensor->n_dims, QDR_TENSOR_MAX_DIMS);
        if (!tensor->type) tensor->type = name_of((qdr_dtype)tensor->dtype);
        if (!tensor->type)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: tensor %s has no type, and its dtype %d is none; set one of them",
                            who, shown(tensor->name).text, tensor->dtype);
        QDR_TRY(measure(who, tensor));
        tensor->begin = end;
        if (__builtin_add_overflow(end, tensor->bytes, &end))
            return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: tensors up to %s have more bytes than a file can", who,
                            shown(tensor->name).text);
    }
    return check_names(who, tensors, n);
}

static json_t *tensor_object(const qdr_tensor *tensor)
{
    json_t *shape = json_array();
    int is_complete = shape != NULL;
    for (int i = 0; i < tensor->n_dims && is_complete; i++)
        is_complete = json_array_append_new(shape, json_integer(tensor->shape[i])) == 0;
    if (!is_complete) {
        json_decref(shape);
        return NULL;
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", tensor->type, "shape", shape, "data_offsets",
                     (json_int_t)tensor->begin, (json_int_t)(tensor->begin + tensor->bytes));
}

/* The checksums of all tensors that have one, as a text; NULL: out of memory. */
static char *print_sums(const qdr_tensor *tensors, int n)
{
    json_t *sums = json_object();
    int is_complete = sums != NULL;
    for (int i = 0; i < n && is_complete; i++) {
        char digits[QDRI_CRC_DIGITS + 1];
        snprintf(digits, sizeof digits, "%08" PRIx32, tensors[i].crc);
        if (tensors[i].has_crc) is_complete = json_object_set_new(sums, tensors[i].name, json_string(digits)) == 0;
    }
    /* json_dumps() may leave a letter out when memory runs out, and succeed. */
    const size_t length = is_complete ? json_dumpb(sums, NULL, 0, JSON_COMPACT) : 0;
    char *text = length ? calloc(length + 1, 1) : NULL;
    if (text && json_dumpb(sums, text, length, JSON_COMPACT) != length) {
        free(text);
        text = NULL;
    }
    json_decref(sums);
    return text;
}

static json_t *metadata_object(const qdr_tensor *tensors, int n, const char *const *metadata)
{
    char *sums = print_sums(tensors, n);
    json_t *object = json_pack("{s:s}", QDRI_SAFETENSORS_HEADER_CRC, "00000000");
    int is_complete = sums && object;
    for (const char *const *at = metadata; is_complete && at && at[0] && at[1]; at += 2)
        is_complete = json_object_set_new(object, at[0], json_string(at[1])) == 0;
    if (is_complete) is_complete = json_object_set_new(object, QDRI_SAFETENSORS_CRC, json_string(sums)) == 0;
    free(sums);
    if (is_complete) return object;
    json_decref(object);
    return NULL;
}

static json_t *header_object(const qdr_tensor *tensors, int n, const char *const *metadata)
{
    json_t *root = json_object();
    int is_complete = root && json_object_set_new(root, "__metadata__", metadata_object(tensors, n, metadata)) == 0;
    for (int i = 0; i < n && is_complete; i++)
        is_complete = json_object_set_new(root, tensors[i].name, tensor_object(&tensors[i])) == 0;
    if (is_complete) return root;
    json_decref(root);
    return NULL;
}

static qdr_status check_metadata(const char *const *metadata)
{
    for (const char *const *at = metadata; at && at[0]; at += 2)
        if (!at[1] || strcmp(at[0], QDRI_SAFETENSORS_CRC) == 0 || strcmp(at[0], QDRI_SAFETENSORS_HEADER_CRC) == 0)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "safetensors: the metadata has %s%s; %s", at[1] ? "" : "no value of ",
                            shown(at[0]).text, at[1] ? "leave it out, checksums are added" : "pass pairs, then NULL");
    return QDR_OK;
}

static qdr_status no_memory(int n)
{
    return QDR_FAIL(QDR_ERR_MEMORY, "safetensors: out of memory for the header of %d tensors; free some", n);
}

static int is_utf8(const char *text)
{
    const unsigned char *at = (const unsigned char *)text, *end = at + strlen(text);
    for (size_t n = 0; at < end; at += n) {
        n = qdri_utf8_bytes(at, end);
        if (n == 0) return 0;
    }
    return 1;
}

static qdr_status check_strings(const qdr_tensor *tensors, int n, const char *const *metadata)
{
    const char *wrong = NULL;
    for (int i = 0; i < n && !wrong; i++)
        if (!is_utf8(tensors[i].name)) wrong = tensors[i].name;
    for (const char *const *at = metadata; at && *at && !wrong; at++)
        if (!is_utf8(*at)) wrong = *at;
    if (!wrong) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "safetensors: a name or a string of the metadata is not UTF-8: %s; convert it, or leave it out",
                    shown(wrong).text);
}

qdr_status qdri_tensors_print(const qdr_tensor *tensors, int n, const char *const *metadata, char **text,
                              size_t *n_bytes, size_t *crc_at)
{
    *text = NULL;
    *n_bytes = *crc_at = 0;
    QDR_TRY(check_metadata(metadata));
    QDR_TRY(check_strings(tensors, n, metadata));
    json_t *root = header_object(tensors, n, metadata);
    const size_t length = root ? json_dumpb(root, NULL, 0, JSON_COMPACT) : 0;
    const size_t all = qdri_align_bytes(QDRI_SAFETENSORS_LENGTH_BYTES + length, QDRI_SAFETENSORS_ALIGN);
    qdr_status status = QDR_OK;
    if (!length)
        status = no_memory(n);
    else if (all > QDRI_SAFETENSORS_MAX_HEADER)
        status = QDR_FAIL(QDR_ERR_ARGUMENT,
                          "safetensors: a header of %zu bytes; readers take %d at most: shorten the metadata, or write "
                          "several files",
                          all, QDRI_SAFETENSORS_MAX_HEADER);
    else
        status = qdri_calloc(all, 1, "a safetensors header", (void **)text);
    if (status == QDR_OK) {
        memset(*text, ' ', all);
        if (json_dumpb(root, *text, all, JSON_COMPACT) != length) status = no_memory(n);
    }
    json_decref(root);
    if (status != QDR_OK) {
        free(*text);
        *text = NULL;
        return status;
    }
    *n_bytes = all - QDRI_SAFETENSORS_LENGTH_BYTES;
    *crc_at = CRC_AT;
    return QDR_OK;
}
