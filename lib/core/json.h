/* SPDX-License-Identifier: Apache-2.0 */
/* JSON files written by people: machines and networks. A document is read as a whole; its values are then read one by
 * one, each with the required type and range, and errors are reported in one sentence with the file and the key:
 *
 *   my.json: key 'links[1].latency_us' is -3; a number >= 0 is needed
 *
 *   qdri_json_node root, level;
 *   QDR_TRY(qdri_json_root(document, &root));
 *   QDR_TRY(qdri_json_int(qdri_json_get(&root, "nodes"), 1, INT32_MAX, &n_nodes));
 *   QDR_TRY(qdri_json_object(qdri_json_get(&root, "level"), &level));
 *   QDR_TRY(qdri_json_number_or(qdri_json_get(&level, "secs"), 0, 1, 1e-6, &secs));
 *
 * Keys that are never read are allowed; a key that occurs twice in one object is not. null counts as absent. A text has
 * at most 16 MiB and jansson's 2048 levels. Messages are printable ASCII. */
#ifndef QDRI_CORE_JSON_H
#define QDRI_CORE_JSON_H

#include <stdio.h>

#include "core/status.h"

enum { QDRI_JSON_MAX_BYTES = 16 << 20, QDRI_JSON_PATH_BYTES = 96 };

typedef struct qdri_json qdri_json;

/* A place in a document, whose value may be absent. Valid as long as the document and the node of its parent, which
 * must not be moved or changed. */
typedef struct qdri_json_node {
    const qdri_json *document;
    const struct qdri_json_node *parent; /* NULL: the root */
    const char *key; /* NULL: an item of a list */
    size_t index;
    const void *value; /* NULL: absent */
} qdri_json_node;

/* What a value is. */
typedef enum qdri_json_kind {
    QDRI_JSON_ABSENT = 0,
    QDRI_JSON_NULL,
    QDRI_JSON_FLAG,
    QDRI_JSON_NUMBER,
    QDRI_JSON_STRING,
    QDRI_JSON_LIST,
    QDRI_JSON_OBJECT
} qdri_json_kind;

/* Reads a file; "-" is standard input. *document is NULL after an error.
 * @retval QDR_ERR_IO        it cannot be opened or read
 * @retval QDR_ERR_ARGUMENT  it is too large or too deep, or not JSON
 * @retval QDR_ERR_MEMORY    no judgement of the text */
QDR_NODISCARD qdr_status qdri_json_load(const char *path, qdri_json **document);
/* The same for a text of `bytes` bytes. `name` is its name in messages. */
QDR_NODISCARD qdr_status qdri_json_parse(const char *text, size_t bytes, const char *name, qdri_json **document);
/* The same with another limit than QDRI_JSON_MAX_BYTES. */
QDR_NODISCARD qdr_status qdri_json_parse_within(const char *text, size_t bytes, size_t most_bytes, const char *name,
                                                qdri_json **document);
void qdri_json_free(qdri_json **document);

/* The outermost value, which must be an object. */
QDR_NODISCARD qdr_status qdri_json_root(const qdri_json *document, qdri_json_node *root);
/* A member of an object; absent if the object itself is. The key must live as long as the node. */
qdri_json_node qdri_json_get(const qdri_json_node *object, const char *key);
/* The key that follows `key` in an object, or the first key if `key` is NULL; returns NULL after the last. */
const char *qdri_json_next_key(const qdri_json_node *object, const char *key);
/* An item of a list, absent beyond its end. */
qdri_json_node qdri_json_at(const qdri_json_node *list, size_t index);
qdri_json_kind qdri_json_kind_of(qdri_json_node node);
/* 1: present, and not null. */
int qdri_json_has(qdri_json_node node);
/* For files whose keys are left out rather than null. */
QDR_NODISCARD qdr_status qdri_json_not_null(qdri_json_node node);

/* Values. An absent or null value is an error unless a default is given. After an error the result is 0 or NULL.
 * @retval QDR_ERR_ARGUMENT  absent, of another type, or out of range */
QDR_NODISCARD qdr_status qdri_json_object(qdri_json_node node, qdri_json_node *object);
QDR_NODISCARD qdr_status qdri_json_list(qdri_json_node node, qdri_json_node *list, size_t *n);
/* A whole number (also written as 1e9); most = INT64_MAX: messages name no upper bound. */
QDR_NODISCARD qdr_status qdri_json_int(qdri_json_node node, int64_t least, int64_t most, int64_t *value);
/* An integer >= 0 written as one: not 1.0, which other programs refuse. */
QDR_NODISCARD qdr_status qdri_json_count(qdri_json_node node, int64_t *value);
QDR_NODISCARD qdr_status qdri_json_int_or(qdri_json_node node, int64_t least, int64_t most, int64_t otherwise,
                                          int64_t *value);
/* A finite number; most = INFINITY: messages name no upper bound. */
QDR_NODISCARD qdr_status qdri_json_number(qdri_json_node node, double least, double most, double *value);
QDR_NODISCARD qdr_status qdri_json_number_or(qdri_json_node node, double least, double most, double otherwise,
                                             double *value);
/* true or false. */
QDR_NODISCARD qdr_status qdri_json_flag(qdri_json_node node, int *value);
QDR_NODISCARD qdr_status qdri_json_flag_or(qdri_json_node node, int otherwise, int *value);
/* A string of fewer than max_bytes bytes (0: any length), in the document's memory. */
QDR_NODISCARD qdr_status qdri_json_string(qdri_json_node node, size_t max_bytes, const char **value);
QDR_NODISCARD qdr_status qdri_json_string_or(qdri_json_node node, size_t max_bytes, const char *otherwise,
                                             const char **value);
/* One of n words. */
QDR_NODISCARD qdr_status qdri_json_word(qdri_json_node node, const char *const *words, int n, int *word);

/* "FILE: key 'a.b[2]'", for messages of callers that check a value further. */
typedef struct qdri_json_location {
    char text[352];
} qdri_json_location;
qdri_json_location qdri_json_where(qdri_json_node node);
/* A value, or what it is: "4", "\"silu\"", "a list", "missing". */
typedef struct qdri_json_value_text {
    char text[64];
} qdri_json_value_text;
qdri_json_value_text qdri_json_shown(qdri_json_node node);
/* `text` with '?' for everything but printable ASCII, at most `bytes` including its terminating zero. For messages. */
void qdri_json_printable(const char *text, char *printable, size_t bytes);

/* A string in quotes. */
void qdri_json_put_quoted(FILE *file, const char *text);

#endif
