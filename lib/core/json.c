/* SPDX-License-Identifier: Apache-2.0 */
/* JSON documents: reading, checking, accessing values. */
#include "core/json.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/input.h"
#include "core/json_text.h"
#include "core/size.h"
#include "quadrille_private/input.h"

enum { MOST_STEPS = 32 };

struct qdri_json {
    json_t *root;
    qdri_shown_name name;
};

/* ---- reading ---- */

void qdri_json_put_quoted(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text; text++) {
        if ((unsigned char)*text < ' ')
            fprintf(file, "\\u%04x", (unsigned)*text);
        else
            fprintf(file, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
    fputc('"', file);
}

void qdri_json_printable(const char *text, char *printable, size_t bytes)
{
    size_t i = 0;
    for (; text[i] && i + 1 < bytes; i++) printable[i] = (char)(text[i] >= ' ' && text[i] <= '~' ? text[i] : '?');
    printable[i] = '\0';
}

static qdr_status read_text(const char *text, size_t bytes, const char *name, json_t **root)
{
    qdri_json_mistake mistake;
    char why[QDRI_JSON_WHY_BYTES];
    const qdr_status status = qdri_json_text_read(text, bytes, root, &mistake);
    if (status == QDR_OK) return QDR_OK;
    if (status == QDR_ERR_MEMORY) return QDR_FAIL(QDR_ERR_MEMORY, "out of memory for the JSON of %s; free some", name);
    qdri_json_printable(mistake.why, why, sizeof why);
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s, line %d: %s; this is not JSON", name, mistake.line, why);
}

qdr_status qdr_json_read(const char *text, size_t bytes, const char *name, json_t **root)
{
    if (!text || !name || !root)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "json: the %s pointer is NULL", !text ? "text" : !name ? "name" : "root");
    return read_text(text, bytes, qdri_shown(name).text, root);
}

static qdr_status parse_text(const char *text, size_t bytes, size_t most_bytes, qdri_json *document)
{
    if (bytes <= most_bytes) return read_text(text, bytes, document->name.text, &document->root);
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is larger than %zu MiB, the limit for JSON files", document->name.text,
                    most_bytes >> 20);
}

qdr_status qdri_json_parse_within(const char *text, size_t bytes, size_t most_bytes, const char *name,
                                  qdri_json **document)
{
    QDR_TRY(QDRI_NEW(1, "a JSON document", document));
    (*document)->name = qdri_shown(name);
    const qdr_status status = parse_text(text, bytes, most_bytes, *document);
    if (status != QDR_OK) qdri_json_free(document);
    return status;
}

qdr_status qdri_json_parse(const char *text, size_t bytes, const char *name, qdri_json **document)
{
    return qdri_json_parse_within(text, bytes, QDRI_JSON_MAX_BYTES, name, document);
}

qdr_status qdri_json_load(const char *path, qdri_json **document)
{
    char *text = NULL;
    size_t bytes;
    *document = NULL;
    QDR_TRY(qdr_input_read_text(path, QDRI_JSON_MAX_BYTES, &text, &bytes));
    const qdr_status status = qdri_json_parse(text, bytes, path, document);
    free(text);
    return status;
}

void qdri_json_free(qdri_json **document)
{
    if (!*document) return;
    json_decref((*document)->root);
    free(*document);
    *document = NULL;
}

/* ---- places ---- */

qdr_status qdri_json_root(const qdri_json *document, qdri_json_node *root)
{
    *root = (qdri_json_node){.document = document, .value = document->root};
    if (json_is_object(document->root)) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s holds a list; an object is needed: {\"key\": value, ...}",
                    document->name.text);
}

qdri_json_node qdri_json_get(const qdri_json_node *object, const char *key)
{
    return (qdri_json_node){
        .document = object->document, .parent = object, .key = key, .value = json_object_get(object->value, key)};
}

const char *qdri_json_next_key(const qdri_json_node *object, const char *key)
{
    json_t *value = (json_t *)object->value; /* which jansson's iterators do not change */
    void *at = key ? json_object_iter_next(value, json_object_iter_at(value, key)) : json_object_iter(value);
    return at ? json_object_iter_key(at) : NULL;
}

qdri_json_node qdri_json_at(const qdri_json_node *list, size_t index)
{
    return (qdri_json_node){
        .document = list->document, .parent = list, .index = index, .value = json_array_get(list->value, index)};
}

qdri_json_kind qdri_json_kind_of(qdri_json_node node)
{
    const json_t *value = node.value;
    if (!value) return QDRI_JSON_ABSENT;
    switch (json_typeof(value)) {
    case JSON_OBJECT: return QDRI_JSON_OBJECT;
    case JSON_ARRAY: return QDRI_JSON_LIST;
    case JSON_STRING: return QDRI_JSON_STRING;
    case JSON_INTEGER:
    case JSON_REAL: return QDRI_JSON_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE: return QDRI_JSON_FLAG;
    case JSON_NULL: break;
    }
    return QDRI_JSON_NULL;
}

int qdri_json_has(qdri_json_node node) { return qdri_json_kind_of(node) > QDRI_JSON_NULL; }

/* ---- sentences ---- */

/* a.b[2].c; truncated if too long, and after n_most steps: a node may have been stored inside its parent by mistake.
 * Returns its length. */
static size_t print_path(const qdri_json_node *node, int n_most, char path[QDRI_JSON_PATH_BYTES])
{
    path[0] = '\0';
    if (!node->parent || n_most == 0) return 0;
    const size_t used = print_path(node->parent, n_most - 1, path), room = QDRI_JSON_PATH_BYTES - used;
    if (node->key)
        snprintf(path + used, room, "%s%s", used ? "." : "", node->key);
    else
        snprintf(path + used, room, "[%zu]", node->index);
    return used + strlen(path + used);
}

qdri_json_location qdri_json_where(qdri_json_node node)
{
    qdri_json_location place;
    char path[QDRI_JSON_PATH_BYTES], shown[QDRI_JSON_PATH_BYTES];
    (void)print_path(&node, MOST_STEPS, path);
    qdri_json_printable(path, shown, sizeof shown);
    snprintf(place.text, sizeof place.text, "%s: key '%s'", node.document->name.text, shown);
    return place;
}

qdri_json_value_text qdri_json_shown(qdri_json_node node)
{
    const json_t *value = node.value;
    qdri_json_value_text found = {"missing"};
    char word[40];
    if (json_is_integer(value)) {
        snprintf(found.text, sizeof found.text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    } else if (json_is_real(value)) {
        const double real = json_real_value(value); /* 1.0 is not the integer 1 */
        snprintf(found.text, sizeof found.text, "%g%s", real, fabs(real) < 1e6 && floor(real) == real ? ".0" : "");
    } else if (json_is_string(value)) {
        qdri_json_printable(json_string_value(value), word, sizeof word);
        snprintf(found.text, sizeof found.text, "\"%s\"", word);
    } else if (value) {
        snprintf(found.text, sizeof found.text, "%s",
                 json_is_null(value)     ? "null"
                 : json_is_object(value) ? "an object"
                 : json_is_array(value)  ? "a list"
                 : json_is_true(value)   ? "true"
                                         : "false");
    }
    return found;
}

static qdr_status needed(qdri_json_node node, const char *what)
{
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is %s; %s is needed", qdri_json_where(node).text, qdri_json_shown(node).text,
                    what);
}

/* ---- values ---- */

qdr_status qdri_json_not_null(qdri_json_node node)
{
    if (qdri_json_kind_of(node) != QDRI_JSON_NULL) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is null; give it a value, or leave it out", qdri_json_where(node).text);
}

qdr_status qdri_json_object(qdri_json_node node, qdri_json_node *object)
{
    *object = node;
    return json_is_object((const json_t *)node.value) ? QDR_OK : needed(node, "an object");
}

qdr_status qdri_json_list(qdri_json_node node, qdri_json_node *list, size_t *n)
{
    *list = node;
    *n = json_array_size(node.value);
    return json_is_array((const json_t *)node.value) ? QDR_OK : needed(node, "a list");
}

/* Accepts whole numbers in either notation; beyond 2^53 a real number is not known to be whole. */
static int whole_number(qdri_json_node node, int64_t *value)
{
    const json_t *json = node.value;
    const double real = json_is_real(json) ? json_real_value(json) : 0;
    if (json_is_integer(json))
        *value = json_integer_value(json);
    else if (json_is_real(json) && fabs(real) <= 0x1p53 && floor(real) == real)
        *value = (int64_t)real;
    else
        return 0;
    return 1;
}

qdr_status qdri_json_int(qdri_json_node node, int64_t least, int64_t most, int64_t *value)
{
    char range[80];
    int64_t number = 0;
    *value = 0;
    const int whole = whole_number(node, &number);
    if (whole && number >= least && number <= most) {
        *value = number;
        return QDR_OK;
    }
    /* Practically unlimited bounds are mentioned only if they are violated. */
    if (most < INT32_MAX || (whole && number > most))
        snprintf(range, sizeof range, "a whole number from %" PRId64 " to %" PRId64, least, most);
    else
        snprintf(range, sizeof range, "a whole number >= %" PRId64, least);
    return needed(node, range);
}

qdr_status qdri_json_count(qdri_json_node node, int64_t *value)
{
    const json_t *json = node.value;
    *value = json_is_integer(json) ? json_integer_value(json) : 0;
    return json_is_integer(json) && *value >= 0 ? QDR_OK : needed(node, "an integer >= 0, without a point,");
}

qdr_status qdri_json_int_or(qdri_json_node node, int64_t least, int64_t most, int64_t otherwise, int64_t *value)
{
    if (qdri_json_has(node)) return qdri_json_int(node, least, most, value);
    *value = otherwise;
    return QDR_OK;
}

qdr_status qdri_json_number(qdri_json_node node, double least, double most, double *value)
{
    char range[80];
    const double number = json_number_value(node.value);
    *value = 0;
    if (json_is_number((const json_t *)node.value) && number >= least && number <= most) {
        *value = number;
        return QDR_OK;
    }
    if (isinf(most))
        snprintf(range, sizeof range, "a number >= %g", least);
    else
        snprintf(range, sizeof range, "a number from %g to %g", least, most);
    return needed(node, range);
}

qdr_status qdri_json_number_or(qdri_json_node node, double least, double most, double otherwise, double *value)
{
    if (qdri_json_has(node)) return qdri_json_number(node, least, most, value);
    *value = otherwise;
    return QDR_OK;
}

qdr_status qdri_json_flag(qdri_json_node node, int *value)
{
    const json_t *json = node.value;
    *value = json_is_true(json);
    return json_is_boolean(json) ? QDR_OK : needed(node, "true or false");
}

qdr_status qdri_json_flag_or(qdri_json_node node, int otherwise, int *value)
{
    if (qdri_json_has(node)) return qdri_json_flag(node, value);
    *value = otherwise;
    return QDR_OK;
}

qdr_status qdri_json_string(qdri_json_node node, size_t max_bytes, const char **value)
{
    char what[64] = "a string";
    *value = NULL;
    const char *text = json_string_value(node.value);
    if (text && (max_bytes == 0 || strlen(text) < max_bytes)) {
        *value = text;
        return QDR_OK;
    }
    if (max_bytes) snprintf(what, sizeof what, "a string of at most %zu bytes", max_bytes - 1);
    return needed(node, what);
}

qdr_status qdri_json_string_or(qdri_json_node node, size_t max_bytes, const char *otherwise, const char **value)
{
    if (qdri_json_has(node)) return qdri_json_string(node, max_bytes, value);
    *value = otherwise;
    return QDR_OK;
}

qdr_status qdri_json_word(qdri_json_node node, const char *const *words, int n, int *word)
{
    char list[160] = "one of";
    const char *text = json_string_value(node.value);
    *word = 0;
    for (int i = 0; i < n; i++) {
        if (text && strcmp(text, words[i]) == 0) {
            *word = i;
            return QDR_OK;
        }
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : " ", words[i]);
    }
    return needed(node, list);
}
